// SPDX-License-Identifier: Apache-2.0
//! The configuration: its objects come in, and whenever one that matters changed they are evaluated anew. What comes
//! out is in force, except where speakers of MetalLB would not take it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ferrolb_announce::NodePlan;
use ferrolb_api::Change;
use ferrolb_config::state::Outcome;
use ferrolb_config::{
    BgpType, Config, Diagnostic, Evaluation, Labels, LastGood, Resources, Undecodable, apply, evaluate,
    secrets_named,
};
use ferrolb_net_types::{NodeName, ServiceKey, Time};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};

use crate::io::Settings;
use crate::secrets::Secrets;

#[derive(Debug)]
pub(crate) struct Intake {
    namespace: String,
    pub(crate) resources: Resources,
    evaluation: Evaluation,
    changed: bool,
    /// Something was evaluated.
    evaluated: bool,
    /// What BGP goes by is another configuration than before.
    bgp_news: bool,
    secrets: Secrets,
    /// What decisions are made by: what was evaluated, unless that is held back.
    in_force: Config,
    /// Something was put in force.
    known: bool,
    /// What was evaluated is not what is in force.
    pending: bool,
    /// Why it is held back.
    refusal: Option<Refusal>,
    /// An evaluation that MetalLB would accept was seen.
    loaded: bool,
    /// What was said last to the metrics.
    told: Option<(bool, bool)>,
}

/// Why MetalLB's speakers do not take a configuration, so that beside them it is not to be taken either: they elect by
/// what they have, and whoever has something else may name another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They would refuse the objects, and it is not known yet whether there are any of them.
    Unheard,
    /// They refuse the objects.
    Invalid(String),
    /// A Service that is announced would be in no pool any more. They wait until the controller has moved it.
    Orphan {
        /// The Service.
        service: ServiceKey,
        /// Its addresses.
        ips: Vec<IpAddr>,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unheard => f.write_str("it is not known yet whether there are any of them"),
            Self::Invalid(error) => f.write_str(error),
            Self::Orphan { service, ips } => {
                let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
                write!(f, "Service {service} is announced with {}, which no pool would hold", ips.join(", "))
            }
        }
    }
}

impl Intake {
    pub(crate) fn new(settings: &Settings) -> Self {
        let Ok(bgp_type) = BgpType::from_str(&settings.bgp_type);
        Self {
            namespace: settings.namespace.clone(),
            resources: Resources { bgp_type, own_node: Some(settings.node.clone()), ..Resources::default() },
            evaluation: evaluate(&Resources::default(), &LastGood::default()),
            changed: true,
            evaluated: false,
            bgp_news: false,
            secrets: Secrets::default(),
            in_force: Config::default(),
            known: false,
            pending: true,
            refusal: None,
            loaded: false,
            told: None,
        }
    }

    /// What a former process had in force, until everything is listed.
    pub(crate) fn resume(&mut self, config: Config) {
        self.in_force = config;
        self.known = true;
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
        if self.resources.own_node.as_ref().is_some_and(|own| self.relabels(change, own)) {
            tracing::info!(event = "nodeLabelsChanged", "Node labels changed, resyncing BGP peers");
        }
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
        &self.in_force
    }

    /// Takes a Secret that was asked for.
    pub(crate) fn secret(&mut self, name: String, secret: Option<Box<Secret>>) {
        self.changed |= self.secrets.take(name, secret, &mut self.resources.secrets);
    }

    /// The Secrets that BGPPeers of this node name, if those are others than before.
    pub(crate) fn secrets_news(&mut self, now: Time) -> Option<BTreeSet<String>> {
        if !self.changed {
            return None;
        }
        let named = secrets_named(&self.resources);
        self.secrets.want(now, named, &mut self.resources.secrets)
    }

