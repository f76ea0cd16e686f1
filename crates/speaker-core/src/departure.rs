// SPDX-License-Identifier: Apache-2.0
//! Whether a node is about to go, as far as its Node tells: those that a speaker says goodbye to are told. A speaker that
//! ends on a node that stays is one thing to a network engineer, a node that is drained or shuts down another.

use std::collections::BTreeSet;

use ferrolb_api::{Change, labels};
use ferrolb_net_types::NodeName;
use k8s_openapi::api::core::v1::Node;

/// What the own node says.
#[derive(Debug)]
pub(crate) struct Departure {
    own: NodeName,
    signs: BTreeSet<Sign>,
}

/// A sign that a node is about to go, in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Deleted,
    /// `spec.unschedulable`, which is how a drain begins.
    Cordoned,
    OutOfService,
    ToBeDeleted,
    Excluded,
    /// The kubelet says so while it shuts the node down.
    NotReady,
}

impl Departure {
    pub(crate) const fn of(own: NodeName) -> Self {
        Self { own, signs: BTreeSet::new() }
    }

    /// Takes note of a change of nodes.
    pub(crate) fn nodes(&mut self, change: &Change<Node>) {
        let before = self.words();
        match change {
            Change::Applied(node) => self.look_at(node),
            Change::Deleted { name, .. } if name == self.own.as_str() => self.signs = [Sign::Deleted].into(),
            Change::Deleted { .. } => {}
            Change::Reset(nodes) => {
                self.signs = [Sign::Deleted].into();
                nodes.iter().for_each(|node| self.look_at(node));
            }
        }
        let now = self.words();
        if now != before {
            let is = now.as_deref().unwrap_or("to stay");
            tracing::info!(event = "nodeDeparture", node = %self.own, "the node is {is}");
        }
    }

    /// What the node is, as `cordoned and not ready`; `None` if there is no sign that it is about to go.
    pub(crate) fn words(&self) -> Option<String> {
        let words: Vec<_> = self.signs.iter().map(|sign| sign.word()).collect();
        (!words.is_empty()).then(|| words.join(" and "))
    }

    fn look_at(&mut self, node: &Node) {
        if node.metadata.name.as_deref() != Some(self.own.as_str()) {
            return;
        }
        let spec = node.spec.as_ref();
        let tainted = |key: &str| {
            let mut taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
            taints.any(|taint| taint.key == key)
        };
        let labelled = |key| node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
        let status = node.status.as_ref();
        let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let signs = [
            (Sign::Deleted, node.metadata.deletion_timestamp.is_some()),
            (Sign::Cordoned, spec.and_then(|spec| spec.unschedulable) == Some(true)),
            (Sign::OutOfService, tainted("node.kubernetes.io/out-of-service")),
            (Sign::ToBeDeleted, tainted("ToBeDeletedByClusterAutoscaler")),
            (Sign::Excluded, labelled(labels::EXCLUDE_FROM_LOAD_BALANCERS)),
            (Sign::NotReady, conditions.any(|one| one.type_ == "Ready" && one.status != "True")),
        ];
        self.signs = signs.into_iter().filter_map(|(sign, shows)| shows.then_some(sign)).collect();
    }
}

impl Sign {
    const fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Cordoned => "cordoned",
            Self::OutOfService => "out of service",
            Self::ToBeDeleted => "about to be deleted by the cluster autoscaler",
            Self::Excluded => "excluded from load balancers",
            Self::NotReady => "not ready",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, more: &Value) -> Node {
        let mut node = json!({ "metadata": { "name": name } });
        for (key, value) in more.as_object().unwrap() {
            if key == "labels" {
                node["metadata"][key] = value.clone();
            } else {
                node[key] = value.clone();
            }
        }
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_node_that_is_about_to_go_shows_by_its_object() {
        let ready = |status: &str| json!({ "conditions": [{ "type": "Ready", "status": status }] });
        let taint = |key: &str| json!({ "taints": [{ "key": key, "effect": "NoExecute" }] });
        for (more, words) in [
            (json!({ "status": ready("True") }), None),
            (json!({ "spec": { "unschedulable": true } }), Some("cordoned")),
            (
                json!({ "spec": { "unschedulable": true }, "status": ready("False") }),
                Some("cordoned and not ready"),
            ),
            (json!({ "status": ready("Unknown") }), Some("not ready")),
            (json!({ "spec": taint("node.kubernetes.io/out-of-service") }), Some("out of service")),
            (
                json!({ "spec": taint("ToBeDeletedByClusterAutoscaler") }),
                Some("about to be deleted by the cluster autoscaler"),
            ),
            (json!({ "spec": taint("node.kubernetes.io/disk-pressure") }), None),
            (
                json!({ "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } }),
                Some("excluded from load balancers"),
            ),
        ] {
            let mut departure = Departure::of("n1".into());
            departure.nodes(&Change::Reset(vec![
                node("n0", &json!({ "spec": { "unschedulable": true } })),
                node("n1", &more),
            ]));
            assert_eq!(departure.words().as_deref(), words, "{more}");
            departure
                .nodes(&Change::Applied(Box::new(node("n2", &json!({ "spec": { "unschedulable": true } })))));
            assert_eq!(departure.words().as_deref(), words, "others are not looked at");
            departure.nodes(&Change::Applied(Box::new(node("n1", &json!({})))));
            assert_eq!(departure.words(), None);
        }
    }

    #[test]
    fn a_node_that_is_gone_is_deleted() {
        let mut departure = Departure::of("n1".into());
        let gone = |name: &str| Change::Deleted { namespace: String::new(), name: name.to_owned() };
        departure.nodes(&gone("n2"));
        assert_eq!(departure.words(), None);
        departure.nodes(&gone("n1"));
        assert_eq!(departure.words().as_deref(), Some("deleted"));
        departure.nodes(&Change::Reset(vec![node("n1", &json!({}))]));
        assert_eq!(departure.words(), None);
        departure.nodes(&Change::Reset(vec![]));
        assert_eq!(departure.words().as_deref(), Some("deleted"));
    }
}
