// SPDX-License-Identifier: Apache-2.0
//! Which part of the server answers which path.

use std::sync::Arc;

use http::Method;
use serde_json::json;

use crate::api::Cluster;
use crate::attributes::Attributes;
use crate::error::{ApiError, Result};
use crate::kinds::Resource;
use crate::request::{Request, Target};
use crate::respond::{self, Answer};
use crate::verbs::{delete, read, write};
use crate::{discovery, openapi, rbac, reviews, watch};

/// Answers a request.
pub(crate) async fn route(cluster: &Arc<Cluster>, request: &Request) -> Result<Answer> {
    if let Some(answer) = open_to_all(request) {
        return Ok(answer);
    }
    let target = Target::parse(&request.path);
    let asked = Attributes::of(request, target.as_ref());
    if rbac::permission(cluster, &request.user, &asked).is_none() {
        return Err(asked.forbidden());
    }
    if let Some(target) = target {
        return resource(cluster, request, target).await;
    }
    if request.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    if let Some(answer) = openapi::answer(cluster, request) {
        return Ok(answer);
    }
    discovery::answer(cluster, request)
}

/// What needs no credentials.
fn open_to_all(request: &Request) -> Option<Answer> {
    let path = request.path.trim_end_matches('/');
    match path {
        "/healthz" | "/livez" | "/readyz" => {
            let name = path.trim_start_matches('/');
            let verbose = request.query.has("verbose");
            Some(match (verbose, name) {
                (false, _) => respond::plain(200, "ok"),
                (true, "livez") => respond::plain(200, "[+]ping ok\nlivez check passed\n"),
                (true, "readyz") => respond::plain(200, "[+]ping ok\nreadyz check passed\n"),
                (true, _) => respond::plain(200, "[+]ping ok\nhealthz check passed\n"),
            })
        }
        "/healthz/ping" | "/livez/ping" | "/readyz/ping" => Some(respond::plain(200, "ok")),
        "/version" => Some(respond::json(
            200,
            &json!({
                "major": "1", "minor": "33", "gitVersion": "v1.33.0-fakekube", "gitCommit": "",
                "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
                "compiler": "rustc", "platform": "linux/amd64",
            }),
        )),
        _ => None,
    }
}

async fn resource(cluster: &Arc<Cluster>, request: &Request, target: Target) -> Result<Answer> {
    let resource = cluster
        .registry
        .find(&target.group, &target.version, &target.plural)
        .ok_or_else(ApiError::no_resource)?;
    if target.namespace.is_some() && !resource.namespaced {
        return Err(ApiError::no_resource());
    }
    if let Some(deprecation) = resource.custom.as_ref().and_then(|custom| custom.deprecation.as_ref()) {
        request.warn(deprecation);
    }
    if let Some(subresource) = target.subresource.clone() {
        return subresources(cluster, request, &resource, &target, &subresource).await;
    }
    if resource.review {
        if request.method != Method::POST || target.name.is_some() {
            return Err(ApiError::method_not_allowed());
        }
        return reviews::answer(cluster, request, &resource);
    }
    match (&request.method, &target.name) {
        (&Method::GET, Some(_)) if request.query.flag("watch") => {
            watch::start(cluster, request, &resource, &target).await
        }
        (&Method::GET, Some(name)) => read::get(cluster, request, &resource, &target, name).await,
        (&Method::GET, None) if request.query.flag("watch") => {
            watch::start(cluster, request, &resource, &target).await
        }
        (&Method::GET, None) => read::list(cluster, request, &resource, &target).await,
        (_, _) if resource.namespaced && target.namespace.is_none() => Err(ApiError::method_not_allowed()),
        (&Method::POST, None) => write::create(cluster, request, &resource, &target).await,
        (&Method::PUT, Some(name)) => write::update(cluster, request, &resource, &target, name, "").await,
        (&Method::PATCH, Some(name)) => write::patch(cluster, request, &resource, &target, name, "").await,
        (&Method::DELETE, Some(name)) => delete::one(cluster, request, &resource, &target, name).await,
        (&Method::DELETE, None) => delete::collection(cluster, request, &resource, &target).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn subresources(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
    subresource: &str,
) -> Result<Answer> {
    let name = target.name.as_deref().unwrap_or_default();
    if resource.namespaced && target.namespace.is_none() {
        return Err(ApiError::no_resource());
    }
    match subresource {
        "status" if resource.status => match request.method {
            Method::GET => read::get(cluster, request, resource, target, name).await,
            Method::PUT => write::update(cluster, request, resource, target, name, "status").await,
            Method::PATCH => write::patch(cluster, request, resource, target, name, "status").await,
            _ => Err(ApiError::method_not_allowed()),
        },
        _ if !resource.subresources.iter().any(|(known, _)| *known == subresource) => {
            Err(ApiError::no_resource())
        }
        "finalize" if request.method == Method::PUT => {
            write::update(cluster, request, resource, target, name, "finalize").await
        }
        "token" if request.method == Method::POST => reviews::token(cluster, request, target, name),
        "eviction" if request.method == Method::POST => {
            delete::evict(cluster, request, resource, target, name).await
        }
        "binding" if request.method == Method::POST => {
            write::bind(cluster, request, resource, target, name).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}
