// SPDX-License-Identifier: Apache-2.0
//! The state of one server, shared by all requests.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::audit::Ledger;
use crate::auth::Credentials;
use crate::builtin::service::Allocator;
use crate::faults::Engine;
use crate::kinds::{NAMESPACES, Registry};
use crate::object::now_text;
use crate::random;
use crate::rbac::{self, Authorize};
use crate::server::{Error, Options};
use crate::store::{Store, key_of};
use crate::webhook::Routes;

/// One API server's state.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Objects.
    pub(crate) store: Store,
    /// Served resources.
    pub(crate) registry: Registry,
    /// Known users.
    pub(crate) credentials: Credentials,
    /// Cluster IPs and node ports.
    pub(crate) services: Allocator,
    /// Ends all watches and connections.
    pub(crate) stop: CancellationToken,
    /// Where the server listens, as discovery says.
    pub(crate) address: String,
    /// Who may do what.
    pub(crate) authorize: Authorize,
    /// Faults on request.
    pub(crate) faults: Engine,
    /// What was asked.
    pub(crate) audit: Ledger,
    /// Where webhooks of Services are dialled.
    pub(crate) routes: Routes,
    /// Whether a Pod bound to a node stays until its kubelet deletes it.
    pub(crate) graceful_pods: bool,
}

impl Cluster {
    /// A cluster with the namespaces every cluster has and the Service `kubernetes`.
    pub(crate) fn new(options: &Options, address: String) -> Result<Arc<Self>, Error> {
        let cluster = Arc::new(Self {
            store: Store::new(options.history),
            registry: Registry::new(),
            credentials: Credentials::default(),
            services: Allocator::new(&options.service_cidrs)?,
            stop: CancellationToken::new(),
            address,
            authorize: options.authorize,
            faults: Engine::default(),
            audit: Ledger::new(options.audit),
            routes: Routes::new(options.webhook_routes.clone()),
            graceful_pods: options.graceful_pod_deletion,
        });
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let object = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "uid": random::uid(),
                    "creationTimestamp": now_text(),
                    "labels": { "kubernetes.io/metadata.name": name },
                },
                "spec": { "finalizers": ["kubernetes"] },
                "status": { "phase": "Active" },
            });
            let key = (String::new(), name.to_owned());
            cluster
                .store
                .commit(NAMESPACES, &key, None, Some(object))
                .map_err(|_| Error::Options(format!("namespace {name} exists twice")))?;
        }
        for (kind, mut object) in rbac::bootstrap() {
            object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
            object["metadata"]["uid"] = random::uid().into();
            object["metadata"]["creationTimestamp"] = now_text().into();
            let key = key_of(&object);
            cluster
                .store
                .commit(kind, &key, None, Some(object))
                .map_err(|_| Error::Options(format!("{kind} {} exists twice", key.1)))?;
        }
        Ok(cluster)
    }
}
