// SPDX-License-Identifier: Apache-2.0
//! What may still be written: intents, and the ledger of those whose outcome is not known.
//!
//! An intent says: a write of these addresses to this Service may arrive, provided that the Service still has this
//! version. As long as it has, nobody else may get the addresses. The Service's being of another version, or gone,
//! ends the doubt for good: the API server refuses the write from then on, however late it comes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrolb_net_types::{ServiceKey, Time};
use serde::{Deserialize, Serialize};

/// A write of a Service's status that was, or may be, sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    /// Which Service.
    pub(crate) uid: String,
    /// The version it is to replace.
    #[serde(rename = "rv")]
    pub(crate) version: String,
    /// The addresses that the Service then has.
    #[serde(rename = "ips")]
    pub(crate) addresses: Vec<IpAddr>,
}

/// More are never added to the Lease at once.
pub(crate) const BATCH: usize = 500;

/// The annotation never grows beyond this many bytes: half of what Kubernetes admits for all annotations together.
pub(crate) const LIMIT: usize = 128 * 1024;

/// What a predecessor may have sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inherited {
    /// These.
    Known(Vec<Intent>),
    /// Nobody can tell: what it wrote down is lost.
    Unknown,
}

impl Default for Inherited {
    fn default() -> Self {
        Self::Known(vec![])
    }
}

/// Intents as they stand in the Lease. Without any it says so: an annotation that is missing was removed by somebody.
pub(crate) fn encode<'a>(intents: impl Iterator<Item = &'a Intent>) -> String {
    let intents: Vec<&Intent> = intents.collect();
    // Texts and addresses only: there is nothing in it that JSON could not say.
    serde_json::to_string(&intents).unwrap_or_default()
}

impl Inherited {
    /// Reads what [`encode`] or [`Inherited::encode`] wrote, or somebody else.
    pub(crate) fn decode(text: &str) -> Self {
        serde_json::from_str(text).map_or(Self::Unknown, Self::Known)
    }

    /// As it stands in the Lease, for those who come next.
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Known(intents) => encode(intents.iter()),
            Self::Unknown => "unknown".to_owned(),
        }
    }
}

impl Intent {
    /// How many bytes of the annotation it takes, the comma included.
    pub(crate) fn size(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len()) + 1
    }
}

/// Every intent whose outcome is not known, by uid.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    open: BTreeMap<String, Vec<Open>>,
    /// The bytes that all of them take in the Lease.
    size: usize,
}

/// One intent in the ledger.
#[derive(Clone, Debug)]
struct Open {
    intent: Intent,
    service: ServiceKey,
    /// A write is under way, or about to be sent.
    under_way: bool,
    /// Some write of it, this process's or another's, may still arrive without anybody waiting for its result; since
    /// when at the latest.
    doubtful: Option<Time>,
}

/// How a write ended, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was never sent, or it was refused for good.
    Nothing,
    /// Nobody knows, from this time on.
    Unknown(Time),
}

impl Ledger {
    /// All of them.
    pub(crate) fn intents(&self) -> impl Iterator<Item = &Intent> {
        self.open.values().flatten().map(|open| &open.intent)
    }

    /// How many bytes of the annotation all of them take.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Whether there is any write that may still arrive and that nobody waits for.
    pub(crate) fn has_doubts(&self) -> bool {
        self.open.values().flatten().any(|open| open.doubtful.is_some())
    }

    /// Whether this very intent is in it.
    pub(crate) fn contains(&self, intent: &Intent) -> bool {
        self.of(&intent.uid).iter().any(|open| open.intent == *intent)
    }

    /// A write of it is about to be sent.
    pub(crate) fn begin(&mut self, service: &ServiceKey, intent: Intent) {
        self.insert(service, intent, |open| open.under_way = true);
    }

    /// Somebody else may have sent a write of it.
    pub(crate) fn inherit(&mut self, service: &ServiceKey, intent: Intent, now: Time) {
        self.insert(service, intent, |open| open.doubtful = Some(now));
    }

    /// A write ended, or will not be sent.
    pub(crate) fn end(&mut self, intent: &Intent, end: End) {
        self.change(&intent.uid, |open| {
            if open.intent == *intent {
                open.under_way = false;
                if let End::Unknown(since) = end {
                    open.doubtful = open.doubtful.max(Some(since));
                }
            }
            open.under_way || open.doubtful.is_some()
        });
    }

    /// The Service was of this version at a time when no write that was in doubt before `since` could arrive any more.
    /// Whether there was any.
    pub(crate) fn settled(&mut self, uid: &str, version: &str, since: Time) -> bool {
        let mut any = false;
        self.change(uid, |open| {
            if open.intent.version == version && open.doubtful.is_some_and(|at| at <= since) {
                open.doubtful = None;
                any = true;
            }
            open.under_way || open.doubtful.is_some()
        });
        any
    }

    /// A Service is of this version now: intents for other ones are void. Whether there was any.
    pub(crate) fn seen(&mut self, uid: &str, version: &str) -> bool {
        self.change(uid, |open| open.intent.version == version)
    }

    /// A Service is gone.
    pub(crate) fn gone(&mut self, uid: &str) {
        self.change(uid, |_| false);
    }

    /// The addresses that have to stay reserved for a Service because a write may still arrive.
    pub(crate) fn doubtful(&self, uid: &str) -> Vec<IpAddr> {
        let doubtful = self.of(uid).iter().filter(|open| open.doubtful.is_some());
        doubtful.flat_map(|open| open.intent.addresses.iter().copied()).collect()
    }

