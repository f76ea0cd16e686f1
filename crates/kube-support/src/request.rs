// SPDX-License-Identifier: Apache-2.0
//! One request to the API server and its answer, as plainly as HTTP has it.
//!
//! The typed interface of `kube` decodes lists as a whole and repeats requests by itself; the daemons want
//! each object by itself and decide on repeats themselves, so they use its client for the connection only.

use std::time::Duration;

use bytes::Bytes;
use ferrolb_api::request::WriteError;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::client::failure;

/// Why a request has no good answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// HTTP status, 0 when no answer came.
    pub code: u16,
    /// Kubernetes' word for it (`NotFound`, `Conflict` …), empty when no answer came.
    pub reason: String,
    /// The server's sentence, or what failed on the way.
    pub message: String,
    /// How long the server asks to wait before the next attempt (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl RequestError {
    /// No answer came: what was asked for may have happened, or not.
    pub fn no_answer(message: impl Into<String>) -> Self {
        Self { code: 0, reason: String::new(), message: message.into(), retry_after: None }
    }

    /// None is waited for any longer: what it was to come by may have died in an outage that is over.
    pub(crate) fn older_than_an_outage() -> Self {
        Self::no_answer("the connection is older than an outage")
    }

    /// From an answer's status and body, which is a `Status` object when the API server itself speaks.
    pub(crate) fn from_answer(code: u16, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let text = |key: &str| status.get(key).and_then(Value::as_str).map(str::to_owned);
        let message = text("message").unwrap_or_else(|| {
            let body = String::from_utf8_lossy(body);
            let body: String = body.trim().chars().take(200).collect();
            if body.is_empty() {
                format!("HTTP status {code}")
            } else {
                format!("HTTP status {code}: {body}")
            }
        });
        Self { code, reason: text("reason").unwrap_or_default(), message, retry_after: None }
    }
}

impl From<RequestError> for WriteError {
    fn from(error: RequestError) -> Self {
        Self { retry_after: error.retry_after, ..Self::refused(error.code, error.reason, error.message) }
    }
}

/// Sends one request and reads the whole answer.
///
/// # Errors
///
/// [`RequestError`] when no answer came within `limit`, or the answer is none of 2xx.
pub async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<(&'static str, &Value)>,
    limit: Duration,
) -> Result<Bytes, RequestError> {
    send_accepting("application/json", client, method, path, body, limit).await
}

/// As [`send`], asking for the answer in one of these media types.
///
/// # Errors
///
/// As [`send`].
pub async fn send_accepting(
    accept: &'static str,
    client: &Client,
    method: Method,
    path: &str,
    body: Option<(&'static str, &Value)>,
    limit: Duration,
) -> Result<Bytes, RequestError> {
    let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
    let bytes = match body {
        Some((content_type, value)) => {
            request = request.header(CONTENT_TYPE, content_type);
            serde_json::to_vec(value).map_err(|error| RequestError::no_answer(error.to_string()))?
        }
        None => Vec::new(),
    };
    let request =
        request.body(Body::from(bytes)).map_err(|error| RequestError::no_answer(error.to_string()))?;
    let exchange = async {
        let response =
            client.send(request).await.map_err(|error| RequestError::no_answer(failure(&error)))?;
        let code = response.status();
        let retry_after = retry_after(response.headers());
        let bytes = response
            .into_body()
            .collect()
            .await
            .map_err(|error| RequestError::no_answer(failure(&error)))?
            .to_bytes();
        // The connection is given back by a task of its own. Whoever asks again before that has had its turn may open a new
        // one, whose handshake costs both sides more than several requests: a burst of Services is served in about two
        // thirds of the time with this line (`ferrolb lab bench address`, eight connections).
        tokio::task::yield_now().await;
        if code.is_success() {
            return Ok(bytes);
        }
        Err(RequestError { retry_after, ..RequestError::from_answer(code.as_u16(), &bytes) })
    };
    match tokio::time::timeout(limit, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(RequestError::no_answer(format!("no answer within {} s", limit.as_secs()))),
    }
}

/// Sends one request and decodes the answer as JSON.
///
/// # Errors
///
/// As [`send`]; also when the answer is no JSON.
pub async fn send_json(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<(&'static str, &Value)>,
    limit: Duration,
) -> Result<Value, RequestError> {
    let bytes = send(client, method, path, body, limit).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| RequestError::no_answer(format!("the answer is no JSON: {error}")))
}

/// What `Retry-After` says, in seconds; API servers send no dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A value for the query part of a URL: everything but letters, digits and `-._~` escaped (RFC 3986 §2.3).
pub fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte))
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_words_are_kept() {
        let body =
            br#"{"kind":"Status","code":409,"reason":"Conflict","message":"the object has been modified"}"#;
        let error = RequestError::from_answer(409, body);
        assert_eq!((error.code, error.reason.as_str()), (409, "Conflict"));
        assert_eq!(error.to_string(), "the object has been modified");
    }

    #[test]
    fn a_proxys_words_are_shown_with_the_status() {
        assert_eq!(RequestError::from_answer(502, b"bad gateway\n").message, "HTTP status 502: bad gateway");
        assert_eq!(RequestError::from_answer(503, b"").message, "HTTP status 503");
    }

    #[test]
    fn what_the_server_asks_for_is_heard() {
        for (value, expected) in [("7", Some(7)), (" 1 ", Some(1)), ("soon", None), ("-1", None)] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(retry_after(&headers), expected.map(Duration::from_secs), "{value}");
        }
        let error =
            RequestError { retry_after: Some(Duration::from_secs(7)), ..RequestError::from_answer(429, b"") };
        assert_eq!(WriteError::from(error).retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn selectors_are_escaped_for_the_query() {
        assert_eq!(escape("metadata.name=a,b c"), "metadata.name%3Da%2Cb%20c");
    }
}