    /// When a Secret is waited for no longer.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.secrets.next_deadline()
    }

    /// Whether anything was evaluated yet.
    pub(crate) const fn is_evaluated(&self) -> bool {
        self.evaluated
    }

    /// Whether BGP has another configuration to go by since the last call.
    pub(crate) fn take_bgp_news(&mut self) -> bool {
        std::mem::take(&mut self.bgp_news)
    }

    /// Whether a Secret is waited for, and with it the peers that name it.
    pub(crate) fn awaits_secrets(&self) -> bool {
        !self.resources.awaited_secrets.is_empty()
    }

    /// Evaluates if something changed since the last time; whether it did. A peer whose Secret is not heard of yet
    /// stays as it was, and holds up nothing else.
    pub(crate) fn evaluate(&mut self, now: Time) -> bool {
        let awaited = self.secrets.awaited(now);
        if awaited != self.resources.awaited_secrets {
            self.resources.awaited_secrets = awaited;
            self.changed = true;
        }
        if !self.changed {
            return false;
        }
        self.changed = false;
        let new = evaluate(&self.resources, &self.evaluation.last_good);
        log_faults(&self.evaluation, &new);
        self.loaded |= new.verdict.is_ok();
        // Sessions are each node's own affair: only what layer 2 goes by is ever held back.
        self.pending = !self.known
            || (&new.config.pools, new.config.pools_incomplete)
                != (&self.in_force.pools, self.in_force.pools_incomplete);
        self.bgp_news |= !self.evaluated || new.config != self.evaluation.config;
        self.evaluated = true;
        self.evaluation = new;
        true
    }

    /// Whether anything is in force; before, there is nothing to decide by.
    pub(crate) const fn is_known(&self) -> bool {
        self.known
    }

    /// Whether something is held back.
    pub(crate) const fn is_held_back(&self) -> bool {
        self.refusal.is_some()
    }

    /// What was evaluated last: BGP goes by it. Layer 2 does, too, unless it is held back.
    pub(crate) const fn evaluated(&self) -> &Config {
        &self.evaluation.config
    }

    /// Whether MetalLB's speakers would refuse the objects.
    pub(crate) const fn is_invalid(&self) -> bool {
        self.evaluation.metallb.is_err()
    }

    /// Whether what was evaluated is not in force.
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending
    }

    /// Why MetalLB's speakers would not take what is pending, given what is announced.
    pub(crate) fn refusal(&self, plan: &NodePlan) -> Option<Refusal> {
        if let Err(error) = &self.evaluation.metallb {
            return Some(Refusal::Invalid(error.clone()));
        }
        let announced =
            plan.services.iter().filter_map(|(service, plan)| Some((service, plan.as_ref().as_ref().ok()?)));
        let orphan = announced
            .filter(|(_, offer)| !offer.candidates.is_empty())
            .find(|(_, offer)| self.evaluation.config.pool_of_all(&offer.ips).is_none());
        orphan.map(|(service, offer)| Refusal::Orphan { service: service.clone(), ips: offer.ips.clone() })
    }

    /// Puts what was evaluated in force, unless it is to be held back for this.
    pub(crate) fn settle(&mut self, refusal: Option<Refusal>) -> Settled {
        let in_force = self.pending && refusal.is_none();
        if in_force {
            self.in_force.clone_from(&self.evaluation.config);
            self.pending = false;
            self.known = true;
            tracing::info!(
                controller = "ConfigReconciler",
                event = "config reloaded",
                "the configuration changed"
            );
        }
        let told = self.refusal != refusal;
        if let Some(refusal) = refusal.as_ref().filter(|_| told) {
            log_refusal(refusal);
        }
        self.refusal = refusal;
        Settled { in_force, told }
    }

    /// What is to be reported of the configuration.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::from(&self.evaluation);
        match &self.refusal {
            Some(refusal @ Refusal::Orphan { .. }) => {
                outcome.verdict = Err("general handler sync state error".to_owned());
                outcome.further.insert(0, held_back(refusal));
            }
            Some(refusal @ Refusal::Invalid(_)) => outcome.further.insert(0, held_back(refusal)),
            Some(Refusal::Unheard) | None => {}
        }
        outcome
    }

    /// Whether a good configuration was seen, and whether an older one is in force, if that is news.
    pub(crate) fn metrics(&mut self) -> Option<(bool, bool)> {
        let Evaluation { verdict, .. } = &self.evaluation;
        let stale = verdict.is_err() || self.evaluation.refused().is_some() || self.refusal.is_some();
        let metrics = (self.loaded, stale);
        (self.told.replace(metrics) != Some(metrics)).then_some(metrics)
    }
}

/// What came of [`Intake::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// What is in force changed.
    pub(crate) in_force: bool,
    /// Why something is held back, if it is, changed.
    pub(crate) told: bool,
}

fn held_back(refusal: &Refusal) -> String {
    format!(
        "the configuration is held back while speakers of MetalLB are members, since they do not take it either: \
         {refusal}"
    )
}

fn log_refusal(refusal: &Refusal) {
    match refusal {
        Refusal::Unheard => {}
        Refusal::Invalid(error) => tracing::warn!(
            controller = "ConfigReconciler",
            error,
            "the configuration is held back: speakers of MetalLB are members, and do not take it either"
        ),
        Refusal::Orphan { service, ips } => tracing::error!(
            op = "setConfig",
            service = %service,
            ip = ?ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
            error = "service has no configuration under new config",
            why = "speakers of MetalLB are members, and wait for the controller to move the Service",
            "new configuration rejected"
        ),
    }
}

/// One line for each fault that was not there before.
fn log_faults(before: &Evaluation, after: &Evaluation) {
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
}

fn name(node: &Node) -> NodeName {
    NodeName::from(node.name_any())
}

fn labels<K: Resource>(object: &K) -> Labels {
    object.meta().labels.clone().unwrap_or_default()
}
