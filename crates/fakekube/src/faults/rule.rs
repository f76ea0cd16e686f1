// SPDX-License-Identifier: Apache-2.0
//! Rules: which requests are to go wrong, how, and how often.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;

/// Which requests a rule is about. An empty list or text stands for any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequestMatch {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; `write` stands for the
    /// last five, `read` for the first three.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    /// `services`, `services/status`, `leases.coordination.k8s.io`, `bgppeers.metallb.io/status`; without group
    /// any group's, and without subresource the resource itself only (`services/*`: both).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Object name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
}

impl RequestMatch {
    /// Requests with one of these verbs to one of these resources.
    pub fn new(verbs: &[&str], resources: &[&str]) -> Self {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Self { verbs: owned(verbs), resources: owned(resources), ..Self::default() }
    }

    /// Whether a request is meant. What is no resource never is.
    pub(crate) fn covers(&self, request: &Attributes) -> bool {
        let verb = request.verb.as_str();
        let read = matches!(verb, "get" | "list" | "watch");
        let any = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        !request.resource.is_empty()
            && (self.verbs.is_empty()
                || self.verbs.iter().any(|wanted| match wanted.as_str() {
                    "*" => true,
                    "read" => read,
                    "write" => !read,
                    wanted => wanted == verb,
                }))
            && self.covers_resource(&request.group, &request.resource, &request.subresource)
            && any(&self.namespace, &request.namespace)
            && any(&self.name, &request.name)
            && any(&self.user, &request.user)
    }

    /// Whether watches of this resource are meant.
    pub(crate) fn covers_kind(&self, group: &str, resource: &str) -> bool {
        self.covers_resource(group, resource, "")
    }

    fn covers_resource(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.resources.is_empty()
            || self.resources.iter().any(|wanted| {
                let (whole, sub) = wanted.split_once('/').unwrap_or((wanted, ""));
                let (plural, of) = whole.split_once('.').unwrap_or((whole, group));
                (plural == "*" || plural == resource) && of == group && (sub == "*" || sub == subresource)
            })
    }
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Effect {
    /// It is carried out this much later.
    Delay {
        /// In milliseconds.
        milliseconds: u64,
    },
    /// It is refused and not carried out.
    Fail {
        /// HTTP status, 400..=599.
        code: u16,
        /// `reason` of the Status; empty for the usual one of the code.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// `message` of the Status; empty for a text that names the rule.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        /// `Retry-After` in seconds; for 429 and 503, 1 where nothing is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u32>,
    },
    /// It is refused as if somebody else had changed the object meanwhile.
    Conflict,
    /// It is carried out, but the client never hears of it: the connection breaks.
    DropAnswer,
    /// It is held back until it is released, and carried out then as if it had only now arrived. A client that
    /// has given up meanwhile changes nothing about that.
    Hold,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Which requests.
    #[serde(flatten)]
    pub requests: RequestMatch,
    /// What happens to them.
    pub effect: Effect,
    /// How many of the first matching requests pass unharmed.
    #[serde(default)]
    pub skip: u64,
    /// How many requests it happens to after those; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl Fault {
    /// A rule about every request that matches.
    pub fn new(requests: RequestMatch, effect: Effect) -> Self {
        Self { requests, effect, skip: 0, count: None }
    }

    /// The same rule about one request only.
    pub fn once(requests: RequestMatch, effect: Effect) -> Self {
        Self { count: Some(1), ..Self::new(requests, effect) }
    }
}

impl Effect {
    /// A delay.
    pub fn delay(time: Duration) -> Self {
        Self::Delay { milliseconds: u64::try_from(time.as_millis()).unwrap_or(u64::MAX) }
    }

    /// A refusal with the usual reason of a code, which is one from 400 to 599.
    pub const fn fail(code: u16) -> Self {
        Self::Fail { code, reason: String::new(), message: String::new(), retry_after: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_names_what_it_covers() {
        let status = Attributes {
            verb: "update".into(),
            group: "metallb.io".into(),
            resource: "ipaddresspools".into(),
            subresource: "status".into(),
            namespace: "metallb-system".into(),
            name: "p".into(),
            user: "controller".into(),
            path: String::new(),
        };
        for (rule, covered) in [
            (json!({}), true),
            (json!({ "verbs": ["write"] }), true),
            (json!({ "verbs": ["read", "patch"] }), false),
            (json!({ "resources": ["ipaddresspools"] }), false),
            (json!({ "resources": ["services", "ipaddresspools/status"] }), true),
            (json!({ "resources": ["ipaddresspools.metallb.io/status"] }), true),
            (json!({ "resources": ["ipaddresspools.example.com/status"] }), false),
            (json!({ "resources": ["ipaddresspools/*"] }), true),
            (json!({ "resources": ["*/status"] }), true),
            (json!({ "namespace": "metallb-system", "name": "p", "user": "controller" }), true),
            (json!({ "namespace": "other" }), false),
            (json!({ "name": "q" }), false),
            (json!({ "user": "speaker" }), false),
        ] {
            let read: RequestMatch = serde_json::from_value(rule.clone()).expect("a match");
            assert_eq!(read.covers(&status), covered, "{rule}");
        }
        let path = Attributes { resource: String::new(), path: "/healthz".into(), ..status };
        assert!(!RequestMatch::default().covers(&path), "what is no resource goes well");
    }

    #[test]
    fn a_rule_is_read_and_shown_in_one_form() {
        for text in [
            json!({ "verbs": ["update"], "resources": ["services/status"], "effect": { "delay": { "milliseconds": 5 } },
                "skip": 0 }),
            json!({ "effect": { "fail": { "code": 429, "retryAfter": 3 } }, "skip": 2, "count": 1 }),
            json!({ "effect": "conflict", "skip": 0 }),
            json!({ "effect": "dropAnswer", "skip": 0 }),
            json!({ "user": "me", "effect": "hold", "skip": 0 }),
        ] {
            let fault: Fault = serde_json::from_value(text.clone()).expect("a rule");
            assert_eq!(serde_json::to_value(&fault).expect("JSON"), text);
        }
        for bad in [json!({}), json!({ "effect": "explode" })] {
            assert!(serde_json::from_value::<Fault>(bad.clone()).is_err(), "{bad}");
        }
    }
}
