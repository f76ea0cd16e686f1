// SPDX-License-Identifier: Apache-2.0
//! [`Bench`]: what a story does with a bench that is up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ferrolb_linux::Namespace;
use ferrolb_linux::process::{self, Identity};
use ferrolb_net_types::Mac;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use nix::sys::signal::Signal;

use crate::api_server::ApiSource;
use crate::host::{Host, LabName};
use crate::launch::{self, Outcome};
use crate::ledger::Ledger;
use crate::pod::Seen;
use crate::progress::Progress;
use crate::stage::Options;
use crate::topology::{Topology, namespace_name};
use crate::workloads::{is_ending, is_ready};
use crate::{kubelet, seed, tools, wait};

/// One of the daemons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Daemon {
    /// The Deployment `controller`.
    Controller,
    /// The DaemonSet `speaker`.
    Speaker,
}

impl Daemon {
    /// Name of the workload, of its container, and of its label `component`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Speaker => "speaker",
        }
    }
}

/// The namespace of the daemons.
pub const SYSTEM: &str = "metallb-system";
/// The namespace of the stories' application.
pub const DEMO: &str = "demo";

/// A bench that is up.
#[derive(Clone, Debug)]
pub struct Bench {
    ledger: Arc<Ledger>,
    topology: Topology,
    client: ClientDebug,
    api: ApiSource,
    progress: Progress,
}

impl Bench {
    pub(crate) fn new(ledger: Arc<Ledger>, topology: Topology, client: Client, options: &Options) -> Self {
        let (api, progress) = (options.api.clone(), options.progress.clone());
        Self { ledger, topology, client: ClientDebug(client), api, progress }
    }

    /// What the lab has made, for what is to live as long as it does.
    pub(crate) const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Which API server it has.
    pub const fn api(&self) -> &ApiSource {
        &self.api
    }

    /// The lab's name.
    pub fn name(&self) -> &LabName {
        self.ledger.lab()
    }

    /// Where the story says what goes on.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The kubeconfig with full rights; it is valid inside the bench's network.
    pub fn kubeconfig(&self) -> PathBuf {
        self.ledger.kubeconfig()
    }

    /// The network namespace of a host: sockets opened in it are on that host.
    pub fn namespace(&self, host: Host) -> &Arc<Namespace> {
        self.topology.namespace(host)
    }

    /// A client with full rights.
    ///
    /// Its connections are made by the thread that uses it: it works on the thread of the story, and on any that has
    /// entered a namespace of the segment.
    pub const fn client(&self) -> &Client {
        &self.client.0
    }

    /// Runs a command on a host, at most 30 s.
    ///
    /// # Errors
    /// The program is not installed or cannot be started. A command that fails is an [`Outcome`].
    pub async fn run(&self, host: Host, command: &[&str]) -> Result<Outcome> {
        self.run_within(host, command, COMMAND_WITHIN).await
    }

