// SPDX-License-Identifier: Apache-2.0
//! Whose session has which two addresses: a router cannot tell two sessions of one node apart that come from one address.
//!
//! Where a peer names no address to connect from the kernel chooses one, and only here is it known which. Whoever has a
//! pair of addresses keeps it until its task ends, or it is to connect from or to elsewhere, so that no session that is
//! there, or comes back, is reset for the sake of another one. Who is to connect elsewhere gives its own pair back before
//! it asks for another one: peers may swap what they have.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrolb_net_types::{IpFamily, PeerName};
use ferrolb_speaker_core::bgp::Rival;
use tokio::sync::Notify;

use super::line::LAST_WORD;

/// All that are in use.
#[derive(Debug, Default)]
pub(super) struct Ends {
    held: Mutex<Held>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    /// Holders are numbered.
    last: u64,
    by: BTreeMap<Pair, Claim>,
}

/// Where to, and from where.
pub(super) type Pair = (SocketAddr, IpAddr);

/// Whose a pair is.
#[derive(Debug)]
struct Claim {
    /// The holder's number.
    number: u64,
    peer: PeerName,
    /// Its session is up.
    up: bool,
}

/// Another peer of this node has the two addresses. Prints a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Taken {
    /// For its session.
    #[error(transparent)]
    Session(Rival),
    /// It connects by them, or is about to try again.
    #[error(
        "BGPPeer {} connects to {} from this node's address {}, and a router cannot tell two sessions apart that come from one",
        .0.peer, .0.remote, .0.own
    )]
    Attempt(Rival),
}

impl Taken {
    /// Which two addresses.
    pub(super) fn pair(&self) -> Pair {
        let (Self::Session(rival) | Self::Attempt(rival)) = self;
        (rival.remote, rival.own)
    }
}

/// Somebody who may hold a pair. What it holds is free once this is dropped.
#[derive(Debug)]
pub(super) struct Holder {
    ends: Arc<Ends>,
    number: u64,
    peer: PeerName,
}

impl Ends {
    /// Somebody who holds nothing yet.
    pub(super) fn holder(self: &Arc<Self>, peer: &PeerName) -> Holder {
        let mut held = self.lock();
        held.last += 1;
        Holder { ends: Arc::clone(self), number: held.last, peer: peer.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // There is nothing in it that could be half done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder {
    /// Holds this pair from now on, and gives back any other one, whether or not this one is to be had. One that somebody
    /// else is about to leave is waited for, a moment.
    ///
    /// # Errors
    ///
    /// Who has it.
    pub(super) async fn take(&self, pair: Pair) -> Result<(), Taken> {
        self.keep_only(pair.0, Some(pair.1));
        let taken = async {
            loop {
                let freed = self.ends.freed.notified();
                if self.try_take(pair).is_ok() {
                    break;
                }
                freed.await;
            }
        };
        match tokio::time::timeout(MOMENT, taken).await {
            Ok(()) => Ok(()),
            Err(_) => self.try_take(pair),
        }
    }

    /// Gives back what it holds, unless it leads to this router, and comes from this address if one is known.
    pub(super) fn keep_only(&self, remote: SocketAddr, source: Option<IpAddr>) {
        self.give_back(|pair| pair.0 != remote || source.is_some_and(|source| pair.1 != source));
    }

    /// Its session, by the pair that it holds, is up, or is no longer.
    pub(super) fn set_up(&self, up: bool) {
        let mut held = self.ends.lock();
        held.by.values_mut().filter(|claim| claim.number == self.number).for_each(|claim| claim.up = up);
    }

    /// Waits until nobody else has a pair. May be dropped while it waits.
    pub(super) async fn freed(&self, pair: Pair) {
        loop {
            let freed = self.ends.freed.notified();
            if self.other(&self.ends.lock(), pair).is_none() {
                break;
            }
            freed.await;
        }
    }

    /// Holds a pair, unless somebody has it.
    fn try_take(&self, pair: Pair) -> Result<(), Taken> {
        let mut held = self.ends.lock();
        if let Some(claim) = self.other(&held, pair) {
            let rival = Rival { peer: claim.peer.clone(), remote: pair.0, own: pair.1 };
            return Err(if claim.up { Taken::Session(rival) } else { Taken::Attempt(rival) });
        }
        held.by.entry(pair).or_insert_with(|| Claim {
            number: self.number,
            peer: self.peer.clone(),
            up: false,
        });
        Ok(())
    }

    /// What somebody else has of a pair.
    fn other<'a>(&self, held: &'a Held, pair: Pair) -> Option<&'a Claim> {
        held.by.get(&pair).filter(|claim| claim.number != self.number)
    }

