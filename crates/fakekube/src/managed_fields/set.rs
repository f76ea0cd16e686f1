// SPDX-License-Identifier: Apache-2.0
//! Sets of field paths in the form that `managedFields` stores (FieldsV1).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of paths. A path's steps are written as FieldsV1 writes them: `f:name` for a field,
/// `k:{"port":80}` for a list item by its keys, `v:"x"` for a list item by its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Set {
    steps: BTreeMap<String, Node>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    /// Whether the path that ends here is in the set.
    member: bool,
    below: Set,
}

impl Set {
    /// Reads FieldsV1.
    pub(crate) fn read(value: &Value) -> Self {
        let mut set = Self::default();
        for (step, below) in value.as_object().into_iter().flatten() {
            if step == "." {
                continue;
            }
            let children = Self::read(below);
            let member = children.is_empty() || below.get(".").is_some();
            set.steps.insert(step.clone(), Node { member, below: children });
        }
        set
    }

    /// Writes FieldsV1.
    pub(crate) fn write(&self) -> Value {
        let mut map = Map::new();
        for (step, node) in &self.steps {
            let mut below = node.below.write();
            if let Value::Object(below) = &mut below
                && node.member
                && !below.is_empty()
            {
                below.insert(".".into(), Value::Object(Map::new()));
            }
            map.insert(step.clone(), below);
        }
        Value::Object(map)
    }

    /// Adds the path of one step.
    pub(crate) fn insert(&mut self, step: String) {
        self.steps.entry(step).or_default().member = true;
    }

    /// Adds paths that continue a step.
    pub(crate) fn nest(&mut self, step: String, below: Self) {
        if below.is_empty() {
            return;
        }
        let node = self.steps.entry(step).or_default();
        node.below = std::mem::take(&mut node.below).union(&below);
    }

    /// Whether it holds no path.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether the path of this one step is in it.
    pub(crate) fn has(&self, step: &str) -> bool {
        self.steps.get(step).is_some_and(|node| node.member)
    }

    /// What continues a step.
    pub(crate) fn below(&self, step: &str) -> Option<&Self> {
        self.steps.get(step).map(|node| &node.below)
    }

    /// Both together.
    pub(crate) fn union(mut self, other: &Self) -> Self {
        for (step, node) in &other.steps {
            let mine = self.steps.entry(step.clone()).or_default();
            mine.member |= node.member;
            mine.below = std::mem::take(&mut mine.below).union(&node.below);
        }
        self
    }

    /// What is not in the other. A path is removed by itself: what continues it stays.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && !theirs, true)
    }

    /// What is in both.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && theirs, false)
    }

    /// What neither is in the other nor continues a path of it.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut set = Self::default();
        for (step, node) in &self.steps {
            match other.steps.get(step) {
                Some(theirs) if theirs.member => {}
                Some(theirs) => {
                    let below = node.below.without(&theirs.below);
                    if node.member || !below.is_empty() {
                        set.steps.insert(step.clone(), Node { member: node.member, below });
                    }
                }
                None => {
                    set.steps.insert(step.clone(), node.clone());
                }
            }
        }
        set
    }

    /// The paths as error messages write them: `.spec.ports[port=80].name`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(String::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: String, paths: &mut Vec<String>) {
        for (step, node) in &self.steps {
            let here = format!("{prefix}{}", readable(step));
            if node.member {
                paths.push(here.clone());
            }
            node.below.collect(here, paths);
        }
    }

    fn combine(&self, other: &Self, member: fn(bool, bool) -> bool, keep: bool) -> Self {
        let mut set = Self::default();
        for (step, node) in &self.steps {
            let new = match other.steps.get(step) {
                Some(theirs) => Node {
                    member: member(node.member, theirs.member),
                    below: node.below.combine(&theirs.below, member, keep),
                },
                None if keep => node.clone(),
                None => continue,
            };
            if new.member || !new.below.is_empty() {
                set.steps.insert(step.clone(), new);
            }
        }
        set
    }
}

fn readable(step: &str) -> String {
    match step.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("v:", value)) => format!("[={value}]"),
        Some(("k:", keys)) => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{}]", step.trim_start_matches("i:")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_v1_is_read_and_written_unchanged() {
        let fields = json!({ "f:metadata": { "f:labels": { ".": {}, "f:a": {} } },
            "f:spec": { "f:ports": { "k:{\"port\":80}": { ".": {}, "f:port": {} } } } });
        assert_eq!(Set::read(&fields).write(), fields);
    }

    #[test]
    fn difference_and_intersection_work_path_by_path() {
        let a = Set::read(&json!({ "f:x": { ".": {}, "f:y": {}, "f:z": {} } }));
        let b = Set::read(&json!({ "f:x": { "f:y": {} } }));
        assert_eq!(a.difference(&b).write(), json!({ "f:x": { ".": {}, "f:z": {} } }));
        assert_eq!(a.intersection(&b).write(), json!({ "f:x": { "f:y": {} } }));
        let parent = Set::read(&json!({ "f:x": {} }));
        assert_eq!(a.difference(&parent).write(), json!({ "f:x": { "f:y": {}, "f:z": {} } }));
        assert!(a.without(&parent).is_empty());
        assert_eq!(a.paths(), [".x", ".x.y", ".x.z"]);
    }
}
