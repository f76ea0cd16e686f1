// SPDX-License-Identifier: Apache-2.0
//! One call to a webhook: a connection of its own, TLS checked against the bundle of the configuration, a POST,
//! and every way to fail in the words of a real API server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::api::Cluster;
use crate::object::text;
use crate::webhook::service::Endpoint;

/// Posts a review and reads the answer; the error says what went wrong.
pub(crate) async fn post(
    cluster: &Cluster,
    config: &Value,
    timeout: Duration,
    review: &Value,
) -> Result<Value, String> {
    let endpoint = Endpoint::of(config)?;
    let query = format!("?timeout={}s", timeout.as_secs());
    let explain = |error: String| format!("Post \"{}{query}\": {error}", endpoint.url);
    let exchange = exchange(cluster, config, &endpoint, &query, review);
    let (code, body) = tokio::time::timeout(timeout, exchange)
        .await
        .map_err(|_| explain("context deadline exceeded".into()))?
        .map_err(explain)?;
    if !(200..300).contains(&code) {
        return Err(refused(code, &body));
    }
    serde_json::from_slice(&body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
}

/// Largest answer that is read.
const ANSWER_LIMIT: usize = 3 * 1024 * 1024;

async fn exchange(
    cluster: &Cluster,
    config: &Value,
    endpoint: &Endpoint,
    query: &str,
    review: &Value,
) -> Result<(u16, Bytes), String> {
    let (host, port) = endpoint.dial(cluster)?;
    let stream = dial(&host, port).await?;
    let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(client_config(text(config, &["caBundle"]))?));
    let stream = connector.connect(name, stream).await.map_err(|error| broken(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| ended(&error))?;
    let shown_host = match endpoint.host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{}", endpoint.port),
        _ => format!("{}:{}", endpoint.host, endpoint.port),
    };
    let request = http::Request::post(format!("{}{query}", endpoint.path))
        .header(header::HOST, shown_host)
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(review.to_string())))
        .map_err(|error| error.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| ended(&error))?;
        let code = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
        Ok((code, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    // The connection is driven here and ends with the call: nothing is left behind when the time is over.
    tokio::pin!(exchange, connection);
    tokio::select! {
        done = &mut exchange => done,
        closed = &mut connection => match closed {
            Ok(()) => exchange.await,
            Err(error) => Err(ended(&error)),
        },
    }
}

async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::from((address, port))],
        Err(_) => tokio::net::lookup_host((host, port))
            .await
            .map_err(|_| format!("dial tcp: lookup {host}: no such host"))?
            .collect(),
    };
    let mut last = format!("dial tcp: lookup {host}: no such host");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("dial tcp {address}: connect: {}", system_text(&error)),
        }
    }
    Err(last)
}

/// Trust in exactly the certificates of a bundle (base64 of PEM); an empty one trusts nobody.
fn client_config(bundle: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(bundle)? {
        roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificates of a bundle.
pub(crate) fn certificates(bundle: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    if bundle.is_empty() {
        return Ok(Vec::new());
    }
    let pem = STANDARD.decode(bundle).map_err(|_| unusable())?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(unusable)
}

/// What the operating system said, as Go words it.
fn system_text(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::ConnectionReset => "connection reset by peer".into(),
        ErrorKind::HostUnreachable => "no route to host".into(),
        ErrorKind::NetworkUnreachable => "network is unreachable".into(),
        ErrorKind::TimedOut => "connection timed out".into(),
        ErrorKind::BrokenPipe => "broken pipe".into(),
        _ => error.to_string(),
    }
}

/// A failed handshake.
fn broken(error: &std::io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "EOF".into(),
            _ => format!("read tcp: {}", system_text(error)),
        };
    };
    let rustls::Error::InvalidCertificate(reason) = tls else { return format!("tls: {tls}") };
    format!("tls: failed to verify certificate: x509: {}", distrust(reason))
}

/// Why a certificate is not believed.
fn distrust(reason: &CertificateError) -> String {
    match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".into()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".into()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let wanted = expected.to_str().into_owned();
            let kind = if wanted.parse::<IpAddr>().is_ok() { "IpAddress(" } else { "DnsName(" };
            let names: Vec<&str> = presented
                .iter()
                .filter_map(|name| name.strip_prefix(kind)?.strip_suffix(')'))
                .map(|name| name.trim_matches('"'))
                .collect();
            if names.is_empty() {
                format!("certificate is not valid for any names, but wanted to match {wanted}")
            } else {
                format!("certificate is valid for {}, not {wanted}", names.join(", "))
            }
        }
        CertificateError::Expired | CertificateError::NotValidYet => {
            "certificate has expired or is not yet valid".into()
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "certificate has expired or is not yet valid: current time {} is after {}",
            moment(time.as_secs()),
            moment(not_after.as_secs())
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "certificate has expired or is not yet valid: current time {} is before {}",
            moment(time.as_secs()),
            moment(not_before.as_secs())
        ),
        other => other.to_string(),
    }
}

fn moment(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| seconds.to_string(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// An exchange that did not come to its end.
fn ended(error: &hyper::Error) -> String {
    use std::error::Error;
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    match source {
        _ if error.is_incomplete_message() => "EOF".into(),
        Some(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".into(),
        Some(io) => broken(io),
        None => error.to_string(),
    }
}

/// An answer with a code that says no.
fn refused(code: u16, body: &[u8]) -> String {
    let status = serde_json::from_slice::<Value>(body).unwrap_or_default();
    if text(&status, &["kind"]) == "Status" && !text(&status, &["message"]).is_empty() {
        return text(&status, &["message"]).to_owned();
    }
    match code {
        401 => "the server has asked for the client to provide credentials".into(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        413 => "the request is too large".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        500.. => "an error on the server (\"unknown\") has prevented the request from succeeding".into(),
        _ => "the server rejected our request for an unknown reason".into(),
    }
}
