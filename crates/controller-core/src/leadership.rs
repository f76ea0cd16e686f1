// SPDX-License-Identifier: Apache-2.0
//! Who of several controllers leads: taking, keeping and losing the Lease.
//!
//! The Lease changes hands only by compare-and-swap of the whole object. A leader replaces it once a second; others
//! read it twice a second and take it when they have seen the same version for four seconds by their own clock, or
//! when nobody holds it. Clocks decide when somebody tries, never whether it is safe: a leader that was paused learns
//! of its end from the refusal of its next replacement, and until that succeeds it sends nothing.

use std::time::Duration;

use ferrolb_api::Clock;
use ferrolb_api::request::WriteError;
use ferrolb_net_types::Time;
use k8s_openapi::api::coordination::v1::Lease;

use crate::intents::Inherited;
use crate::io::LeaseRequest;
use crate::lease;

/// From one renewal to the next.
pub(crate) const RENEWAL: Duration = Duration::from_secs(1);
/// A version that others see unchanged for this long has no holder that lives.
pub(crate) const EXPIRY: Duration = Duration::from_secs(lease::DURATION_SECONDS as u64);
/// How often those who do not lead read it.
pub(crate) const POLL: Duration = Duration::from_millis(500);
/// The pause after an attempt that failed.
const RETRY: Duration = Duration::from_millis(200);

/// One controller's view of the Lease.
#[derive(Debug)]
pub(crate) struct Leadership {
    namespace: String,
    identity: String,
    role: Role,
    under_way: Option<UnderWay>,
    known: Known,
    /// Since when every reading has shown the version that is known; `None` if the last one failed.
    since: Option<Time>,
    /// When the next request is due.
    next: Time,
    /// The Lease existed once.
    existed: bool,
    /// When the last replacement that succeeded was sent.
    confirmed: Time,
    /// The last replacement failed, or nobody knows.
    troubled: bool,
    /// The status code that was last complained of.
    complaint: Option<u16>,
    /// A sentence about rights that are missing, for an event.
    missing: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Standby,
    Leader,
    /// It gives the Lease up, if it has it.
    Leaving {
        /// It led before, so what stands in the Lease is for it to say.
        led: bool,
    },
    Gone,
}

#[derive(Clone, Debug)]
enum Known {
    /// Nothing, or something that may not be true any more.
    Nothing,
    Absent,
    Present(Box<Lease>),
}

/// The request of which no result is known yet, and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    Read,
    Acquire(Time),
    Renew(Time),
    Release,
}

/// What the result of a request came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Turn {
    /// Nothing of interest.
    None,
    /// This controller leads now. What its predecessor may have sent.
    Acquired(Inherited),
    /// The Lease holds what the replacement said.
    Committed,
    /// The Lease does not hold what the replacement said, or nobody knows.
    NotCommitted,
    /// This controller leads no more.
    Lost,
}

