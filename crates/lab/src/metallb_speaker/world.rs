// SPDX-License-Identifier: Apache-2.0
//! What the stand-in watches: a copy of each kind, and a word for every change, as v0.16.1's reconcilers get them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use anyhow::{Context as _, Result};
use ferrolb_api::{IPAddressPool, L2Advertisement, ServiceL2Status, labels};
use ferrolb_config::{BgpType, Evaluation, LastGood, Resources, evaluate};
use ferrolb_net_types::{NodeName, ServiceKey};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedSender;

use super::rule::NodeFacts;

/// Something to be looked at again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// One Service, since it or its endpoints changed.
    Service(ServiceKey),
    /// The configuration, since an object of it, or a Node or Namespace, changed.
    Configuration,
    /// Nodes.
    Nodes,
    /// Every Service, since the members changed.
    Everything,
    /// The status objects of a Service, since one of the own node's changed.
    Status(ServiceKey),
}

/// Copies of what is watched.
pub(super) struct World {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    nodes: Store<Node>,
    namespaces: Store<Namespace>,
    pools: Store<IPAddressPool>,
    advertisements: Store<L2Advertisement>,
}

impl World {
    /// Starts the watches, and waits for every first list.
    ///
    /// # Errors
    /// A watch ended.
    pub(super) async fn start(
        client: &Client,
        namespace: &str,
        node: &NodeName,
        work: &UnboundedSender<Work>,
    ) -> Result<Self> {
        let all = watcher::Config::default();
        let own = all.clone().labels(&format!("{}={node}", labels::NODE));
        let world = Self {
            services: mirror(Api::all(client.clone()), all.clone(), work, |service: &Service| {
                Some(Work::Service(key(service)))
            }),
            slices: mirror(Api::all(client.clone()), all.clone(), work, |slice: &EndpointSlice| {
                let service = slice.labels().get("kubernetes.io/service-name")?;
                Some(Work::Service(ServiceKey::new(&slice.namespace().unwrap_or_default(), service)))
            }),
            nodes: mirror(Api::all(client.clone()), all.clone(), work, |_: &Node| Some(Work::Nodes)),
            namespaces: mirror(Api::all(client.clone()), all.clone(), work, |_: &Namespace| {
                Some(Work::Configuration)
            }),
            pools: mirror(
                Api::namespaced(client.clone(), namespace),
                all.clone(),
                work,
                |_: &IPAddressPool| Some(Work::Configuration),
            ),
            advertisements: mirror(
                Api::namespaced(client.clone(), namespace),
                all,
                work,
                |_: &L2Advertisement| Some(Work::Configuration),
            ),
        };
        let _statuses: Store<ServiceL2Status> =
            mirror(Api::namespaced(client.clone(), namespace), own, work, |status: &ServiceL2Status| {
                let label = |name: &str| status.labels().get(name).map(String::as_str);
                Some(Work::Status(ServiceKey::new(
                    label(labels::SERVICE_NAMESPACE)?,
                    label(labels::SERVICE_NAME)?,
                )))
            });
        let ended = "a watch ended";
        world.services.wait_until_ready().await.context(ended)?;
        world.slices.wait_until_ready().await.context(ended)?;
        world.nodes.wait_until_ready().await.context(ended)?;
        world.namespaces.wait_until_ready().await.context(ended)?;
        world.pools.wait_until_ready().await.context(ended)?;
        world.advertisements.wait_until_ready().await.context(ended)?;
        Ok(world)
    }

    /// The Service and its slices.
    pub(super) fn service(
        &self,
        key: &ServiceKey,
    ) -> (Option<std::sync::Arc<Service>>, Vec<std::sync::Arc<EndpointSlice>>) {
        let reference = ObjectRef::<Service>::new(&key.name).within(&key.namespace);
        let own = |slice: &EndpointSlice| {
            slice.namespace().as_deref() == Some(&*key.namespace)
                && slice.labels().get("kubernetes.io/service-name").is_some_and(|name| **name == *key.name)
        };
        (self.services.get(&reference), self.slices.state_filter(own))
    }

    /// All Services, those with the most addresses first.
    pub(super) fn services(&self) -> Vec<ServiceKey> {
        let count = |service: &Service| {
            let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
            status.and_then(|balancer| balancer.ingress.as_ref()).map_or(0, Vec::len)
        };
        let mut all = self.services.state();
        all.sort_by_key(|service| std::cmp::Reverse(count(service)));
        all.iter().map(|service| key(&**service)).collect()
    }

    /// What of every Node bears on the election.
    pub(super) fn nodes(&self) -> BTreeMap<NodeName, NodeFacts> {
        let nodes = self.nodes.state();
        nodes.iter().map(|node| (NodeName::from(node.name_any().as_str()), NodeFacts::of(node))).collect()
    }

    /// The configuration as it is written now.
    pub(super) fn configuration(&self, node: &NodeName) -> Evaluation {
        let resources = Resources {
            bgp_type: BgpType::Native,
            own_node: Some(node.clone()),
            pools: self.pools.state().iter().map(|pool| (**pool).clone()).collect(),
            l2_advertisements: self.advertisements.state().iter().map(|own| (**own).clone()).collect(),
            nodes: self
                .nodes
                .state()
                .iter()
                .map(|node| (NodeName::from(node.name_any().as_str()), node.labels().clone()))
                .collect(),
            namespaces: self
                .namespaces
                .state()
                .iter()
                .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
                .collect(),
            ..Resources::default()
        };
        evaluate(&resources, &LastGood::default())
    }
}

fn key<K: Resource>(object: &K) -> ServiceKey {
    ServiceKey::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

fn mirror<K>(
    api: Api<K>,
    which: watcher::Config,
    work: &UnboundedSender<Work>,
    say: fn(&K) -> Option<Work>,
) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (store, writer) = reflector::store();
    let stream = watcher(api, which);
    let work = work.clone();
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(reflector::reflector(writer, stream).default_backoff());
        while let Some(event) = stream.next().await {
            let found = match &event {
                Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => say(object),
                // A list again, after a watch that could not go on: what it brings is not told object by object here.
                Ok(watcher::Event::InitDone) => Some(Work::Configuration),
                _ => None,
            };
            if let Some(found) = found
                && work.send(found).is_err()
            {
                return;
            }
            if matches!(event, Ok(watcher::Event::InitDone)) && work.send(Work::Everything).is_err() {
                return;
            }
        }
    });
    store
}
