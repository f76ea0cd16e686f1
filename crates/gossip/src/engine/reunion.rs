// SPDX-License-Identifier: Apache-2.0
//! Finding together again: who should be a member and is not is asked for, until it is one.
//!
//! memberlist alone never tries a dead member again, and two halves of a cluster that have given each other up stay
//! apart. All of this is off in a member that behaves exactly as memberlist does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use ferrolb_net_types::Time;

use super::rules::word_of;
use super::{Engine, Output};
use crate::member::Member;
use crate::name::Name;
use crate::settings::Role;
use crate::wire::{Accusation, Message, State};

/// How long after an exchange with a missing member that was heard the next one may start.
const AGAIN: Duration = Duration::from_millis(500);
/// From how many members on knocking becomes rarer.
const SMALL: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Reunion {
    candidates: BTreeSet<SocketAddr>,
    /// Candidates that are no members and have not left, and when an exchange last started because one was heard.
    missing: BTreeMap<SocketAddr, Option<Time>>,
    /// Members that do as memberlist does, with which nothing has been exchanged since this one became a member. Who has
    /// not been told then may hold it for gone, as its former process was, and says so to nobody.
    unmet: BTreeSet<SocketAddr>,
    rejoin_at: Option<Time>,
    knock_at: Option<Time>,
    /// What was just heard made this member refute, or had not heard that it did.
    pub(super) refuted: bool,
}

impl Reunion {
    /// When something is due, where some members may be suspected.
    pub(super) fn deadline(&self, suspicions: bool) -> Option<Time> {
        let knock_at = self.knock_at.filter(|_| suspicions || !self.missing.is_empty());
        [self.rejoin_at, knock_at].into_iter().flatten().min()
    }

    /// A member at this address has died.
    pub(super) fn lost(&mut self, address: SocketAddr) {
        if self.candidates.contains(&address) {
            self.missing.insert(address, None);
        }
    }

    /// Begins again after a leave, which ended it.
    pub(super) fn resume(&mut self, now: Time, rejoin: Duration) {
        if !self.candidates.is_empty() {
            self.rejoin_at = (!rejoin.is_zero()).then_some(now + rejoin);
        }
    }

    /// From now on this is a member: it knocks at the missing and at those that are suspected, candidates or not.
    pub(super) fn participate(&mut self, now: Time, knock: Duration, plain: BTreeSet<SocketAddr>) {
        // Of many, most are told by each other.
        self.unmet = if plain.len() <= SMALL { plain } else { BTreeSet::new() };
        self.knock_at = (!knock.is_zero()).then_some(now + knock);
    }

    /// Everything was exchanged with the member at this address.
    pub(super) fn met(&mut self, address: SocketAddr) {
        self.unmet.remove(&address);
    }

    /// A member at this address is one again.
    pub(super) fn found(&mut self, address: SocketAddr) {
        self.missing.remove(&address);
    }
}

impl Engine {
    pub(super) fn candidates(&mut self, now: Time, addresses: &[SocketAddr]) {
        let own = self.settings.address;
        let candidates: BTreeSet<SocketAddr> =
            addresses.iter().copied().filter(|address| *address != own).collect();
        let there = self.addresses(|state| state != State::Dead);
        let tried = std::mem::take(&mut self.reunion.missing);
        self.reunion.missing = candidates
            .difference(&there)
            .map(|address| (*address, tried.get(address).copied().flatten()))
            .collect();
        let rejoins = !candidates.is_empty() && !self.settings.rejoin.is_zero();
        self.reunion.rejoin_at = rejoins.then(|| self.reunion.rejoin_at.unwrap_or(now));
        self.reunion.candidates = candidates;
    }

    /// Where other members are that do as memberlist does.
    pub(super) fn plain(&self) -> BTreeSet<SocketAddr> {
        let plain =
            |member: &&Member| member.name != self.settings.name && member.is_usable() && is_plain(member);
        self.members.iter().filter(plain).filter_map(Member::socket).collect()
    }

