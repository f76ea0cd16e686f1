// SPDX-License-Identifier: Apache-2.0
//! Up, a story, down: the life of a bench.
//!
//! ```text
//!  caller ─ play ─┬─ thread `lab`: in the client's network; signals, the story with its Bench
//!                 │      └─ thread `stand-ins`: in the control plane's network; API, kubelet, kube-proxy, workloads
//!                 └─ sweep: whatever happened, every process and namespace of the ledger goes
//! ```
//!
//! SIGINT, SIGTERM and SIGHUP end the story and lead to the same sweep. The stand-ins have a thread of their own so
//! that a story that computes for long does not make the cluster stand still.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_linux::Namespace;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};

use crate::api_server::{self, ApiServer, ApiSource};
use crate::bench_handle::Bench;
use crate::host::{Host, LabName};
use crate::ledger::Ledger;
use crate::progress::Progress;
use crate::seed::Manifests;
use crate::topology::Topology;
use crate::view::View;
use crate::{endpoints, kube_proxy, kubelet, seed, tools, workloads};

/// What bench to build.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name.
    pub name: LabName,
    /// Its API server.
    pub api: ApiSource,
    /// Whether the custom resource definitions are in the cluster from the beginning.
    pub crds: bool,
    /// Whether the daemons run. With the definitions the story begins when they are ready, without when their
    /// processes run: they are not ready before they know every kind.
    pub daemons: bool,
    /// How the daemons are installed.
    pub manifests: Manifests,
    /// Whether Services of every namespace get EndpointSlices and are forwarded to their Pods. Without, those of the
    /// daemons' namespace alone: for measurements with so many Services that the stand-ins' work would be measured.
    pub traffic: bool,
    /// Where to say what goes on.
    pub progress: Progress,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: LabName::default(),
            api: ApiSource::default(),
            crds: true,
            daemons: true,
            manifests: Manifests::default(),
            traffic: true,
            progress: Progress::stderr(),
        }
    }
}

