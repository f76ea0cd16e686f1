// SPDX-License-Identifier: Apache-2.0
//! What the scenarios run against: this server, or a real one.

use std::path::PathBuf;
use std::time::Duration;

use ferrolb_fakekube::{Options, Server};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::hook::Identity;

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON: &str = "application/json";

/// A server and an administrator's client.
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) kubeconfig: String,
    pub(crate) server: Option<Server>,
    /// Where a real server's script put a certificate for webhooks, if this is one.
    pub(crate) certificates: Option<PathBuf>,
}

/// An answer: code, body and some headers.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warning: String,
    pub(crate) retry_after: String,
}

impl Target {
    /// A fresh server of ours.
    pub(crate) async fn fake() -> Self {
        Self::fake_with(Options { gc_delay: None, ..Options::default() }).await
    }

    pub(crate) async fn fake_with(options: Options) -> Self {
        let server = Server::start(options).await.expect("starts");
        let kubeconfig = server.kubeconfig();
        let client = ferrolb_fakekube::gc::client(&kubeconfig).await.expect("a client");
        Self { client, kubeconfig, server: Some(server), certificates: None }
    }

    /// A server reached by a kubeconfig.
    pub(crate) async fn existing(kubeconfig: String) -> Self {
        let client = ferrolb_fakekube::gc::client(&kubeconfig).await.expect("a client");
        Self { client, kubeconfig, server: None, certificates: None }
    }

    /// What a webhook of a scenario shows.
    pub(crate) fn identity(&self) -> Identity {
        let Some(dir) = &self.certificates else { return Identity::new(&["127.0.0.1"]) };
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("a file");
        Identity { certificate: read("webhook.crt"), key: read("webhook.key"), authority: read("ca.crt") }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Vec<u8>,
        accept: &str,
    ) -> Answer {
        let mut request = http::Request::builder().method(method).uri(path).header("User-Agent", "differ/1");
        request = request.header("Accept", if accept.is_empty() { JSON } else { accept });
        if !media.is_empty() {
            request = request.header("Content-Type", media);
        }
        let request = request.body(Body::from(body)).expect("a request");
        let response = self.client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let warning = warnings.collect::<Vec<_>>().join(", ");
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = retry_after.unwrap_or_default().to_owned();
        let bytes = response.into_body().collect_bytes().await.expect("a body");
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()), warning, retry_after }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", Vec::new(), "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, JSON, body.to_string().into(), "").await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, JSON, body.to_string().into(), "").await
    }

    pub(crate) async fn patch(&self, path: &str, media: &str, body: Value) -> Answer {
        self.send("PATCH", path, media, body.to_string().into(), "").await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", Vec::new(), "").await
    }

    /// Makes a namespace for one scenario.
    pub(crate) async fn namespace(&self, name: &str) -> String {
        let made = self.post("/api/v1/namespaces", json!({ "metadata": { "name": name } })).await;
        assert_eq!(made.code, 201, "{made:?}");
        format!("/api/v1/namespaces/{name}")
    }

    /// The kubeconfig as a file that lives as long as the returned directory.
    pub(crate) fn kubeconfig_file(&self) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, &self.kubeconfig).expect("written");
        (dir, path)
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }

    #[track_caller]
    pub(crate) fn refused(self, code: u16, text: &str) {
        assert_eq!(self.code, code, "{}", self.body);
        let message = self.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(text), "{message}");
    }
}

/// Waits until a condition holds.
pub(crate) async fn until<T, F>(what: &str, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Some(found) = condition().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// Runs scenarios, which also run against a real server, on a fresh server of ours.
macro_rules! on_fake {
    ($($name:ident => $scenario:path),+ $(,)?) => {
        mod here {
            $(#[tokio::test]
            async fn $name() {
                $scenario(&crate::target::Target::fake().await).await;
            })+
        }
    };
}
pub(crate) use on_fake;
