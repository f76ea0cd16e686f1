// SPDX-License-Identifier: Apache-2.0
//! Who asks: client certificates of the server's own authority and bearer tokens it issued.
//! What they may do is another question.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::error::{ApiError, Result};
use crate::random;

/// An authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// Name, `system:serviceaccount:NAMESPACE:NAME` for service accounts.
    pub(crate) name: String,
    /// UID of a service account, else empty.
    pub(crate) uid: String,
    /// Groups.
    pub(crate) groups: Vec<String>,
}

impl User {
    /// A user by name and groups; everybody known is in `system:authenticated`.
    pub(crate) fn new(name: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        groups.push("system:authenticated".into());
        Self { name: name.into(), uid: String::new(), groups }
    }

    /// Whoever gave no credentials.
    pub(crate) fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".into()];
        Self { name: "system:anonymous".into(), uid: String::new(), groups }
    }

    /// Whether no credentials were given.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    /// As reviews show it.
    pub(crate) fn to_json(&self) -> Value {
        let mut user = json!({ "username": self.name, "groups": self.groups });
        if !self.uid.is_empty() {
            user["uid"] = self.uid.clone().into();
        }
        user
    }
}

/// Known credentials.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    certificates: HashMap<Vec<u8>, User>,
    tokens: HashMap<String, Token>,
}

#[derive(Debug, Clone)]
struct Token {
    user: User,
    audiences: Vec<String>,
    expires: Timestamp,
}

/// Audience of a token that names none.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

impl Credentials {
    /// From now on this certificate is that user's.
    pub(crate) fn add_certificate(&self, der: Vec<u8>, user: User) {
        self.lock().certificates.insert(der, user);
    }

    /// Makes a token for a user.
    pub(crate) fn issue(
        &self,
        user: User,
        audiences: Vec<String>,
        lifetime: SignedDuration,
    ) -> (String, Timestamp) {
        let now = Timestamp::now();
        let expires = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        let audiences = if audiences.is_empty() { vec![AUDIENCE.to_owned()] } else { audiences };
        // The form of a JSON web token, because some clients look inside; nobody checks the signature:
        // the server knows its tokens by heart.
        let claims = json!({
            "iss": AUDIENCE, "aud": audiences, "sub": user.name,
            "iat": now.as_second(), "nbf": now.as_second(), "exp": expires.as_second(),
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signature = URL_SAFE_NO_PAD.encode(random::bytes::<32>());
        let token =
            format!("{}.{}.{signature}", part(&json!({ "alg": "none", "typ": "JWT" })), part(&claims));
        self.lock().tokens.insert(token.clone(), Token { user, audiences, expires });
        (token, expires)
    }

    /// The user of a token, if it is known, not expired and meant for one of these audiences
    /// (none given: the server's own), with the audiences that fit.
    pub(crate) fn check(&self, token: &str, audiences: &[String]) -> Option<(User, Vec<String>)> {
        let known = self.lock();
        let found = known.tokens.get(token)?;
        if found.expires <= Timestamp::now() {
            return None;
        }
        let own = [AUDIENCE.to_owned()];
        let asked = if audiences.is_empty() { &own[..] } else { audiences };
        let fitting: Vec<String> = asked.iter().filter(|a| found.audiences.contains(a)).cloned().collect();
        (!fitting.is_empty()).then(|| (found.user.clone(), fitting))
    }

    /// Forgets all tokens of a user.
    pub(crate) fn revoke(&self, uid: &str) {
        self.lock().tokens.retain(|_, token| token.user.uid != uid);
    }

    /// Who sends a request with this client certificate and `Authorization` header.
    pub(crate) fn authenticate(
        &self,
        certificate: Option<&[u8]>,
        authorization: Option<&str>,
    ) -> Result<User> {
        if let Some(certificate) = certificate {
            return self.lock().certificates.get(certificate).cloned().ok_or_else(ApiError::unauthorized);
        }
        let Some(header) = authorization else { return Ok(User::anonymous()) };
        let token = header.strip_prefix("Bearer ").or_else(|| header.strip_prefix("bearer "));
        let token = token.ok_or_else(ApiError::unauthorized)?;
        self.check(token.trim(), &[]).map(|(user, _)| user).ok_or_else(ApiError::unauthorized)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_audience_and_lifetime_only() {
        let credentials = Credentials::default();
        let user = User::new("system:serviceaccount:a:b", &[]);
        let (token, _) = credentials.issue(user.clone(), vec![], SignedDuration::from_secs(60));
        assert_eq!(credentials.check(&token, &[]).map(|found| found.0), Some(user.clone()));
        assert_eq!(credentials.check(&token, &["other".into()]), None);
        let (old, _) = credentials.issue(user, vec![], SignedDuration::from_secs(-1));
        assert_eq!(credentials.check(&old, &[]), None);
        assert_eq!(credentials.authenticate(None, Some("Bearer nonsense")), Err(ApiError::unauthorized()));
        assert!(credentials.authenticate(None, None).expect("anonymous").is_anonymous());
    }
}
