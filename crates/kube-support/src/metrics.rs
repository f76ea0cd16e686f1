// SPDX-License-Identifier: Apache-2.0
//! The metrics port: HTTPS, `/metrics` for those whom the API server lets read it.
//!
//! Names, labels and help texts are MetalLB's. The process's own series are read from /proc when somebody asks.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prometheus::{Encoder as _, IntCounter, IntGauge, Registry, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::access::Access;
use crate::health::{not_found, plain};
use crate::https::handshake;
use crate::listen::serve;
use crate::process_metrics;
use crate::tls::{Certificate, TlsOptions};

/// A client has this long for its request's head.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// What a daemon measures, common part.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Objects processed.
    pub updates: IntCounter,
    /// Objects whose processing failed.
    pub update_errors: IntCounter,
    /// 1 after the first good configuration.
    pub config_loaded: IntGauge,
    /// 1 while running on an older configuration.
    pub config_stale: IntGauge,
}

impl Metrics {
    /// The series that both daemons have.
    ///
    /// # Errors
    ///
    /// Never for the names here; the library checks them at run time.
    pub fn new() -> Result<Self, prometheus::Error> {
        let name = |name: &str| format!("metallb_k8s_client_{name}");
        let metrics = Self {
            registry: Registry::new(),
            updates: IntCounter::new(
                name("updates_total"),
                "Number of k8s object updates that have been processed.",
            )?,
            update_errors: IntCounter::new(
                name("update_errors_total"),
                "Number of k8s object updates that failed for some reason.",
            )?,
            config_loaded: IntGauge::new(
                name("config_loaded_bool"),
                "1 if the MetalLB configuration was successfully loaded at least once.",
            )?,
            config_stale: IntGauge::new(
                name("config_stale_bool"),
                "1 if running on a stale configuration, because the latest config failed to load.",
            )?,
        };
        metrics.registry.register(Box::new(metrics.updates.clone()))?;
        metrics.registry.register(Box::new(metrics.update_errors.clone()))?;
        metrics.registry.register(Box::new(metrics.config_loaded.clone()))?;
        metrics.registry.register(Box::new(metrics.config_stale.clone()))?;
        Ok(metrics)
    }

    /// None of them: of what has nothing to measure but its process.
    ///
    /// # Errors
    ///
    /// As [`Metrics::new`].
    pub fn empty() -> Result<Self, prometheus::Error> {
        Ok(Self { registry: Registry::new(), ..Self::new()? })
    }

    /// Where a daemon registers what only it measures.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Everything, in Prometheus' text format.
    pub fn text(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Encoding into memory fails only for families without series, which `gather` leaves out.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut bytes);
        bytes.extend_from_slice(process_metrics::text().as_bytes());
        bytes
    }
}

/// What the server needs.
#[derive(Debug)]
pub struct MetricsServer {
    /// What is served.
    pub metrics: Metrics,
    /// Who may read it.
    pub access: Access,
    /// TLS settings.
    pub tls: TlsOptions,
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// The path of the metrics.
    pub path: String,
    /// Whether `/livez` says to everybody that all is well.
    pub livez: bool,
}

/// The usual path.
pub const PATH: &str = "/metrics";

impl MetricsServer {
    /// Serves metrics for ever.
    ///
    /// # Errors
    ///
    /// When the TLS settings do not fit together; otherwise it does not return.
    pub async fn serve(self, listener: TcpListener) -> Result<(), rustls::Error> {
        let acceptor = TlsAcceptor::from(self.tls.server(Arc::clone(&self.certificate))?);
        let shared = Arc::new(self);
        serve(listener, |stream| {
            shared.certificate.refresh(Instant::now());
            connection(Arc::clone(&shared), acceptor.clone(), stream)
        })
        .await;
        Ok(())
    }

    async fn answer(&self, request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if self.livez && path == "/livez" {
            return plain(http::StatusCode::OK, "ok".to_owned());
        }
        if path != self.path {
            return not_found();
        }
        let authorization =
            request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let verb = request.method().as_str().to_ascii_lowercase();
        if let Err(denial) = self.access.check(authorization, &verb, path).await {
            let (code, text) = denial.answer();
            let code = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            // The reference ends these bodies as Go's `http.Error` does.
            return plain(code, format!("{text}\n"));
        }
        let mut response = Response::new(Full::new(Bytes::from(self.metrics.text())));
        response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        response
    }
}

async fn connection(server: Arc<MetricsServer>, acceptor: TlsAcceptor, stream: TcpStream) {
    let Some(stream) = handshake(acceptor, stream, "metrics").await else { return };
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT).max_buf_size(16 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(REQUEST_LIMIT)
        .keep_alive_timeout(REQUEST_LIMIT)
        .max_concurrent_streams(8)
        .max_header_list_size(16 * 1024);
    // A scrape that breaks off concerns nobody.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_series_have_metallbs_names_and_help() {
        let metrics = Metrics::new().unwrap();
        metrics.updates.inc();
        metrics.config_loaded.set(1);
        let text = String::from_utf8(metrics.text()).unwrap();
        for line in [
            "# HELP metallb_k8s_client_updates_total Number of k8s object updates that have been processed.",
            "# TYPE metallb_k8s_client_updates_total counter",
            "metallb_k8s_client_updates_total 1",
            "metallb_k8s_client_update_errors_total 0",
            "# TYPE metallb_k8s_client_config_loaded_bool gauge",
            "metallb_k8s_client_config_loaded_bool 1",
            "metallb_k8s_client_config_stale_bool 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    }
}
