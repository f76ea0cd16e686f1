// SPDX-License-Identifier: Apache-2.0
//! What keeps speakers that run from being members, as far as this one can tell.
//!
//! An exchange that fails says why; so does what comes in and cannot be read. A speaker that starts or ends is
//! refused for a moment, so that becomes a trouble only when it lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrolb_gossip::wire::StreamError;
use ferrolb_gossip::{ExchangeError, Name, Notice, StreamFailure};
use ferrolb_net_types::{NodeName, Time};

use super::Peer;

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
    /// It uses another key, or only one of the two uses one.
    #[error("it uses another key")]
    Key,
    /// It uses a label, or another one.
    #[error("it belongs to a member list with another label")]
    Label,
    /// Nothing listens on its port.
    #[error("its port is closed")]
    Closed,
    /// Nothing comes back from there.
    #[error("it does not answer")]
    Silent,
    /// It answers, but not on streams.
    #[error("it answers datagrams (UDP), but no streams (TCP)")]
    Streams,
    /// It answers, but only on streams.
    #[error("it answers streams (TCP), but no datagrams (UDP)")]
    Datagrams,
    /// Its name is in use at another address.
    #[error("its name is still held by another address")]
    Name,
    /// It speaks a version of the protocol that not all understand.
    #[error("its version of the protocol does not go together with the others'")]
    Version,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.node, self.address, self.cause)
    }
}

/// What is known of those that should be members.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    peers: BTreeMap<SocketAddr, Peer>,
    /// Those with which exchanges fail.
    failing: BTreeMap<SocketAddr, Failing>,
    /// What the engine noticed.
    noticed: BTreeMap<Trouble, Noticed>,
    /// When members came that should be ones.
    came: BTreeMap<NodeName, Time>,
}

/// Exchanges that fail, with one address.
#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Time,
    /// Since when they do so for a reason that a restart does not explain.
    refused: Option<Time>,
    /// How the last one did.
    cause: Cause,
}

impl Failing {
    fn again(&mut self, now: Time, cause: Cause) {
        self.cause = cause;
        if !is_passing(cause) {
            self.refused.get_or_insert(now);
        }
    }

    /// Since when, if no restart explains how the last one failed.
    fn refused(&self) -> Option<Time> {
        self.refused.filter(|_| !is_passing(self.cause))
    }
}

/// When something was noticed.
#[derive(Clone, Copy, Debug)]
struct Noticed {
    first: Time,
    last: Time,
}

impl Troubles {
    /// These should be members now.
    pub(super) fn set_peers(&mut self, peers: &[Peer]) {
        self.peers = peers.iter().map(|peer| (peer.address, peer.clone())).collect();
        self.failing.retain(|address, _| self.peers.contains_key(address));
        self.noticed.retain(|trouble, _| peers.iter().any(|peer| peer.node == trouble.node));
        self.came.retain(|node, _| peers.iter().any(|peer| peer.node == *node));
    }

    /// An exchange with this address is over.
    pub(super) fn exchanged(&mut self, now: Time, with: SocketAddr, result: &Result<usize, ExchangeError>) {
        match result {
            Ok(_) => {
                self.failing.remove(&with);
                self.noticed.retain(|trouble, _| {
                    trouble.address != with || !matches!(trouble.cause, Cause::Key | Cause::Label)
                });
            }
            Err(error) if self.peers.contains_key(&with) => {
                let cause = cause(error);
                let failing = self.failing.entry(with);
                failing.or_insert(Failing { since: now, refused: None, cause }).again(now, cause);
            }
            Err(_) => {}
        }
    }

    /// It is a member again, so it was understood, and its name is its own.
    pub(super) fn joined(&mut self, now: Time, node: &NodeName) {
        if self.peers.values().any(|peer| peer.node == *node) {
            self.came.insert(node.clone(), now);
        }
        let of = |address: &SocketAddr| self.peers.get(address).is_some_and(|peer| peer.node == *node);
        self.failing.retain(|address, _| !of(address));
        self.noticed.retain(|trouble, _| {
            // Each other cause is one of exchanges that fail.
            trouble.node != *node
        });
    }