    /// Where members in certain states are.
    fn addresses(&self, wanted: impl Fn(State) -> bool) -> BTreeSet<SocketAddr> {
        self.members
            .iter()
            .filter(|member| wanted(member.state))
            .filter_map(|member| member.socket())
            .collect()
    }

    /// Says at once that this member leaves, so that those that take over need not wait for gossip.
    pub(super) fn say_goodbye(&mut self) {
        let own = self.settings.name.clone();
        let Some(incarnation) = self.members.get(&own).map(|member| member.incarnation) else { return };
        let goodbye = Message::Dead(Accusation { incarnation, node: own.clone(), from: own });
        self.tell_some(SMALL, &goodbye, |_| true);
    }

    /// Says at once what has changed about this member: gossip alone leaves out somebody now and then, who then has to
    /// wait for an exchange.
    pub(super) fn say_what_changed(&mut self) {
        if let Some(alive) = self.own_alive() {
            self.tell_some(SMALL, &alive, |_| true);
        }
    }

    /// Says at once that this member is one, to every other: from now on some of what they had is its own.
    pub(super) fn say_hello(&mut self) {
        if let Some(alive) = self.own_alive() {
            self.tell_some(usize::MAX, &alive, |_| true);
        }
    }

    /// Tells so many of these members, who gossip it on.
    fn tell_some(&mut self, count: usize, message: &Message, whom: impl Fn(&Member) -> bool) {
        if self.settings.knock.is_zero() {
            return;
        }
        let own = &self.settings.name;
        let other = |member: &Member| member.name != *own && member.is_usable() && whom(member);
        let told = if count < self.members.len() {
            self.members.pick(&mut self.random, count, other)
        } else {
            self.members.iter().filter(|member| other(member)).cloned().collect()
        };
        for member in told {
            self.send_to(&member, std::slice::from_ref(message));
        }
    }

    /// Somebody is said to be alive, or to be otherwise than it is known, by a number that is too low to count: it may be a
    /// new process, which has not heard what was said of the former one. It is told, so that it overrules that.
    pub(super) fn tell_what_is_held(&mut self, member: &Member) {
        if self.settings.knock.is_zero() {
            return;
        }
        let word = match member.state {
            State::Alive | State::Suspect => word_of(member),
            State::Dead | State::Left => {
                let by_itself = member.state == State::Left;
                let from = if by_itself { member.name.clone() } else { self.settings.name.clone() };
                Message::Dead(Accusation { incarnation: member.incarnation, node: member.name.clone(), from })
            }
        };
        self.send_to(member, &[word]);
    }

    /// Joins and asks those that are missing, when it is time.
    pub(super) fn reunite(&mut self, now: Time) {
        if self.has_left {
            (self.reunion.rejoin_at, self.reunion.knock_at) = (None, None);
            return;
        }
        if self.reunion.rejoin_at.is_some_and(|at| at <= now) {
            let interval = self.settings.rejoin;
            let jitter = self.random.part(interval / 2);
            self.reunion.rejoin_at = Some(now + (interval - interval / 4 + jitter));
            // Those that have left are joined too: their Pods run, so they are back, or will be.
            let there = self.addresses(|state| matches!(state, State::Alive | State::Suspect));
            let absent = self.reunion.candidates.difference(&there);
            let unmet = self.reunion.unmet.intersection(&there);
            for address in absent.chain(unmet).copied().collect::<Vec<SocketAddr>>() {
                self.exchange(now, address);
            }
        }
        if self.reunion.knock_at.is_some_and(|at| at <= now) {
            let rarer = u32::try_from(self.members.len().div_ceil(SMALL)).unwrap_or(u32::MAX);
            self.reunion.knock_at = Some(now + self.settings.knock.saturating_mul(rarer.max(1)));
            if self.role == Role::Member {
                self.knock();
            }
        }
    }

    /// Asks the missing whether they are back. Whoever has taken the address of one that is known does not answer.
    fn knock(&mut self) {
        let names: BTreeMap<SocketAddr, Name> =
            self.members.iter().filter_map(|member| Some((member.socket()?, member.name.clone()))).collect();
        let missing: Vec<SocketAddr> = self.reunion.missing.keys().copied().collect();
        for address in missing {
            let anybody = Name::from("");
            self.ask(address, names.get(&address).unwrap_or(&anybody));
        }
        self.tell_suspects();
    }

