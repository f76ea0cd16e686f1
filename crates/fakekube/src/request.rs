// SPDX-License-Identifier: Apache-2.0
//! What a request asks for: path, query and headers, read once.

use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, Method, header};
use serde_json::{Value, json};

use crate::auth::User;
use crate::error::{ApiError, FieldError, Result};

/// A request to a resource, its body still raw.
#[derive(Debug)]
pub(crate) struct Request {
    /// HTTP method.
    pub(crate) method: Method,
    /// Path of the URL.
    pub(crate) path: String,
    /// Decoded query parameters in order.
    pub(crate) query: Query,
    /// Headers.
    pub(crate) headers: HeaderMap,
    /// Body, bounded by the reader.
    pub(crate) body: bytes::Bytes,
    /// Who asks.
    pub(crate) user: User,
    /// What the client is to be told besides the answer.
    pub(crate) warnings: Warnings,
}

/// Warnings of one request, each once, in order.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Request {
    /// Notes a warning for the client.
    pub(crate) fn warn(&self, warning: impl Into<String>) {
        let warning = warning.into();
        let mut noted = self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !noted.contains(&warning) {
            noted.push(warning);
        }
    }

    /// The warnings noted so far; they are forgotten here.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A header as text, or "".
    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Media type of the body without parameters; JSON where nothing is said.
    pub(crate) fn content_type(&self) -> &str {
        let full = self.header(header::CONTENT_TYPE);
        let plain = full.split(';').next().unwrap_or_default().trim();
        if plain.is_empty() { "application/json" } else { plain }
    }

    /// Who is recorded as the manager of fields this request writes.
    pub(crate) fn field_manager(&self) -> String {
        match self.query.text("fieldManager") {
            "" => {
                let agent = self.header(header::USER_AGENT);
                let first = agent.split('/').next().unwrap_or_default();
                if first.is_empty() { "unknown".into() } else { first.chars().take(128).collect() }
            }
            given => given.to_owned(),
        }
    }

    /// Whether nothing is to be stored.
    pub(crate) fn dry_run(&self) -> Result<bool> {
        match self.query.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(self.bad_option("dryRun", json!([other]), &["All".into()])),
        }
    }

    /// What the client wants to know about unknown fields: `Ignore`, `Warn` or `Strict`, "" where it does not
    /// say.
    pub(crate) fn field_validation(&self) -> Result<&str> {
        match self.query.text("fieldValidation") {
            known @ ("" | "Ignore" | "Warn" | "Strict") => Ok(known),
            other => {
                let known = ["Ignore".into(), "Warn".into(), "Strict".into()];
                Err(self.bad_option("fieldValidation", other.into(), &known))
            }
        }
    }

    fn bad_option(&self, key: &str, value: Value, known: &[Value]) -> ApiError {
        let kind = match self.method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            "PATCH" => "PatchOptions",
            _ => "DeleteOptions",
        };
        ApiError::invalid("meta.k8s.io", kind, "", &[FieldError::not_supported(key, value, known)])
    }

    /// The body as an object.
    pub(crate) fn object(&self) -> Result<Value> {
        let yaml = match self.content_type() {
            "application/json" => false,
            "application/yaml" | "application/apply-patch+yaml" => true,
            "application/apply-patch+json" => false,
            other => {
                let accepted = "accepted media types include: application/json, application/yaml";
                let message = if other == "application/vnd.kubernetes.protobuf" {
                    format!("protobuf bodies are not read by this server - {accepted}")
                } else {
                    format!("the body of the request was in an unknown format - {accepted}")
                };
                return Err(ApiError::unsupported_media_type(message));
            }
        };
        parse_body(&self.body, yaml)
    }
}

