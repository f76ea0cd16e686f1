// SPDX-License-Identifier: Apache-2.0
//! The configuration: its objects come in, and whenever one that matters changed they are evaluated anew.

use std::collections::BTreeSet;
use std::str::FromStr;

use ferrolb_api::Change;
use ferrolb_config::{
    BgpType, Config, Diagnostic, Evaluation, Labels, LastGood, Resources, Undecodable, apply, evaluate,
};
use ferrolb_net_types::NodeName;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};

use crate::io::Settings;

#[derive(Debug)]
pub(crate) struct Intake {
    namespace: String,
    pub(crate) resources: Resources,
    evaluation: Evaluation,
    changed: bool,
    /// An evaluation that MetalLB would accept was seen.
    loaded: bool,
    /// What was said last to the metrics.
    told: Option<(bool, bool)>,
}

/// What came of an evaluation.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What is in force changed.
    pub(crate) in_force: bool,
    /// `(loaded, stale)`, if that changed.
    pub(crate) metrics: Option<(bool, bool)>,
}

impl Intake {
    pub(crate) fn new(settings: &Settings) -> Self {
        let Ok(bgp_type) = BgpType::from_str(&settings.bgp_type);
        Self {
            namespace: settings.namespace.clone(),
            resources: Resources { bgp_type, own_node: Some(settings.node.clone()), ..Resources::default() },
            evaluation: evaluate(&Resources::default(), &LastGood::default()),
            changed: true,
            loaded: false,
            told: None,
        }
    }

    /// Takes a change of configuration objects; those of other namespaces are ignored.
    pub(crate) fn objects<K>(&mut self, list: impl FnOnce(&mut Resources) -> &mut Vec<K>, change: Change<K>)
    where
        K: Resource + HasSpec,
        K::Spec: PartialEq,
    {
        let ours = |object: &K| object.meta().namespace.as_deref() == Some(self.namespace.as_str());
        let change = match change {
            Change::Applied(object) if !ours(&object) => return,
            Change::Deleted { namespace, .. } if namespace != self.namespace => return,
            Change::Reset(objects) => {
                Change::Reset(objects.into_iter().filter(|object| ours(object)).collect())
            }
            change => change,
        };
        self.changed |= apply(list(&mut self.resources), change);
    }

    /// Takes the objects that exist and cannot be decoded.
    pub(crate) fn undecodable(&mut self, objects: Vec<Undecodable>) {
        self.changed |= self.resources.undecodable != objects;
        self.resources.undecodable = objects;
    }

    pub(crate) fn nodes(&mut self, change: &Change<Node>) {
        let nodes = &mut self.resources.nodes;
        self.changed |= match change {
            Change::Applied(node) => {
                let labels = labels(&**node);
                nodes.insert(name(node), labels.clone()) != Some(labels)
            }
            Change::Deleted { name, .. } => nodes.remove(name.as_str()).is_some(),
            Change::Reset(all) => {
                let new = all.iter().map(|node| (name(node), labels(node))).collect();
                std::mem::replace(nodes, new) != self.resources.nodes
            }
        };
    }

    /// Whether the change brings other labels of this node.
    pub(crate) fn relabels(&self, change: &Change<Node>, own: &NodeName) -> bool {
        let news = |node: &Node| {
            node.metadata.name.as_deref() == Some(own.as_str())
                && self.resources.nodes.get(own) != Some(&labels(node))
        };
        match change {
            Change::Applied(node) => news(node),
            Change::Deleted { .. } => false,
            Change::Reset(nodes) => nodes.iter().any(news),
        }
    }

    pub(crate) fn namespaces(&mut self, change: &Change<Namespace>) {
        let namespaces = &mut self.resources.namespaces;
        self.changed |= match change {
            Change::Applied(namespace) => {
                let labels = labels(&**namespace);
                namespaces.insert(namespace.name_any(), labels.clone()) != Some(labels)
            }
            Change::Deleted { name, .. } => namespaces.remove(name).is_some(),
            Change::Reset(all) => {
                let new = all.iter().map(|namespace| (namespace.name_any(), labels(namespace))).collect();
                std::mem::replace(namespaces, new) != self.resources.namespaces
            }
        };
    }

    /// What is in force.
    pub(crate) const fn config(&self) -> &Config {
        &self.evaluation.config
    }

    pub(crate) const fn evaluation(&self) -> &Evaluation {
        &self.evaluation
    }

    /// Evaluates if something changed since the last time.
    pub(crate) fn evaluate(&mut self) -> Option<Outcome> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let last_good: &LastGood = &self.evaluation.last_good;
        let new = evaluate(&self.resources, last_good);
        log_news(&self.evaluation, &new);
        let in_force = new.config != self.evaluation.config;
        self.loaded |= new.verdict.is_ok();
        let metrics = (self.loaded, new.verdict.is_err());
        self.evaluation = new;
        Some(Outcome { in_force, metrics: (self.told.replace(metrics) != Some(metrics)).then_some(metrics) })
    }
}

/// One line for each fault that was not there before.
fn log_news(before: &Evaluation, after: &Evaluation) {
    let known: BTreeSet<&Diagnostic> = before.diagnostics.iter().chain(&before.unsupported).collect();
    for fault in after.diagnostics.iter().filter(|fault| !known.contains(*fault)) {
        tracing::error!(
            controller = "ConfigReconciler",
            kind = fault.kind,
            name = fault.name,
            error = fault.message,
            "a configuration object is invalid; its last good version, if any, stays in force"
        );
    }
    for object in after.unsupported.iter().filter(|object| !known.contains(*object)) {
        tracing::warn!(
            controller = "ConfigReconciler",
            kind = object.kind,
            name = object.name,
            error = object.message,
            "a configuration object is not served"
        );
    }
    if before.config != after.config {
        tracing::info!(
            controller = "ConfigReconciler",
            event = "config reloaded",
            "the configuration changed"
        );
    }
}

fn name(node: &Node) -> NodeName {
    NodeName::from(node.name_any())
}

fn labels<K: Resource>(object: &K) -> Labels {
    object.meta().labels.clone().unwrap_or_default()
}
