// SPDX-License-Identifier: Apache-2.0
//! The webhook port as the API server, and anybody else in the cluster, meets it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ferrolb_kube_support::listen::{Bind, listen};
use ferrolb_kube_support::tls::TlsOptions;
use ferrolb_kube_support::webhook::{BODY_LIMIT, Body, Mounted, Reply, Serving, WebhookServer, Webhooks};
use http::StatusCode;
use http::request::Parts;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::cable::soon;

const LIMIT: usize = 64 * 1024;

/// Says what it was asked; what has the body `wait` only once it may.
struct Echo {
    asked: Arc<Notify>,
    may: Arc<Notify>,
}

impl Webhooks for Echo {
    fn limit(&self, path: &str) -> Option<usize> {
        (path == "/echo").then_some(LIMIT)
    }

    async fn answer(&self, head: &Parts, body: Body) -> Reply {
        if body == Body::Whole(Bytes::from_static(b"wait")) {
            self.asked.notify_one();
            self.may.notified().await;
        }
        let body = match body {
            Body::Whole(bytes) => format!("{} {} bytes\n", head.method, bytes.len()),
            Body::TooLarge => "too large\n".to_owned(),
        };
        Reply { code: StatusCode::OK, content_type: Some("text/plain"), body: body.into_bytes() }
    }
}

struct Port {
    address: std::net::SocketAddr,
    trust: rustls::ClientConfig,
    mounted: Mounted,
    directory: tempfile::TempDir,
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), rustls::Error>>,
    asked: Arc<Notify>,
    may: Arc<Notify>,
}

impl Port {
    /// A server without a certificate.
    fn open(http2: bool, body_limit: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()).unwrap();
        let mut trust = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        trust.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];

        let certificate = Serving::nothing();
        let mounted = Mounted::new(directory.path().to_owned(), Arc::clone(&certificate));
        let tls = TlsOptions::parse("", "", "").unwrap();
        let (asked, may) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let webhooks = Echo { asked: Arc::clone(&asked), may: Arc::clone(&may) };
        let server = WebhookServer { webhooks, tls, certificate, http2, body_limit };
        let listener = listen(Bind::Loopback, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let token = stop.clone();
        let ended = tokio::spawn(async move { server.serve(listener, token, || {}).await });
        Self { address, trust, mounted, directory, made, stop, ended, asked, may }
    }

    /// A server with a certificate.
    fn ready(http2: bool) -> Self {
        let port = Self::open(http2, BODY_LIMIT);
        port.mount();
        port
    }

    fn mount(&self) {
        std::fs::write(self.directory.path().join("tls.crt"), self.made.cert.pem()).unwrap();
        std::fs::write(self.directory.path().join("tls.key"), self.made.signing_key.serialize_pem()).unwrap();
        self.mounted.refresh(Instant::now());
    }

    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(self.trust.clone())).connect(name, tcp).await
    }

    /// What comes back until the server closes.
    async fn ask(&self, request: &[u8]) -> String {
        soon("an answer of the webhook port", async {
            let mut tls = self.connect().await.unwrap();
            tls.write_all(request).await.unwrap();
            rest(&mut tls).await
        })
        .await
    }
}

async fn rest(tls: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    // The server may close without TLS's farewell, which is no matter after a whole answer.
    let _ = tls.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn is(answer: &str, code: u16, body: &str) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {code} ")) && answer.ends_with(&format!("\r\n\r\n{body}"))
}

