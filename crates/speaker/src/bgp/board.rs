// SPDX-License-Identifier: Apache-2.0
//! How one session is, for the control side to look at when it comes to it: the latest report, and whether it is over.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrolb_speaker_core::bgp::PeerReport;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Board {
    report: Mutex<Option<Box<PeerReport>>>,
    end: AtomicU8,
    /// Where somebody waits for news of any board.
    news: Arc<Notify>,
}

impl Board {
    pub(super) fn new(news: Arc<Notify>) -> Self {
        Self { report: Mutex::default(), end: AtomicU8::new(GOES_ON), news }
    }

    /// Shows a report in place of the last one.
    pub(super) fn show(&self, report: Box<PeerReport>) {
        *self.lock() = Some(report);
        self.news.notify_one();
    }

    /// The latest report, if it was not taken.
    pub(super) fn take(&self) -> Option<Box<PeerReport>> {
        self.lock().take()
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.load(Ordering::Acquire) != GOES_ON
    }

    pub(super) fn is_broken(&self) -> bool {
        self.end.load(Ordering::Acquire) == BROKEN
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<PeerReport>>> {
        // There is nothing in it that could be half done.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by a task while it runs; says that it is over, however it ended.
#[derive(Debug)]
pub(super) struct Presence(pub(super) Arc<super::Shared>);

impl Drop for Presence {
    fn drop(&mut self) {
        let end = if std::thread::panicking() { BROKEN } else { OVER };
        self.0.board.end.store(end, Ordering::Release);
        self.0.board.news.notify_one();
    }
}

const GOES_ON: u8 = 0;
const OVER: u8 = 1;
const BROKEN: u8 = 2;
