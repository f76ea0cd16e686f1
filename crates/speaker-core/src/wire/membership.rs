// SPDX-License-Identifier: Apache-2.0
//! Who the members are, and whether this one may answer among them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use ferrolb_announce::{Members, Standing};
use ferrolb_gossip::{Engine, Input, Output, Role, Settings};
use ferrolb_net_types::{NodeName, Time};

/// What the member list is told before it starts.
#[derive(Clone, Debug)]
pub struct Gossip {
    /// Settings of the member; its name is the node's. Role and metadata are the wire's business.
    pub settings: Settings,
    /// 32 bytes that nobody can guess and nobody has used.
    pub seed: [u8; 32],
}

/// Another speaker whose Pod runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its node.
    pub node: NodeName,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Whether a speaker that starts waits until it has heard it: its Pod is not terminating, nor on a node that is
    /// not ready.
    pub awaited: bool,
}

/// Who the members are, as the control side should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Whether this speaker may announce: it has learnt who else does.
    pub eligible: bool,
    /// The members, this one included once it is eligible.
    pub members: Members,
    /// What keeps others that run from being members.
    pub troubles: BTreeSet<Trouble>,
}

/// Another speaker runs, but is no member, or not a good one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trouble {
    /// Its node.
    pub node: NodeName,
    /// Where it should be reached.
    pub address: SocketAddr,
    /// Why it is not.
    pub cause: Cause,
}

/// What is wrong with a speaker that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Cause {
    /// It uses another key, or one of the two uses none.
    #[error("it uses another key: the Secret's content or the rule for it differs")]
    Key,
    /// Nothing listens on its port.
    #[error("its port is closed")]
    Closed,
    /// Nothing comes back from there.
    #[error("it does not answer")]
    Silent,
    /// Streams pass, datagrams do not.
    #[error("datagrams to or from it are dropped on the way: UDP is blocked")]
    Datagrams,
    /// Its name is in use at another address.
    #[error("its name is still held by another address")]
    Name,
    /// It speaks a version of the protocol that not all understand.
    #[error("its protocol version does not go together with the others'")]
    Version,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.node, self.address, self.cause)
    }
}

/// The gossip engine and what is made of it.
#[derive(Debug)]
pub(super) struct Machine {
    node: NodeName,
    engine: Engine,
    outputs: std::collections::VecDeque<Output>,
    told: Option<Membership>,
}

impl Machine {
    pub(super) fn new(node: &NodeName, gossip: Gossip) -> Self {
        let settings =
            Settings { name: node.as_str().into(), role: Role::Reader, meta: None, ..gossip.settings };
        let engine = Engine::new(Time::ZERO, settings, gossip.seed);
        Self { node: node.clone(), engine, outputs: std::collections::VecDeque::new(), told: None }
    }

    pub(super) fn handle(&mut self, now: Time, input: Input<'_>) {
        self.engine.handle(now, input);
        self.drain();
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
        self.drain();
    }

    pub(super) fn set_peers(&mut self, now: Time, peers: &[Peer]) {
        let addresses: Vec<_> = peers.iter().map(|peer| peer.address).collect();
        self.engine.handle(now, Input::Candidates(&addresses));
        self.engine.handle(now, Input::Participate);
        self.drain();
    }

    pub(super) fn set_api(&mut self, _now: Time, _working: bool) {}

    pub(super) fn stop(&mut self, now: Time) {
        self.handle(now, Input::Leave { within: std::time::Duration::from_millis(500) });
    }

    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline()
    }

    /// The membership, if it has changed since the last call.
    pub(super) fn take_news(&mut self) -> Option<Membership> {
        let now = self.membership();
        (self.told.as_ref() != Some(&now)).then(|| {
            self.told = Some(now.clone());
            now
        })
    }

    pub(super) fn membership(&self) -> Membership {
        let members: BTreeMap<NodeName, Standing> = self
            .engine
            .members()
            .filter(|member| member.is_usable())
            .filter_map(|member| Some((NodeName::from(member.name.as_str()?), Standing::Ours)))
            .collect();
        let eligible = members.contains_key(&self.node);
        Membership { eligible, members: Members::Known(members), troubles: BTreeSet::new() }
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll() {
            if let Output::Datagram { .. } | Output::Open { .. } | Output::Answer { .. } | Output::Close(_) =
                output
            {
                self.outputs.push_back(output);
            }
        }
    }
}
