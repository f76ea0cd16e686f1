// SPDX-License-Identifier: Apache-2.0
//! Objects, revisions and the history that watches read. One lock guards all of it; nothing is awaited
//! while it is held.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::object::{self, metadata_mut};

/// Namespace (empty for cluster-wide objects) and name.
pub(crate) type Key = (String, String);

/// A stored object with the revision of its last change.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// Revision of its last change.
    pub(crate) revision: u64,
    /// The object, resourceVersion included.
    pub(crate) object: Arc<Value>,
}

/// One change, as a watch sees it.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// Revision of the change.
    pub(crate) revision: u64,
    /// The object before, if there was one.
    pub(crate) before: Option<Arc<Value>>,
    /// The object after; `None` when it was deleted.
    pub(crate) after: Option<Arc<Value>>,
    /// The deleted object with the revision of its deletion.
    pub(crate) last: Option<Arc<Value>>,
    /// What watches have said of it.
    pub(crate) lines: Lines,
}

/// Lines of watches about one change, by event and `apiVersion`: what one watch has put into words, the others repeat.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<Line>>>);

#[derive(Debug)]
struct Line {
    event: &'static str,
    api_version: String,
    text: Bytes,
}

impl Lines {
    /// The line, if a watch has made it already.
    pub(crate) fn find(&self, event: &str, api_version: &str) -> Option<Bytes> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.iter().find(|line| line.event == event && line.api_version == api_version);
        known.map(|line| line.text.clone())
    }

    /// Keeps a line for other watches.
    pub(crate) fn keep(&self, event: &'static str, api_version: String, text: Bytes) {
        let line = Line { event, api_version, text };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Why a commit did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stale {
    /// The object is not what it was when the change was computed.
    Changed,
}

/// All objects of the cluster.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    history: usize,
}

#[derive(Debug)]
struct State {
    revision: u64,
    kinds: HashMap<String, Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Key, Stored>,
    changes: VecDeque<Change>,
    /// Revision of the newest change that is no longer kept, or a later one.
    forgotten: u64,
    /// Revision of the newest change.
    newest: u64,
    /// Tells of every change.
    news: watch::Sender<u64>,
}

/// For so many changes of a kind the lines of watches are kept: whoever is further behind makes its own.
const LINES_KEPT: usize = 256;

impl Store {
    /// An empty store that keeps this many changes per kind.
    pub(crate) fn new(history: usize) -> Self {
        // Revision 1 is the empty cluster: "0" has a meaning of its own in requests.
        let state = State { revision: 1, kinds: HashMap::new() };
        Self { state: Mutex::new(state), history }
    }

    /// Writes `after` (or deletes, with `None`) if the object's revision is still `expected`
    /// (`None`: there is none). The written object comes back with its resourceVersion.
    pub(crate) fn commit(
        &self,
        kind: &str,
        key: &Key,
        expected: Option<u64>,
        after: Option<Value>,
    ) -> Result<Arc<Value>, Stale> {
        let mut state = self.lock();
        let revision = state.revision + 1;
        let shelf = state.kinds.entry(kind.to_owned()).or_default();
        let before = shelf.objects.get(key);
        if before.map(|stored| stored.revision) != expected {
            return Err(Stale::Changed);
        }
        let before = before.map(|stored| Arc::clone(&stored.object));
        let (written, change) = match after {
            Some(mut object) => {
                metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
                let object = Arc::new(object);
                shelf.objects.insert(key.clone(), Stored { revision, object: Arc::clone(&object) });
                let after = Some(Arc::clone(&object));
                let change = Change { revision, before, after, last: None, lines: Lines::default() };
                (object, change)
            }
            None => {
                let Some(before) = before else { return Err(Stale::Changed) };
                shelf.objects.remove(key);
                let mut last = (*before).clone();
                metadata_mut(&mut last).insert("resourceVersion".into(), revision.to_string().into());
                let last = Arc::new(last);
                let change = Change {
                    revision,
                    before: Some(before),
                    after: None,
                    last: Some(Arc::clone(&last)),
                    lines: Lines::default(),
                };
                (last, change)
            }
        };
        shelf.changes.push_back(change);
        while shelf.changes.len() > self.history {
            if let Some(old) = shelf.changes.pop_front() {
                shelf.forgotten = old.revision;
            }
        }
        let behind = shelf.changes.len().checked_sub(LINES_KEPT);
        if let Some(change) = behind.and_then(|behind| shelf.changes.get(behind)) {
            change.lines.forget();
        }
        shelf.newest = revision;
        let news = shelf.news.clone();
        state.revision = revision;
        drop(state);
        news.send_replace(revision);
        Ok(written)
    }