#[tokio::test]
async fn every_method_is_answered_where_there_is_a_webhook_and_nothing_is_elsewhere() {
    let port = Port::ready(false);
    for (request, code, body) in [
        ("GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, "GET 0 bytes\n"),
        (
            "POST /echo?timeout=10s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
            200,
            "POST 3 bytes\n",
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            200,
            "POST 3 bytes\n",
        ),
        ("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\nabc", 200, "too large\n"),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, "404 page not found\n"),
        ("POST /echo/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, "404 page not found\n"),
    ] {
        let answer = port.ask(request.as_bytes()).await;
        assert!(is(&answer, code, body), "{request}: {answer}");
    }
}

#[tokio::test]
async fn what_is_no_http_ends_its_connection_and_no_other() {
    let port = Port::ready(false);
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".as_slice();
    let long = [b"GET /".as_slice(), &vec![b'x'; 200 * 1024], b" HTTP/1.1\r\n\r\n"].concat();
    for garbage in [http2, b"\0\x01\x02\xff\r\n\r\n", b"GET\r\n\r\n", &long] {
        let answer = soon("the end of the connection", async {
            let mut tls = port.connect().await.unwrap();
            // It may be closed before all is written.
            let _ = tls.write_all(garbage).await;
            rest(&mut tls).await
        })
        .await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let answer = port.ask(b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(is(&answer, 200, "GET 0 bytes\n"), "{answer}");
}

#[tokio::test]
async fn http_2_is_spoken_only_where_it_was_asked_for() {
    for (http2, chosen) in [(false, b"http/1.1".as_slice()), (true, b"h2")] {
        let port = Port::ready(http2);
        let mut tls = port.connect().await.unwrap();
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(chosen));
        if http2 {
            // The preface of RFC 9113 section 3.4 with an empty SETTINGS frame; SETTINGS (4) come back.
            tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
            let mut head = [0; 9];
            soon("a frame", tls.read_exact(&mut head)).await.unwrap();
            assert_eq!(head[3], 4);
        }
    }
}

#[tokio::test]
async fn without_a_certificate_nobody_is_served_and_with_one_everybody_is() {
    let port = Port::open(false, BODY_LIMIT);
    assert!(port.connect().await.is_err());
    let start = Instant::now();
    port.mounted.refresh(start);
    port.mount();
    port.mounted.refresh(start + Duration::from_secs(2));
    assert!(port.connect().await.is_ok());
}

#[tokio::test]
async fn plain_http_is_told_so() {
    let port = Port::ready(false);
    let mut plain = TcpStream::connect(port.address).await.unwrap();
    plain.write_all(b"POST /echo HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    soon("the answer to plain HTTP", plain.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{answer}");
}

#[tokio::test]
async fn a_client_that_never_ends_its_body_is_let_go_and_keeps_nobody_waiting() {
    let port = Port::open(false, Duration::from_millis(300));
    port.mount();
    let mut slow = port.connect().await.unwrap();
    slow.write_all(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf").await.unwrap();
    let answer = port.ask(b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(is(&answer, 200, "GET 0 bytes\n"), "{answer}");
    let answer = soon("the end of patience", rest(&mut slow)).await;
    assert!(is(&answer, 408, ""), "{answer}");
}

#[tokio::test]
async fn a_server_that_ends_answers_what_it_was_asked_and_who_comes_a_moment_later() {
    const WAIT: &[u8] = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nwait";
    let port = Port::ready(false);
    // One connection with a question under way, and one that is kept open without.
    let mut asking = port.connect().await.unwrap();
    asking.write_all(WAIT).await.unwrap();
    soon("the question", port.asked.notified()).await;
    let mut idle = port.connect().await.unwrap();
    idle.write_all(b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    soon("the answer to the other one", idle.read_exact(&mut head)).await.unwrap();

    port.stop.cancel();
    // Nobody has told this one yet that the server goes.
    let answer = port.ask(b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(is(&answer, 200, "GET 0 bytes\n"), "{answer}");
    soon("the end of the connection without a question", rest(&mut idle)).await;
    assert!(!port.ended.is_finished(), "an answer is owed");
    assert!(TcpStream::connect(port.address).await.is_err(), "nobody is taken any more");
    port.may.notify_one();
    let answer = soon("the answer that is owed", rest(&mut asking)).await;
    assert!(is(&answer, 200, "POST 4 bytes\n"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    soon("the end of the server", port.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_ends_does_not_wait_for_an_answer_for_ever() {
    let port = Port::ready(false);
    let mut asking = port.connect().await.unwrap();
    asking.write_all(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nwait").await.unwrap();
    soon("the question", port.asked.notified()).await;
    port.stop.cancel();
    soon("the end of the server", port.ended).await.unwrap().unwrap();
}
