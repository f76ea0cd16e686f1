// SPDX-License-Identifier: Apache-2.0
//! The life of one Pod: network, files, process, probes, restarts, end.
//!
//! Probes run faster than a real kubelet's (ten times a second until the first success, then at least once a second):
//! what is waited for on the bench is the daemons, not the probe's period.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, Probe, Service, ServiceAccount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use tokio::sync::mpsc;

use super::Context;
use super::container::{self, Placed, Volumes};
use super::status::{self, Observed, State};
use crate::bench_handle::SYSTEM;
use crate::host::Host;
use crate::http;
use crate::launch::Process;
use crate::topology::namespace_name;
use crate::view::View;

/// A kubelet gives every process this long between SIGTERM and SIGKILL, even where the Pod asks for less.
pub(super) const MINIMUM_GRACE: Duration = Duration::from_secs(2);

/// What the kubelet's loop tells a Pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// The Pod is deleted.
    End {
        /// From SIGTERM to SIGKILL.
        grace: Duration,
    },
    /// Whether its node is ready.
    NodeReady(bool),
}

/// One Pod on its node.
pub(super) struct Life {
    context: Context,
    pod: Arc<Pod>,
    host: Host,
    volumes: Volumes,
    placed: Option<Placed>,
    observed: Observed,
    written: Option<Value>,
}

impl Life {
    pub(super) fn new(context: Context, pod: Arc<Pod>, host: Host, volumes: Volumes) -> Self {
        let now = Timestamp::now();
        let observed = Observed {
            state: State::Waiting { reason: "ContainerCreating", message: String::new() },
            ready: false,
            node_ready: true,
            restarts: 0,
            last_exit: None,
            started: now,
            since: now,
        };
        Self { context, pod, host, volumes, placed: None, observed, written: None }
    }

    /// Lives until the Pod is deleted, and takes it out of the API then.
    pub(super) async fn live(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let turn = self.on_host_network().then(|| {
            let owners = self.pod.owner_references();
            let owner = owners.first().map_or_else(|| self.pod.name_any(), |owner| owner.uid.clone());
            self.context.turn(self.host, &owner)
        });
        let held = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let mut delay = Duration::ZERO;
        loop {
            match self.once(&mut orders, delay).await {
                Ok(Next::Over) => break,
                Ok(Next::Again) => {}
                Err(error) => {
                    let message = format!("{error:#}");
                    tracing::warn!(pod = self.pod.name_any(), error = message, "the Pod cannot start");
                    self.observed.state = State::Waiting { reason: "CreateContainerError", message };
                }
            }
            // At once after the first end, then less and less eagerly.
            delay = if delay.is_zero() && self.observed.restarts == 1 {
                Duration::from_millis(50)
            } else {
                (delay * 2).clamp(Duration::from_secs(1), Duration::from_secs(10))
            };
        }
        if self.placed.is_some()
            && !self.on_host_network()
            && let Err(error) = self.context.topology.remove_pod(&self.pod.name_any())
        {
            tracing::warn!(%error, "the Pod's network stays");
        }
        self.volumes.remove();
        drop(held);
        self.finish().await;
    }