    /// Tells suspected members again and again that they are, so that whoever can be reached again refutes at once: its
    /// turn to be probed may come when the suspicion has long run out.
    fn tell_suspects(&mut self) {
        let suspected: Vec<Member> =
            self.suspicions.keys().filter_map(|name| self.members.get(name)).cloned().collect();
        for member in suspected {
            let word = Accusation {
                incarnation: member.incarnation,
                node: member.name.clone(),
                from: self.settings.name.clone(),
            };
            self.send_to(&member, &[Message::Suspect(word)]);
        }
    }

    /// Somebody with our key was heard from there. If it is missed, it is time to talk.
    pub(super) fn heard(&mut self, now: Time, source: SocketAddr) {
        if self.settings.knock.is_zero() || self.has_left {
            return;
        }
        if let Some(tried) = self.reunion.missing.get_mut(&source)
            && tried.is_none_or(|tried| now - tried >= AGAIN)
        {
            *tried = Some(now);
            self.outputs.push_back(Output::Heard(source));
            self.exchange_at_once(now, source);
        }
    }

    /// A member that was suspected or given up is there again. It may have given up others meanwhile; and who does exactly as
    /// memberlist does tells nobody whom it holds for dead, unless it has a reason to exchange everything. Some members give
    /// it one: the others learn from them that they have to refute. Ours, which are known by their metadata, say it by
    /// themselves.
    pub(super) fn back(&mut self, now: Time, member: &Member) {
        let enabled = !self.settings.knock.is_zero() && self.role == Role::Member && !self.has_left;
        let among_some = self.random.index(self.members.len()) < SMALL;
        if let Some(address) = member.socket().filter(|_| enabled && among_some && is_plain(member)) {
            self.exchange_at_once(now, address);
        }
    }

    /// Somebody leaves. Who does as memberlist does hears of it by a few datagrams to some, and now and then by none, and then
    /// holds the member for alive until its suspicion runs out.
    pub(super) fn pass_on_goodbye(&mut self, word: &Accusation) {
        let goodbye = Message::Dead(word.clone());
        self.tell_some(SMALL, &goodbye, |member| member.name != word.node && is_plain(member));
    }

    /// If what a datagram said made this member refute, or is what it has refuted before, tells its sender: gossip takes a
    /// while, and leaves out who holds this one for dead.
    pub(super) fn refute_to(&mut self, sender: SocketAddr) {
        if let Some(alive) = self.refutation() {
            self.send(sender, &[alive.encode()], false);
        }
    }

    /// The same for a list that was merged. A stream does not always come from the address of its member; then all that are
    /// missed are told.
    pub(super) fn tell_refutation(&mut self, peer: SocketAddr) {
        let Some(alive) = self.refutation() else { return };
        let own = &self.settings.name;
        let at_peer = |member: &Member| {
            member.name != *own && member.socket().is_some_and(|address| address.ip() == peer.ip())
        };
        let missed = |member: &Member| {
            member.socket().is_some_and(|address| self.reunion.missing.contains_key(&address))
        };
        let mut told: Vec<Member> = self.members.iter().filter(|member| at_peer(member)).cloned().collect();
        if told.is_empty() {
            told = self.members.iter().filter(|member| missed(member)).cloned().collect();
        }
        for member in told {
            self.send_to(&member, std::slice::from_ref(&alive));
        }
    }
    fn refutation(&mut self) -> Option<Message> {
        let refuted = std::mem::take(&mut self.reunion.refuted) && !self.settings.knock.is_zero();
        self.own_alive().filter(|_| refuted)
    }
}

/// Whether the member does as memberlist does, as far as one can tell: whatever else it may do is said in its metadata.
fn is_plain(member: &Member) -> bool {
    member.meta.as_deref().unwrap_or_default().is_empty()
}