    /// Forgets all history, so that every older resourceVersion is answered with 410.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        let now = state.revision;
        for shelf in state.kinds.values_mut() {
            shelf.changes.clear();
            shelf.forgotten = now;
        }
    }

    /// Forgets the history of some kinds, the present included: whoever resumes from what was told so far is
    /// answered with 410, even if nothing has changed since.
    pub(crate) fn expire(&self, kinds: &BTreeSet<&str>) {
        let mut state = self.lock();
        state.revision += 1;
        let now = state.revision;
        for kind in kinds {
            let shelf = state.kinds.entry((*kind).to_owned()).or_default();
            shelf.changes.clear();
            shelf.forgotten = now;
            // As if there had been a change that nobody remembers.
            shelf.newest = now;
            shelf.news.send_replace(now);
        }
    }

    /// Wakes all watches, though nothing was stored.
    pub(crate) fn wake(&self) {
        for shelf in self.lock().kinds.values() {
            shelf.news.send_modify(|_| {});
        }
    }

    /// The object, if there is one.
    pub(crate) fn find(&self, kind: &str, key: &Key) -> Option<Stored> {
        self.lock().kinds.get(kind)?.objects.get(key).cloned()
    }

    /// Objects of a kind in order of namespace and name, in one namespace or all, with the revision of
    /// the answer.
    pub(crate) fn list(&self, kind: &str, namespace: Option<&str>) -> (u64, Vec<Stored>) {
        let state = self.lock();
        let objects = match (state.kinds.get(kind), namespace) {
            (None, _) => Vec::new(),
            (Some(shelf), None) => shelf.objects.values().cloned().collect(),
            (Some(shelf), Some(namespace)) => shelf
                .objects
                .range((namespace.to_owned(), String::new())..)
                .take_while(|((ns, _), _)| ns == namespace)
                .map(|(_, stored)| stored.clone())
                .collect(),
        };
        (state.revision, objects)
    }

    /// Changes of a kind after `revision` with the revision they lead to; `None` when some of them are
    /// no longer kept.
    pub(crate) fn changes_since(&self, kind: &str, revision: u64) -> Option<(u64, Vec<Change>)> {
        self.changes(kind, revision, false)
    }

    /// As [`Store::changes_since`], for a watch that was told of every change up to `revision`: that history is
    /// forgotten is none of its concern as long as it has missed nothing.
    pub(crate) fn news_since(&self, kind: &str, revision: u64) -> Option<(u64, Vec<Change>)> {
        self.changes(kind, revision, true)
    }

    fn changes(&self, kind: &str, revision: u64, told: bool) -> Option<(u64, Vec<Change>)> {
        let state = self.lock();
        let now = state.revision;
        let Some(shelf) = state.kinds.get(kind) else { return Some((now, Vec::new())) };
        if revision < shelf.forgotten && !(told && revision >= shelf.newest) {
            return None;
        }
        let start = shelf.changes.partition_point(|change| change.revision <= revision);
        Some((now, shelf.changes.range(start..).cloned().collect()))
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Tells of every change of a kind.
    pub(crate) fn subscribe(&self, kind: &str) -> watch::Receiver<u64> {
        self.lock().kinds.entry(kind.to_owned()).or_default().news.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The key of an object.
pub(crate) fn key_of(object: &Value) -> Key {
    (object::namespace(object).to_owned(), object::name(object).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(name: &str) -> (Key, Value) {
        ((String::new(), name.to_owned()), json!({ "metadata": { "name": name } }))
    }

    #[test]
    fn a_commit_on_a_stale_revision_changes_nothing() {
        let store = Store::new(10);
        let (key, object) = named("a");
        let written = store.commit("nodes", &key, None, Some(object.clone())).expect("creates");
        assert_eq!(object::resource_version(&written), "2");
        assert_eq!(store.commit("nodes", &key, None, Some(object.clone())), Err(Stale::Changed));
        assert_eq!(store.commit("nodes", &key, Some(1), Some(object)), Err(Stale::Changed));
        assert_eq!(store.revision(), 2);
    }

    #[test]
    fn a_watch_that_missed_nothing_goes_on_over_a_compaction_and_one_that_comes_back_does_not() {
        let store = Store::new(10);
        let (key, object) = named("a");
        store.commit("nodes", &key, None, Some(object.clone())).expect("creates");
        store.commit("pods", &key, None, Some(object)).expect("creates");
        store.compact();
        // Of the change of another kind it was not told.
        assert!(store.news_since("nodes", 2).is_some());
        assert!(store.changes_since("nodes", 2).is_none());
        assert!(store.news_since("nodes", 1).is_none());
        store.expire(&BTreeSet::from(["nodes"]));
        assert!(store.news_since("nodes", 2).is_none());
    }

    #[tokio::test]
    async fn only_changes_of_its_own_kind_wake_a_watch() {
        let store = Store::new(10);
        let mut nodes = store.subscribe("nodes");
        let (key, object) = named("a");
        store.commit("pods", &key, None, Some(object.clone())).expect("creates");
        assert!(!nodes.has_changed().expect("open"));
        store.commit("nodes", &key, None, Some(object)).expect("creates");
        assert!(nodes.has_changed().expect("open"));
        nodes.mark_unchanged();
        store.wake();
        assert!(nodes.has_changed().expect("open"));
    }

    #[test]
    fn what_expired_cannot_be_resumed_even_from_the_newest_revision() {
        let store = Store::new(10);
        let (key, object) = named("a");
        store.commit("nodes", &key, None, Some(object)).expect("creates");
        assert!(store.changes_since("nodes", 2).is_some());
        store.expire(&BTreeSet::from(["nodes"]));
        assert!(store.changes_since("nodes", 2).is_none());
        assert!(store.changes_since("pods", 2).is_some());
        let (revision, objects) = store.list("nodes", None);
        assert_eq!(objects.len(), 1);
        assert!(store.changes_since("nodes", revision).is_some(), "a new list can be resumed");
    }

    #[test]
    fn forgotten_changes_are_told_apart_from_none() {
        let store = Store::new(2);
        for name in ["a", "b", "c"] {
            let (key, object) = named(name);
            store.commit("nodes", &key, None, Some(object)).expect("creates");
        }
        assert!(store.changes_since("nodes", 1).is_none());
        let (now, changes) = store.changes_since("nodes", 2).expect("kept");
        assert_eq!((now, changes.len()), (4, 2));
        assert_eq!(store.changes_since("pods", 1).expect("no such kind").1.len(), 0);
    }
}
