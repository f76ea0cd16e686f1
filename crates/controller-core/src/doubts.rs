// SPDX-License-Identifier: Apache-2.0
//! Writes that nobody answered, where no Lease says what is in doubt.
//!
//! The addresses of such a write stay reserved for its Service, which usually is written again at once: then they are
//! known. Where there is nothing to write any more, as when the pools have changed meanwhile, only time tells. An API
//! server gives up a request after a minute; a Service that still has the version which the write was to replace, read
//! later than that, never got it.

use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_net_types::Time;
use k8s_openapi::api::core::v1::Service;

use crate::core::Core;
use crate::io::Effect;
use crate::queue::Retry;
use crate::replicas::Gate;
use crate::service;

/// An API server's `--request-timeout`, unless it is told otherwise.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// The pause after a reading that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether somebody has to look.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    wanted: bool,
    /// When the reading began that is under way.
    reading: Option<Time>,
}

impl Doubts {
    /// It is time to look.
    pub(crate) const fn look(&mut self) {
        self.wanted = true;
    }
}

impl Core {
    /// There is a write that got no answer.
    pub(crate) fn doubt(&mut self) {
        if matches!(self.gate, Gate::Rivals(_)) {
            self.queue.retry(self.clock.now + REQUEST_LIMIT, Retry::Doubt);
        }
    }

    /// Has the Services read if anything is in doubt still; true if it did.
    pub(crate) fn settle_doubts(&mut self) -> bool {
        if self.doubts.reading.is_some() || !std::mem::take(&mut self.doubts.wanted) {
            return false;
        }
        let asks = self.ledger.has_doubts();
        if asks {
            self.doubts.reading = Some(self.clock.now);
            self.effects.push_back(Effect::ListServices);
        }
        asks
    }

    /// Takes note of all Services as they were some time after the reading began.
    pub(crate) fn doubts_read(&mut self, result: Result<Vec<Service>, WriteError>) {
        let Some(began) = self.doubts.reading.take() else { return };
        let services = match result {
            Ok(services) => services,
            Err(error) => {
                tracing::debug!(op = "doubts", %error, "the Services cannot be read, trying again");
                self.queue.retry(self.clock.now + AGAIN, Retry::Doubt);
                return;
            }
        };
        let long_ago = began.since_start().checked_sub(REQUEST_LIMIT).map(Time::after);
        let Some(long_ago) = long_ago else { return };
        for service in services {
            let uid = service.metadata.uid.as_deref().unwrap_or_default();
            let version = service.metadata.resource_version.as_deref().unwrap_or_default();
            // What is of another version the watch will tell.
            if self.ledger.settled(uid, version, long_ago) {
                self.reserve_doubtful(&service::key(&service), uid);
            }
        }
    }
}