/// A signal ended the story; everything was taken down as usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("ended by {0}")]
pub struct Interrupted(pub &'static str);

/// Builds a bench, runs `story` on it, and takes it down again, whatever happens in between.
///
/// # Errors
/// No root, a missing tool, a lab of this name that lives ([`crate::ledger::Taken`]), a step of the building that
/// fails, the story's own error, or [`Interrupted`].
pub fn play<T, F>(options: &Options, story: F) -> Result<T>
where
    T: Send,
    F: AsyncFnOnce(&Bench) -> Result<T> + Send,
{
    tools::require_root()?;
    tools::require(&[tools::NFT])?;
    let ledger = Arc::new(Ledger::claim(&options.name)?);
    let played = std::thread::scope(|scope| {
        let name = std::thread::Builder::new().name("lab".to_owned());
        let stage = name.spawn_scoped(scope, || stage(options, &ledger, story))?;
        Ok::<_, std::io::Error>(stage.join())
    });
    options.progress.step("taking the bench down");
    let swept = ledger.sweep().context("take the bench down");
    match played? {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(Err(error)) => Err(error),
        Ok(Ok(value)) => swept.map(|()| value),
    }
}

/// On a thread of its own, since it moves into the client's network.
fn stage<T, F: AsyncFnOnce(&Bench) -> Result<T>>(
    options: &Options,
    ledger: &Arc<Ledger>,
    story: F,
) -> Result<T> {
    write_log(ledger);
    let home = Arc::new(Namespace::current()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // From here on a signal is remembered, whatever is being done.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    options.progress.step("building the network");
    let topology = Topology::build(Arc::clone(ledger))?;
    topology.namespace(Host::Client).enter()?;
    let result = runtime.block_on(async {
        let played = async {
            let stand_ins = StandIns::start(options, ledger, &topology, home).await?;
            let client = api_server::client(&ledger.kubeconfig()).await?;
            let bench = Bench::new(Arc::clone(ledger), topology.clone(), client, options);
            if options.daemons {
                seed::daemons(bench.client(), options.manifests).await?;
                if options.crds {
                    bench.daemons_ready(DAEMONS_WITHIN).await?;
                } else {
                    bench.daemons_started(DAEMONS_WITHIN).await?;
                }
            }
            let told = story(&bench).await;
            drop(stand_ins);
            told
        };
        tokio::select! {
            played = played => played,
            name = signals.next() => Err(Interrupted(name).into()),
        }
    });
    // A command that hangs must not keep the bench up.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// The stand-ins' thread. Dropping it ends the thread and waits for it.
struct StandIns {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl StandIns {
    /// Starts the API server, fills the cluster, starts the stand-ins; returns when rules are on the nodes.
    async fn start(
        options: &Options,
        ledger: &Arc<Ledger>,
        topology: &Topology,
        home: Arc<Namespace>,
    ) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (ready, answer) = oneshot::channel();
        let work = {
            let (options, ledger, topology) = (options.clone(), Arc::clone(ledger), topology.clone());
            move || {
                let ended = run(&options, &ledger, &topology, home, ready, stopped);
                if let Err(error) = ended {
                    tracing::error!(error = format!("{error:#}"), "the stand-ins ended");
                }
            }
        };
        let thread = std::thread::Builder::new().name("stand-ins".to_owned()).spawn(work)?;
        let stand_ins = Self { stop: Some(stop), thread: Some(thread) };
        answer.await.context("the stand-ins' thread ended")??;
        Ok(stand_ins)
    }
}

impl Drop for StandIns {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It reports its own end; a panic of it was printed.
            let _ = thread.join();
        }
    }
}

fn run(
    options: &Options,
    ledger: &Arc<Ledger>,
    topology: &Topology,
    home: Arc<Namespace>,
    ready: oneshot::Sender<Result<()>>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    topology.namespace(Host::Master1).enter()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = LocalSet::new().block_on(&runtime, async {
        let mut tasks = JoinSet::new();
        let begun = tokio::select! {
            begun = begin(options, ledger, topology, home, &mut tasks) => begun,
            _ = &mut stopped => return Ok(()),
        };
        let mut api = match begun {
            Ok(api) => api,
            Err(error) => {
                // The story's thread tells it; if that is gone nobody asks any more.
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let _ = ready.send(Ok(()));
        // Resolves when the other half is dropped.
        let _ = stopped.await;
        tasks.abort_all();
        api.stop().await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn begin(
    options: &Options,
    ledger: &Arc<Ledger>,
    topology: &Topology,
    home: Arc<Namespace>,
    tasks: &mut JoinSet<()>,
) -> Result<ApiServer> {
    let progress = &options.progress;
    progress.step("starting the API server");
    let api = ApiServer::start(&options.api, ledger, topology, home, progress).await?;
    progress.step("filling the cluster: nodes, rights, stand-ins for kubelet, kube-proxy and controllers");
    progress
        .during("filling the cluster", seed::cluster(&api.client, options.crds, options.manifests))
        .await?;
    kube_proxy::prepare(topology).await?;
    let view = progress.during("first lists", View::start(&api.client, options.traffic, tasks)).await?;
    let context = kubelet::Context::new(view.clone(), Arc::clone(ledger), topology.clone(), api.ca.clone());
    tasks.spawn_local(kube_proxy::run(view.clone(), topology.clone()));
    tasks.spawn_local(endpoints::run(view.clone()));
    tasks.spawn_local(workloads::run(view));
    tasks.spawn_local(kubelet::run(context));
    if api.collects {
        let client = api.client.clone();
        tasks.spawn(async move { ferrolb_fakekube::gc::run(client, GC_DELAY).await });
    }
    Ok(api)
}

/// The signals that end a bench.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on a signal is remembered. Needs a tokio runtime.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The name of the next one.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// What the stand-ins have to say goes to a file of the lab, unless the caller has a log of its own.
fn write_log(ledger: &Ledger) {
    let Ok(path) = ledger.log("stand-ins") else { return };
    let Ok(file) = std::fs::File::create(path) else { return };
    let filter = tracing_subscriber::EnvFilter::try_from_env("FERROLB_LAB_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter);
    let _ = subscriber.with_writer(Mutex::new(file)).try_init();
}

const DAEMONS_WITHIN: Duration = Duration::from_secs(60);
const GC_DELAY: Duration = Duration::from_millis(100);
