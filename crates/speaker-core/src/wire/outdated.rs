// SPDX-License-Identifier: Apache-2.0
//! What a speaker that has lost the API is not to answer for any more, by the word of those that have it.
//!
//! Coming last in elections is enough for whatever another one can announce. What nobody else can, by all that it knows, it
//! goes on answering for: an endpoint may be on its node alone. Whether that is still so it cannot know, but others do: it
//! asks one after the other of them about what it holds. Of what is not answered it goes on: unknown is not gone.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ferrolb_announce::owner;
use ferrolb_net_types::{NodeName, Time};

use super::Wire;
use super::answering::Manner;
use super::membership::{Machine, Word};

#[derive(Debug, Default)]
pub(super) struct Outdated {
    /// What others say is not this one's.
    void: BTreeSet<IpAddr>,
    /// When to ask next, while there is somebody to ask.
    next: Option<Time>,
    /// When what is known here will have been read anew, since the API is back.
    renewed: Option<Time>,
    /// How often it has asked.
    asked: usize,
}

impl Outdated {
    /// Whether this node is not to answer for the address though it would lead it by what it knows.
    pub(super) fn is_void(&self, ip: IpAddr) -> bool {
        self.void.contains(&ip)
    }

    /// What is known of the address is new.
    pub(super) fn replanned(&mut self, ip: IpAddr) {
        self.void.remove(&ip);
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.next.into_iter().chain(self.renewed).min()
    }
}

impl Wire {
    /// Asks about what is held, if others know more and it is time. Believes itself again when it has the API, but for what
    /// it has not read yet.
    pub(super) fn ask_the_informed(&mut self, now: Time) {
        let informed = self.informed();
        if informed.is_empty() {
            self.outdated.next = None;
            let has_api = self.gossip.as_ref().is_some_and(Machine::has_api);
            if !has_api || self.outdated.void.is_empty() {
                self.outdated.renewed = None;
            } else if *self.outdated.renewed.get_or_insert(now + READ_WITHIN) <= now {
                self.outdated.renewed = None;
                for ip in std::mem::take(&mut self.outdated.void) {
                    self.decide(now, ip, Manner::HandOver);
                }
            }
        } else if self.outdated.next.is_none_or(|next| next <= now) {
            (self.outdated.next, self.outdated.renewed) = (Some(now + ASK_EVERY), None);
            self.outdated.asked = self.outdated.asked.wrapping_add(1);
            let whom = &informed[self.outdated.asked % informed.len()];
            let led = self.owned.iter().copied().filter(|ip| self.leads_alone(*ip));
            let held: Vec<IpAddr> = led.chain(self.outdated.void.iter().copied()).collect();
            let word = Word::Held(self.node.clone());
            if let Some(gossip) = &mut self.gossip {
                gossip.tell(now, whom, &word, &held);
            }
        }
    }

    /// Another member has said something of these addresses.
    pub(super) fn told(&mut self, now: Time, word: &Word, addresses: &[IpAddr]) {
        match word {
            Word::GivenUp => addresses.iter().for_each(|ip| self.left_to_this_one(now, *ip)),
            Word::Held(node) => self.say_whose(now, node, addresses),
            Word::Void | Word::Yours if self.informed().is_empty() => {}
            Word::Void => {
                for ip in addresses {
                    if self.owned.contains(ip) && self.outdated.void.insert(*ip) {
                        self.decide(now, *ip, Manner::HandOver);
                    }
                }
            }
            Word::Yours => {
                for ip in addresses {
                    if self.outdated.void.remove(ip) {
                        self.decide(now, *ip, Manner::HandOver);
                    }
                }
            }
        }
    }

    /// Says which of these addresses are the node's by what is known here.
    fn say_whose(&mut self, now: Time, node: &NodeName, addresses: &[IpAddr]) {
        let (Some(plan), Some(members)) = (&self.plan, &self.members) else { return };
        // Of one that is no member yet nothing would be its own.
        if !members.contains(node) {
            return;
        }
        let leads = |ip: &IpAddr| plan.get(ip).and_then(|address| owner(address, members)) == Some(node);
        let (yours, void): (Vec<IpAddr>, Vec<IpAddr>) = addresses.iter().copied().partition(leads);
        if let Some(gossip) = self.gossip.as_mut().filter(|gossip| gossip.has_api()) {
            gossip.tell(now, node, &Word::Void, &void);
            gossip.tell(now, node, &Word::Yours, &yours);
        }
    }

    fn informed(&self) -> Vec<NodeName> {
        self.gossip.as_ref().map(Machine::better_informed).unwrap_or_default()
    }
}

/// How long reading everything anew may take once the API is back.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// How often it is asked what has become of what is held.
const ASK_EVERY: Duration = Duration::from_secs(3);