    /// The engine noticed something.
    pub(super) fn notice(&mut self, now: Time, notice: &Notice) {
        let found: Vec<Trouble> = match notice {
            Notice::Undecryptable(ip) => self.at(*ip, Cause::Key),
            Notice::Label(ip) => self.at(*ip, Cause::Label),
            Notice::DatagramsBlocked(name) => self.named(name, Cause::Datagrams),
            Notice::DatagramsPass(name) => {
                for trouble in self.named(name, Cause::Datagrams) {
                    self.noticed.remove(&trouble);
                }
                return;
            }
            // Others have not heard yet that it is elsewhere now, and go on saying where it was.
            Notice::Conflict { name, .. } if self.came_lately(now, name) => return,
            Notice::Conflict { name, .. } => self.named(name, Cause::Name),
            Notice::Versions(name) => self.named(name, Cause::Version),
        };
        for trouble in found {
            let noticed = self.noticed.entry(trouble).or_insert(Noticed { first: now, last: now });
            if now.since(noticed.last) >= FORGOTTEN {
                noticed.first = now;
            }
            noticed.last = now;
        }
    }

    /// What there is to say. `usable` are the nodes whose speakers are members.
    pub(super) fn current(&self, now: Time, usable: impl Fn(&NodeName) -> bool) -> BTreeSet<Trouble> {
        let noticed = || {
            self.noticed.iter().filter(|(trouble, noticed)| {
                // Anybody can send what no key opens from a member's address.
                let forged = matches!(trouble.cause, Cause::Key | Cause::Label) && usable(&trouble.node);
                !forged && now.since(noticed.last) < FORGOTTEN
            })
        };
        let awaited = |address: &SocketAddr| self.peers.get(address).filter(|peer| peer.awaited);
        let failing = || {
            self.failing
                .iter()
                .filter_map(|(address, failing)| awaited(address).map(|peer| (*address, *failing, peer)))
        };
        // Who refuses little later is told of together with those that are due, and not one by one.
        let latest: Option<Time> = noticed()
            .map(|(_, noticed)| noticed.first)
            .chain(failing().filter_map(|(_, failing, _)| failing.refused()))
            .filter(|since| now.since(*since) >= TOGETHER)
            .max();
        let due = |since: Time| latest.is_some_and(|latest| since <= latest + TOGETHER);

        let noticed = noticed().filter(|(_, noticed)| due(noticed.first));
        let mut found: BTreeSet<Trouble> = noticed.map(|(trouble, _)| trouble.clone()).collect();
        let explained: BTreeSet<SocketAddr> = found
            .iter()
            .filter(|trouble| trouble.cause != Cause::Datagrams)
            .map(|trouble| trouble.address)
            .collect();
        // Of those that only fail, the same holds; they may begin to further apart.
        let is_due = |failing: &Failing, grace| match failing.refused() {
            Some(since) => due(since),
            None => now.since(failing.since) >= grace,
        };
        let any = failing().any(|(_, failing, _)| is_due(&failing, GRACE));
        for (address, failing, peer) in failing() {
            if !is_due(&failing, if any { GRACE / 2 } else { GRACE }) {
                continue;
            }
            // It answered streams when that was noticed, but does so no longer.
            found.retain(|trouble| trouble.address != address || trouble.cause != Cause::Datagrams);
            if explained.contains(&address) {
                continue;
            }
            let cause = match failing.cause {
                Cause::Closed | Cause::Silent if usable(&peer.node) => Cause::Streams,
                cause => cause,
            };
            found.insert(Trouble { node: peer.node.clone(), address, cause });
        }
        found
    }

    /// When there may be something else to say without anything else happening.
    pub(super) fn next_deadline(&self, now: Time) -> Option<Time> {
        let lasting = self.failing.values().flat_map(|failing| match failing.refused() {
            Some(since) => [since + TOGETHER, since + TOGETHER],
            None => [failing.since + GRACE / 2, failing.since + GRACE],
        });
        let noticed =
            self.noticed.values().flat_map(|noticed| [noticed.first + TOGETHER, noticed.last + FORGOTTEN]);
        lasting.chain(noticed).filter(|at| *at > now).min()
    }

    fn came_lately(&self, now: Time, name: &Name) -> bool {
        let came = name.as_str().and_then(|name| self.came.get(&NodeName::from(name)));
        came.is_some_and(|came| now.since(*came) < ECHOES)
    }

