// SPDX-License-Identifier: Apache-2.0
//! The memberlist Secret: made once if it is absent, never changed.

use std::time::Duration;

use ferrolb_kube_support::backoff::Backoff;
use ferrolb_kube_support::request::{RequestError, send_json};
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of the key.
const KEY: usize = 16;

/// Creates the Secret if there is none; tries until it is there.
pub(crate) async fn ensure(client: Client, namespace: String, secret: String, deployment: String) {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    let mut said = None;
    loop {
        match attempt(&client, &namespace, &secret, &deployment).await {
            Ok(true) => {
                tracing::info!(op = "CreateMlSecret", "secret successfully created");
                return;
            }
            Ok(false) => {
                tracing::debug!(op = "CreateMlSecret", "secret already exists, nothing to do");
                return;
            }
            Err(error) => {
                if said.replace(error.code) != Some(error.code) {
                    tracing::error!(
                        op = "CreateMlSecret",
                        namespace,
                        secret,
                        deployment,
                        error = error.message.as_str(),
                        "failed to create the memberlist secret, retrying"
                    );
                }
            }
        }
        tokio::time::sleep(backoff.wait()).await;
    }
}

/// Whether the Secret had to be created.
async fn attempt(
    client: &Client,
    namespace: &str,
    secret: &str,
    deployment: &str,
) -> Result<bool, RequestError> {
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    let selected = format!("{secrets}?fieldSelector=metadata.name%3D{secret}");
    let found = send_json(client, Method::GET, &selected, None, LIMIT).await?;
    if found["items"].as_array().is_some_and(|items| !items.is_empty()) {
        return Ok(false);
    }
    let owner = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}");
    let owner = send_json(client, Method::GET, &owner, None, LIMIT).await?;
    let body =
        body(namespace, secret, deployment, owner["metadata"]["uid"].as_str().unwrap_or_default(), &key()?);
    match send_json(client, Method::POST, &secrets, Some(("application/json", &body)), LIMIT).await {
        Ok(_) => Ok(true),
        // Another controller was faster.
        Err(error) if error.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

fn key() -> Result<[u8; KEY], RequestError> {
    let mut key = [0_u8; KEY];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut key)
        .map_err(|_| RequestError::no_answer("the system gives no random numbers"))?;
    Ok(key)
}

/// The key is text: unpadded base64 of the random bytes. Secrets carry base64 once more.
fn body(namespace: &str, secret: &str, deployment: &str, deployment_uid: &str, key: &[u8]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret,
            "namespace": namespace,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": deployment_uid,
            }],
        },
        "data": {"secretkey": STANDARD.encode(STANDARD_NO_PAD.encode(key))},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_holds_unpadded_base64_of_sixteen_bytes() {
        let body = body("metallb-system", "memberlist", "controller", "u-1", &[7; KEY]);
        let data = STANDARD.decode(body["data"]["secretkey"].as_str().unwrap()).unwrap();
        let text = String::from_utf8(data).unwrap();
        assert_eq!(text.len(), 22);
        assert_eq!(STANDARD_NO_PAD.decode(&text).unwrap(), [7; KEY]);
        assert_eq!(body["metadata"]["ownerReferences"][0]["kind"], "Deployment");
        assert!(body.get("type").is_none());
    }

    #[test]
    fn two_keys_differ() {
        assert_ne!(key().unwrap(), key().unwrap());
    }
}