    /// Every Service that may come to list addresses because of a write, awaited or not; with its uid and those.
    pub(crate) fn expected(&self) -> impl Iterator<Item = (&ServiceKey, &str, Vec<IpAddr>)> {
        self.open.iter().filter_map(|(uid, list)| {
            let addresses = list.iter().flat_map(|open| open.intent.addresses.iter().copied());
            Some((&list.first()?.service, uid.as_str(), addresses.collect()))
        })
    }

    fn of(&self, uid: &str) -> &[Open] {
        self.open.get(uid).map(Vec::as_slice).unwrap_or_default()
    }

    fn insert(&mut self, service: &ServiceKey, intent: Intent, mark: impl FnOnce(&mut Open)) {
        let list = self.open.entry(intent.uid.clone()).or_default();
        if let Some(open) = list.iter_mut().find(|open| open.intent == intent) {
            mark(open);
            return;
        }
        self.size += intent.size();
        let mut open = Open { intent, service: service.clone(), under_way: false, doubtful: None };
        mark(&mut open);
        list.push(open);
    }

    fn change(&mut self, uid: &str, mut keep: impl FnMut(&mut Open) -> bool) -> bool {
        let Some(list) = self.open.get_mut(uid) else { return false };
        let gone: usize = list.extract_if(.., |open| !keep(open)).map(|open| open.intent.size()).sum();
        self.size -= gone;
        if list.is_empty() {
            self.open.remove(uid);
        }
        gone > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(uid: &str, version: &str, addresses: &[&str]) -> Intent {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        Intent { uid: uid.to_owned(), version: version.to_owned(), addresses }
    }

    fn service() -> ServiceKey {
        ServiceKey::new("n", "s")
    }

    #[test]
    fn intents_survive_the_annotation() {
        let list = [intent("u1", "17", &["10.0.0.1", "fd00::1"]), intent("u2", "18", &[])];
        let text = encode(list.iter());
        assert_eq!(
            text,
            r#"[{"uid":"u1","rv":"17","ips":["10.0.0.1","fd00::1"]},{"uid":"u2","rv":"18","ips":[]}]"#
        );
        let known = Inherited::Known(list.into());
        assert_eq!((Inherited::decode(&text), known.encode()), (known, text));
        assert_eq!(Inherited::decode(&encode([].iter())), Inherited::default());
        for text in ["", "{}", &Inherited::Unknown.encode()] {
            assert_eq!(Inherited::decode(text), Inherited::Unknown, "{text}");
        }
    }

    #[test]
    fn a_full_batch_of_the_longest_intents_fits() {
        let longest = intent(
            "01234567-89ab-cdef-0123-456789abcdef",
            "18446744073709551615",
            &["255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"],
        );
        let batch: Vec<Intent> = (0..BATCH).map(|_| longest.clone()).collect();
        let text = encode(batch.iter());
        assert!(text.len() <= LIMIT, "{}", text.len());
        // The brackets cost two bytes, the comma after the last is not there.
        assert_eq!(text.len(), BATCH * longest.size() + 1);
    }

    #[test]
    fn a_known_end_closes_an_intent_and_an_unknown_one_does_not() {
        let mut ledger = Ledger::default();
        let first = intent("u", "1", &["10.0.0.1"]);
        ledger.begin(&service(), first.clone());
        assert!(ledger.contains(&first));
        assert_eq!(ledger.doubtful("u"), [] as [IpAddr; 0], "somebody waits for it");
        ledger.end(&first, End::Unknown(Time::ZERO));
        assert_eq!(ledger.doubtful("u"), first.addresses);
        // Tried again, and refused: the first attempt may still arrive.
        ledger.begin(&service(), first.clone());
        ledger.end(&first, End::Nothing);
        assert_eq!(ledger.doubtful("u"), first.addresses);
        ledger.seen("u", "1");
        assert_eq!(ledger.expected().count(), 1);
        ledger.seen("u", "2");
        assert_eq!((ledger.intents().count(), ledger.size()), (0, 0));
        ledger.begin(&service(), first.clone());
        ledger.end(&first, End::Nothing);
        assert_eq!((ledger.intents().count(), ledger.size()), (0, 0));
    }

    #[test]
    fn what_cannot_arrive_any_more_is_settled() {
        let mut ledger = Ledger::default();
        let first = intent("u", "1", &["10.0.0.1"]);
        ledger.begin(&service(), first.clone());
        ledger.end(&first, End::Unknown(Time::millis(10)));
        assert!(!ledger.settled("u", "2", Time::millis(10)), "of another version");
        assert!(!ledger.settled("u", "1", Time::millis(9)), "too early");
        // It was tried again meanwhile.
        ledger.begin(&service(), first.clone());
        ledger.end(&first, End::Unknown(Time::millis(20)));
        assert!(!ledger.settled("u", "1", Time::millis(19)));
        assert!(ledger.settled("u", "1", Time::millis(20)));
        assert_eq!((ledger.intents().count(), ledger.size()), (0, 0));
    }

    #[test]
    fn what_was_inherited_goes_with_the_version_or_the_service_and_not_before() {
        let mut ledger = Ledger::default();
        for (uid, version) in [("a", "1"), ("a", "2"), ("b", "1")] {
            ledger.inherit(&service(), intent(uid, version, &["10.0.0.1"]), Time::ZERO);
        }
        ledger.seen("a", "2");
        assert_eq!(ledger.intents().map(|i| i.version.as_str()).collect::<Vec<_>>(), ["2", "1"]);
        ledger.gone("b");
        ledger.gone("c");
        assert_eq!(ledger.intents().count(), 1);
        assert_eq!(ledger.size(), intent("a", "2", &["10.0.0.1"]).size());
    }
}