/// Reads JSON, or YAML where that is what the client said.
pub(crate) fn parse_body(body: &[u8], yaml: bool) -> Result<Value> {
    let malformed = |error: String| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized: couldn't get version/kind; parse error: {error}"
        ))
    };
    let json = serde_json::from_slice::<Value>(body);
    let value = match json {
        Ok(value) => value,
        Err(error) if !yaml => return Err(malformed(error.to_string())),
        Err(_) => {
            let text = std::str::from_utf8(body).map_err(|error| malformed(error.to_string()))?;
            serde_saphyr::from_str::<Value>(text).map_err(|error| malformed(error.to_string()))?
        }
    };
    if value.is_object() { Ok(value) } else { Err(malformed("not an object".into())) }
}

/// Query parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part of a URL after the question mark.
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    /// The first value of a parameter, or "".
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
    }

    /// Whether the parameter is there at all.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    /// A truth value as Go's query decoder reads it.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.text(key), "false" | "0" | "f" | "F" | "False" | "FALSE")
    }

    /// A number, if one is given.
    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>> {
        match self.text(key) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("invalid value {text:?} of parameter {key}"))),
        }
    }
}

/// Percent-decoding; a plus is a blank.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
        match (bytes[i], hex(i + 1), hex(i + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                i += 3;
            }
            (b'+', ..) => {
                out.push(b' ');
                i += 1;
            }
            (other, ..) => {
                out.push(other);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A path below a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Target {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Plural name of the resource.
    pub(crate) plural: String,
    /// Namespace, if the path has one.
    pub(crate) namespace: Option<String>,
    /// Object name, if the path has one.
    pub(crate) name: Option<String>,
    /// Subresource, if the path has one.
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// Reads `/api/v1/…` or `/apis/GROUP/VERSION/…`; `None` for any other path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let decoded: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| decode(&part.replace('+', "%2B")))
            .collect();
        let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let mut target = Self { group: group.into(), version: version.into(), ..Self::default() };
        let rest = match rest {
            // `/namespaces/x/status` and `/namespaces/x/finalize` are the Namespace's own subresources.
            ["namespaces", namespace, tail @ ..]
                if !(tail.is_empty() || group.is_empty() && matches!(tail, ["status" | "finalize"])) =>
            {
                target.namespace = Some((*namespace).to_owned());
                tail
            }
            all => all,
        };
        match rest {
            [plural] => target.plural = (*plural).into(),
            [plural, name] => {
                target.plural = (*plural).into();
                target.name = Some((*name).into());
            }
            [plural, name, subresource] => {
                target.plural = (*plural).into();
                target.name = Some((*name).into());
                target.subresource = Some((*subresource).into());
            }
            _ => return None,
        }
        Some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_the_api_server_reads_them() {
        let target = |path| {
            Target::parse(path).map(|t| {
                (
                    t.group,
                    t.version,
                    t.plural,
                    t.namespace.unwrap_or_default(),
                    t.name.unwrap_or_default(),
                    t.subresource.unwrap_or_default(),
                )
            })
        };
        let t = |g: &str, v: &str, p: &str, ns: &str, n: &str, s: &str| {
            Some((g.into(), v.into(), p.into(), ns.into(), n.into(), s.into()))
        };
        assert_eq!(target("/api/v1/pods"), t("", "v1", "pods", "", "", ""));
        assert_eq!(target("/api/v1/namespaces/a"), t("", "v1", "namespaces", "", "a", ""));
        assert_eq!(target("/api/v1/namespaces/a/status"), t("", "v1", "namespaces", "", "a", "status"));
        assert_eq!(target("/api/v1/namespaces/a/pods"), t("", "v1", "pods", "a", "", ""));
        assert_eq!(
            target("/apis/apps/v1/namespaces/a/deployments/d/status"),
            t("apps", "v1", "deployments", "a", "d", "status")
        );
        assert_eq!(target("/apis/apps/v1"), None);
        assert_eq!(target("/healthz"), None);
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&limit=x");
        assert_eq!(query.text("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch"));
        assert!(!query.flag("absent"));
        assert!(query.number("limit").is_err());
    }
}
