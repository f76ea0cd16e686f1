// SPDX-License-Identifier: Apache-2.0
//! Who may do what: roles and bindings as they are stored, read anew for every request.

use serde_json::{Value, json};

use crate::api::Cluster;
use crate::attributes::Attributes;
use crate::auth::User;
use crate::object::{list, text};

/// How a server decides what users may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorize {
    /// Everybody who is known may do everything.
    #[default]
    Everyone,
    /// Roles and bindings say (RBAC); group `system:masters` may do everything.
    Rbac,
}

const ROLES: &str = "rbac.authorization.k8s.io/roles";
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
const CLUSTER_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// Why a user may do this; `None` when nothing allows it.
pub(crate) fn permission(cluster: &Cluster, user: &User, asked: &Attributes) -> Option<String> {
    match cluster.authorize {
        Authorize::Everyone => {
            (!user.is_anonymous()).then(|| "every authenticated user may do everything here".to_owned())
        }
        Authorize::Rbac if user.groups.iter().any(|group| group == "system:masters") => Some(String::new()),
        Authorize::Rbac => everywhere(cluster, user, asked).or_else(|| in_namespace(cluster, user, asked)),
    }
}

/// What cluster-wide bindings allow.
fn everywhere(cluster: &Cluster, user: &User, asked: &Attributes) -> Option<String> {
    let (_, bindings) = cluster.store.list(CLUSTER_BINDINGS, None);
    bindings.iter().find_map(|stored| allows(cluster, &stored.object, user, asked, "ClusterRoleBinding"))
}

/// What bindings of the request's namespace allow.
fn in_namespace(cluster: &Cluster, user: &User, asked: &Attributes) -> Option<String> {
    if asked.namespace.is_empty() {
        return None;
    }
    let (_, bindings) = cluster.store.list(BINDINGS, Some(&asked.namespace));
    bindings.iter().find_map(|stored| allows(cluster, &stored.object, user, asked, "RoleBinding"))
}

fn allows(cluster: &Cluster, binding: &Value, user: &User, asked: &Attributes, kind: &str) -> Option<String> {
    let namespace = text(binding, &["metadata", "namespace"]);
    let subject = list(binding, &["subjects"]).iter().find(|subject| is(user, subject, namespace))?;
    let (role_kind, role) = (text(binding, &["roleRef", "kind"]), text(binding, &["roleRef", "name"]));
    let stored = match role_kind {
        "Role" => cluster.store.find(ROLES, &(namespace.to_owned(), role.to_owned())),
        _ => cluster.store.find(CLUSTER_ROLES, &(String::new(), role.to_owned())),
    }?;
    if !list(&stored.object, &["rules"]).iter().any(|rule| covers(rule, asked)) {
        return None;
    }
    let name = text(binding, &["metadata", "name"]);
    let slash = if namespace.is_empty() { "" } else { "/" };
    let who = match text(subject, &["kind"]) {
        "ServiceAccount" => {
            let of = text(subject, &["namespace"]);
            format!(
                "ServiceAccount \"{}/{}\"",
                text(subject, &["name"]),
                if of.is_empty() { namespace } else { of }
            )
        }
        kind => format!("{kind} {:?}", text(subject, &["name"])),
    };
    Some(format!("RBAC: allowed by {kind} \"{name}{slash}{namespace}\" of {role_kind} {role:?} to {who}"))
}

/// Whether a binding's subject is this user.
fn is(user: &User, subject: &Value, namespace: &str) -> bool {
    let name = text(subject, &["name"]);
    match text(subject, &["kind"]) {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let of = text(subject, &["namespace"]);
            let of = if of.is_empty() { namespace } else { of };
            user.name == format!("system:serviceaccount:{of}:{name}")
        }
        _ => false,
    }
}

