// SPDX-License-Identifier: Apache-2.0
//! Questions about users: TokenReview, access reviews, and tokens for ServiceAccounts.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::api::Cluster;
use crate::attributes::Attributes;
use crate::auth::{AUDIENCE, User};
use crate::error::{ApiError, FieldError, Named, Result};
use crate::kinds::Resource;
use crate::object::{self, at, list, text};
use crate::rbac;
use crate::request::{Request, Target};
use crate::respond::{self, Answer};

/// Answers a review; nothing is stored.
pub(crate) fn answer(cluster: &Cluster, request: &Request, resource: &Resource) -> Result<Answer> {
    let mut review = request.object()?;
    review["apiVersion"] = resource.api_version().into();
    review["kind"] = resource.kind.clone().into();
    object::metadata_mut(&mut review);
    let invalid = |errors: &[FieldError]| Err(ApiError::invalid(&resource.group, &resource.kind, "", errors));
    review["status"] = match resource.kind.as_str() {
        "TokenReview" => {
            let token = text(&review, &["spec", "token"]);
            if token.is_empty() {
                return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
            }
            let audiences = strings(&review, &["spec", "audiences"]);
            match cluster.credentials.check(token, &audiences) {
                Some((user, audiences)) => {
                    json!({ "authenticated": true, "user": user.to_json(), "audiences": audiences })
                }
                None => json!({ "user": {}, "error": "invalid bearer token" }),
            }
        }
        "SubjectAccessReview" | "SelfSubjectAccessReview" => {
            let own = resource.kind == "SelfSubjectAccessReview";
            let about = ["resourceAttributes", "nonResourceAttributes"];
            if about.iter().filter(|key| at(&review, &["spec", key]).is_some()).count() != 1 {
                let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                return invalid(&[FieldError::invalid("spec.resourceAttributes", Value::Null, detail)]);
            }
            let groups = strings(&review, &["spec", "groups"]);
            let user = text(&review, &["spec", "user"]);
            if !own && user.is_empty() && groups.is_empty() {
                let detail = "at least one of user or group must be specified";
                return invalid(&[FieldError::invalid("spec.user", "", detail)]);
            }
            let other = User { name: user.to_owned(), uid: String::new(), groups };
            let user = if own { &request.user } else { &other };
            let asked = Attributes::of_review(&review["spec"], user);
            match rbac::permission(cluster, user, &asked) {
                Some(reason) if reason.is_empty() => json!({ "allowed": true }),
                Some(reason) => json!({ "allowed": true, "reason": reason }),
                None => json!({ "allowed": false }),
            }
        }
        other => return Err(ApiError::internal(format!("no answer to {other}"))),
    };
    Ok(respond::json(201, &review))
}

/// `POST serviceaccounts/NAME/token`.
pub(crate) fn token(cluster: &Cluster, request: &Request, target: &Target, name: &str) -> Result<Answer> {
    let namespace = target.namespace.clone().unwrap_or_default();
    let account = cluster
        .store
        .find("serviceaccounts", &(namespace.clone(), name.to_owned()))
        .ok_or_else(|| ApiError::not_found(Named { group: "", resource: "serviceaccounts", name }))?;
    let mut body = request.object()?;
    let seconds = at(&body, &["spec", "expirationSeconds"]).and_then(Value::as_i64).unwrap_or(3600);
    if seconds < 600 {
        let error = FieldError::invalid(
            "spec.expirationSeconds",
            seconds,
            "may not specify a duration less than 10 minutes",
        );
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", name, &[error]));
    }
    let user = User {
        uid: object::uid(&account.object).to_owned(),
        ..User::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
        )
    };
    let mut audiences = strings(&body, &["spec", "audiences"]);
    if audiences.is_empty() {
        audiences.push(AUDIENCE.to_owned());
    }
    let (token, expires) =
        cluster.credentials.issue(user, audiences.clone(), SignedDuration::from_secs(seconds));
    body["apiVersion"] = "authentication.k8s.io/v1".into();
    body["kind"] = "TokenRequest".into();
    let metadata = object::metadata_mut(&mut body);
    metadata.insert("name".into(), name.into());
    metadata.insert("namespace".into(), namespace.into());
    metadata.insert("creationTimestamp".into(), object::now_text().into());
    let spec = object::child_mut(&mut body, "spec");
    spec.insert("audiences".into(), audiences.into());
    spec.insert("expirationSeconds".into(), seconds.into());
    let expires = expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    body["status"] = json!({ "token": token, "expirationTimestamp": expires });
    Ok(respond::json(201, &body))
}

fn strings(value: &Value, path: &[&str]) -> Vec<String> {
    list(value, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
