// SPDX-License-Identifier: Apache-2.0
//! The webhook port of this process: what listens, what answers, and who sees to the certificate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrolb_config::admission::Setup;
use ferrolb_kube_support::backoff::Backoff;
use ferrolb_kube_support::daemon::Tasks;
use ferrolb_kube_support::health::Readiness;
use ferrolb_kube_support::level::Level;
use ferrolb_kube_support::listen::{Bind, listen};
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::webhook::{BODY_LIMIT, Mounted, Rotation, Serving, WebhookServer};
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::options::Options;
use crate::reviews::Reviews;

/// The port of MetalLB's manifests; there is no flag for it.
pub(crate) const PORT: u16 = 9443;
/// Whose `caBundle` is kept.
const CONFIGURATION: &str = "metallb-webhook-configuration";
const DEFINITION: &str = "bgppeers.metallb.io";
/// How long readiness waits for webhooks. What they need may never come, and allocation does not need them.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often missing files are looked for at start.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The settings of the webhook port.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The port.
    pub port: u16,
    /// Whether to make and renew the certificate; otherwise files are served.
    pub rotate: bool,
    /// Where those files are.
    pub directory: PathBuf,
    /// The Service that leads to the port.
    pub service: String,
    /// The Secret of the certificate.
    pub secret: String,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

/// The webhook port as the rest of the process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Webhooks {
    /// True when whoever is asked can answer and is trusted.
    pub(crate) settled: Readiness,
    /// Cancelled when, after the stop, every answer is given that is owed.
    pub(crate) closed: CancellationToken,
}

impl Webhooks {
    /// There are none.
    pub(crate) fn none() -> Self {
        let (settled, closed) = (Readiness::not_yet(), CancellationToken::new());
        settled.set(true);
        closed.cancel();
        Self { settled, closed }
    }
}

/// Starts serving as `tasks`, until `stop`.
pub(crate) fn start(
    options: &Options,
    client: &Client,
    reach: &Reach,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> Webhooks {
    let settled = Readiness::not_yet();
    let serving = Serving::nothing();
    let settings = &options.webhook;
    let namespace = &options.common.namespace;
    let mounted = if settings.rotate {
        tracing::info!(op = "startup", action = "setting up cert rotation");
        let rotation = Rotation {
            namespace: namespace.clone(),
            secret: settings.secret.clone(),
            create: options.level == Level::B,
            dns: format!("{}.{namespace}.svc", settings.service),
            webhooks: CONFIGURATION.to_owned(),
            definition: DEFINITION.to_owned(),
        };
        let keep = rotation.keep(client.clone(), reach.clone(), Arc::clone(&serving), settled.clone());
        tasks.spawn(async move {
            keep.await;
            "certificate rotation"
        });
        None
    } else {
        let mounted = Arc::new(Mounted::new(settings.directory.clone(), Arc::clone(&serving)));
        tokio::spawn(await_files(Arc::clone(&mounted), Arc::clone(&serving), settled.clone()));
        Some(mounted)
    };
    let setup = Setup { namespace: namespace.clone(), bgp_type: options.bgp_type.clone() };
    let server = WebhookServer {
        webhooks: Reviews::new(client.clone(), setup),
        tls: options.common.tls.clone(),
        certificate: serving,
        http2: settings.http2,
        body_limit: BODY_LIMIT,
    };
    let port = settings.port;
    let (stop, closed) = (stop.clone(), CancellationToken::new());
    let done = closed.clone().drop_guard();
    tasks.spawn(async move {
        let listener = tokio::select! {
            listener = open(port) => listener,
            () = stop.cancelled() => {
                drop(done);
                return std::future::pending().await;
            }
        };
        tracing::info!(op = "startup", action = "webhooks enabled", port);
        let connected = || {
            if let Some(mounted) = &mounted {
                mounted.refresh(Instant::now());
            }
        };
        if let Err(error) = server.serve(listener, stop, connected).await {
            tracing::error!(op = "webhook", error = %error, "webhooks cannot be served");
            return "webhooks";
        }
        drop(done);
        std::future::pending().await
    });
    Webhooks { settled, closed }
}

/// `ready` becomes true when `listed` is, and webhooks can be used or are not to be waited for any longer.
pub(crate) async fn ready_with(listed: Readiness, settled: Readiness, ready: Readiness) {
    listed.ready().await;
    if tokio::time::timeout(PATIENCE, settled.ready()).await.is_err() {
        tracing::warn!(
            op = "startup",
            "ready without webhooks: until their certificate is there and trusted, the API server refuses changes of \
             the configuration that it would ask about; addresses are handed out all the same"
        );
    }
    ready.set(true);
}

/// Waits for the port: what allocates must not end because something else listens there.
async fn open(port: u16) -> TcpListener {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
    loop {
        match listen(Bind::Everywhere, port) {
            Ok(listener) => return listener,
            Err(error) => {
                if backoff.failures() == 0 {
                    tracing::error!(op = "webhook", error = %error, "webhooks cannot be served, trying again");
                }
                tokio::time::sleep(backoff.wait()).await;
            }
        }
    }
}

async fn await_files(mounted: Arc<Mounted>, serving: Arc<Serving>, settled: Readiness) {
    loop {
        mounted.refresh(Instant::now());
        if serving.presented().is_some() {
            settled.set(true);
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
