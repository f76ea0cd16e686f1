// SPDX-License-Identifier: Apache-2.0
//! The probe port: plain HTTP, `/healthz` and `/readyz`, with the answers that MetalLB's daemons give.
//!
//! Liveness is always good while the process runs. Readiness is a word that the daemon can take back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::listen::serve;

/// A client has this long to say what it wants.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Whether the daemon is ready. Clones are the same thing.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<bool>>);

impl Readiness {
    /// Not ready until [`Readiness::set`] says so.
    pub fn not_yet() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Changes what `/readyz` says.
    pub fn set(&self, ready: bool) {
        self.0.send_replace(ready);
    }

    /// Waits until the daemon is ready.
    pub async fn ready(&self) {
        // The error is that the sender is gone, which this handle keeps.
        let _ = self.0.subscribe().wait_for(|ready| *ready).await;
    }

    fn is_ready(&self) -> bool {
        *self.0.borrow()
    }
}

/// Serves probes for ever.
pub async fn serve_health(listener: TcpListener, readiness: Readiness) {
    serve(listener, |stream| {
        let readiness = readiness.clone();
        async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let answer = answer(request.uri().path(), request.uri().query(), readiness.is_ready());
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_LIMIT)
                .max_buf_size(8 * 1024)
                .serve_connection(TokioIo::new(stream), service);
            // A probe that breaks off concerns nobody.
            let _ = connection.await;
        }
    })
    .await;
}

fn answer(path: &str, query: Option<&str>, ready: bool) -> Response<Full<Bytes>> {
    let (check, well) = match path {
        "/healthz" | "/healthz/" | "/healthz/healthz" => ("healthz", true),
        "/readyz" | "/readyz/" | "/readyz/readyz" => ("readyz", ready),
        _ => return not_found(),
    };
    let verbose = query
        .is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let text = match (well, verbose) {
        (true, false) => "ok".to_owned(),
        (true, true) => format!("[+]{check} ok\n{check} check passed\n"),
        (false, _) => format!(
            "[-]{check} failed: the lists are not complete yet, or the process ends\n{check} check failed\n"
        ),
    };
    let code = if well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    plain(code, text)
}

/// The answer to a path that does not exist.
pub(crate) fn not_found() -> Response<Full<Bytes>> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}

/// An answer of plain text.
pub(crate) fn plain(code: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::listen::{Bind, listen};

    async fn body(response: Response<Full<Bytes>>) -> (u16, String) {
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_are_answered_as_metallb_answers_them() {
        for (path, query, code, text) in [
            ("/healthz", None, 200, "ok"),
            ("/readyz", None, 200, "ok"),
            ("/healthz", Some("verbose"), 200, "[+]healthz ok\nhealthz check passed\n"),
            ("/readyz", Some("verbose"), 200, "[+]readyz ok\nreadyz check passed\n"),
            ("/healthz/healthz", None, 200, "ok"),
            ("/readyz/readyz", None, 200, "ok"),
            ("/healthz/ping", None, 404, "404 page not found\n"),
            ("/metrics", None, 404, "404 page not found\n"),
            ("/", None, 404, "404 page not found\n"),
        ] {
            assert_eq!(body(answer(path, query, true)).await, (code, text.to_owned()), "{path}");
        }
    }

    #[tokio::test]
    async fn a_daemon_that_is_not_ready_is_alive() {
        assert_eq!(answer("/healthz", None, false).status(), 200);
        assert_eq!(answer("/readyz", None, false).status(), 500);
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_keeps_nobody_waiting() {
        let listener = listen(Bind::Loopback, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let readiness = Readiness::not_yet();
        readiness.set(true);
        let server = tokio::spawn(serve_health(listener, readiness));
        let _silent = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut probe = tokio::net::TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        probe.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nok"), "{text}");
        server.abort();
    }
}