    /// One process, from its start to its end.
    async fn once(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>, delay: Duration) -> Result<Next> {
        self.publish().await;
        let pause = tokio::time::sleep(delay);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::NodeReady(ready)) => self.observed.node_ready = ready,
                    Some(Order::End { .. }) | None => return Ok(Next::Over),
                },
                () = &mut pause => break,
            }
        }
        if matches!(self.volumes_are_there(orders).await, Next::Over)
            || matches!(self.may_start(orders).await, Next::Over)
        {
            return Ok(Next::Over);
        }
        let (placed, namespace) = self.network()?;
        self.files().await?;
        let api = self.api_address();
        let launch = container::launch(&self.pod, placed, &namespace, &self.volumes, (&api.0, api.1))?;
        let log = self.context.ledger.log(&launch.role.replace('/', "_"))?;
        let mut process = Process::start(&self.context.ledger, &launch, &log)?;
        let mut probes = Probes::of(&self.pod, placed)?;
        self.observed.state = State::Running(Timestamp::now());
        self.set_ready(probes.readiness.is_none());
        self.publish().await;

        let end = loop {
            let due = tokio::time::sleep(probes.next_due());
            tokio::select! {
                status = process.ended() => break End::Itself(status?),
                order = orders.recv() => match order {
                    Some(Order::NodeReady(ready)) => {
                        self.observed.node_ready = ready;
                        self.publish().await;
                    }
                    Some(Order::End { grace }) => break End::Told(grace),
                    None => break End::Told(MINIMUM_GRACE),
                },
                () = due => {
                    let verdict = probes.run(&self.context, self.host).await;
                    if let Some(ready) = verdict.ready {
                        self.set_ready(ready);
                        self.publish().await;
                    }
                    if verdict.dead {
                        break End::Probe;
                    }
                }
            }
        };
        let status = match end {
            End::Itself(status) => status,
            End::Told(grace) => {
                process.stop(grace).await?;
                return Ok(Next::Over);
            }
            End::Probe => process.stop(grace_of(&self.pod)).await?,
        };
        self.observed.restarts += 1;
        self.observed.last_exit = Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        self.observed.state = State::Waiting {
            reason: "CrashLoopBackOff",
            message: format!(
                "the process ended with {status}; see `ferrolb lab logs {}`",
                self.pod.name_any()
            ),
        };
        self.set_ready(false);
        Ok(Next::Again)
    }

    /// Waits for the Secrets and ConfigMaps that the Pod mounts.
    async fn volumes_are_there(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> Next {
        let mut changes = self.context.view.changes();
        loop {
            changes.borrow_and_update();
            let Some(message) = self.volumes.missing(&self.context.view) else { return Next::Again };
            self.observed.state = State::Waiting { reason: "ContainerCreating", message };
            self.publish().await;
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::NodeReady(ready)) => self.observed.node_ready = ready,
                    Some(Order::End { .. }) | None => return Next::Over,
                },
                changed = changes.changed() => if changed.is_err() {
                    return Next::Over;
                },
            }
        }
    }

    /// Waits while processes of its namespace are kept from starting on its node.
    async fn may_start(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> Next {
        let held = self.context.ledger.held(self.host.name());
        while self.pod.namespace().as_deref() == Some(SYSTEM) && held.exists() {
            match tokio::time::timeout(Duration::from_millis(20), orders.recv()).await {
                Ok(Some(Order::NodeReady(ready))) => self.observed.node_ready = ready,
                Ok(Some(Order::End { .. }) | None) => return Next::Over,
                Err(_) => {}
            }
        }
        Next::Again
    }

    fn on_host_network(&self) -> bool {
        self.pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true))
    }

    /// The Pod's address and namespace; made at the first call, kept over restarts.
    fn network(&mut self) -> Result<(Placed, String)> {
        let ledger = &self.context.ledger;
        if self.on_host_network() {
            let placed = Placed { host: self.host, address: self.host.address() };
            self.placed = Some(placed);
            return Ok((placed, namespace_name(ledger, self.host.name())));
        }
        let name = self.pod.name_any();
        let placed = match self.placed {
            Some(placed) => placed,
            None => {
                let network = self.host.pod_network().context("the host is no node")?;
                let address = self.context.addresses.next(network);
                self.context.topology.add_pod(self.host, &name, address)?;
                Placed { host: self.host, address }
            }
        };
        self.placed = Some(placed);
        Ok((placed, namespace_name(ledger, &name)))
    }

    async fn files(&self) -> Result<()> {
        self.volumes.prepare(&self.context.view)?;
        let spec = self.pod.spec.as_ref();
        if spec.and_then(|spec| spec.automount_service_account_token) == Some(false) {
            return Ok(());
        }
        let Some(account) = spec.and_then(|spec| spec.service_account_name.as_deref()) else { return Ok(()) };
        // A container that starts again finds the token of its Pod, whether or not the API answers.
        if self.volumes.has_service_account() {
            return Ok(());
        }
        let namespace = self.pod.namespace().unwrap_or_default();
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Vec::new(),
                // The bench does not renew tokens: one outlives it.
                expiration_seconds: Some(30 * 24 * 3600),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(self.pod.name_any()),
                    uid: self.pod.uid(),
                }),
            },
            ..TokenRequest::default()
        };
        let token = Api::<ServiceAccount>::namespaced(self.context.view.client.clone(), &namespace)
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .with_context(|| format!("get a token for the ServiceAccount {namespace}/{account}"))?;
        let token = token.status.context("the API answered without a token")?.token;
        self.volumes.service_account(&token, &self.context.ca)
    }

    /// Address and port of the API as Pods see it.
    fn api_address(&self) -> (String, u16) {
        let key = ObjectRef::<Service>::new("kubernetes").within("default");
        let service = self.context.view.services.get(&key);
        let address = service.and_then(|service| service.spec.as_ref()?.cluster_ip.clone());
        (address.unwrap_or_else(|| "10.96.0.1".to_owned()), 443)
    }

    fn set_ready(&mut self, ready: bool) {
        if self.observed.ready != ready {
            self.observed.ready = ready;
            self.observed.since = Timestamp::now();
        }
    }

    /// Writes the status if it differs from what was written last.
    async fn publish(&mut self) {
        let wanted = status::status(&self.pod, self.placed, &self.observed);
        if self.written.as_ref() == Some(&wanted) {
            return;
        }
        let namespace = self.pod.namespace().unwrap_or_default();
        let api = Api::<Pod>::namespaced(self.context.view.client.clone(), &namespace);
        let body = Patch::Merge(json!({"metadata": {"uid": self.pod.uid()}, "status": wanted}));
        match api.patch_status(&self.pod.name_any(), &PatchParams::default(), &body).await {
            Ok(_) => self.written = Some(wanted),
            // Gone, or another Pod of this name: its own life speaks for that one.
            Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409 | 422) => {}
            Err(error) => {
                tracing::warn!(pod = self.pod.name_any(), %error, "the Pod's status is not written yet");
            }
        }
    }

    /// Takes the Pod out of the API.
    async fn finish(&self) {
        let namespace = self.pod.namespace().unwrap_or_default();
        let api = Api::<Pod>::namespaced(self.context.view.client.clone(), &namespace);
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: self.pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        for _ in 0..100 {
            match api.delete(&self.pod.name_any(), &parameters).await {
                Ok(_) => return,
                Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => return,
                Err(error) => tracing::debug!(%error, "the Pod is not gone yet"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// From SIGTERM to SIGKILL, as a deleted Pod or its spec says.
pub(super) fn grace_of(pod: &Pod) -> Duration {
    let seconds = pod
        .metadata
        .deletion_grace_period_seconds
        .or_else(|| pod.spec.as_ref()?.termination_grace_period_seconds)
        .unwrap_or(30);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).max(MINIMUM_GRACE)
}

/// Whether the API says that a node is ready; a node it does not know is.
pub(super) fn node_is_ready(view: &View, host: Host) -> bool {
    let node = view.nodes.get(&ObjectRef::<Node>::new(host.name()));
    let conditions = node.and_then(|node| node.status.as_ref()?.conditions.clone()).unwrap_or_default();
    conditions.iter().all(|condition| condition.type_ != "Ready" || condition.status == "True")
}

enum Next {
    Over,
    Again,
}

enum End {
    /// It ended, or somebody ended it.
    Itself(std::process::ExitStatus),
    /// The Pod is deleted.
    Told(Duration),
    /// The liveness probe gave up.
    Probe,
}

/// The probes of a container.
struct Probes {
    readiness: Option<Check>,
    liveness: Option<Check>,
}

/// One HTTP probe and its memory.
struct Check {
    target: SocketAddr,
    path: String,
    period: Duration,
    timeout: Duration,
    threshold: u32,
    failures: u32,
    succeeded: bool,
    due: Instant,
}

struct Verdict {
    ready: Option<bool>,
    dead: bool,
}

impl Probes {
    fn of(pod: &Pod, placed: Placed) -> Result<Self> {
        let container = container::only_container(pod)?;
        let check = |probe: &Option<Probe>| probe.as_ref().and_then(|probe| Check::of(probe, placed.address));
        let mut readiness = check(&container.readiness_probe);
        let liveness = check(&container.liveness_probe);
        if let Some(check) = &mut readiness {
            check.period = check.period.min(Duration::from_secs(1));
            check.due = Instant::now();
        }
        Ok(Self { readiness, liveness })
    }

    fn next_due(&self) -> Duration {
        let due = [&self.readiness, &self.liveness].into_iter().flatten().map(|check| check.due).min();
        due.map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(Instant::now()))
    }

    async fn run(&mut self, context: &Context, host: Host) -> Verdict {
        let mut verdict = Verdict { ready: None, dead: false };
        let now = Instant::now();
        if let Some(check) = self.readiness.as_mut().filter(|check| check.due <= now) {
            let good = check.ask(context, host).await;
            let first = !check.succeeded && !good;
            check.due = Instant::now() + if first { Duration::from_millis(100) } else { check.period };
            if good {
                verdict.ready = Some(true);
            } else if check.failures >= check.threshold {
                verdict.ready = Some(false);
            }
        }
        if let Some(check) = self.liveness.as_mut().filter(|check| check.due <= now) {
            check.ask(context, host).await;
            check.due = Instant::now() + check.period;
            verdict.dead = check.failures >= check.threshold;
        }
        verdict
    }
}

impl Check {
    fn of(probe: &Probe, address: Ipv4Addr) -> Option<Self> {
        let get = probe.http_get.as_ref()?;
        let port = match &get.port {
            IntOrString::Int(port) => u16::try_from(*port).ok()?,
            IntOrString::String(_) => return None,
        };
        let host = get.host.as_deref().and_then(|host| host.parse::<IpAddr>().ok());
        let seconds = |value: Option<i32>, default| {
            Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
        };
        let delay = seconds(probe.initial_delay_seconds, 0);
        Some(Self {
            target: SocketAddr::new(host.unwrap_or(IpAddr::V4(address)), port),
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            threshold: probe
                .failure_threshold
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(3)
                .max(1),
            failures: 0,
            succeeded: false,
            due: Instant::now() + delay,
        })
    }

    /// Asks once, from the node's network as a kubelet does.
    async fn ask(&mut self, context: &Context, host: Host) -> bool {
        let namespace = Arc::clone(context.topology.namespace(host));
        let (target, path, timeout) = (self.target, self.path.clone(), self.timeout);
        let asked = tokio::task::spawn_blocking(move || {
            namespace.run(|| http::status_of("GET", target, &path, timeout))
        });
        let good = matches!(asked.await, Ok(Ok(Ok(200..=399))));
        self.failures = if good { 0 } else { self.failures.saturating_add(1) };
        self.succeeded |= good;
        good
    }
}
