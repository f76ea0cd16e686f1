// SPDX-License-Identifier: Apache-2.0
//! Whose session has which two addresses: a router cannot tell two sessions of one node apart that come from one address.
//!
//! Where a peer names no address to connect from the kernel chooses one, and only here is it known which. Whoever has a
//! pair of addresses keeps it until its task ends, or it connects from or to elsewhere, so that no session that is there,
//! or comes back, is reset for the sake of another one.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrolb_net_types::{IpFamily, PeerName};
use ferrolb_speaker_core::bgp::Rival;
use tokio::sync::Notify;

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
    by: BTreeMap<Pair, (u64, PeerName)>,
}

/// Where to, and from where.
type Pair = (SocketAddr, IpAddr);

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
    /// Holds this pair from now on, and no other one. One that somebody else is about to leave is waited for, a moment.
    ///
    /// # Errors
    ///
    /// Who has it.
    pub(super) async fn take(&self, remote: SocketAddr, source: IpAddr) -> Result<(), Rival> {
        let taken = async {
            loop {
                let freed = self.ends.freed.notified();
                if self.try_take((remote, source)).is_ok() {
                    break;
                }
                freed.await;
            }
        };
        match tokio::time::timeout(MOMENT, taken).await {
            Ok(()) => Ok(()),
            Err(_) => self.try_take((remote, source)).map_err(|peer| Rival { peer, remote, own: source }),
        }
    }

    /// Holds a pair, unless somebody has it.
    fn try_take(&self, pair: Pair) -> Result<(), PeerName> {
        let mut held = self.ends.lock();
        match held.by.get(&pair) {
            Some((number, other)) if *number != self.number => return Err(other.clone()),
            Some(_) => return Ok(()),
            None => {}
        }
        held.by.retain(|_, (number, _)| *number != self.number);
        held.by.insert(pair, (self.number, self.peer.clone()));
        drop(held);
        self.ends.freed.notify_waiters();
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.ends.lock().by.retain(|_, (number, _)| *number != self.number);
        self.ends.freed.notify_waiters();
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

/// How long somebody who is about to leave may take.
const MOMENT: Duration = Duration::from_secs(1);