impl Leadership {
    pub(crate) fn new(now: Time, namespace: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            identity: identity.to_owned(),
            role: Role::Standby,
            under_way: None,
            known: Known::Nothing,
            since: None,
            next: now,
            existed: false,
            confirmed: Time::ZERO,
            troubled: false,
            complaint: None,
            missing: None,
        }
    }

    /// Whether the Lease is this controller's, as far as it knows.
    pub(crate) const fn leads(&self) -> bool {
        matches!(self.role, Role::Leader)
    }

    /// Whether there is no sign that somebody else took the Lease. It proves nothing, and nothing depends on it
    /// but needless work.
    pub(crate) fn is_fresh(&self, now: Time) -> bool {
        self.leads() && now - self.confirmed < EXPIRY
    }

    /// Which rights are missing, if that is news.
    pub(crate) const fn take_missing(&mut self) -> Option<String> {
        self.missing.take()
    }

    /// Whether it has given up the Lease, or never had it, and wants none.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.role, Role::Gone)
    }

    /// Whether a replacement could be sent now.
    pub(crate) const fn can_commit(&self) -> bool {
        self.leads() && self.under_way.is_none() && !self.troubled && matches!(self.known, Known::Present(_))
    }

    /// The process ends.
    pub(crate) fn leave(&mut self) {
        match self.role {
            Role::Leader => self.role = Role::Leaving { led: true },
            // It may have it by the time the answer comes.
            Role::Standby if matches!(self.under_way, Some(UnderWay::Acquire(_))) => {
                self.role = Role::Leaving { led: false };
            }
            Role::Standby => self.role = Role::Gone,
            Role::Leaving { .. } | Role::Gone => {}
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        (self.under_way.is_none() && self.role != Role::Gone).then_some(self.next)
    }

    /// The request that is due, if any; at once, if a leader has something to commit.
    ///
    /// `intents` gives what a replacement is to say of the intents; it is asked only if there is one.
    pub(crate) fn poll(
        &mut self,
        clock: Clock,
        urgent: bool,
        intents: impl FnOnce() -> String,
    ) -> Option<LeaseRequest> {
        let now = clock.now;
        let due = now >= self.next || (urgent && self.can_commit()) || self.is_leaving();
        if self.under_way.is_some() || self.role == Role::Gone || !due {
            return None;
        }
        let (under_way, request) = match (self.role, &self.known) {
            (Role::Standby, Known::Absent) if !self.existed || self.is_expired(now) => {
                // What stood in one that somebody removed is lost.
                let inherited = if self.existed { Inherited::Unknown } else { Inherited::default() };
                let first = lease::first(&self.namespace, &self.identity, clock.wall, inherited.encode());
                (UnderWay::Acquire(now), LeaseRequest::Create(Box::new(first)))
            }
            (Role::Standby, Known::Present(known)) if self.is_free(known) || self.is_expired(now) => {
                let inherited = lease::intents(known).encode();
                let taken = lease::next(known, Some(&self.identity), clock.wall, inherited);
                (UnderWay::Acquire(now), LeaseRequest::Replace(Box::new(taken)))
            }
            (Role::Leader, Known::Present(known)) => {
                let renewed = lease::next(known, Some(&self.identity), clock.wall, intents());
                (UnderWay::Renew(now), LeaseRequest::Replace(Box::new(renewed)))
            }
            // Somebody removed it. What may have been sent has to stand in it again before anybody else takes it.
            (Role::Leader, Known::Absent) => {
                let first = lease::first(&self.namespace, &self.identity, clock.wall, intents());
                (UnderWay::Renew(now), LeaseRequest::Create(Box::new(first)))
            }
            (Role::Leaving { led }, Known::Present(known)) if !self.troubled => {
                let said = if led { intents() } else { lease::intents(known).encode() };
                let released = lease::next(known, None, clock.wall, said);
                (UnderWay::Release, LeaseRequest::Replace(Box::new(released)))
            }
            (Role::Leaving { .. }, _) => {
                self.role = Role::Gone;
                return None;
            }
            _ => (UnderWay::Read, LeaseRequest::Read),
        };
        self.under_way = Some(under_way);
        Some(request)
    }

    /// Takes the result of the last request.
    pub(crate) fn answered(&mut self, now: Time, result: Result<Box<Lease>, WriteError>) -> Turn {
        let Some(under_way) = self.under_way.take() else {
            tracing::error!(bug = true, "an answer about the Lease that nobody asked for");
            return Turn::None;
        };
        if result.is_ok() {
            self.complaint = None;
        }
        match under_way {
            UnderWay::Read => self.read(now, result),
            UnderWay::Acquire(sent) => self.acquired(now, sent, result),
            UnderWay::Renew(sent) => self.renewed(now, sent, result),
            UnderWay::Release => {
                self.role = Role::Gone;
                Turn::None
            }
        }
    }

    fn read(&mut self, now: Time, result: Result<Box<Lease>, WriteError>) -> Turn {
        match result {
            Ok(found) => {
                let same = matches!(&self.known, Known::Present(known) if lease::version(known) == lease::version(&found));
                if !same || self.since.is_none() {
                    self.since = Some(now);
                }
                self.existed = true;
                let is_ours = lease::holder(&found) == self.identity;
                self.known = Known::Present(found);
                self.next = match self.role {
                    Role::Standby if self.is_free_now() => now,
                    Role::Standby => (now + POLL).min(self.since.unwrap_or(now) + EXPIRY),
                    _ => now,
                };
                if self.role == Role::Leader {
                    self.troubled = false;
                    if !is_ours {
                        return self.lose(now + POLL);
                    }
                }
                Turn::None
            }
            Err(error) if error.is_not_found() => {
                if !matches!(self.known, Known::Absent) || self.since.is_none() {
                    self.since = Some(now);
                }
                self.known = Known::Absent;
                self.troubled = false;
                self.next = if self.existed && self.role == Role::Standby { now + POLL } else { now };
                Turn::None
            }
            Err(error) => {
                self.complain(&error, "read");
                // Its holder may have had no chance to renew it either.
                self.since = None;
                self.next = now + pause(&error, POLL);
                Turn::None
            }
        }
    }

    fn acquired(&mut self, now: Time, sent: Time, result: Result<Box<Lease>, WriteError>) -> Turn {
        match result {
            Ok(taken) => {
                let inherited = lease::intents(&taken);
                self.existed = true;
                self.known = Known::Present(taken);
                self.confirmed = sent;
                self.troubled = false;
                self.next = sent + RENEWAL;
                if self.is_leaving() {
                    return Turn::None;
                }
                self.role = Role::Leader;
                Turn::Acquired(inherited)
            }
            Err(error) => {
                if error.code != 409 {
                    self.complain(&error, "take");
                }
                if self.is_leaving() {
                    self.role = Role::Gone;
                }
                self.known = Known::Nothing;
                self.since = None;
                self.next = now + pause(&error, RETRY);
                Turn::None
            }
        }
    }

    fn renewed(&mut self, now: Time, sent: Time, result: Result<Box<Lease>, WriteError>) -> Turn {
        match result {
            Ok(renewed) => {
                self.known = Known::Present(renewed);
                self.confirmed = sent;
                self.troubled = false;
                self.next = sent + RENEWAL;
                Turn::Committed
            }
            Err(error) if error.code == 409 => {
                self.known = Known::Nothing;
                self.since = None;
                self.lose(now)
            }
            Err(error) if error.is_not_found() => {
                self.known = Known::Absent;
                self.next = now + RETRY;
                Turn::NotCommitted
            }
            Err(error) => {
                self.complain(&error, "renew");
                self.troubled = true;
                if error.is_unknown() {
                    self.known = Known::Nothing;
                }
                self.next = now + pause(&error, POLL);
                Turn::NotCommitted
            }
        }
    }

    fn lose(&mut self, next: Time) -> Turn {
        self.next = next;
        if self.is_leaving() {
            self.role = Role::Gone;
            return Turn::None;
        }
        self.role = Role::Standby;
        self.troubled = false;
        Turn::Lost
    }

    const fn is_leaving(&self) -> bool {
        matches!(self.role, Role::Leaving { .. })
    }

    fn is_free_now(&self) -> bool {
        matches!(&self.known, Known::Present(known) if self.is_free(known))
    }

    /// Nobody holds it, or this very Pod before its container was started again.
    fn is_free(&self, lease: &Lease) -> bool {
        let holder = lease::holder(lease);
        holder.is_empty() || holder == self.identity
    }

    fn is_expired(&self, now: Time) -> bool {
        self.since.is_some_and(|since| now - since >= EXPIRY)
    }

    fn complain(&mut self, error: &WriteError, what: &'static str) {
        if self.complaint.replace(error.code) == Some(error.code) {
            return;
        }
        const GRANT: &str = "grant this ServiceAccount get, create and update on leases of its namespace";
        let remedy = if error.code == 403 { GRANT } else { "it is tried again" };
        tracing::warn!(op = "lease", what, name = lease::LEASE, %error, remedy, "the Lease is out of reach");
        if error.code == 403 {
            self.missing = Some(format!(
                "May not {what} Lease {}, by which controllers agree who assigns addresses; this one assigns none until \
                 it may ({}). {}{}, or set FERROLB_LEVEL=A where MetalLB's manifests are used",
                lease::LEASE,
                error.message,
                GRANT[..1].to_uppercase(),
                &GRANT[1..]
            ));
        }
    }
}

/// How long to wait after a failure.
fn pause(error: &WriteError, at_least: Duration) -> Duration {
    let refused = !error.is_unknown() && error.code != 409;
    let floor = if refused { RENEWAL } else { at_least };
    error.retry_after.unwrap_or_default().max(floor)
}
