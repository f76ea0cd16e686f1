// SPDX-License-Identifier: Apache-2.0
//! The member list's Secret: from its mounted file, or, under our manifests, from the API until a controller has made
//! it.

use std::io;
use std::path::Path;
use std::time::Duration;

use ferrolb_kube_support::level::Level;
use ferrolb_kube_support::request::{RequestError, send};
use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// The Secret's file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read memberlist secret key file: {file}: {error}")]
pub struct SecretError {
    /// The file.
    pub file: String,
    /// Why not.
    pub error: io::Error,
}

/// Where a Secret that is not mounted yet can be asked for.
pub(crate) struct Fallback<'a> {
    /// The API.
    pub(crate) client: &'a Client,
    /// The namespace of the Secret.
    pub(crate) namespace: &'a str,
    /// Whose manifests mount it. MetalLB's keep a Pod from starting without it, so a missing file is a mistake there;
    /// ours do not, so it is not there yet.
    pub(crate) level: Level,
}

/// The Secret's content, byte for byte; empty without a directory, none if `stop` came first.
///
/// # Errors
///
/// If the file cannot be read; one that is missing is waited for under our own manifests.
pub(crate) async fn read(
    directory: Option<&Path>,
    fallback: Fallback<'_>,
    stop: &CancellationToken,
) -> Result<Option<Vec<u8>>, SecretError> {
    let Some(file) = directory.map(|directory| directory.join(KEY)) else { return Ok(Some(Vec::new())) };
    let mut said = false;
    loop {
        match std::fs::read(&file) {
            Ok(content) => return Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && fallback.level == Level::B => {}
            Err(error) => return Err(SecretError { file: file.display().to_string(), error }),
        }
        let asked = tokio::select! {
            asked = ask(&fallback) => asked,
            () = stop.cancelled() => return Ok(None),
        };
        match asked {
            Ok(Some(content)) => return Ok(Some(content)),
            _ if said => {}
            outcome => {
                said = true;
                let why =
                    outcome.err().map_or_else(|| format!("it has no key {KEY}"), |error| error.to_string());
                tracing::warn!(
                    op = "startup",
                    secret = NAME,
                    namespace = fallback.namespace,
                    file = %file.display(),
                    why,
                    "waiting for the member list's Secret, which the controller makes"
                );
            }
        }
        tokio::select! {
            () = tokio::time::sleep(ASK_EVERY) => {}
            () = stop.cancelled() => return Ok(None),
        }
    }
}

async fn ask(fallback: &Fallback<'_>) -> Result<Option<Vec<u8>>, RequestError> {
    let path = format!("/api/v1/namespaces/{}/secrets/{NAME}", fallback.namespace);
    let bytes = send(fallback.client, Method::GET, &path, None, LIMIT).await?;
    let secret: Secret = serde_json::from_slice(&bytes)
        .map_err(|error| RequestError::no_answer(format!("it cannot be read: {error}")))?;
    Ok(secret.data.and_then(|mut data| data.remove(KEY)).map(|bytes| bytes.0))
}

/// The Secret that the controller makes where MetalLB's manifests and ours ask it to.
const NAME: &str = "memberlist";

/// The entry of the Secret, and the file in its directory.
const KEY: &str = "secretkey";

const ASK_EVERY: Duration = Duration::from_millis(500);

const LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of an API server that is not there.
    fn nowhere() -> Client {
        Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap()
    }

    async fn read_at(level: Level, directory: Option<&Path>) -> Result<Option<Vec<u8>>, String> {
        let (client, stop) = (nowhere(), CancellationToken::new());
        let fallback = Fallback { client: &client, namespace: "metallb-system", level };
        read(directory, fallback, &stop).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn s26_the_secret_is_its_files_bytes_and_has_to_be_there_if_metallbs_manifests_name_it() {
        let directory = tempfile::tempdir().unwrap();
        let error = read_at(Level::A, Some(directory.path())).await.unwrap_err();
        assert!(error.starts_with("failed to read memberlist secret key file: "), "{error}");
        assert_eq!(read_at(Level::A, None).await, Ok(Some(Vec::new())));
        std::fs::write(directory.path().join(KEY), b"abc\n").unwrap();
        for level in [Level::A, Level::B] {
            assert_eq!(read_at(level, Some(directory.path())).await, Ok(Some(b"abc\n".to_vec())));
        }
    }

    #[tokio::test]
    async fn under_our_manifests_it_is_waited_for_also_while_the_api_is_away() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(KEY);
        let reading = read_at(Level::B, Some(directory.path()));
        let writing = async {
            // It is being waited for from here on.
            tokio::task::yield_now().await;
            std::fs::write(file, b"late").unwrap();
        };
        assert_eq!(tokio::join!(reading, writing).0, Ok(Some(b"late".to_vec())));
    }
}
