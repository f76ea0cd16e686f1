// SPDX-License-Identifier: Apache-2.0
//! The listener: connections, TLS, outages, and each request's way from the wire to its answer, with the faults that
//! it meets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::api::Cluster;
use crate::attributes::Attributes;
use crate::error::ApiError;
use crate::faults::{Effect, Step};
use crate::request::{Query, Request, Target, Warnings};
use crate::respond::{self, Answer};
use crate::{control, routes};

/// Largest body that is read, as in a real API server.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a listener waits before it tries again to get its port back, or a file descriptor.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until the server stops.
pub(crate) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, cluster: Arc<Cluster>) {
    let connections = tokio_util::task::TaskTracker::new();
    let address = listener.local_addr().ok();
    let mut listener = Some(listener);
    let mut outages = cluster.faults.outages();
    let until_stop = async {
        loop {
            // Without its listener the port refuses connections, as that of a server that is not there.
            if *outages.borrow_and_update() {
                listener = None;
                // The sender lives in the cluster.
                let _ = outages.changed().await;
                continue;
            }
            let Some(open) = &listener else {
                listener = again(address).await;
                continue;
            };
            tokio::select! {
                accepted = open.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&cluster)));
                    }
                    // Out of file descriptors, mostly: wait for some to be closed instead of spinning.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                _ = outages.changed() => {}
            }
        }
    };
    tokio::select! {
        () = until_stop => {}
        () = cluster.stop.cancelled() => {}
    }
    connections.close();
    connections.wait().await;
}

/// The listener after an outage; `None` when its port is not free yet.
async fn again(address: Option<SocketAddr>) -> Option<TcpListener> {
    match TcpListener::bind(address?).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(%error, "cannot listen again");
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

/// The client is not to hear of its request: its connection breaks.
#[derive(Debug, thiserror::Error)]
#[error("the answer is dropped on request")]
struct Dropped;

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, cluster: Arc<Cluster>) {
    let stop = cluster.stop.clone();
    let mut outages = cluster.faults.outages();
    let serve = async move {
        // Latency matters more than packets here; where the option is refused the stream still works.
        let _ = stream.set_nodelay(true);
        let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate: Option<Arc<[u8]>> = certificate.map(|der| Arc::from(der.as_ref()));
        let service = service_fn(move |request| {
            let (cluster, certificate) = (Arc::clone(&cluster), certificate.clone());
            async move { answer(&cluster, certificate.as_deref(), request).await }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http2().max_concurrent_streams(1000);
        if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "connection ended");
        }
    };
    tokio::select! {
        () = serve => {}
        () = stop.cancelled() => {}
        _ = outages.wait_for(|down| *down) => {}
    }
}

async fn answer(
    cluster: &Arc<Cluster>,
    certificate: Option<&[u8]>,
    request: http::Request<Incoming>,
) -> Result<Answer, Dropped> {
    let arrived = Instant::now();
    let request = match read(cluster, certificate, request).await {
        Ok(request) => request,
        Err(error) => return Ok(respond::refusal(&error)),
    };
    if request.path.starts_with(control::PREFIX) {
        return Ok(control::answer(cluster, &request).unwrap_or_else(|error| respond::refusal(&error)));
    }
    let attributes = Attributes::of(&request, Target::parse(&request.path).as_ref());
    let steps = cluster.faults.meet(&attributes);
    if steps.is_empty() {
        return Ok(carry_out(cluster, request, &attributes, arrived).await);
    }
    // What is carried out in spite of its client, or later than its client waits, goes on without it.
    let cluster = Arc::clone(cluster);
    let task = tokio::spawn(async move {
        let stop = cluster.stop.clone();
        tokio::select! {
            outcome = stepwise(&cluster, request, attributes, steps, arrived) => outcome,
            () = stop.cancelled() => Err(Dropped),
        }
    });
    task.await.unwrap_or(Err(Dropped))
}

/// Leads a request through its faults.
async fn stepwise(
    cluster: &Arc<Cluster>,
    request: Request,
    attributes: Attributes,
    steps: Vec<Step>,
    arrived: Instant,
) -> Result<Answer, Dropped> {
    let mut dropped = false;
    let mut refused = None;
    for step in steps {
        match step {
            Step::Wait(time) => tokio::time::sleep(time).await,
            // Both ends of the wait are a release: the sender speaks by going away.
            Step::Held(released) => drop(released.await),
            Step::Drop => dropped = true,
            Step::Refuse(effect, rule) => refused = Some(refusal(&effect, rule, &attributes)),
        }
    }
    let answer = match refused {
        Some(error) => {
            cluster.audit.note(&attributes, error.code, arrived.elapsed());
            respond::refusal(&error)
        }
        None => carry_out(cluster, request, &attributes, arrived).await,
    };
    if dropped { Err(Dropped) } else { Ok(answer) }
}

/// The answer of a fault.
fn refusal(effect: &Effect, rule: u64, attributes: &Attributes) -> ApiError {
    match effect {
        Effect::Fail { code, reason, message, retry_after } => {
            let message = if message.is_empty() {
                format!("refused on request by fault {rule}")
            } else {
                message.clone()
            };
            ApiError::on_request(*code, reason, message, *retry_after)
        }
        _ => ApiError::modified(attributes.named()),
    }
}

/// Carries a request out and notes it.
async fn carry_out(
    cluster: &Arc<Cluster>,
    request: Request,
    attributes: &Attributes,
    arrived: Instant,
) -> Answer {
    let mut answer = routes::route(cluster, &request).await.unwrap_or_else(|error| respond::refusal(&error));
    respond::warn(&mut answer, &request.take_warnings());
    let code = answer.status().as_u16();
    cluster.audit.note(attributes, code, arrived.elapsed());
    tracing::debug!(method = %request.method, path = request.path, user = request.user.name, code, "request");
    answer
}

/// Reads a request and finds out who asks.
async fn read(
    cluster: &Cluster,
    certificate: Option<&[u8]>,
    request: http::Request<Incoming>,
) -> Result<Request, ApiError> {
    let (parts, body) = request.into_parts();
    let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let user = cluster.credentials.authenticate(certificate, authorization)?;
    let body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(ApiError::too_large(BODY_LIMIT));
        }
        Err(error) => return Err(ApiError::bad_request(error.to_string())),
    };
    Ok(Request {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        headers: parts.headers,
        body,
        user,
        warnings: Warnings::default(),
    })
}
