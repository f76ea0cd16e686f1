// SPDX-License-Identifier: Apache-2.0
//! Whether the API server answers, shared by everything in the process that waits for it.
//!
//! Watches and writes wait with growing pauses while the server is away. As soon as one of them is answered,
//! it wakes the others, so that the end of an outage is noticed once and not by each at its own time.

use std::sync::Arc;

use tokio::sync::Notify;

/// A handle; clones are the same thing.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    notify: Arc<Notify>,
}

impl Reach {
    /// The server answered just now.
    pub fn answered(&self) {
        self.notify.notify_waiters();
    }

    /// Ends when somebody else is answered after this call.
    pub fn heard(&self) -> impl Future<Output = ()> + use<> {
        // It listens from its creation on, not from the first poll: an answer in between counts.
        Arc::clone(&self.notify).notified_owned()
    }
}
