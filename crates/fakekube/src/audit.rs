// SPDX-License-Identifier: Apache-2.0
//! What was asked of the server: counts by kind of request, and the latest requests one by one. Both are bounded,
//! and noting a request costs one short lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::attributes::Attributes;

/// A kind of request: what a count is kept of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestKind {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; for paths that are no
    /// resource the method in lower case.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Plural name of the resource; for what is no resource, the first segment of the path.
    pub resource: String,
    /// Subresource, or "".
    pub subresource: String,
    /// Name of the user.
    pub user: String,
    /// HTTP status of the answer; 0 when the client was never answered.
    pub code: u16,
}

impl RequestKind {
    /// Whether it asks for a change: `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// How often a kind of request came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestCount {
    /// What came.
    #[serde(flatten)]
    pub kind: RequestKind,
    /// How often, since the server started or the audit was reset.
    pub count: u64,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestEntry {
    /// What came.
    #[serde(flatten)]
    pub kind: RequestKind,
    /// Namespace of the object, or "".
    pub namespace: String,
    /// Name of the object, or "".
    pub name: String,
    /// When it was answered, in milliseconds since the server started.
    pub at_ms: u64,
    /// How long the answer took, in milliseconds. A watch is answered when it begins.
    pub took_ms: u64,
}

/// What was asked of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Counts by kind of request, in order of verb, group, resource, subresource, user and code.
    pub counts: Vec<RequestCount>,
    /// The latest requests, oldest first.
    pub latest: Vec<RequestEntry>,
}

impl Audit {
    /// How many requests were of a kind that the filter takes.
    pub fn count(&self, filter: impl Fn(&RequestKind) -> bool) -> u64 {
        self.counts.iter().filter(|entry| filter(&entry.kind)).map(|entry| entry.count).sum()
    }
}

/// How many kinds of requests are told apart; what comes after that is counted in one row without user.
const KINDS: usize = 2_000;

/// Notes requests.
#[derive(Debug)]
pub(crate) struct Ledger {
    started: Instant,
    keep: usize,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    counts: BTreeMap<RequestKind, u64>,
    latest: VecDeque<RequestEntry>,
}

impl Ledger {
    /// A ledger that keeps this many single requests.
    pub(crate) fn new(keep: usize) -> Self {
        Self { started: Instant::now(), keep, noted: Mutex::default() }
    }

    /// Notes a request that was answered with `code` (0: not at all).
    pub(crate) fn note(&self, attributes: &Attributes, code: u16, took: Duration) {
        let resource = if attributes.resource.is_empty() {
            attributes.path.split('/').find(|part| !part.is_empty()).unwrap_or_default()
        } else {
            &attributes.resource
        };
        let mut kind = RequestKind {
            verb: attributes.verb.clone(),
            group: attributes.group.clone(),
            resource: resource.to_owned(),
            subresource: attributes.subresource.clone(),
            user: attributes.user.clone(),
            code,
        };
        let at_ms = milliseconds(self.started.elapsed());
        let mut noted = self.lock();
        if self.keep > 0 {
            while noted.latest.len() >= self.keep {
                noted.latest.pop_front();
            }
            noted.latest.push_back(RequestEntry {
                kind: kind.clone(),
                namespace: attributes.namespace.clone(),
                name: attributes.name.clone(),
                at_ms,
                took_ms: milliseconds(took),
            });
        }
        if noted.counts.len() >= KINDS && !noted.counts.contains_key(&kind) {
            kind = RequestKind { verb: "other".into(), user: String::new(), ..kind };
            kind.group.clear();
            kind.resource.clear();
            kind.subresource.clear();
        }
        *noted.counts.entry(kind).or_default() += 1;
    }

    /// What was noted so far.
    pub(crate) fn read(&self) -> Audit {
        let latest = self.lock().latest.iter().cloned().collect();
        Audit { latest, ..self.counts() }
    }

    /// How much was noted so far, without single requests.
    pub(crate) fn counts(&self) -> Audit {
        let noted = self.lock();
        let counts = noted.counts.iter().map(|(kind, &count)| RequestCount { kind: kind.clone(), count });
        Audit { counts: counts.collect(), latest: Vec::new() }
    }

    /// Forgets what was noted.
    pub(crate) fn reset(&self) {
        *self.lock() = Noted::default();
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.into(),
            resource: "services".into(),
            name: name.into(),
            user: "me".into(),
            ..Attributes::default()
        }
    }

    #[test]
    fn requests_are_counted_by_kind_and_the_latest_are_kept() {
        let ledger = Ledger::new(2);
        for (verb, name) in [("get", "a"), ("update", "b"), ("update", "c")] {
            ledger.note(&request(verb, name), 200, Duration::from_millis(3));
        }
        let audit = ledger.read();
        assert_eq!(audit.count(RequestKind::is_write), 2);
        assert_eq!(audit.count(|_| true), 3);
        assert_eq!(audit.counts.len(), 2);
        let names: Vec<&str> = audit.latest.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(audit.latest[0].took_ms, 3);
        ledger.reset();
        assert_eq!(ledger.read(), Audit::default());
    }

    #[test]
    fn endless_kinds_of_requests_take_no_endless_room() {
        let ledger = Ledger::new(0);
        for n in 0..KINDS + 500 {
            let user = format!("user-{n}");
            ledger.note(&Attributes { user, ..request("get", "a") }, 200, Duration::ZERO);
        }
        let audit = ledger.read();
        assert_eq!(audit.counts.len(), KINDS + 1);
        assert_eq!(audit.count(|kind| kind.verb == "other"), 500);
    }
}
