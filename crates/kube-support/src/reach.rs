// SPDX-License-Identifier: Apache-2.0
//! Whether the API server answers, shared by everything in the process that waits for it.
//!
//! Watches and writes wait with growing pauses while the server is away. As soon as one of them is answered,
//! it wakes the others, so that the end of an outage is noticed once and not by each at its own time. What ends an
//! outage is kept, not only called out: whoever was busy at that moment finds it afterwards.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A handle; clones are the same thing.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    shared: Arc<Shared>,
}

/// Whether somebody has not reached the server, and how often that was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outages {
    /// Somebody has not reached it, and nobody has been answered since.
    pub(crate) lost: bool,
    /// How often somebody was answered after that.
    pub(crate) ended: u64,
}

/// A silence that is over, in milliseconds from the start.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When the server was heard last before it.
    since: u64,
    end: u64,
}

#[derive(Debug)]
struct Shared {
    notify: Notify,
    silence: watch::Sender<Option<Silence>>,
    outages: watch::Sender<Outages>,
    start: Instant,
    /// When the server was heard last, in milliseconds from `start`.
    heard: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            notify: Notify::default(),
            silence: watch::Sender::default(),
            outages: watch::Sender::default(),
            start: Instant::now(),
            heard: AtomicU64::new(0),
        }
    }
}

/// What was asked for less than this before a silence ended was not kept waiting by it.
const NEW: Duration = Duration::from_secs(1);

impl Reach {
    /// The server answered just now.
    pub fn answered(&self) {
        self.alive();
        self.shared.outages.send_if_modified(|outages| {
            let ended = std::mem::take(&mut outages.lost);
            if ended {
                outages.ended += 1;
                tracing::info!(op = "api", "the API server answers again");
            }
            ended
        });
        self.shared.notify.notify_waiters();
    }

    /// Something came from the server just now, without having been asked for. Wakes nobody.
    pub fn alive(&self) {
        self.shared.heard.store(self.millis(Instant::now()), Ordering::Relaxed);
    }

    /// Nothing came back. Said in the log once per outage.
    pub fn lost(&self, error: &str) {
        let news =
            self.shared.outages.send_if_modified(|outages| !std::mem::replace(&mut outages.lost, true));
        if news {
            tracing::warn!(
                op = "api",
                error,
                "the API server cannot be reached, retrying; what is allocated and announced stays"
            );
        }
    }

    /// A silence is over, before which the server was heard last at `since`. Connections that have said nothing in it may
    /// be dead: whoever waits on one begins anew.
    pub fn renew(&self, since: Instant) {
        let silence = Silence { since: self.millis(since), end: self.millis(Instant::now()) };
        self.shared.silence.send_replace(Some(silence));
    }

    /// Ends once a silence is over that began after the server was heard at `heard`.
    pub async fn renewed(&self, heard: Instant) {
        let heard = self.millis(heard);
        self.silence(|silence| heard <= silence.since).await;
    }

    /// Waits for an answer, unless it should have come while the server was silent and that is over: what was sent may
    /// have been lost, or is tried again at intervals that have grown to several seconds (RFC 6298 section 5.5), as the
    /// beginning of a connection is. Then there is none.
    pub async fn unless_older<T>(&self, exchange: impl Future<Output = T>) -> Option<T> {
        let new = self.millis(Instant::now() + NEW);
        let exchange = pin!(exchange);
        tokio::select! {
            biased;
            result = exchange => Some(result),
            () = self.silence(|silence| new <= silence.end) => None,
        }
    }

    /// Ends once there is such a silence, which is over.
    async fn silence(&self, is_it: impl Fn(Silence) -> bool) {
        // The sender lives as long as this handle.
        let _ = self.shared.silence.subscribe().wait_for(|silence| silence.is_some_and(&is_it)).await;
    }

    /// Whether an outage is under way, and how many are over, from now on.
    pub(crate) fn outages(&self) -> watch::Receiver<Outages> {
        self.shared.outages.subscribe()
    }

    /// How often somebody was answered after somebody had not been.
    pub(crate) fn ended(&self) -> u64 {
        self.shared.outages.borrow().ended
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.shared.start);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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

    #[tokio::test(start_paused = true)]
    async fn what_hangs_when_a_silence_ends_is_given_up_and_what_is_new_is_not() {
        let reach = Reach::default();
        let hangs = || reach.unless_older(std::future::pending::<()>());
        let ends = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            let new = reach.unless_older(tokio::time::sleep(Duration::from_secs(3)));
            let renew = async {
                tokio::time::sleep(NEW / 2).await;
                reach.renew(reach.last());
            };
            tokio::join!(new, renew).0
        };
        let (old, new) = tokio::join!(hangs(), ends);
        assert_eq!((old, new), (None, Some(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_outlived_the_silence_is_kept() {
        let reach = Reach::default();
        let before = Instant::now();
        tokio::time::advance(Duration::from_secs(30)).await;
        let after = Instant::now();
        reach.renew(before);
        let waits = |heard| tokio::time::timeout(Duration::from_secs(60), reach.renewed(heard));
        assert!(waits(before).await.is_ok(), "found by whoever looks late as well");
        assert!(waits(after).await.is_err());
    }

    #[test]
    fn an_outage_ends_once() {
        let reach = Reach::default();
        reach.answered();
        assert_eq!(reach.ended(), 0);
        for outage in 1..=2 {
            reach.lost("connection refused");
            reach.lost("connection refused");
            assert!(reach.outages().borrow().lost);
            reach.answered();
            reach.answered();
            assert_eq!(*reach.outages().borrow(), Outages { lost: false, ended: outage });
        }
    }
}