    fn give_back(&self, which: impl Fn(&Pair) -> bool) {
        let mut held = self.ends.lock();
        let before = held.by.len();
        held.by.retain(|pair, claim| claim.number != self.number || !which(pair));
        let freed = held.by.len() < before;
        drop(held);
        if freed {
            self.ends.freed.notify_waiters();
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.give_back(|_| true);
    }
}

/// From which address the kernel connects to this one, where nobody names another one. Nothing is sent.
pub(super) fn chosen(remote: SocketAddr) -> io::Result<IpAddr> {
    let any = match IpFamily::of(remote.ip()) {
        IpFamily::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpFamily::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip())
}

/// How long somebody who is about to leave may take: more than its last word.
const MOMENT: Duration = LAST_WORD.saturating_mul(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(port: u16) -> Pair {
        ((Ipv4Addr::LOCALHOST, port).into(), Ipv4Addr::LOCALHOST.into())
    }

    fn holders<const N: usize>(names: [&str; N]) -> [Holder; N] {
        let ends = Arc::new(Ends::default());
        names.map(|name| ends.holder(&name.into()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_held_is_free_even_where_what_is_wanted_is_not() {
        let [a, b, c] = holders(["a", "b", "c"]);
        a.take(pair(1)).await.unwrap();
        b.take(pair(2)).await.unwrap();
        a.take(pair(2)).await.unwrap_err();
        c.take(pair(1)).await.unwrap();
        // One that cannot connect at all.
        b.keep_only(pair(3).0, None);
        a.take(pair(2)).await.unwrap();
        // The same router, from an address that is not known yet.
        a.keep_only(pair(2).0, None);
        b.take(pair(2)).await.unwrap_err();
        a.keep_only(pair(2).0, Some(Ipv4Addr::BROADCAST.into()));
        b.take(pair(2)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_may_swap_what_they_have() {
        let all = holders(["a", "b", "c"]);
        for (holder, port) in all.iter().zip(1..) {
            holder.take(pair(port)).await.unwrap();
        }
        let [a, b, c] = &all;
        let swapped = tokio::join!(a.take(pair(2)), b.take(pair(3)), c.take(pair(1)));
        assert_eq!(swapped, (Ok(()), Ok(()), Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_is_up_is_said_to_have_a_session() {
        let [a, b] = holders(["a", "b"]);
        a.take(pair(1)).await.unwrap();
        let rival = Rival { peer: "a".into(), remote: pair(1).0, own: pair(1).1 };
        let attempt = Taken::Attempt(rival.clone());
        assert!(attempt.to_string().starts_with("BGPPeer a connects to 127.0.0.1:1 from"), "{attempt}");
        assert_eq!(b.take(pair(1)).await, Err(attempt.clone()));
        a.set_up(true);
        assert_eq!(b.take(pair(1)).await, Err(Taken::Session(rival)));
        b.set_up(false);
        a.take(pair(1)).await.unwrap();
        a.set_up(false);
        assert_eq!(b.take(pair(1)).await, Err(attempt));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_last_word_gets_its_turn() {
        let [a, b] = holders(["a", "b"]);
        a.take(pair(1)).await.unwrap();
        let leaves = async {
            tokio::time::sleep(LAST_WORD).await;
            drop(a);
        };
        assert_eq!(tokio::join!(b.take(pair(1)), leaves).0, Ok(()));
    }
}
