// SPDX-License-Identifier: Apache-2.0
//! Who may read metrics: the API server is asked, by TokenReview and SubjectAccessReview, and remembered for
//! a while.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::backoff::Backoff;
use crate::request::{RequestError, send_json};

/// How long a token's user is believed.
const TOKEN_TIME: Duration = Duration::from_secs(60);
/// How long a permission is believed, and a refusal.
const ALLOWED_TIME: Duration = Duration::from_secs(300);
const DENIED_TIME: Duration = Duration::from_secs(30);
/// All tries of one review together.
const REVIEW_LIMIT: Duration = Duration::from_secs(10);
const TRIES: u32 = 5;
/// Answers that are remembered.
const REMEMBERED: usize = 256;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Why a request is not served; each has its HTTP status and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// There is no token, or nobody stands behind it.
    Unauthorized,
    /// The review of the token failed.
    AuthenticationFailed,
    /// This user may not.
    Forbidden(String),
    /// The review of this user's permission failed.
    AuthorizationFailed(String),
}

impl Denial {
    /// HTTP status and body.
    pub fn answer(&self) -> (u16, String) {
        match self {
            Self::Unauthorized => (401, "Unauthorized".to_owned()),
            Self::AuthenticationFailed => (500, "Authentication failed".to_owned()),
            Self::Forbidden(user) => (403, format!("Authorization denied for user {user}")),
            Self::AuthorizationFailed(user) => (500, format!("Authorization for user {user} failed")),
        }
    }
}

/// A user as TokenReview names it, kept as the fields that SubjectAccessReview takes.
#[derive(Clone, Debug, Default, PartialEq)]
struct User {
    name: String,
    spec: Value,
}

/// Decides by asking, and remembers.
pub struct Access {
    client: Client,
    users: Memory<[u8; 32], User>,
    grants: Memory<(String, String, String), bool>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Asks through `client`.
    pub fn new(client: Client) -> Self {
        Self { client, users: Memory::new(), grants: Memory::new() }
    }

    /// Whether the bearer of `authorization` may do `verb` (a lower-case HTTP method) on `path`.
    ///
    /// # Errors
    ///
    /// [`Denial`] when not, or when the API server does not say.
    pub async fn check(&self, authorization: Option<&str>, verb: &str, path: &str) -> Result<(), Denial> {
        let token = authorization.and_then(bearer).ok_or(Denial::Unauthorized)?;
        let user = self.user(token).await?;
        let key = (user.spec.to_string(), verb.to_owned(), path.to_owned());
        let allowed = match self.grants.recall(&key, Instant::now()) {
            Some(allowed) => allowed,
            None => {
                let mut spec = user.spec.clone();
                spec["nonResourceAttributes"] = json!({"path": path, "verb": verb});
                let review = json!({
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
                });
                let answer = self.review(ACCESS_REVIEWS, &review).await.map_err(|error| {
                    complain("subjectaccessreviews", &error);
                    Denial::AuthorizationFailed(user.name.clone())
                })?;
                let allowed = answer["status"]["allowed"] == true;
                let time = if allowed { ALLOWED_TIME } else { DENIED_TIME };
                self.grants.keep(key, allowed, Instant::now() + time);
                allowed
            }
        };
        if allowed { Ok(()) } else { Err(Denial::Forbidden(user.name)) }
    }

    async fn user(&self, token: &str) -> Result<User, Denial> {
        // A digest, so that no token lies in memory longer than its request.
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(user) = self.users.recall(&key, Instant::now()) {
            return Ok(user);
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let answer = self.review(TOKEN_REVIEWS, &review).await.map_err(|error| {
            complain("tokenreviews", &error);
            Denial::AuthenticationFailed
        })?;
        let status = &answer["status"];
        if status["error"].as_str().is_some_and(|error| !error.is_empty()) {
            return Err(Denial::AuthenticationFailed);
        }
        if status["authenticated"] != true {
            return Err(Denial::Unauthorized);
        }
        let user = &status["user"];
        let name = user["username"].as_str().unwrap_or_default().to_owned();
        let mut spec = json!({"user": name});
        for key in ["uid", "groups", "extra"] {
            if !user[key].is_null() {
                spec[key] = user[key].clone();
            }
        }
        let user = User { name, spec };
        self.users.keep(key, user.clone(), Instant::now() + TOKEN_TIME);
        Ok(user)
    }

    /// Creates a review; repeats while the API server does not answer or is in trouble.
    async fn review(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        let end = Instant::now() + REVIEW_LIMIT;
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(3));
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let body = Some(("application/json", body));
            match send_json(&self.client, Method::POST, path, body, left).await {
                Err(error)
                    if (error.code == 0 || error.code == 429 || error.code >= 500)
                        && backoff.failures() + 1 < TRIES
                        && Instant::now() < end =>
                {
                    tokio::time::sleep(backoff.wait()).await;
                }
                result => return result,
            }
        }
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn complain(resource: &str, error: &RequestError) {
    let error_text = error.message.as_str();
    match error.code {
        403 => tracing::error!(
            op = "metrics",
            error = error_text,
            resource,
            "metrics cannot be served: this ServiceAccount may not create the review"
        ),
        _ => tracing::error!(op = "metrics", error = error_text, resource, "review failed"),
    }
}

/// Answers with an end, bounded.
#[derive(Debug)]
struct Memory<K, V> {
    answers: Mutex<BTreeMap<K, (V, Instant)>>,
}

impl<K: Ord, V: Clone> Memory<K, V> {
    fn new() -> Self {
        Self { answers: Mutex::new(BTreeMap::new()) }
    }

    fn recall(&self, key: &K, now: Instant) -> Option<V> {
        let answers = self.answers.lock().ok()?;
        answers.get(key).filter(|(_, end)| now < *end).map(|(value, _)| value.clone())
    }

    fn keep(&self, key: K, value: V, end: Instant) {
        let Ok(mut answers) = self.answers.lock() else { return };
        if answers.len() >= REMEMBERED {
            let now = Instant::now();
            answers.retain(|_, (_, end)| now < *end);
        }
        if answers.len() >= REMEMBERED {
            answers.pop_first();
        }
        answers.insert(key, (value, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_have_metallbs_status_and_text() {
        let user = || "system:serviceaccount:a:b".to_owned();
        for (denial, code, text) in [
            (Denial::Unauthorized, 401, "Unauthorized"),
            (Denial::AuthenticationFailed, 500, "Authentication failed"),
            (Denial::Forbidden(user()), 403, "Authorization denied for user system:serviceaccount:a:b"),
            (
                Denial::AuthorizationFailed(user()),
                500,
                "Authorization for user system:serviceaccount:a:b failed",
            ),
        ] {
            assert_eq!(denial.answer(), (code, text.to_owned()));
        }
    }

    #[test]
    fn only_a_bearer_token_counts() {
        for (header, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            assert_eq!(bearer(header), token, "{header:?}");
        }
    }

    #[test]
    fn answers_end_and_are_bounded() {
        let memory = Memory::new();
        let now = Instant::now();
        memory.keep(1, "a", now + TOKEN_TIME);
        assert_eq!(memory.recall(&1, now), Some("a"));
        assert_eq!(memory.recall(&1, now + TOKEN_TIME), None);
        for n in 0..1000 {
            memory.keep(n, "x", now + ALLOWED_TIME);
        }
        assert!(memory.answers.lock().unwrap().len() <= REMEMBERED);
    }
}