    /// Runs a command on a host, at most `limit`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_within(&self, host: Host, command: &[&str], limit: Duration) -> Result<Outcome> {
        launch::run(Some(self.topology.namespace(host)), command, &[], None, limit).await
    }

    /// Runs `kubectl` with full rights on the client, and shows the command. `stdin` is what `-f -` reads.
    ///
    /// # Errors
    /// `kubectl` is not installed. A command that fails is an [`Outcome`].
    pub async fn kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> Result<Outcome> {
        self.progress.command(&kubectl_line(arguments));
        self.kubectl_quietly(arguments, stdin).await
    }

    /// [`Self::kubectl`] without showing it.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub async fn kubectl_quietly(&self, arguments: &[&str], stdin: Option<&str>) -> Result<Outcome> {
        let mut command = vec![tools::KUBECTL.program];
        command.extend(arguments);
        let (kubeconfig, cache) = (self.kubeconfig(), self.ledger.directory("kubectl")?);
        let environment = [("KUBECONFIG", kubeconfig.as_path()), ("KUBECACHEDIR", cache.as_path())];
        let namespace = self.topology.namespace(Host::Client);
        launch::run(Some(namespace), &command, &environment, stdin, KUBECTL_WITHIN).await
    }

    /// Whether `kubectl` is installed.
    pub fn has_kubectl(&self) -> bool {
        tools::find(tools::KUBECTL.program).is_some()
    }

    /// Applies a manifest of one or more documents: by `kubectl apply -f -` where it is installed, else through the
    /// API.
    ///
    /// # Errors
    /// The API refuses it; the text is its message.
    pub async fn apply(&self, manifest: &str) -> Result<()> {
        if self.has_kubectl() {
            return self.kubectl(&["apply", "-f", "-"], Some(manifest)).await?.success().map(drop);
        }
        self.progress.command("kubectl apply -f -");
        for document in seed::documents(manifest)? {
            seed::put(self.client(), &document).await?;
        }
        Ok(())
    }

    /// Waits until every daemon of the current templates is ready.
    ///
    /// # Errors
    /// Not within `limit`: says which, with the end of its log.
    pub async fn daemons_ready(&self, limit: Duration) -> Result<()> {
        for daemon in [Daemon::Controller, Daemon::Speaker] {
            let what = format!("waiting for the {}", daemon.name());
            self.progress.during(&what, self.settled(daemon, limit)).await?;
        }
        Ok(())
    }

    /// Waits until every daemon has a process on every node it belongs to, ready or not.
    ///
    /// # Errors
    /// Not within `limit`.
    pub async fn daemons_started(&self, limit: Duration) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.client().clone(), SYSTEM);
        let deployment = deployments.get(Daemon::Controller.name()).await?;
        let controllers = usize::try_from(deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1))?;
        let api = Api::<Pod>::namespaced(self.client().clone(), SYSTEM);
        let started = wait::all(&api, |pods| {
            let running = |daemon: Daemon| {
                pods.iter()
                    .filter(|pod| pod.labels().get("component").is_some_and(|name| name == daemon.name()))
                    .filter(|pod| is_running(pod))
                    .count()
            };
            running(Daemon::Controller) == controllers && running(Daemon::Speaker) == Host::NODES.len()
        });
        let started = tokio::time::timeout(limit, started);
        self.progress
            .during("waiting for the daemons", started)
            .await
            .with_context(|| format!("the daemons do not run within {} s", limit.as_secs()))?
    }

    /// Waits until a daemon's rollout is over and all of it is ready.
    ///
    /// # Errors
    /// Not within `limit`.
    pub async fn settled(&self, daemon: Daemon, limit: Duration) -> Result<()> {
        let name = daemon.name();
        let settled = async {
            match daemon {
                Daemon::Controller => {
                    let api = Api::<Deployment>::namespaced(self.client().clone(), SYSTEM);
                    wait::until(&api, name, deployment_is_settled).await
                }
                Daemon::Speaker => {
                    let api = Api::<DaemonSet>::namespaced(self.client().clone(), SYSTEM);
                    wait::until(&api, name, daemon_set_is_settled).await
                }
            }
        };
        match tokio::time::timeout(limit, settled).await {
            Ok(settled) => settled,
            Err(_) => {
                let mut text = format!("the {name} is not ready within {} s", limit.as_secs());
                for pod in self.pods(SYSTEM, name).await? {
                    text.push_str(&format!("\n{}:\n{}", pod.name, tail(&self.log(&pod.name), 15)));
                }
                bail!(text)
            }
        }
    }

    /// The Pods of a component (label `component`, or `app` for the stories' own), those that end included, by name.
    ///
    /// # Errors
    /// The API does not answer.
    pub async fn pods(&self, namespace: &str, component: &str) -> Result<Vec<PodView>> {
        let api = Api::<Pod>::namespaced(self.client().clone(), namespace);
        let key = if namespace == SYSTEM { "component" } else { "app" };
        let list = api.list(&ListParams::default().labels(&format!("{key}={component}"))).await?;
        let mut views: Vec<PodView> = list.items.iter().map(PodView::of).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    /// The controller.
    ///
    /// # Errors
    /// There is none that is not about to end.
    pub async fn controller(&self) -> Result<PodView> {
        let pods = self.pods(SYSTEM, Daemon::Controller.name()).await?;
        pods.into_iter().find(|pod| !pod.ending).context("no controller runs")
    }

    /// Sends a signal to the process of a Pod. After SIGKILL the kubelet stand-in starts it again in the same Pod.
    ///
    /// # Errors
    /// The Pod has no process.
    pub fn signal(&self, pod: &str, signal: Signal) -> Result<()> {
        let process = self.process(pod)?;
        if process.signal(signal)? { Ok(()) } else { bail!("the process of {pod} has ended") }
    }

    /// Keeps the daemons' processes from starting on a node, until the value is dropped.
    ///
    /// # Errors
    /// A file of the lab cannot be written.
    pub fn hold(&self, node: Host) -> Result<Held> {
        let path = self.ledger.held(node.name());
        std::fs::write(&path, "").with_context(|| format!("write {}", path.display()))?;
        Ok(Held(path))
    }

    /// Pulls the cable of a host out of the first segment, or plugs it in again.
    ///
    /// # Errors
    /// The host has none, or the kernel refuses.
    pub fn plug(&self, host: Host, plugged: bool) -> Result<()> {
        self.topology.plug_in(host, plugged)
    }

    /// The process of a Pod.
    ///
    /// # Errors
    /// It has none now.
    pub fn process(&self, pod: &str) -> Result<Identity> {
        let prefix = format!("{pod}/");
        let mut processes = self.ledger.processes().into_iter();
        let found = processes.find(|(_, role)| role.starts_with(&prefix));
        found.map(|(identity, _)| identity).with_context(|| format!("{pod} has no process"))
    }

    /// The speaker's process on a node, without asking the API for its Pod.
    ///
    /// # Errors
    /// None runs there now.
    pub fn speaker_process(&self, node: Host) -> Result<Identity> {
        let inside = self.topology.namespace(node).processes()?;
        let mut processes = self.ledger.processes().into_iter();
        let found = processes.find(|(identity, role)| {
            role.ends_with("/speaker") && inside.contains(&identity.pid) && identity.is_alive()
        });
        found.map(|(identity, _)| identity).with_context(|| format!("no speaker runs on {node}"))
    }

    /// Resident memory of a Pod's process in bytes.
    ///
    /// # Errors
    /// It has no process.
    pub fn resident_bytes(&self, pod: &str) -> Result<u64> {
        let pid = self.process(pod)?.pid;
        process::resident_bytes(pid).with_context(|| format!("the process {pid} of {pod} has ended"))
    }

    /// What a Pod's process wrote so far, over all restarts; empty if it never ran.
    pub fn log(&self, pod: &str) -> String {
        let prefix = format!("{pod}_");
        let directory = self.ledger.path().join("logs");
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix))
        });
        paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
    }

    /// The requests a Pod of the application has had, in order.
    ///
    /// # Errors
    /// Its log cannot be read.
    pub fn requests(&self, pod: &PodView) -> Result<Vec<Seen>> {
        let directory = kubelet::container::directory(&self.ledger, &pod.uid);
        let path = directory.join("log").join("requests");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.lines().map(|line| serde_json::from_str(line).context("a line of the Pod's log")).collect()
    }

    /// Says of a node that it is ready, or that nobody has heard of it; its Pods follow.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn set_node_ready(&self, node: Host, ready: bool) -> Result<()> {
        seed::node_status(self.client(), node, ready).await
    }

    /// Plugs a NIC of this name into the second segment of a host that runs. It is down and has no address.
    ///
    /// # Errors
    /// The name is taken, or the kernel refuses.
    pub fn add_interface(&self, host: Host, name: &str, mac: Mac) -> Result<()> {
        self.topology.add_interface(host, name, mac)
    }

    /// The namespace of a Pod that is not on its node's network.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn pod_namespace(&self, pod: &str) -> Result<Namespace> {
        Ok(Namespace::open(&namespace_name(&self.ledger, pod))?)
    }
}

