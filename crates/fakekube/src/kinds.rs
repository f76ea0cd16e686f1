// SPDX-License-Identifier: Apache-2.0
//! Which resources are served: the table of built-in kinds and, beside it, what
//! CustomResourceDefinitions have added.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::crd::CustomVersion;
use crate::schema::{self, Schema};

/// A served resource in one version.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Version in the path.
    pub(crate) version: String,
    /// Kind of its objects.
    pub(crate) kind: String,
    /// Name in the path.
    pub(crate) plural: String,
    /// Name for one, as discovery gives it.
    pub(crate) singular: String,
    /// Short names for kubectl.
    pub(crate) short_names: Vec<String>,
    /// Categories (`all`) for kubectl.
    pub(crate) categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Whether it has a status subresource.
    pub(crate) status: bool,
    /// Other subresources: name and kind of their body.
    pub(crate) subresources: &'static [(&'static str, &'static str)],
    /// Where its objects are stored; several resources may share one place.
    pub(crate) storage: String,
    /// Shape of its objects.
    pub(crate) schema: Arc<Schema>,
    /// Its rules, when a CustomResourceDefinition made it.
    pub(crate) custom: Option<Arc<CustomVersion>>,
    /// Answered at once, never stored (reviews).
    pub(crate) review: bool,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `services`, `deployments.apps`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Verbs of the resource itself, as discovery lists them.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.review {
            return &["create"];
        }
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    }
}

/// `v1`, `apps/v1`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// All served resources, and how they change.
#[derive(Debug)]
pub(crate) struct Registry {
    rows: RwLock<BTreeMap<(String, String, String), Arc<Resource>>>,
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn new() -> Self {
        let rows = ROWS.iter().map(|row| {
            let resource = row.resource();
            ((resource.group.clone(), resource.version.clone(), resource.plural.clone()), Arc::new(resource))
        });
        Self { rows: RwLock::new(rows.collect()) }
    }

    /// The resource at this place in the path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.read().get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    /// All rows in order of group, version and name.
    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        self.read().values().cloned().collect()
    }

    /// Replaces what a CustomResourceDefinition (by group and plural) serves.
    pub(crate) fn replace_custom(&self, group: &str, plural: &str, rows: Vec<Resource>) {
        let mut all = self.rows.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.retain(|(g, _, p), row| !(g == group && p == plural && row.custom.is_some()));
        for row in rows {
            all.insert((row.group.clone(), row.version.clone(), row.plural.clone()), Arc::new(row));
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<(String, String, String), Arc<Resource>>> {
        self.rows.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Where CustomResourceDefinitions are stored.
pub(crate) const CRDS: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Where ValidatingWebhookConfigurations are stored.
pub(crate) const VALIDATING_WEBHOOKS: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";
/// Where Namespaces are stored.
pub(crate) const NAMESPACES: &str = "namespaces";
/// Where Services are stored.
pub(crate) const SERVICES: &str = "services";
/// Where Events of both groups are stored, in the form of the core group.
pub(crate) const EVENTS: &str = "events";

struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    in_all: bool,
    namespaced: bool,
    status: bool,
    subresources: &'static [(&'static str, &'static str)],
    review: bool,
}

impl Row {
    const fn new(group: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            version: "v1",
            kind,
            plural,
            short: &[],
            in_all: false,
            namespaced: true,
            status: false,
            subresources: &[],
            review: false,
        }
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short = names;
        self
    }

    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn in_all(mut self) -> Self {
        self.in_all = true;
        self
    }

    const fn sub(mut self, subresources: &'static [(&'static str, &'static str)]) -> Self {
        self.subresources = subresources;
        self
    }

    const fn review(mut self) -> Self {
        self.review = true;
        self
    }

    fn resource(&self) -> Resource {
        let definition = schema::definition_of(self.group, self.version, self.kind);
        let storage = match (self.group, self.plural) {
            ("" | "events.k8s.io", "events") => EVENTS.to_owned(),
            ("", plural) => plural.to_owned(),
            (group, plural) => format!("{group}/{plural}"),
        };
        Resource {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            plural: self.plural.into(),
            singular: self.kind.to_lowercase(),
            short_names: self.short.iter().map(|&name| name.to_owned()).collect(),
            categories: if self.in_all { vec!["all".into()] } else { vec![] },
            namespaced: self.namespaced,
            status: self.status,
            subresources: self.subresources,
            storage,
            schema: definition.and_then(schema::built_in).unwrap_or_default(),
            custom: None,
            review: self.review,
        }
    }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The built-in kinds, one row each.
const ROWS: &[Row] = &[
    Row::new("", "ConfigMap", "configmaps").short(&["cm"]),
    Row::new("", "Endpoints", "endpoints").short(&["ep"]),
    Row::new("", "Event", "events").short(&["ev"]),
    Row::new("", "Namespace", "namespaces")
        .short(&["ns"])
        .cluster()
        .status()
        .sub(&[("finalize", "Namespace")]),
    Row::new("", "Node", "nodes").short(&["no"]).cluster().status(),
    Row::new("", "Pod", "pods")
        .short(&["po"])
        .in_all()
        .status()
        .sub(&[("eviction", "Eviction"), ("binding", "Binding")]),
    Row::new("", "Secret", "secrets"),
    Row::new("", "Service", "services").short(&["svc"]).in_all().status(),
    Row::new("", "ServiceAccount", "serviceaccounts").short(&["sa"]).sub(&[("token", "TokenRequest")]),
    Row::new(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    )
    .cluster(),
    Row::new("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
        .short(&["crd", "crds"])
        .cluster()
        .status(),
    Row::new("apps", "DaemonSet", "daemonsets").short(&["ds"]).in_all().status(),
    Row::new("apps", "Deployment", "deployments").short(&["deploy"]).in_all().status(),
    Row::new("apps", "ReplicaSet", "replicasets").short(&["rs"]).in_all().status(),
    Row::new(AUTHENTICATION, "TokenReview", "tokenreviews").cluster().review(),
    Row::new(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews").cluster().review(),
    Row::new(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews").cluster().review(),
    Row::new("coordination.k8s.io", "Lease", "leases"),
    Row::new("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    Row::new("events.k8s.io", "Event", "events").short(&["ev"]),
    Row::new("networking.k8s.io", "NetworkPolicy", "networkpolicies").short(&["netpol"]),
    Row::new("policy", "PodDisruptionBudget", "poddisruptionbudgets").short(&["pdb"]).status(),
    Row::new(RBAC, "ClusterRole", "clusterroles").cluster(),
    Row::new(RBAC, "ClusterRoleBinding", "clusterrolebindings").cluster(),
    Row::new(RBAC, "Role", "roles"),
    Row::new(RBAC, "RoleBinding", "rolebindings"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Type;

    #[test]
    fn every_built_in_kind_has_a_shape() {
        for row in Registry::new().all() {
            assert_eq!(row.schema.ty, Type::Object, "{} has no shape", row.qualified());
        }
    }
}
