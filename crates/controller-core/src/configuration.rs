// SPDX-License-Identifier: Apache-2.0
//! The configuration objects, their evaluation, and the report of it in the ConfigurationState.

use std::collections::{BTreeSet, VecDeque};

use ferrolb_api::request::{ApiRequest, WriteResult};
use ferrolb_api::{Change, Clock, Community, ConfigurationState, IPAddressPool};
use ferrolb_config::state::{Component, Identity, Input as StateInput, Outcome, OwnPod, Reporter};
use ferrolb_config::{Config, Diagnostic, Evaluation, LastGood, Resources, Undecodable, apply, evaluate};
use ferrolb_net_types::{PoolName, Time};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::io::{Effect, Settings};
use crate::version::Update;

/// The objects that the configuration is made of, and what was made of them.
#[derive(Debug)]
pub(crate) struct Configuration {
    namespace: String,
    resources: Resources,
    pools_listed: bool,
    communities_listed: bool,
    namespaces_listed: bool,
    /// Something changed since the last evaluation.
    changed: bool,
    last_good: LastGood,
    current: Option<Config>,
    /// `current` was not taken yet.
    is_new: bool,
    loaded: bool,
    /// What was last said of it: whether a good one was seen, and whether the present one is.
    told: Option<(bool, bool)>,
    /// What the log was last told to be at fault, and why the whole is.
    faults: BTreeSet<Diagnostic>,
    verdict: Result<(), String>,
    reporter: Reporter,
}

