// SPDX-License-Identifier: Apache-2.0
//! Requests as they are, with every header of their answers: a client that hides warnings could not compare them.

use anyhow::{Context as _, Result};
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use super::case::Kind;
use super::picture::Lists;
use crate::bench_handle::SYSTEM;

/// An API server.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
}

/// What it said.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

/// Where an object is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Path of the collection.
    pub(crate) collection: String,
    pub(crate) name: String,
}

impl Api {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) async fn create(&self, place: &Place, object: &Value) -> Result<Answer> {
        self.send(Method::POST, &place.collection, JSON, Some(object)).await
    }

    pub(crate) async fn replace(&self, place: &Place, object: &Value) -> Result<Answer> {
        self.send(Method::PUT, &place.path(), JSON, Some(object)).await
    }

    /// A merge patch; `subresource` is empty or begins with a slash.
    pub(crate) async fn merge(&self, place: &Place, subresource: &str, patch: &Value) -> Result<Answer> {
        let path = place.path() + subresource;
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await
    }

    pub(crate) async fn read(&self, place: &Place) -> Result<Answer> {
        self.send(Method::GET, &place.path(), JSON, None).await
    }

    pub(crate) async fn delete(&self, place: &Place) -> Result<Answer> {
        self.send(Method::DELETE, &place.path(), JSON, None).await
    }

    /// The objects of a collection.
    pub(crate) async fn list(&self, collection: &str) -> Result<Vec<Value>> {
        let answer = self.send(Method::GET, collection, JSON, None).await?.accepted(collection)?;
        match answer.body.get("items") {
            Some(Value::Array(items)) => Ok(items.clone()),
            _ => Ok(Vec::new()),
        }
    }

    /// What is there now.
    pub(crate) async fn lists(&self) -> Result<Lists> {
        let [pools, states] =
            [Kind::IPAddressPool, Kind::ConfigurationState].map(|kind| collection(kind, SYSTEM));
        let (services, events, pools, states) = tokio::try_join!(
            self.list("/api/v1/services"),
            self.list("/api/v1/events"),
            self.list(&pools),
            self.list(&states),
        )?;
        Ok(Lists { services, events, pools, states })
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let what = || format!("{method} {path}");
        let mut request = Request::builder().method(method.clone()).uri(path).header(header::ACCEPT, JSON);
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, content_type);
                Body::from(serde_json::to_vec(body)?)
            }
            None => Body::empty(),
        };
        let response = self.client.send(request.body(body).with_context(what)?).await.with_context(what)?;
        let code = response.status().as_u16();
        let headers = response.headers().get_all(header::WARNING);
        let warnings = headers.iter().filter_map(|value| value.to_str().ok()).filter_map(warning).collect();
        let bytes = response.into_body().collect().await.with_context(what)?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { code, warnings, body })
    }
}

impl Answer {
    pub(crate) const fn is_success(&self) -> bool {
        self.code < 300
    }

    /// The answer, if it is no refusal.
    pub(crate) fn accepted(self, what: &str) -> Result<Self> {
        if self.is_success() {
            return Ok(self);
        }
        let text = self
            .body
            .get("message")
            .and_then(Value::as_str)
            .map_or_else(|| self.body.to_string(), str::to_owned);
        anyhow::bail!("{what}: {} {text}", self.code)
    }

    /// In the recorded form. Of an object that was read, its version and spec are part of it.
    pub(crate) fn recorded(&self, read: bool) -> Map<String, Value> {
        let mut answer = Map::from_iter([("code".to_owned(), Value::from(self.code))]);
        if !self.is_success() {
            for key in ["message", "reason"] {
                if let Some(text) = self.body.get(key) {
                    answer.insert(key.to_owned(), text.clone());
                }
            }
        } else if read {
            for key in ["apiVersion", "spec"] {
                answer.insert(key.to_owned(), self.body.get(key).cloned().unwrap_or_else(|| json!({})));
            }
        }
        // Of reading only the object was recorded.
        if !read && !self.warnings.is_empty() {
            answer.insert("warnings".to_owned(), self.warnings.clone().into());
        }
        answer
    }
}

