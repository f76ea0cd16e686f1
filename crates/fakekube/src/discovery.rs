// SPDX-License-Identifier: Apache-2.0
//! What is served, for clients that ask: groups, versions and resources, in the old form and the
//! aggregated one.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header;
use serde_json::{Value, json};

use crate::api::Cluster;
use crate::error::{ApiError, Result};
use crate::kinds::{Resource, api_version};
use crate::request::Request;
use crate::respond::{self, Answer};

/// Answers `/api…` and `/apis…` paths that name no resource.
pub(crate) fn answer(cluster: &Cluster, request: &Request) -> Result<Answer> {
    let rows = cluster.registry.all();
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let aggregated = request.header(header::ACCEPT).split(',').any(|choice| {
        choice.contains("as=APIGroupDiscoveryList")
            && choice.contains("v=v2")
            && !choice.contains("v=v2beta1")
    });
    let value = match parts.as_slice() {
        ["api"] if aggregated => return Ok(aggregate(&rows, |group| group.is_empty())),
        ["apis"] if aggregated => return Ok(aggregate(&rows, |group| !group.is_empty())),
        ["api"] => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs":
                [{ "clientCIDR": "0.0.0.0/0", "serverAddress": cluster.address }],
        }),
        ["apis"] => {
            let groups: Vec<Value> = groups(&rows)
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions, false))
                .collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        ["apis", name] => match groups(&rows).get(*name) {
            Some(versions) => group(name, versions, true),
            None => return Err(ApiError::no_resource()),
        },
        ["api", version] => resources(&rows, "", version)?,
        ["apis", group, version] => resources(&rows, group, version)?,
        [] => json!({ "paths": paths(&rows) }),
        _ => return Err(ApiError::no_resource()),
    };
    Ok(respond::json(200, &value))
}

/// Versions of each group, preferred first.
fn groups(rows: &[Arc<Resource>]) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows {
        let versions = groups.entry(row.group.clone()).or_default();
        if !versions.contains(&row.version) {
            versions.push(row.version.clone());
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| priority(version));
    }
    groups
}

/// Order of versions: general availability before beta before alpha, newer before older, others last by name.
fn priority(version: &str) -> (u8, i64, i64, String) {
    let numbers = || -> Option<(u8, i64, i64)> {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: i64 = rest[..end].parse().ok()?;
        if end == rest.len() {
            return Some((0, -major, 0));
        }
        if let Some(minor) = rest[end..].strip_prefix("beta") {
            return Some((1, -major, -minor.parse::<i64>().ok()?));
        }
        let minor = rest[end..].strip_prefix("alpha")?;
        Some((2, -major, -minor.parse::<i64>().ok()?))
    };
    match numbers() {
        Some((stage, major, minor)) => (stage, major, minor, String::new()),
        None => (3, 0, 0, version.to_owned()),
    }
}

fn group(name: &str, versions: &[String], alone: bool) -> Value {
    let entries: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": api_version(name, version), "version": version }))
        .collect();
    let mut group = json!({ "name": name, "versions": entries, "preferredVersion": entries[0] });
    if alone {
        group["kind"] = "APIGroup".into();
        group["apiVersion"] = "v1".into();
    }
    group
}

fn resources(rows: &[Arc<Resource>], group: &str, version: &str) -> Result<Value> {
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.group == group && row.version == version) {
        let mut entry = json!({
            "name": row.plural, "singularName": row.singular, "namespaced": row.namespaced,
            "kind": row.kind, "verbs": row.verbs(),
        });
        if !row.short_names.is_empty() {
            entry["shortNames"] = row.short_names.clone().into();
        }
        if !row.categories.is_empty() {
            entry["categories"] = row.categories.clone().into();
        }
        found.push(entry);
        for (name, kind, verbs) in subresources(row) {
            let mut entry = json!({
                "name": format!("{}/{name}", row.plural), "singularName": "",
                "namespaced": row.namespaced, "kind": kind, "verbs": verbs,
            });
            if let Some((group, version)) = foreign(&kind) {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            found.push(entry);
        }
    }
    if found.is_empty() {
        return Err(ApiError::no_resource());
    }
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": api_version(group, version), "resources": found,
    }))
}

fn subresources(row: &Resource) -> Vec<(&'static str, String, &'static [&'static str])> {
    let mut found: Vec<(&'static str, String, &'static [&'static str])> = Vec::new();
    if row.status {
        found.push(("status", row.kind.clone(), &["get", "patch", "update"]));
    }
    for (name, kind) in row.subresources {
        let verbs: &[&str] = if *name == "finalize" { &["update"] } else { &["create"] };
        found.push((name, (*kind).to_owned(), verbs));
    }
    found.sort();
    found
}

/// Group and version of a subresource's body that is of another group than its resource.
fn foreign(kind: &str) -> Option<(&'static str, &'static str)> {
    match kind {
        "Eviction" => Some(("policy", "v1")),
        "TokenRequest" => Some(("authentication.k8s.io", "v1")),
        _ => None,
    }
}

fn aggregate(rows: &[Arc<Resource>], wanted: impl Fn(&str) -> bool) -> Answer {
    let mut items = Vec::new();
    for (name, versions) in groups(rows).iter().filter(|(name, _)| wanted(name)) {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let of_version = rows.iter().filter(|row| row.group == *name && row.version == *version);
                let resources: Vec<Value> = of_version.map(|row| aggregated_resource(row)).collect();
                json!({ "version": version, "resources": resources, "freshness": "Current" })
            })
            .collect();
        let metadata = if name.is_empty() { json!({}) } else { json!({ "name": name }) };
        items.push(json!({ "metadata": metadata, "versions": versions }));
    }
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    });
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    respond::typed(200, media, list.to_string().into())
}

fn aggregated_resource(row: &Resource) -> Value {
    let mut entry = json!({
        "resource": row.plural,
        "responseKind": { "group": row.group, "version": row.version, "kind": row.kind },
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": row.verbs(),
    });
    if !row.short_names.is_empty() {
        entry["shortNames"] = row.short_names.clone().into();
    }
    if !row.categories.is_empty() {
        entry["categories"] = row.categories.clone().into();
    }
    let subresources: Vec<Value> = subresources(row)
        .into_iter()
        .map(|(name, kind, verbs)| {
            let (group, version) = foreign(&kind).unwrap_or((&row.group, &row.version));
            json!({
                "subresource": name,
                "responseKind": { "group": group, "version": version, "kind": kind },
                "verbs": verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

fn paths(rows: &[Arc<Resource>]) -> Vec<String> {
    let mut paths: Vec<String> =
        ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned)
            .to_vec();
    for (name, versions) in groups(rows) {
        if name.is_empty() {
            paths.extend(versions.iter().map(|version| format!("/api/{version}")));
        } else {
            paths.push(format!("/apis/{name}"));
            paths.extend(versions.iter().map(|version| format!("/apis/{name}/{version}")));
        }
    }
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::priority;

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut versions = ["v1alpha1", "v1beta1", "foo", "v1", "v2", "v1beta2", "v10"];
        versions.sort_by_key(|version| priority(version));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]);
    }
}
