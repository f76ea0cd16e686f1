// SPDX-License-Identifier: Apache-2.0
//! What the control side wants of one session, until its task comes to it.
//!
//! The latest wish wins: a plan replaces one that was not looked at, a route the one for the same prefix. So a mailbox
//! never holds more than there are prefixes, however long its task is busy. One side writes, the other reads; each has
//! the lock for no longer than it takes to move a pointer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrolb_bgp::{Goodbye, Route};
use ferrolb_net_types::Prefix;
use ferrolb_speaker_core::bgp::PeerPlan;
use tokio::sync::Notify;

use super::Change;

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    wishes: Mutex<Wishes>,
    written: Notify,
}

/// What is wanted, beside what was wanted before.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Another plan.
    pub(super) plan: Option<Box<PeerPlan>>,
    /// Other routes.
    pub(super) routes: BTreeMap<Prefix, Option<Arc<Route>>>,
    /// The end. The first goodbye is the one that is said.
    pub(super) goodbye: Option<Goodbye>,
}

impl Mailbox {
    pub(super) fn plan(&self, plan: Box<PeerPlan>) {
        self.lock().plan = Some(plan);
        self.written.notify_one();
    }

    pub(super) fn routes(&self, changes: Vec<Change>) {
        // Only this side writes, so what is taken out to be added to is not missed.
        let mut routes = std::mem::take(&mut self.lock().routes);
        routes.extend(changes);
        self.lock().routes = routes;
        self.written.notify_one();
    }

    pub(super) fn leave(&self, goodbye: Goodbye) {
        self.lock().goodbye.get_or_insert(goodbye);
        self.written.notify_one();
    }

    /// Waits until something is written. May be dropped while it waits.
    pub(super) async fn written(&self) {
        self.written.notified().await;
    }

    /// Everything that was written since the last time.
    pub(super) fn take(&self) -> Wishes {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Wishes> {
        // What is in it is whole at every moment.
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_wish_for_a_prefix_wins_and_nothing_piles_up() {
        let mailbox = Mailbox::default();
        let prefix = |n: u8| Prefix::host(std::net::Ipv4Addr::new(192, 0, 2, n).into());
        let route = Arc::new(Route { local_pref: Some(7), ..Route::default() });
        for _ in 0..1000 {
            mailbox.routes(vec![(prefix(1), Some(Arc::default())), (prefix(2), None)]);
        }
        mailbox.routes(vec![(prefix(1), Some(route.clone()))]);
        let wishes = mailbox.take();
        assert_eq!(wishes.routes, BTreeMap::from([(prefix(1), Some(route)), (prefix(2), None)]));
        assert!(mailbox.take().routes.is_empty());
    }

    #[test]
    fn the_first_goodbye_is_the_one_that_is_said() {
        let mailbox = Mailbox::default();
        mailbox.leave(Goodbye::deconfigured());
        mailbox.leave(Goodbye::reset("later"));
        assert_eq!(mailbox.take().goodbye, Some(Goodbye::deconfigured()));
    }

    #[tokio::test]
    async fn what_was_written_before_anybody_waits_is_noticed() {
        let mailbox = Mailbox::default();
        mailbox.routes(Vec::new());
        mailbox.written().await;
    }
}