impl Configuration {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            namespace: settings.namespace.clone(),
            resources: Resources { bgp_type: settings.bgp_type.clone(), ..Resources::default() },
            pools_listed: false,
            communities_listed: false,
            namespaces_listed: false,
            changed: true,
            last_good: LastGood::default(),
            current: None,
            is_new: false,
            loaded: false,
            told: None,
            faults: BTreeSet::new(),
            verdict: Ok(()),
            reporter: Reporter::new(Identity {
                component: Component::Controller,
                namespace: settings.namespace.clone(),
                pod: (!settings.pod_uid.is_empty())
                    .then(|| OwnPod { name: settings.pod_name.clone(), uid: settings.pod_uid.clone() }),
            }),
        }
    }

    /// Takes note of pools; which of them to compare with their counters.
    pub(crate) fn pools_changed(&mut self, change: Change<IPAddressPool>) -> BTreeSet<PoolName> {
        let Some(change) = self.own(change) else { return BTreeSet::new() };
        let mut touched: BTreeSet<PoolName> = BTreeSet::new();
        let name = |pool: &IPAddressPool| PoolName::from(pool.metadata.name.clone().unwrap_or_default());
        let change = match change {
            Change::Applied(mut pool) => {
                if self.knows_newer(&pool.metadata) {
                    return touched;
                }
                touched.insert(name(&pool));
                pool.metadata.managed_fields = None;
                Change::Applied(pool)
            }
            Change::Deleted { namespace, name } => {
                touched.insert(name.as_str().into());
                Change::Deleted { namespace, name }
            }
            Change::Reset(mut pools) => {
                self.pools_listed = true;
                touched.extend(self.resources.pools.iter().chain(&pools).map(name));
                for pool in &mut pools {
                    pool.metadata.managed_fields = None;
                }
                Change::Reset(pools)
            }
        };
        self.changed |= apply(&mut self.resources.pools, change);
        touched
    }

    /// Takes the version of a pool that a write came to.
    pub(crate) fn pool_stored(&mut self, mut pool: IPAddressPool) {
        let known = self.pool(pool.metadata.name.as_deref().unwrap_or_default());
        if known.is_some_and(|known| Update::of(&known.metadata, &pool.metadata) == Update::Newer) {
            pool.metadata.managed_fields = None;
            self.changed |= apply(&mut self.resources.pools, Change::Applied(Box::new(pool)));
        }
    }

    /// Takes note of communities.
    pub(crate) fn communities_changed(&mut self, change: Change<Community>) {
        let Some(change) = self.own(change) else { return };
        self.communities_listed |= matches!(change, Change::Reset(_));
        self.changed |= apply(&mut self.resources.communities, change);
    }

    /// Takes note of namespaces: of their labels, for nothing else matters.
    pub(crate) fn namespaces_changed(&mut self, change: Change<Namespace>) {
        let labelled = |namespace: Namespace| {
            (namespace.metadata.name.unwrap_or_default(), namespace.metadata.labels.unwrap_or_default())
        };
        let namespaces = &mut self.resources.namespaces;
        self.changed |= match change {
            Change::Applied(namespace) => {
                let (name, labels) = labelled(*namespace);
                namespaces.insert(name, labels.clone()).is_none_or(|before| before != labels)
            }
            Change::Deleted { name, .. } => namespaces.remove(&name).is_some(),
            Change::Reset(list) => {
                self.namespaces_listed = true;
                let new = list.into_iter().map(labelled).collect();
                std::mem::replace(namespaces, new) != *namespaces
            }
        };
    }

    /// Takes note of objects that could not be read at all.
    pub(crate) fn undecodable_changed(&mut self, objects: Vec<Undecodable>) {
        self.changed |= self.resources.undecodable != objects;
        self.resources.undecodable = objects;
    }

    /// Takes note of ConfigurationStates.
    pub(crate) fn state_changed(&mut self, clock: Clock, change: Change<ConfigurationState>) {
        self.reporter.handle(clock, StateInput::Changed(change));
    }

    /// Takes note of how the last request of [`Configuration::next_request`] ended.
    pub(crate) fn state_written(&mut self, clock: Clock, result: WriteResult) {
        self.reporter.handle(clock, StateInput::Written(result));
    }

    /// Takes note that the API server answers again.
    pub(crate) fn api_answers(&mut self, clock: Clock) {
        self.reporter.handle(clock, StateInput::ApiAnswers);
    }

    /// Whether there is something to write to the ConfigurationState.
    pub(crate) const fn has_request(&self) -> bool {
        self.reporter.has_request()
    }

    /// What to write to the ConfigurationState.
    pub(crate) fn next_request(&mut self, clock: Clock) -> Option<ApiRequest> {
        // It may have been decided long ago, by one that was not to write.
        self.reporter.reconsider(clock);
        self.reporter.poll()
    }

    pub(crate) fn handle_timeout(&mut self, clock: Clock) {
        self.reporter.handle_timeout(clock);
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.reporter.next_deadline()
    }

    /// Evaluates the objects, if all are known and some changed; whether it did.
    pub(crate) fn evaluate_if_needed(&mut self, clock: Clock, effects: &mut VecDeque<Effect>) -> bool {
        if !(self.changed && self.pools_listed && self.communities_listed && self.namespaces_listed) {
            return false;
        }
        self.changed = false;
        tracing::info!(controller = "PoolReconciler", "start reconcile" = self.namespace);
        tracing::debug!(event = "startUpdate", "start of config update");
        let evaluation = evaluate(&self.resources, &self.last_good);
        self.log_news(&evaluation);
        self.reporter.handle(clock, StateInput::Evaluated(Outcome::from(&evaluation)));
        let stale = evaluation.verdict.is_err();
        self.last_good = evaluation.last_good;
        self.loaded |= !stale;
        effects.push_back(Effect::Reconciled { failed: false });
        if self.told.replace((self.loaded, stale)) != Some((self.loaded, stale)) {
            effects.push_back(Effect::Configuration { loaded: self.loaded, stale });
        }
        if self.current.as_ref() == Some(&evaluation.config) {
            tracing::debug!(controller = "PoolReconciler", event = "configuration did not change, ignoring");
        } else {
            self.current = Some(evaluation.config);
            self.is_new = true;
        }
        tracing::debug!(event = "endUpdate", "end of config update");
        tracing::info!(controller = "PoolReconciler", "end reconcile" = self.namespace);
        true
    }

    /// One line for each fault that was not there before: a hundred bad objects must not be told again with every
    /// edit of one of them.
    fn log_news(&mut self, evaluation: &Evaluation) {
        let faults: BTreeSet<Diagnostic> =
            evaluation.diagnostics.iter().chain(&evaluation.unsupported).cloned().collect();
        for fault in faults.difference(&self.faults) {
            tracing::warn!(
                controller = "PoolReconciler",
                kind = fault.kind,
                name = fault.name,
                error = fault.message,
                "configuration object is at fault"
            );
        }
        self.faults = faults;
        if let Err(error) = &evaluation.verdict
            && self.verdict != evaluation.verdict
        {
            tracing::error!(controller = "PoolReconciler", error, "failed to parse the configuration");
        }
        self.verdict.clone_from(&evaluation.verdict);
    }

    /// The configuration, taken or not.
    pub(crate) fn current(&self) -> Option<Config> {
        self.current.clone()
    }

    /// The configuration, if it was not taken yet.
    pub(crate) fn take_new(&mut self) -> Option<Config> {
        std::mem::take(&mut self.is_new).then(|| self.current.clone()).flatten()
    }

    /// The newest version of a pool's object.
    pub(crate) fn pool(&self, name: &str) -> Option<&IPAddressPool> {
        self.resources.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name))
    }

    fn knows_newer(&self, meta: &ObjectMeta) -> bool {
        self.pool(meta.name.as_deref().unwrap_or_default())
            .is_some_and(|known| Update::of(&known.metadata, meta) == Update::Stale)
    }

    /// Leaves out what lies in other namespaces.
    fn own<K: kube::Resource>(&self, change: Change<K>) -> Option<Change<K>> {
        let own = |meta: &ObjectMeta| meta.namespace.as_deref() == Some(self.namespace.as_str());
        match change {
            Change::Applied(object) => own(object.meta()).then_some(Change::Applied(object)),
            Change::Deleted { namespace, name } => {
                (namespace == self.namespace).then_some(Change::Deleted { namespace, name })
            }
            Change::Reset(mut objects) => {
                objects.retain(|object| own(object.meta()));
                Some(Change::Reset(objects))
            }
        }
    }
}