    fn at(&self, ip: IpAddr, cause: Cause) -> Vec<Trouble> {
        self.of(|peer| peer.address.ip() == ip, cause)
    }

    fn named(&self, name: &Name, cause: Cause) -> Vec<Trouble> {
        self.of(|peer| Some(peer.node.as_str()) == name.as_str(), cause)
    }

    fn of(&self, wanted: impl Fn(&Peer) -> bool, cause: Cause) -> Vec<Trouble> {
        let peers = self.peers.values().filter(|peer| wanted(peer));
        peers.map(|peer| Trouble { node: peer.node.clone(), address: peer.address, cause }).collect()
    }
}

fn cause(error: &ExchangeError) -> Cause {
    match error {
        ExchangeError::Stream(StreamFailure::Refused) => Cause::Closed,
        // Who cannot open what was sent says so.
        ExchangeError::Refused(_)
        | ExchangeError::Stream(StreamFailure::Unreadable(
            StreamError::Open(_) | StreamError::Plain | StreamError::Encrypted,
        )) => Cause::Key,
        ExchangeError::Stream(StreamFailure::Unreadable(StreamError::Label(_))) => Cause::Label,
        ExchangeError::Versions(_) => Cause::Version,
        ExchangeError::Stream(_) | ExchangeError::Timeout | ExchangeError::Unexpected => Cause::Silent,
    }
}

/// Whether a speaker that is started or ends may be the reason.
const fn is_passing(cause: Cause) -> bool {
    match cause {
        Cause::Closed | Cause::Silent | Cause::Streams => true,
        Cause::Key | Cause::Label | Cause::Datagrams | Cause::Name | Cause::Version => false,
    }
}

/// How long what may pass has to last before it is a trouble.
const GRACE: Duration = Duration::from_secs(10);

/// The first word about anything else waits so long for others of which the same can be said.
const TOGETHER: Duration = Duration::from_secs(1);

/// How long others may go on saying what is no longer so.
const ECHOES: Duration = Duration::from_secs(10);

