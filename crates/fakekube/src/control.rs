// SPDX-License-Identifier: Apache-2.0
//! `/fakekube/…`: faults and the audit over HTTP, for a bench whose server is another process. Only
//! administrators (group `system:masters`) may use it, and rules never apply to it.
//!
//! | request | does |
//! |---|---|
//! | `GET /fakekube/faults` | shows rules, requests held back, and whether there is an outage |
//! | `POST /fakekube/faults` | puts a rule in force, a [`Fault`] with its [`crate::RequestMatch`] inline: `{"verbs": ["update"], "resources": ["services/status"], "effect": {"delay": {"milliseconds": 200}}, "count": 3}`; effects are `{"delay": …}`, `{"fail": {"code": 429, "retryAfter": 2}}`, `"conflict"`, `"dropAnswer"` and `"hold"`; answers with its `id` |
//! | `DELETE /fakekube/faults`, `…/faults/ID` | takes all rules out of force, or one |
//! | `POST /fakekube/held`, `…/held/ID` | releases all requests held back, or one |
//! | `POST /fakekube/watches` | `{"do": "close"}` or `{"do": "expire"}`, with a [`crate::RequestMatch`] inline: ends watches, or ends them so that they cannot be resumed |
//! | `POST /fakekube/outage` | `{"milliseconds": 500}`: refuses all connections for so long, a tenth of a second after the answer |
//! | `GET /fakekube/requests` | what was asked of the server, an [`crate::Audit`]; with `?latest=false` counts alone |
//! | `DELETE /fakekube/requests` | forgets it |

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Cluster;
use crate::attributes::Attributes;
use crate::error::{ApiError, Result};
use crate::faults::{Effect, Fault, Faults, RequestMatch};
use crate::request::{Request, parse_body};
use crate::respond::{self, Answer};

/// Where all of it lives.
pub(crate) const PREFIX: &str = "/fakekube/";

/// Answers a request below [`PREFIX`].
pub(crate) fn answer(cluster: &Arc<Cluster>, request: &Request) -> Result<Answer> {
    if !request.user.groups.iter().any(|group| group == "system:masters") {
        return Err(Attributes::of(request, None).forbidden());
    }
    let faults = Faults::of(Arc::clone(cluster));
    let path = request.path.trim_start_matches(PREFIX).trim_end_matches('/');
    let (what, id) = path.split_once('/').unwrap_or((path, ""));
    let number = || id.parse::<u64>().map_err(|_| ApiError::no_resource());
    match (request.method.as_str(), what) {
        ("GET", "faults") if id.is_empty() => Ok(respond::json(200, &shown(&faults))),
        ("POST", "faults") if id.is_empty() => {
            let fault: Fault = read(
                request,
                &["verbs", "resources", "namespace", "name", "user", "effect", "skip", "count"],
            )?;
            check(&fault)?;
            Ok(respond::json(201, &json!({ "id": faults.add(fault) })))
        }
        ("DELETE", "faults") => {
            match id {
                "" => faults.clear(),
                _ if faults.remove(number()?) => {}
                _ => return Err(ApiError::no_resource()),
            }
            Ok(respond::json(200, &shown(&faults)))
        }
        ("POST", "held") => {
            match id {
                "" => faults.held().iter().for_each(|held| {
                    faults.release(held.id);
                }),
                _ if faults.release(number()?) => {}
                _ => return Err(ApiError::no_resource()),
            }
            Ok(respond::json(200, &shown(&faults)))
        }
        ("POST", "watches") if id.is_empty() => watches(&faults, request),
        ("POST", "outage") if id.is_empty() => {
            let body = object(request, &["milliseconds"])?;
            let Some(milliseconds) = body.get("milliseconds").and_then(Value::as_u64) else {
                return Err(ApiError::bad_request("milliseconds: a number is required"));
            };
            tokio::spawn(async move {
                // The answer to this request leaves first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                faults.outage(Duration::from_millis(milliseconds));
            });
            Ok(respond::json(202, &json!({ "milliseconds": milliseconds })))
        }
        ("GET", "requests") if id.is_empty() => {
            let counts_alone = request.query.text("latest") == "false";
            let audit = if counts_alone { cluster.audit.counts() } else { cluster.audit.read() };
            Ok(respond::json(200, &value(&audit)))
        }
        ("DELETE", "requests") if id.is_empty() => {
            cluster.audit.reset();
            Ok(respond::json(200, &json!({})))
        }
        (_, "faults" | "held" | "watches" | "outage" | "requests") => Err(ApiError::method_not_allowed()),
        _ => Err(ApiError::no_resource()),
    }
}

fn watches(faults: &Faults, request: &Request) -> Result<Answer> {
    let mut body = object(request, &["do", "resources", "namespace", "name", "user"])?;
    let act = body.as_object_mut().and_then(|body| body.remove("do")).unwrap_or_default();
    let which: RequestMatch = typed(body)?;
    let ended = match act.as_str() {
        Some("close") => faults.close_watches(&which),
        Some("expire") => faults.expire_watches(&which),
        _ => return Err(ApiError::bad_request("do: \"close\" or \"expire\" is required")),
    };
    Ok(respond::json(200, &json!({ "watches": ended })))
}

fn shown(faults: &Faults) -> Value {
    json!({ "faults": value(&faults.list()), "held": value(&faults.held()), "outage": faults.is_down() })
}

fn check(fault: &Fault) -> Result<()> {
    match fault.effect {
        Effect::Fail { code, .. } if !(400..600).contains(&code) => {
            Err(ApiError::bad_request(format!("effect.fail.code: {code} is none from 400 to 599")))
        }
        _ => Ok(()),
    }
}

/// The body, which may have these members. A rule with a misspelt member would match everything.
fn object(request: &Request, known: &[&str]) -> Result<Value> {
    let body = parse_body(&request.body, false)?;
    let mut keys = body.as_object().into_iter().flat_map(|map| map.keys());
    match keys.find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            Err(ApiError::bad_request(format!("unknown member {key:?}; known are {}", known.join(", "))))
        }
        None => Ok(body),
    }
}

fn read<T: serde::de::DeserializeOwned>(request: &Request, known: &[&str]) -> Result<T> {
    typed(object(request, known)?)
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| ApiError::bad_request(error.to_string()))
}

fn value(value: &impl serde::Serialize) -> Value {
    // Such values have text keys and finite numbers only, which always become JSON.
    serde_json::to_value(value).unwrap_or_default()
}