impl Place {
    pub(crate) fn of(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { collection: collection(kind, namespace), name: name.to_owned() }
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }
}

/// The path of a kind's objects; the namespace is left out where the kind has none.
pub(crate) fn collection(kind: Kind, namespace: &str) -> String {
    let Form { version, plural, namespaced, .. } = form(kind);
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    if namespaced { format!("{root}/namespaces/{namespace}/{plural}") } else { format!("{root}/{plural}") }
}

/// `apiVersion` and `kind` of an object.
pub(crate) const fn type_of(kind: Kind) -> (&'static str, &'static str) {
    let Form { version, kind, .. } = form(kind);
    (version, kind)
}

struct Form {
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const fn form(kind: Kind) -> Form {
    let (version, kind, plural, namespaced) = match kind {
        Kind::IPAddressPool => (V1BETA1, "IPAddressPool", "ipaddresspools", true),
        Kind::L2Advertisement => (V1BETA1, "L2Advertisement", "l2advertisements", true),
        Kind::BGPAdvertisement => (V1BETA1, "BGPAdvertisement", "bgpadvertisements", true),
        Kind::BGPPeer => ("metallb.io/v1beta2", "BGPPeer", "bgppeers", true),
        Kind::BGPPeerV1beta1 => (V1BETA1, "BGPPeer", "bgppeers", true),
        Kind::BFDProfile => (V1BETA1, "BFDProfile", "bfdprofiles", true),
        Kind::Community => (V1BETA1, "Community", "communities", true),
        Kind::ConfigurationState => (V1BETA1, "ConfigurationState", "configurationstates", true),
        Kind::Service => ("v1", "Service", "services", true),
        Kind::Secret => ("v1", "Secret", "secrets", true),
        Kind::Node => ("v1", "Node", "nodes", false),
        Kind::Namespace => ("v1", "Namespace", "namespaces", false),
    };
    Form { version, kind, plural, namespaced }
}

/// The text of a Warning header: `299 - "text"`, quotes inside escaped.
fn warning(header: &str) -> Option<String> {
    let (_, rest) = header.split_once('"')?;
    let (text, _) = rest.rsplit_once('"')?;
    Some(text.to_owned())
}

const JSON: &str = "application/json";
const V1BETA1: &str = "metallb.io/v1beta1";

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, body: Value) -> Answer {
        Answer { code, warnings: Vec::new(), body }
    }

    #[test]
    fn objects_have_the_paths_of_their_kinds() {
        for (kind, path) in [
            (Kind::BGPPeer, "/apis/metallb.io/v1beta2/namespaces/n/bgppeers/o"),
            (Kind::BGPPeerV1beta1, "/apis/metallb.io/v1beta1/namespaces/n/bgppeers/o"),
            (Kind::Service, "/api/v1/namespaces/n/services/o"),
            (Kind::Node, "/api/v1/nodes/o"),
        ] {
            assert_eq!(Place::of(kind, "n", "o").path(), path);
        }
    }

    #[test]
    fn an_answer_is_recorded_with_what_a_refusal_or_a_read_object_says() {
        let body = json!({"apiVersion": "v", "spec": {"a": 1}, "message": "m", "reason": "R"});
        for (code, read, expected) in [
            (201, false, json!({"code": 201})),
            (200, true, json!({"code": 200, "apiVersion": "v", "spec": {"a": 1}})),
            (403, true, json!({"code": 403, "message": "m", "reason": "R"})),
        ] {
            assert_eq!(Value::Object(answer(code, body.clone()).recorded(read)), expected);
        }
        let warned = Answer { warnings: vec!["w".to_owned()], ..answer(200, body) };
        assert_eq!(Value::Object(warned.recorded(false)), json!({"code": 200, "warnings": ["w"]}));
        assert_eq!(warned.recorded(true).get("warnings"), None);
    }

    #[test]
    fn warnings_are_the_quoted_part_of_their_header() {
        assert_eq!(warning("299 - \"a \\\"b\\\" c\"").as_deref(), Some("a \\\"b\\\" c"));
        assert_eq!(warning("299 - none"), None);
    }
}
