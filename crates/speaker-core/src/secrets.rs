// SPDX-License-Identifier: Apache-2.0
//! The Secrets that the configuration refers to: which ones to watch, and whether it is known what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_net_types::Time;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

/// A Secret of which nothing is heard for so long counts as missing.
const PATIENCE: Duration = Duration::from_secs(5);

/// The Secrets that are watched.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    /// Since when each is watched, until something is known of it.
    watched: BTreeMap<String, Option<Time>>,
}

impl Secrets {
    /// Has these watched from now on, if they are others than before; `known` forgets the rest.
    pub(crate) fn want(
        &mut self,
        now: Time,
        names: BTreeSet<String>,
        known: &mut Vec<Secret>,
    ) -> Option<BTreeSet<String>> {
        if names.iter().eq(self.watched.keys()) {
            return None;
        }
        known.retain(|secret| names.contains(&secret.name_any()));
        self.watched.retain(|name, _| names.contains(name));
        for name in &names {
            self.watched.entry(name.clone()).or_insert(Some(now));
        }
        Some(names)
    }

    /// Takes what is known of one; whether that is news.
    pub(crate) fn take(
        &mut self,
        name: String,
        secret: Option<Box<Secret>>,
        known: &mut Vec<Secret>,
    ) -> bool {
        let Some(waiting) = self.watched.get_mut(&name) else { return false };
        let first = waiting.take().is_some();
        let place = known.iter().position(|secret| secret.name_any() == name);
        match (secret, place) {
            (Some(secret), Some(place)) if known[place] == *secret => first,
            (Some(secret), Some(place)) => {
                known[place] = *secret;
                true
            }
            (Some(secret), None) => {
                known.push(*secret);
                true
            }
            (None, Some(place)) => {
                known.remove(place);
                true
            }
            (None, None) => first,
        }
    }

    /// Those that are waited for still.
    pub(crate) fn awaited(&mut self, now: Time) -> BTreeSet<String> {
        for waiting in self.watched.values_mut() {
            waiting.take_if(|since| now >= *since + PATIENCE);
        }
        let awaited = self.watched.iter().filter(|(_, since)| since.is_some());
        awaited.map(|(name, _)| name.clone()).collect()
    }

    /// When one is waited for no longer.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.watched.values().flatten().map(|since| *since + PATIENCE).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn secret(name: &str, value: &str) -> Option<Box<Secret>> {
        let mut secret = Secret { type_: Some(value.to_owned()), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        Some(Box::new(secret))
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_what_is_asked_for_is_kept_and_waited_for() {
        let (mut secrets, mut known) = (Secrets::default(), Vec::new());
        assert_eq!(secrets.want(at(0), names(&[]), &mut known), None);
        assert_eq!(secrets.want(at(0), names(&["a"]), &mut known), Some(names(&["a"])));
        assert_eq!(secrets.want(at(1), names(&["a"]), &mut known), None, "once is enough");
        assert_eq!(secrets.awaited(at(4)), names(&["a"]));
        assert!(!secrets.take("b".to_owned(), secret("b", "x"), &mut known), "nobody asked");
        assert!(secrets.take("a".to_owned(), secret("a", "x"), &mut known));
        assert!(secrets.awaited(at(4)).is_empty() && secrets.next_deadline().is_none());
        assert!(!secrets.take("a".to_owned(), secret("a", "x"), &mut known), "it is known");
        assert!(secrets.take("a".to_owned(), secret("a", "y"), &mut known));
        assert_eq!(known.len(), 1);
        assert!(secrets.take("a".to_owned(), None, &mut known));
        assert!(known.is_empty());
    }

    #[test]
    fn one_that_never_comes_is_missing_after_five_seconds() {
        let (mut secrets, mut known) = (Secrets::default(), Vec::new());
        secrets.want(at(0), names(&["a"]), &mut known);
        assert_eq!(secrets.next_deadline(), Some(at(5)));
        assert_eq!((secrets.awaited(at(4)), secrets.awaited(at(5))), (names(&["a"]), names(&[])));
        assert_eq!(secrets.next_deadline(), None);
        assert!(!secrets.take("a".to_owned(), None, &mut known), "it counts as missing already");
        assert_eq!(secrets.want(at(9), names(&["b"]), &mut known), Some(names(&["b"])));
        assert_eq!(secrets.next_deadline(), Some(at(14)));
    }
}
