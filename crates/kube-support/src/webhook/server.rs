// SPDX-License-Identifier: Apache-2.0
//! The webhook port: HTTPS, one question and one answer at a time, whatever strangers send.
//!
//! The port has no authentication, as the API server has none to offer. So everything that a client can use up has a
//! bound: the time for its handshake, head and body, the bytes of one body, and those of all bodies together.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::health::not_found;
use crate::https::handshake;
use crate::listen::serve_up_to;
use crate::tls::TlsOptions;
use crate::webhook::Serving;

/// An API server asks about each object on a connection of its own when there are many at once, and keeps those
/// connections for a while.
const CONNECTIONS: usize = 1024;
/// How long a connection may be silent before and between questions.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How long a body may take. API servers give up after ten seconds.
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// KiB of bodies that may be in memory at once.
const MEMORY: usize = 128 * 1024;

/// What stands behind the port.
pub trait Webhooks: Send + Sync + 'static {
    /// How many bytes a body may have at this path; `None` if there is no such path.
    fn limit(&self, path: &str) -> Option<usize>;

    /// Answers one question.
    fn answer(&self, head: &Parts, body: Body) -> impl Future<Output = Reply> + Send;
}

/// The body of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// It has more bytes than [`Webhooks::limit`] says.
    TooLarge,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub code: StatusCode,
    /// Content type; none for an empty body.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: Vec<u8>,
}

/// The server.
#[derive(Debug)]
pub struct WebhookServer<W> {
    /// What answers.
    pub webhooks: W,
    /// TLS settings.
    pub tls: TlsOptions,
    /// The certificate.
    pub certificate: Arc<Serving>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

impl<W: Webhooks> WebhookServer<W> {
    /// Serves for ever; `connected` is called for each connection before its handshake.
    ///
    /// # Errors
    ///
    /// When the TLS settings do not fit together; otherwise it does not return.
    pub async fn serve(self, listener: TcpListener, connected: impl Fn()) -> Result<(), rustls::Error> {
        let acceptor = TlsAcceptor::from(self.tls.server_of(self.certificate, self.http2)?);
        let shared = Arc::new(Shared { webhooks: self.webhooks, memory: Arc::new(Semaphore::new(MEMORY)) });
        let http2 = self.http2;
        serve_up_to(CONNECTIONS, listener, |stream| {
            connected();
            connection(Arc::clone(&shared), acceptor.clone(), http2, stream)
        })
        .await;
        Ok(())
    }
}

struct Shared<W> {
    webhooks: W,
    memory: Arc<Semaphore>,
}

async fn connection<W: Webhooks>(
    shared: Arc<Shared<W>>,
    acceptor: TlsAcceptor,
    http2: bool,
    stream: TcpStream,
) {
    let Some(stream) = handshake(acceptor, stream, "webhook").await else { return };
    let stream = TokioIo::new(stream);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_LIMIT).max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(IDLE_LIMIT)
        .keep_alive_timeout(IDLE_LIMIT)
        .max_concurrent_streams(64)
        .max_header_list_size(16 * 1024);
    let builder = if http2 { builder } else { builder.http1_only() };
    // A client that breaks off concerns nobody.
    let _ = builder.serve_connection(stream, service).await;
}

impl<W: Webhooks> Shared<W> {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, incoming) = request.into_parts();
        let Some(limit) = self.webhooks.limit(head.uri.path()) else { return not_found() };
        let declared = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let read = self.read(incoming, declared, limit);
        let reply = match tokio::time::timeout(BODY_LIMIT, read).await {
            // What the body takes is given back only when the answer is made.
            Ok(Ok((body, _memory))) => {
                let rest_follows = body == Body::TooLarge;
                let mut response = self.webhooks.answer(&head, body).await.into_response();
                if rest_follows {
                    close(&mut response);
                }
                return response;
            }
            Ok(Err(code)) => code,
            Err(_) => StatusCode::REQUEST_TIMEOUT,
        };
        tracing::debug!(
            op = "webhook",
            path = head.uri.path(),
            code = reply.as_u16(),
            "no whole request came"
        );
        let mut response = Response::new(Full::default());
        *response.status_mut() = reply;
        close(&mut response);
        response
    }

    /// Reads a body, and takes the room for it.
    async fn read(
        &self,
        mut incoming: Incoming,
        declared: Option<usize>,
        limit: usize,
    ) -> Result<(Body, Vec<OwnedSemaphorePermit>), StatusCode> {
        if declared.is_some_and(|length| length > limit) {
            return Ok((Body::TooLarge, Vec::new()));
        }
        let (mut bytes, mut room, mut memory) = (BytesMut::new(), 0, Vec::new());
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Ok((Body::TooLarge, memory));
            }
            while room < bytes.len() + data.len() {
                // Doubled, so that a body of many small pieces takes few permits.
                let more = room.max(16 * 1024);
                let kib = u32::try_from(more / 1024).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
                let permit = Arc::clone(&self.memory).try_acquire_many_owned(kib);
                memory.push(permit.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?);
                room += more;
            }
            bytes.extend_from_slice(&data);
        }
        Ok((Body::Whole(bytes.freeze()), memory))
    }
}

impl Reply {
    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.code;
        if let Some(content_type) = self.content_type {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        response
    }
}

/// Whatever else the client sends on this connection is not a request.
fn close(response: &mut Response<Full<Bytes>>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}
