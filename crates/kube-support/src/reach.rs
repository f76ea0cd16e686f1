// SPDX-License-Identifier: Apache-2.0
//! Whether the API server answers, shared by everything in the process that waits for it.
//!
//! Watches and writes wait with growing pauses while the server is away. As soon as one of them is answered,
//! it wakes the others, so that the end of an outage is noticed once and not by each at its own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A handle; clones are the same thing.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    notify: Notify,
    lost: AtomicBool,
}

impl Reach {
    /// The server answered just now.
    pub fn answered(&self) {
        if self.shared.lost.swap(false, Ordering::Relaxed) {
            tracing::info!(op = "api", "the API server answers again");
        }
        self.shared.notify.notify_waiters();
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
}
