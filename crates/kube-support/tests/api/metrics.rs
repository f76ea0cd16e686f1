// SPDX-License-Identifier: Apache-2.0
//! The metrics port as a scraper meets it.

use std::sync::Arc;

use ferrolb_kube_support::access::Access;
use ferrolb_kube_support::listen::{Bind, listen};
use ferrolb_kube_support::metrics::{Metrics, MetricsServer};
use ferrolb_kube_support::tls::{Certificate, TlsOptions};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cable::{Bench, soon};

/// A server with a certificate of its own authority, and what a client needs to trust it.
struct Port {
    address: std::net::SocketAddr,
    trust: Arc<rustls::ClientConfig>,
    _directory: tempfile::TempDir,
}

async fn serve(bench: &Bench, min_version: &str) -> Port {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(directory.path().join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(directory.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()).unwrap();
    let trust = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();

    let server = MetricsServer {
        metrics: Metrics::new().unwrap(),
        access: Access::new(bench.client.clone()),
        tls: TlsOptions::parse(min_version, "", "").unwrap(),
        certificate: Certificate::from_directory_or_new(Some(directory.path())).unwrap(),
        path: ferrolb_kube_support::metrics::PATH.to_owned(),
        livez: false,
    };
    let listener = listen(Bind::Loopback, 0).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server.serve(listener));
    Port { address, trust: Arc::new(trust), _directory: directory }
}

impl Port {
    async fn ask(&self, method: &str, path: &str, token: Option<&str>) -> String {
        let authorization =
            token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n");
        soon("an answer of the metrics port", async {
            let tcp = TcpStream::connect(self.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut tls = TlsConnector::from(Arc::clone(&self.trust)).connect(name, tcp).await.unwrap();
            tls.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // The server may close without TLS's farewell, which is no matter after a whole answer.
            let _ = tls.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        })
        .await
    }
}

async fn token(bench: &Bench) -> String {
    let api: Api<ServiceAccount> = Api::namespaced(bench.direct.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "prometheus"}})).unwrap();
    api.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest =
        serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": []}})).unwrap();
    let answer = api.create_token_request("prometheus", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

fn is(answer: &str, code: u16, body: &str) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {code} ")) && answer.ends_with(&format!("\r\n\r\n{body}"))
}

#[tokio::test]
async fn only_who_the_api_server_knows_may_read() {
    let bench = Bench::new().await;
    let port = serve(&bench, "").await;
    let answer = port.ask("GET", "/metrics", None).await;
    assert!(is(&answer, 401, "Unauthorized\n"), "{answer}");
    let answer = port.ask("GET", "/metrics", Some("nonsense")).await;
    assert!(is(&answer, 500, "Authentication failed\n"), "{answer}");
    for path in ["/", "/healthz"] {
        let answer = port.ask("GET", path, None).await;
        assert!(is(&answer, 404, "404 page not found\n"), "{answer}");
    }
    let token = token(&bench).await;
    let answer = port.ask("GET", "/metrics", Some(&token)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8; escaping=underscores\r\n")
    );
    assert!(answer.contains("\nmetallb_k8s_client_updates_total 0\n"), "{answer}");

    // Both answers are remembered: an outage of the API server does not stop the next scrape.
    bench.pull();
    let answer = port.ask("GET", "/metrics", Some(&token)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn plain_http_is_told_so_and_a_silent_client_keeps_nobody_waiting() {
    let bench = Bench::new().await;
    let port = serve(&bench, "").await;
    let _silent = TcpStream::connect(port.address).await.unwrap();
    let mut plain = TcpStream::connect(port.address).await.unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    soon("the answer to plain HTTP", plain.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{answer}");
}

#[tokio::test]
async fn tls_1_2_is_spoken_only_when_it_is_asked_for() {
    let bench = Bench::new().await;
    for (min_version, works) in [("", false), ("VersionTLS12", true)] {
        let port = serve(&bench, min_version).await;
        let mut roots = RootCertStore::empty();
        roots.roots.extend(std::iter::empty());
        let old = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS12]);
        // The handshake's version is decided before any certificate is looked at.
        let old = old.with_root_certificates(roots).with_no_client_auth();
        let tcp = TcpStream::connect(port.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let error = TlsConnector::from(Arc::new(old)).connect(name, tcp).await.unwrap_err().to_string();
        let reached_the_certificate = error.contains("UnknownIssuer");
        assert_eq!(reached_the_certificate, works, "{min_version:?}: {error}");
    }
}
