// SPDX-License-Identifier: Apache-2.0
//! Making the in-memory API server misbehave, in steps that need it. Another API server is left alone, and such a step
//! says that it was not played.

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request};
use serde_json::{Value, json};

use super::cluster::eventually;
use super::stage::{SOON, Stage};
use crate::api_server::ApiSource;

/// What a step says that was not played.
pub(super) const NOT_PLAYED: &str = "not played: only the in-memory API server misbehaves on request";

/// Whether the API server of the bench misbehaves on request.
pub(super) fn possible(stage: &Stage<'_>) -> bool {
    *stage.bench.api() == ApiSource::Fakekube
}

/// Puts a rule in force, and gives its number.
pub(super) async fn add(stage: &Stage<'_>, rule: Value) -> Result<u64> {
    let answer = ask(stage, Method::POST, "faults", Some(rule)).await?;
    answer["id"].as_u64().context("the rule has no number")
}

/// Takes all rules out of force and lets go what they hold; whether every one of them had an effect.
pub(super) async fn clear(stage: &Stage<'_>) -> Result<()> {
    let shown = ask(stage, Method::GET, "faults", None).await?;
    let rules = shown["faults"].as_array().cloned().unwrap_or_default();
    ask(stage, Method::DELETE, "faults", None).await?;
    for rule in rules {
        ensure!(rule["applied"].as_u64() > Some(0), "the rule {rule} had no effect");
    }
    Ok(())
}

/// Waits until a request is held back, and gives its number.
pub(super) async fn held(stage: &Stage<'_>) -> Result<u64> {
    eventually(SOON, async || {
        let shown = ask(stage, Method::GET, "faults", None).await?;
        shown.pointer("/held/0/id").and_then(Value::as_u64).context("nothing is held back")
    })
    .await
}

/// Lets a request that is held back go on.
pub(super) async fn release(stage: &Stage<'_>, id: u64) -> Result<()> {
    ask(stage, Method::POST, &format!("held/{id}"), None).await.map(drop)
}

/// Ends every watch of this resource, so that none can be resumed: how many there were.
pub(super) async fn expire_watches(stage: &Stage<'_>, resources: &[&str]) -> Result<u64> {
    let which = json!({"do": "expire", "resources": resources});
    let answer = ask(stage, Method::POST, "watches", Some(which)).await?;
    answer["watches"].as_u64().context("the server does not say how many watches it ended")
}

/// How many requests of this verb to this resource were answered with this code.
pub(super) async fn answered(
    stage: &Stage<'_>,
    verb: &str,
    resource: &str,
    subresource: &str,
    code: u64,
) -> Result<u64> {
    let audit = ask(stage, Method::GET, "requests", None).await?;
    let counts = audit["counts"].as_array().context("the audit has no counts")?;
    let wanted = counts.iter().filter(|entry| {
        entry["verb"] == verb
            && entry["resource"] == resource
            && entry["subresource"] == subresource
            && entry["code"].as_u64() == Some(code)
    });
    Ok(wanted.filter_map(|entry| entry["count"].as_u64()).sum())
}

async fn ask(stage: &Stage<'_>, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
    let request = Request::builder().method(method).uri(format!("/fakekube/{path}"));
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let request = request.header("content-type", "application/json").body(body)?;
    stage.bench.client().request(request).await.with_context(|| format!("/fakekube/{path}"))
}