/// What was noticed is noticed again within a minute if it lasts.
const FORGOTTEN: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::millis(seconds * 1000)
    }

    fn peer(number: u8, awaited: bool) -> Peer {
        let node = NodeName::from(format!("n{number}"));
        Peer { node, address: SocketAddr::new([10, 0, 0, number].into(), 7946), awaited }
    }

    fn troubles() -> Troubles {
        let mut troubles = Troubles::default();
        troubles.set_peers(&[peer(1, true), peer(2, true), peer(3, false)]);
        troubles
    }

    fn said(troubles: &Troubles, now: Time, usable: &[&str]) -> Vec<String> {
        let current = troubles.current(now, |node| usable.contains(&node.as_str()));
        current.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_engine_notices_is_said_within_a_second_and_forgotten_if_it_is_not_noticed_again() {
        let conflict = Notice::Conflict { name: "n1".into(), claimed: vec![10, 0, 0, 9] };
        for (notice, usable, text) in [
            (Notice::Undecryptable([10, 0, 0, 1].into()), &[][..], Some("it uses another key")),
            (Notice::Undecryptable([10, 0, 0, 1].into()), &["n1"], None), // forged
            (Notice::Undecryptable([10, 0, 0, 9].into()), &[], None),     // a stranger
            (
                Notice::Label([10, 0, 0, 1].into()),
                &[],
                Some("it belongs to a member list with another label"),
            ),
            (
                Notice::DatagramsBlocked("n1".into()),
                &["n1"],
                Some("it answers streams (TCP), but no datagrams (UDP)"),
            ),
            (conflict, &[], Some("its name is still held by another address")), // S58
            (
                Notice::Versions("n1".into()),
                &[],
                Some("its version of the protocol does not go together with the others'"),
            ),
        ] {
            let mut troubles = troubles();
            troubles.notice(at(5), &notice);
            let expected: Vec<String> =
                text.iter().map(|text| format!("n1 (10.0.0.1:7946): {text}")).collect();
            assert_eq!(said(&troubles, at(5), usable), Vec::<String>::new(), "{notice:?}");
            assert_eq!(said(&troubles, at(6), usable), expected, "{notice:?}");
            assert_eq!(said(&troubles, at(94), usable), expected, "{notice:?}");
            assert_eq!(said(&troubles, at(95), usable), Vec::<String>::new(), "{notice:?}");
            assert!(troubles.next_deadline(at(5)).is_none_or(|deadline| deadline == at(6)));
            assert!(troubles.next_deadline(at(6)).is_none_or(|deadline| deadline == at(95)));
        }
    }

    #[test]
    fn blocked_datagrams_are_forgotten_once_they_pass_or_streams_do_not() {
        let blocked = "n1 (10.0.0.1:7946): it answers streams (TCP), but no datagrams (UDP)";
        let noticed = || {
            let mut troubles = troubles();
            troubles.notice(at(4), &Notice::DatagramsBlocked("n1".into()));
            assert_eq!(said(&troubles, at(5), &["n1"]), [blocked]);
            troubles
        };
        let mut troubles = noticed();
        troubles.notice(at(6), &Notice::DatagramsPass("n2".into()));
        assert_eq!(said(&troubles, at(6), &["n1"]), [blocked], "another");
        troubles.notice(at(6), &Notice::DatagramsPass("n1".into()));
        assert_eq!(said(&troubles, at(6), &["n1"]), Vec::<String>::new(), "a datagram was acknowledged");
        troubles = noticed();
        troubles.joined(at(6), &"n1".into());
        assert_eq!(said(&troubles, at(6), &["n1"]), Vec::<String>::new(), "it was given up and is back");
        // Its process ends: for a moment it may only be restarted.
        troubles = noticed();
        let refused = Err(ExchangeError::Stream(StreamFailure::Refused));
        troubles.exchanged(at(7), peer(1, true).address, &refused);
        assert_eq!(said(&troubles, at(16), &[]), [blocked]);
        assert_eq!(troubles.next_deadline(at(16)), Some(at(17)));
        assert_eq!(said(&troubles, at(17), &[]), ["n1 (10.0.0.1:7946): its port is closed"]);
        // A key is what explains it, whatever else was noticed.
        troubles.notice(at(18), &Notice::Undecryptable([10, 0, 0, 1].into()));
        assert_eq!(said(&troubles, at(19), &[]), ["n1 (10.0.0.1:7946): it uses another key"]);
    }

    #[test]
    fn a_name_that_another_address_held_is_its_own_once_it_is_a_member() {
        let conflict = Notice::Conflict { name: "n1".into(), claimed: vec![10, 0, 0, 9] };
        let mut troubles = troubles();
        troubles.notice(at(5), &conflict);
        assert_eq!(
            said(&troubles, at(6), &["n1"]),
            ["n1 (10.0.0.1:7946): its name is still held by another address"]
        );
        troubles.joined(at(8), &"n1".into());
        assert_eq!(said(&troubles, at(8), &["n1"]), Vec::<String>::new());
        troubles.notice(at(12), &conflict);
        assert_eq!(
            said(&troubles, at(12), &["n1"]),
            Vec::<String>::new(),
            "one that has not heard of it yet"
        );
        troubles.notice(at(18), &conflict);
        assert_eq!(said(&troubles, at(19), &["n1"]).len(), 1, "two that go by one name");
    }

    #[test]
    fn those_that_fail_for_one_reason_are_told_of_together() {
        let refused = Err(ExchangeError::Stream(StreamFailure::Refused));
        let mut troubles = troubles();
        troubles.exchanged(at(0), peer(1, true).address, &refused);
        troubles.exchanged(at(4), peer(2, true).address, &refused);
        assert_eq!(said(&troubles, at(9), &[]), Vec::<String>::new());
        assert_eq!(said(&troubles, at(10), &[]).len(), 2);
        // One that has begun just now may only be restarted.
        troubles.exchanged(at(11), peer(2, true).address, &Ok(3));
        troubles.exchanged(at(12), peer(2, true).address, &refused);
        assert_eq!(said(&troubles, at(16), &[]).len(), 1);
        assert_eq!(troubles.next_deadline(at(16)), Some(at(17)));
        assert_eq!(said(&troubles, at(17), &[]).len(), 2);
    }

    /// Each by an exchange or by what came in.
    #[test]
    fn those_that_refuse_within_a_second_are_told_of_together() {
        let key = Err(ExchangeError::Stream(StreamFailure::Unreadable(StreamError::Plain)));
        let refused = Err(ExchangeError::Stream(StreamFailure::Refused));
        let by_exchange = |troubles: &mut Troubles, now, number| {
            troubles.exchanged(now, peer(number, true).address, &key);
        };
        let by_packet = |troubles: &mut Troubles, now, number| {
            troubles.notice(now, &Notice::Undecryptable([10, 0, 0, number].into()));
        };
        let refuses = |troubles: &mut Troubles, now, number, exchange| {
            if exchange { by_exchange(troubles, now, number) } else { by_packet(troubles, now, number) }
        };
        for (one, other) in [(true, true), (true, false), (false, true), (false, false)] {
            for after in [0, 1, 400, 999, 1000] {
                let mut troubles = troubles();
                // That it was not there yet is no reason to be hasty.
                troubles.exchanged(at(1), peer(1, true).address, &refused);
                troubles.exchanged(at(1), peer(2, true).address, &refused);
                refuses(&mut troubles, at(5), 1, one);
                let begun = at(5) + Duration::from_millis(after);
                let just_before = Time::millis(5999);
                if after < 1000 {
                    refuses(&mut troubles, begun, 2, other);
                    assert_eq!(said(&troubles, just_before, &[]), Vec::<String>::new());
                } else {
                    assert_eq!(said(&troubles, just_before, &[]), Vec::<String>::new());
                    refuses(&mut troubles, begun, 2, other);
                }
                assert!(troubles.next_deadline(begun).is_none_or(|due| after == 1000 || due == at(6)));
                let both = ["n1 (10.0.0.1:7946)", "n2 (10.0.0.2:7946)"];
                let both = both.map(|who| format!("{who}: it uses another key"));
                assert_eq!(said(&troubles, at(6), &[]), both, "{one} {other} {after}");
                assert_eq!(said(&troubles, at(30), &[]), both, "{one} {other} {after}");
            }
        }
        // Who comes later waits for those that come with it.
        let mut troubles = Troubles::default();
        troubles.set_peers(&[peer(1, true), peer(2, true), peer(4, true)]);
        by_exchange(&mut troubles, at(0), 1);
        assert_eq!(said(&troubles, at(1), &[]).len(), 1);
        by_exchange(&mut troubles, at(20), 2);
        assert_eq!(troubles.next_deadline(at(20)), Some(at(21)));
        by_exchange(&mut troubles, at(20) + Duration::from_millis(500), 4);
        assert_eq!(said(&troubles, at(20) + Duration::from_millis(999), &[]).len(), 1);
        assert_eq!(said(&troubles, at(21), &[]).len(), 3);
    }

    #[test]
    fn an_exchange_that_fails_is_a_trouble_once_it_lasts_unless_it_is_explained_or_not_awaited() {
        let refused = Err(ExchangeError::Stream(StreamFailure::Refused));
        let mut troubles = troubles();
        for number in [1, 3, 9] {
            troubles.exchanged(at(0), SocketAddr::new([10, 0, 0, number].into(), 7946), &refused);
        }
        assert_eq!(said(&troubles, at(9), &[]), Vec::<String>::new());
        assert_eq!(troubles.next_deadline(at(9)), Some(at(10)));
        assert_eq!(said(&troubles, at(10), &[]), ["n1 (10.0.0.1:7946): its port is closed"]);
        let streams = "n1 (10.0.0.1:7946): it answers datagrams (UDP), but no streams (TCP)";
        assert_eq!(said(&troubles, at(10), &["n1"]), [streams]);
        troubles.exchanged(at(11), peer(1, true).address, &Err(ExchangeError::Timeout));
        assert_eq!(said(&troubles, at(11), &[]), ["n1 (10.0.0.1:7946): it does not answer"]);
        troubles.notice(at(12), &Notice::Undecryptable([10, 0, 0, 1].into()));
        assert_eq!(said(&troubles, at(13), &[]), ["n1 (10.0.0.1:7946): it uses another key"]);
        troubles.exchanged(at(13), peer(1, true).address, &Ok(3));
        assert_eq!(said(&troubles, at(13), &[]), Vec::<String>::new());
        // A Pod that is gone is no trouble.
        troubles.exchanged(at(13), peer(2, true).address, &refused);
        troubles.set_peers(&[peer(1, true)]);
        assert_eq!(said(&troubles, at(60), &[]), Vec::<String>::new());
    }
}