/// Processes of the daemons do not start on a node while this lives.
#[derive(Debug)]
#[must_use = "they start again when it is dropped"]
pub struct Held(PathBuf);

impl Drop for Held {
    fn drop(&mut self) {
        // Gone with the lab, at the latest.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A Pod as stories look at it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The host it is on.
    pub node: Option<Host>,
    /// Its IPv4 address, once it has one.
    pub address: Option<String>,
    /// Its condition `Ready`.
    pub ready: bool,
    /// Whether it is deleted and on its way out.
    pub ending: bool,
    /// Restarts of its container.
    pub restarts: i32,
}

impl PodView {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| Host::node(spec.node_name.as_deref()?)),
            address: status.pod_ip,
            ready: is_ready(pod),
            ending: is_ending(pod),
            restarts: status.container_statuses.iter().flatten().map(|status| status.restart_count).sum(),
        }
    }
}

/// A `kubectl` command as a person would type it.
fn kubectl_line(arguments: &[&str]) -> String {
    let words: Vec<String> = arguments.iter().map(|word| launch::quoted(word)).collect();
    format!("kubectl {}", words.join(" "))
}

/// Whether the container of a Pod has a process.
fn is_running(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.into_iter().any(|container| container.started == Some(true))
}

fn deployment_is_settled(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation >= deployment.metadata.generation
            && status.updated_replicas.unwrap_or(0) == wanted
            && status.replicas.unwrap_or(0) == wanted
            && status.ready_replicas.unwrap_or(0) == wanted
    })
}

fn daemon_set_is_settled(daemon_set: &DaemonSet) -> bool {
    daemon_set.status.as_ref().is_some_and(|status| {
        let wanted = status.desired_number_scheduled;
        status.observed_generation >= daemon_set.metadata.generation
            && wanted > 0
            && status.updated_number_scheduled.unwrap_or(0) == wanted
            && status.current_number_scheduled == wanted
            && status.number_ready == wanted
    })
}

/// The last `count` lines.
fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

/// `kube::Client` says nothing about itself.
#[derive(Clone)]
struct ClientDebug(Client);

impl std::fmt::Debug for ClientDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

const COMMAND_WITHIN: Duration = Duration::from_secs(30);
const KUBECTL_WITHIN: Duration = Duration::from_secs(120);
