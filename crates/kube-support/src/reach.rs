// SPDX-License-Identifier: Apache-2.0
//! Whether the API server answers, shared by everything in the process that waits for it.
//!
//! Watches and writes wait with growing pauses while the server is away. As soon as one of them is answered,
//! it wakes the others, so that the end of an outage is noticed once and not by each at its own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A handle; clones are the same thing.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    notify: Notify,
    renew: Notify,
    back: Notify,
    lost: AtomicBool,
    start: Instant,
    /// When the server was heard last, in milliseconds from `start`.
    heard: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            notify: Notify::default(),
            renew: Notify::default(),
            back: Notify::default(),
            lost: AtomicBool::default(),
            start: Instant::now(),
            heard: AtomicU64::new(0),
        }
    }
}

impl Reach {
    /// The server answered just now.
    pub fn answered(&self) {
        self.alive();
        if self.shared.lost.swap(false, Ordering::Relaxed) {
            tracing::info!(op = "api", "the API server answers again");
            self.shared.back.notify_waiters();
        }
        self.shared.notify.notify_waiters();
    }

    /// Something came from the server just now, without having been asked for. Wakes nobody.
    pub fn alive(&self) {
        let now = u64::try_from(self.shared.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.shared.heard.store(now, Ordering::Relaxed);
    }

    /// Nothing came back. Said in the log once per outage.
    pub fn lost(&self, error: &str) {
        if !self.shared.lost.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                op = "api",
                error,
                "the API server cannot be reached, retrying; what is allocated and announced stays"
            );
        }
    }

    /// Connections that have said nothing since an outage began may be dead: whoever waits on one begins anew.
    pub fn renew(&self) {
        self.shared.renew.notify_waiters();
    }

    /// Ends when [`Reach::renew`] is called after this call.
    pub async fn renewed(&self) {
        self.shared.renew.notified().await;
    }

    /// Ends when, after this call, somebody is answered for the first time since [`Reach::lost`].
    pub async fn back(&self) {
        self.shared.back.notified().await;
    }

    /// When the server was heard last; when this handle was made, if never.
    pub fn last(&self) -> Instant {
        self.shared.start + Duration::from_millis(self.shared.heard.load(Ordering::Relaxed))
    }

    /// Ends when somebody is answered after this call.
    pub async fn heard(&self) {
        self.shared.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_wakes_all_who_wait() {
        let reach = Reach::default();
        let other = reach.clone();
        let waiting = futures::future::join(other.heard(), other.heard());
        let answer = async {
            tokio::task::yield_now().await;
            reach.answered();
        };
        futures::future::join(waiting, answer).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_sign_of_life_is_remembered() {
        let reach = Reach::default();
        let start = reach.last();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(reach.last(), start);
        reach.clone().alive();
        assert_eq!(reach.last() - start, Duration::from_secs(3));
        tokio::time::advance(Duration::from_secs(2)).await;
        reach.answered();
        assert_eq!(reach.last() - start, Duration::from_secs(5));
    }
}
