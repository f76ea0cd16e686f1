// SPDX-License-Identifier: Apache-2.0
//! The helper that the probes and scrapers of MetalLB's FRR manifest ask.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ferrolb_speaker::sidecar;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, PostParams};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::cable::{Bench, soon, until};
use crate::{create, create_in_cluster};

/// One request, and the whole answer.
async fn ask(port: u16, trust: &Arc<rustls::ClientConfig>, path: &str, token: Option<&str>) -> String {
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let tcp = until("it listens", || async { TcpStream::connect(address).await.ok() }).await;
    soon("it answers", async {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = TlsConnector::from(Arc::clone(trust)).connect(name, tcp).await.unwrap();
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server may close without TLS's farewell, which is no matter after a whole answer.
        let _ = tls.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    })
    .await
}

#[tokio::test]
async fn frr_metrics_answers_livez_to_everybody_and_metrics_without_sessions_to_who_may_read_them() {
    let bench = Bench::new().await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = write("tls.crt", made.cert.pem());
    let key = write("tls.key", made.signing_key.serialize_pem());
    let kubeconfig = write("kubeconfig", bench.server.kubeconfig());
    // Free a moment ago, on every address.
    let port = std::net::TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port();
    let args = [
        format!("--metrics-port={port}"),
        format!("--tls-cert-file={certificate}"),
        format!("--tls-private-key-file={key}"),
        format!("--kubeconfig={kubeconfig}"),
    ];
    // It ends with the program of the test.
    std::thread::spawn(move || sidecar::main("frr-metrics", args));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()).unwrap();
    let trust = Arc::new(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let alive = ask(port, &trust, "/livez", None).await;
    assert!(alive.starts_with("HTTP/1.1 200 ") && alive.ends_with("\r\n\r\nok"), "{alive}");
    let nobody = ask(port, &trust, "/metrics", None).await;
    assert!(nobody.starts_with("HTTP/1.1 401 "), "{nobody}");

    create_in_cluster::<Namespace>(&bench, json!({"metadata": {"name": "monitoring"}})).await;
    create::<ServiceAccount>(&bench, "monitoring", json!({"metadata": {"name": "prometheus"}})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.direct.clone(), "monitoring");
    let wanted: TokenRequest =
        serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": []}})).unwrap();
    let answer = accounts.create_token_request("prometheus", &PostParams::default(), &wanted).await.unwrap();
    let token = answer.status.unwrap().token;
    let empty = ask(port, &trust, "/metrics", Some(&token)).await;
    let (head, body) = empty.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    // FRR counts nothing here: the speaker does, on its own port. What the process itself needs is there.
    let series: Vec<_> = body.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(series.iter().all(|line| line.starts_with("process_")), "{series:?}");
    assert!(!body.contains("metallb") && !body.contains("frr"), "{body}");
}
