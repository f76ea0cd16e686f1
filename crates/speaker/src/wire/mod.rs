// SPDX-License-Identifier: Apache-2.0
//! The wire thread: packet sockets, and answers that wait for nobody.
//!
//! One OS thread with epoll and no runtime. What the control side wants reaches it through two swapped pointers
//! and a waker, so neither side ever waits for the other; what it did goes back through a bounded channel. When
//! that is full the report is dropped, and a complete one follows as soon as there is room.
//!
//! ```text
//!   Handle ── plan, peers (swapped pointers, waker) ──► wire ── reports (bounded, never waited for) ──►
//!                                                       │  ▲
//!           netlink, packet sockets of the interfaces that can answer, the member list's datagrams
//!                                                       │  ▲
//!                                                     streams ◄──► TCP
//! ```
//!
//! Decisions are [`ferrolb_speaker_core::wire::Wire`]'s; here is only I/O.

mod clock;
mod gossip;
mod ports;
mod streams;
#[cfg(test)]
mod tests;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use arc_swap::ArcSwapOption;
use ferrolb_announce::AddressPlans;
use ferrolb_linux::Waker;
use ferrolb_net_types::NodeName;
use ferrolb_speaker_core::wire::{Peer, Report};
use tokio::sync::mpsc;

pub use gossip::{BindError, MemberList, Sockets, advertised};
use ports::Ports;

use crate::Excluded;

/// The running wire thread. Dropping it ends the thread, which sends nothing more then.
#[derive(Debug)]
pub struct Handle {
    wishes: Arc<Wishes>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// What the control side wants, for the thread to read when it comes to it.
#[derive(Debug, Default)]
struct Wishes {
    plan: ArcSwapOption<AddressPlans>,
    peers: ArcSwapOption<Vec<Peer>>,
    api_lost: AtomicBool,
    /// End in order: hand over, leave, then end.
    leave: AtomicBool,
    stop: AtomicBool,
}

/// Reports that fit in the channel. A complete one replaces what was lost, so there is no need for many.
const REPORTS: usize = 64;

/// Starts the thread in the calling thread's network namespace. It answers for nothing before it has a plan and
/// the members.
///
/// The receiver ends (`None`) when the thread does.
///
/// # Errors
///
/// If netlink, epoll or threads are not to be had. A packet socket that cannot be opened is no error: it is
/// tried again.
pub fn start(
    node: NodeName,
    excluded: Excluded,
    list: Option<MemberList>,
) -> anyhow::Result<(Handle, mpsc::Receiver<Report>)> {
    start_with(node, Ports::new(excluded), list)
}

fn start_with(
    node: NodeName,
    ports: Ports,
    list: Option<MemberList>,
) -> anyhow::Result<(Handle, mpsc::Receiver<Report>)> {
    let wishes = Arc::new(Wishes::default());
    let (reports, receiver) = mpsc::channel(REPORTS);
    let thread = thread::Thread::new(node, ports, list, wishes.clone(), reports)?;
    let waker = thread.waker();
    let thread = std::thread::Builder::new().name("wire".to_owned()).spawn(move || thread.run())?;
    Ok((Handle { wishes, waker, thread: Some(thread) }, receiver))
}

impl Handle {
    /// From now on this plan holds.
    pub fn set_plan(&self, plan: Arc<AddressPlans>) {
        self.wishes.plan.store(Some(plan));
        self.waker.wake();
    }

    /// From now on these speakers should be members.
    pub fn set_peers(&self, peers: Vec<Peer>) {
        self.wishes.peers.store(Some(Arc::new(peers)));
        self.waker.wake();
    }

    /// From now on the API works, or is lost.
    pub fn set_api(&self, working: bool) {
        self.wishes.api_lost.store(!working, Ordering::Release);
        self.waker.wake();
    }

    /// The process is to end: the thread hands over and leaves the member list, then ends; the receiver of reports
    /// ends with it. Asking again changes nothing.
    pub fn leave(&self) {
        self.wishes.leave.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.wishes.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed, and its channel has ended.
            let _ = thread.join();
        }
    }
}
