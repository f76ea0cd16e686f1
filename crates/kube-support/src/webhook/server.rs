// SPDX-License-Identifier: Apache-2.0
//! The webhook port: HTTPS, one question and one answer at a time, whatever strangers send.
//!
//! The port has no authentication, as the API server has none to offer. So everything that a client can use up has a
//! bound: the time for its handshake, head and body, the bytes of one body, and those of all bodies together.
//!
//! A server that is to end still takes connections for a moment, since it takes one until everybody knows that the Pod
//! goes; then it answers what it was asked, and closes.

use std::convert::Infallible;
use std::pin::pin;
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
use tokio_util::sync::CancellationToken;

use crate::health::not_found;
use crate::https::handshake;
use crate::listen::serve_until;
use crate::tls::TlsOptions;
use crate::webhook::Serving;

/// An API server asks about each object on a connection of its own when there are many at once, and keeps those
/// connections for a while.
const CONNECTIONS: u32 = 1024;
/// How long a connection may be silent before and between questions.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How long a body may take: API servers give up on an answer after this time unless told otherwise.
pub const BODY_LIMIT: Duration = Duration::from_secs(10);
/// How long the next piece of a body that is refused anyway is waited for.
const SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// A server that is to end takes connections for so long …
const LINGER: Duration = Duration::from_millis(500);
/// … and then has so long to give the answers that it owes. A kubelet gives every process two seconds at least.
const OWED: Duration = Duration::from_secs(1);
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
    /// How long a body may take, [`BODY_LIMIT`] mostly.
    pub body_limit: Duration,
}

impl<W: Webhooks> WebhookServer<W> {
    /// Serves until `stop` is cancelled, and half a second longer; then it returns when every answer is given that was
    /// asked for, after another second at most. `connected` is called for each connection before its handshake.
    ///
    /// # Errors
    ///
    /// When the TLS settings do not fit together.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
        connected: impl Fn(),
    ) -> Result<(), rustls::Error> {
        let acceptor = TlsAcceptor::from(self.tls.server_of(self.certificate, self.http2)?);
        let (webhooks, body_limit) = (self.webhooks, self.body_limit);
        let shared = Arc::new(Shared { webhooks, memory: Memory::new(MEMORY), body_limit });
        let http2 = self.http2;
        let end = async {
            stop.cancelled().await;
            tokio::time::sleep(LINGER).await;
        };
        let closing = CancellationToken::new();
        let open = serve_until(end, CONNECTIONS, listener, |stream| {
            connected();
            connection(Arc::clone(&shared), acceptor.clone(), http2, stream, closing.clone())
        })
        .await;
        closing.cancel();
        // Who asked and did not get an answer by then does not get one.
        let _ = tokio::time::timeout(OWED, open.closed()).await;
        Ok(())
    }
}

struct Shared<W> {
    webhooks: W,
    memory: Memory,
    body_limit: Duration,
}

async fn connection<W: Webhooks>(
    shared: Arc<Shared<W>>,
    acceptor: TlsAcceptor,
    http2: bool,
    stream: TcpStream,
    closing: CancellationToken,
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
    let mut connection = pin!(builder.serve_connection(stream, service));
    // A client that breaks off concerns nobody.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = closing.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

impl<W: Webhooks> Shared<W> {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, incoming) = request.into_parts();
        let Some(limit) = self.webhooks.limit(head.uri.path()) else { return not_found() };
        let declared = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let read = self.memory.read(incoming, declared, limit);
        let reply = match tokio::time::timeout(self.body_limit, read).await {
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
}

/// The room that all bodies share; a permit is a KiB.
struct Memory(Arc<Semaphore>);

impl Memory {
    fn new(kib: usize) -> Self {
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Reads a body, and takes the room for it.
    async fn read<B>(
        &self,
        mut incoming: B,
        declared: Option<usize>,
        limit: usize,
    ) -> Result<(Body, Vec<OwnedSemaphorePermit>), StatusCode>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        if declared.is_some_and(|length| length > limit) {
            discard(incoming, limit).await;
            return Ok((Body::TooLarge, Vec::new()));
        }
        let (mut bytes, mut room, mut memory) = (BytesMut::new(), 0, Vec::new());
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                drop((bytes, memory));
                discard(incoming, limit).await;
                return Ok((Body::TooLarge, Vec::new()));
            }
            while room < bytes.len() + data.len() {
                // Doubled, so that a body of many small pieces takes few permits.
                let more = room.max(16 * 1024);
                let kib = u32::try_from(more / 1024).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
                let permit = Arc::clone(&self.0).try_acquire_many_owned(kib);
                memory.push(permit.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?);
                room += more;
            }
            bytes.extend_from_slice(&data);
        }
        Ok((Body::Whole(bytes.freeze()), memory))
    }
}

/// Takes the rest of a body off the wire, up to this many bytes and while they keep coming: a connection that is closed
/// with bytes unread is reset, and the client may lose the answer.
async fn discard<B>(mut incoming: B, bytes: usize)
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let mut discarded = 0;
    while discarded < bytes {
        match tokio::time::timeout(SILENCE_LIMIT, incoming.frame()).await {
            Ok(Some(Ok(frame))) => discarded += frame.data_ref().map_or(0, Bytes::len),
            Ok(Some(Err(_)) | None) | Err(_) => return,
        }
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

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    const KIB: usize = 1024;

    /// A body in pieces, which need not come to its end.
    fn body(pieces: &[usize], whole: bool) -> impl hyper::body::Body<Data = Bytes> + Unpin {
        let frames: Vec<Result<Frame<Bytes>, &str>> = pieces
            .iter()
            .map(|size| Ok(Frame::data(Bytes::from(vec![b'x'; *size]))))
            .chain((!whole).then_some(Err("broken off")))
            .collect();
        StreamBody::new(stream::iter(frames))
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_a_limit_declared_or_not() {
        let memory = Memory::new(1024);
        let whole = |size: usize| Ok(Body::Whole(Bytes::from(vec![b'x'; size])));
        for (pieces, ends, declared, outcome) in [
            (&[][..], true, Some(0), whole(0)),
            (&[10, 20], true, None, whole(30)),
            (&[60 * KIB, 40 * KIB], true, Some(100 * KIB), whole(100 * KIB)),
            (&[60 * KIB, 40 * KIB + 1], true, None, Ok(Body::TooLarge)),
            // Its rest is not waited for.
            (&[], false, Some(100 * KIB + 1), Ok(Body::TooLarge)),
            (&[10], false, Some(20), Err(StatusCode::BAD_REQUEST)),
        ] {
            let read = memory.read(body(pieces, ends), declared, 100 * KIB).await;
            assert_eq!(read.map(|(body, _)| body), outcome, "{pieces:?}");
        }
        assert_eq!(memory.0.available_permits(), 1024, "all room is given back");
    }

    #[tokio::test]
    async fn bodies_share_one_room_and_who_finds_it_full_is_turned_away() {
        let memory = Memory::new(96);
        let first = memory.read(body(&[50 * KIB], true), None, 100 * KIB).await;
        assert!(first.is_ok());
        let second = memory.read(body(&[50 * KIB], true), None, 100 * KIB).await;
        assert_eq!(second.err(), Some(StatusCode::SERVICE_UNAVAILABLE));
        let small = memory.read(body(&[5 * KIB], true), None, 100 * KIB).await;
        assert!(small.is_ok());
        drop((first, small));
        assert!(memory.read(body(&[50 * KIB], true), None, 100 * KIB).await.is_ok());
    }
}