/// Whether a rule covers a request.
fn covers(rule: &Value, asked: &Attributes) -> bool {
    let among = |key: &str, wanted: &str| {
        list(rule, &[key]).iter().filter_map(Value::as_str).any(|given| given == "*" || given == wanted)
    };
    if !among("verbs", &asked.verb) {
        return false;
    }
    if asked.resource.is_empty() {
        return list(rule, &["nonResourceURLs"]).iter().filter_map(Value::as_str).any(|given| {
            match given.strip_suffix('*') {
                Some(start) => asked.path.starts_with(start),
                None => asked.path == given,
            }
        });
    }
    let resource = asked.full_resource();
    let any_of_this_subresource = format!("*/{}", asked.subresource);
    let names = list(rule, &["resourceNames"]);
    among("apiGroups", &asked.group)
        && (among("resources", &resource)
            || !asked.subresource.is_empty() && among("resources", &any_of_this_subresource))
        && (names.is_empty() || names.iter().any(|name| *name == asked.name))
}

/// The roles and bindings that every cluster has: namespace-less storage places and objects.
pub(crate) fn bootstrap() -> Vec<(&'static str, Value)> {
    let information = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery: Vec<&str> = information
        .into_iter()
        .chain(["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"])
        .collect();
    let role = |name: &str, rules: Value| {
        (CLUSTER_ROLES, json!({ "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }))
    };
    let binding = |name: &str, groups: &[&str]| {
        let group = "rbac.authorization.k8s.io";
        let subjects: Vec<Value> =
            groups.iter().map(|name| json!({ "apiGroup": group, "kind": "Group", "name": name })).collect();
        (
            CLUSTER_BINDINGS,
            json!({
                "kind": "ClusterRoleBinding", "metadata": { "name": name }, "subjects": subjects,
                "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
            }),
        )
    };
    let everything = json!([
        { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
        { "verbs": ["*"], "nonResourceURLs": ["*"] },
    ]);
    let reviews = json!([
        { "verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"] },
    ]);
    vec![
        role("cluster-admin", everything),
        role("system:basic-user", reviews),
        role("system:discovery", json!([{ "verbs": ["get"], "nonResourceURLs": discovery }])),
        role("system:public-info-viewer", json!([{ "verbs": ["get"], "nonResourceURLs": information }])),
        binding("cluster-admin", &["system:masters"]),
        binding("system:basic-user", &["system:authenticated"]),
        binding("system:discovery", &["system:authenticated"]),
        binding("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(verb: &str, group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        let [verb, group, resource, subresource, name] =
            [verb, group, resource, subresource, name].map(str::to_owned);
        Attributes { verb, group, resource, subresource, name, ..Attributes::default() }
    }

    #[test]
    fn rules_cover_what_they_name() {
        let rule = |groups: Value, resources: Value, verbs: Value, names: Value| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names });
        let status = asked("update", "", "services", "status", "a");
        let plain = asked("update", "", "services", "", "a");
        for (rule, covers_plain, covers_status) in [
            (rule(json!([""]), json!(["services"]), json!(["update"]), json!([])), true, false),
            (rule(json!([""]), json!(["services/status"]), json!(["update"]), json!([])), false, true),
            (rule(json!(["*"]), json!(["*"]), json!(["*"]), json!([])), true, true),
            (rule(json!([""]), json!(["*/status"]), json!(["*"]), json!([])), false, true),
            (rule(json!([""]), json!(["services"]), json!(["get"]), json!([])), false, false),
            (rule(json!(["apps"]), json!(["services"]), json!(["*"]), json!([])), false, false),
            (rule(json!([""]), json!(["services"]), json!(["*"]), json!(["a", "b"])), true, false),
            (rule(json!([""]), json!(["services"]), json!(["*"]), json!(["c"])), false, false),
        ] {
            assert_eq!(
                (covers(&rule, &plain), covers(&rule, &status)),
                (covers_plain, covers_status),
                "{rule}"
            );
        }
        let path = |path: &str| Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
        let urls = json!({ "verbs": ["get"], "nonResourceURLs": ["/apis", "/apis/*"] });
        for (asked, covered) in [("/apis", true), ("/apis/apps/v1", true), ("/api", false)] {
            assert_eq!(covers(&urls, &path(asked)), covered, "{asked}");
        }
    }
}
