// SPDX-License-Identifier: Apache-2.0
//! A webhook for the scenarios: HTTPS, a certificate that its caller is told to believe, and one behaviour per path.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

/// What a webhook shows, and who vouches for it, as PEM.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) authority: String,
}

impl Identity {
    /// A fresh one for these names.
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut authority = rcgen::CertificateParams::default();
        authority.distinguished_name.push(rcgen::DnType::CommonName, "hooks");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_key = rcgen::KeyPair::generate().expect("a key");
        let authority_pem = authority.self_signed(&authority_key).expect("signed").pem();
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &issuer).expect("signed").pem();
        Self { certificate, key: key.serialize_pem(), authority: authority_pem }
    }
}

/// What one webhook's connections share.
#[derive(Clone)]
struct Shared {
    seen: Arc<Mutex<Vec<Value>>>,
    /// Lets requests to `/pair` pass two at a time.
    pair: Arc<Barrier>,
}

/// A running webhook.
pub(crate) struct Hook {
    pub(crate) address: SocketAddr,
    authority: String,
    seen: Arc<Mutex<Vec<Value>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hook {
    /// Listens on a free port of all addresses.
    pub(crate) async fn start(identity: &Identity) -> Self {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("fits");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("listens");
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().expect("an address").port()));
        let shared = Shared { seen: Arc::default(), pair: Arc::new(Barrier::new(2)) };
        let seen = Arc::clone(&shared.seen);
        let task = tokio::spawn(serve(listener, acceptor, shared));
        Self { address, authority: STANDARD.encode(&identity.authority), seen, task }
    }

    /// A `clientConfig` that leads here.
    pub(crate) fn client(&self, path: &str) -> Value {
        json!({ "url": format!("https://{}{path}", self.address), "caBundle": self.authority })
    }

    /// The bundle that vouches for it, as configurations carry it.
    pub(crate) fn bundle(&self) -> &str {
        &self.authority
    }

    /// Reviews that came on a path, oldest first.
    pub(crate) fn seen(&self, path: &str) -> Vec<Value> {
        let seen = self.seen.lock().expect("no panic");
        seen.iter().filter(|entry| entry["path"] == path).map(|entry| entry["review"].clone()).collect()
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Shared) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, shared.clone()));
            // The caller may hang up at any time.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: http::Request<Incoming>,
    shared: Shared,
) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review is JSON");
    shared.seen.lock().expect("no panic").push(json!({ "path": path, "review": review }));
    if path == "/slow" {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    }
    if path == "/pair" {
        shared.pair.wait().await;
    }
    let code = match path.as_str() {
        "/error" => 500,
        "/nothing" => 404,
        _ => 200,
    };
    let answer =
        if review["kind"] == "ConversionReview" { convert(&path, &review) } else { judge(&path, &review) };
    let answer = http::Response::builder()
        .status(code)
        .header("Content-Type", "application/json")
        .body(Full::new(Bytes::from(answer.to_string())));
    Ok(answer.expect("an answer"))
}

fn judge(path: &str, review: &Value) -> Value {
    let mut response = json!({ "uid": review["request"]["uid"], "allowed": true });
    let deny = |status: Value| json!({ "uid": review["request"]["uid"], "allowed": false, "status": status });
    match path {
        "/deny" => response = deny(json!({ "code": 403, "reason": "Forbidden", "message": "no such thing" })),
        "/deny-plain" => response = deny(Value::Null),
        "/deny-400" => response = deny(json!({ "code": 400, "message": "cannot decode" })),
        "/deny-reason" => response = deny(json!({ "reason": "Because" })),
        "/deny-200" => response = deny(json!({ "code": 200, "message": "x" })),
        "/deny-warn" => {
            response = deny(json!({ "code": 403, "reason": "Forbidden", "message": "no" }));
            response["warnings"] = json!(["mind"]);
        }
        "/warn" => {
            response["warnings"] = json!(["first \"quoted\"", "second", "second", "th\u{e9}rd", "li\nne"])
        }
        "/uid" => response["uid"] = "other".into(),
        "/patch" => response["patch"] = "W10=".into(),
        _ => {}
    }
    let mut answer =
        json!({ "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response });
    match path {
        "/version" => answer["apiVersion"] = "admission.k8s.io/v9".into(),
        "/kind" => answer["kind"] = "".into(),
        "/absent" => answer["response"] = Value::Null,
        _ => {}
    }
    answer
}

/// `spec.old` of v1beta1 is `spec.new` of v1beta2; only the latter has `spec.port`.
fn convert(path: &str, review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = review["request"]["objects"].as_array().cloned().unwrap_or_default();
    let mut converted = Vec::new();
    for mut object in objects {
        if path != "/same" {
            object["apiVersion"] = wanted.into();
        }
        let (from, to) = if wanted.ends_with("v1beta2") { ("old", "new") } else { ("new", "old") };
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.into(), value);
            if to == "old" {
                spec.remove("port");
            }
        }
        match path {
            "/rename" => object["metadata"]["name"] = "changed".into(),
            "/reborn" => object["metadata"]["uid"] = "changed".into(),
            "/label" => {
                object["metadata"]["labels"]["by"] = "hook".into();
                object["metadata"]["generation"] = 99.into();
            }
            _ => {}
        }
        converted.push(object);
    }
    if path == "/short" {
        converted.clear();
    }
    let mut response = json!({
        "uid": review["request"]["uid"], "convertedObjects": converted, "result": { "status": "Success" },
    });
    match path {
        "/fail" => response["result"] = json!({ "status": "Failure", "message": "cannot do that" }),
        "/fail-plain" => response["result"] = json!({ "status": "Failure" }),
        _ => {}
    }
    json!({ "apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response })
}
