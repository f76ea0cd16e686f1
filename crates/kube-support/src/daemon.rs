// SPDX-License-Identifier: Apache-2.0
//! The frame of a daemon: from the command line to the exit code, its servers, and the way from watches to a
//! core.
//!
//! | channel | when full |
//! |---|---|
//! | watches → core | the watch waits, and TCP with it: the API server notices, nobody else |
//! | write results, own reports → core | cannot be: a core has one write per object under way |

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferrolb_api::{Change, Clock};
use ferrolb_net_types::Time;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::client::client;
use crate::common::{Common, SettingError, log_level};
use crate::flags::{Flag, Values};
use crate::health::{Readiness, serve_health};
use crate::listen::{Bind, ListenError, listen};
use crate::logging;
use crate::metrics::{self, Metrics, MetricsServer};
use crate::process::StopSignals;
use crate::reach::Reach;
use crate::tls::{Certificate, CertificateError};
use crate::watch::{Delivery, Undecodable, Watch};

/// Inputs that may wait for the core.
const INBOX: usize = 256;
/// Inputs that are decided together.
const BATCH: usize = 256;

/// Runs a daemon from its command line to its end.
///
/// `configure` reads the settings; `run` gets them with a client, and a token that is cancelled by the first
/// signal. A second signal ends the process at once with code 1. Exit codes: 0 after a clean stop, 1 for what
/// cannot be started or broke, 2 for a wrong command line.
pub fn launch<O, C, R, F>(
    program: &'static str,
    flags: &[Flag],
    args: impl IntoIterator<Item = String>,
    configure: C,
    run: R,
) -> ExitCode
where
    C: FnOnce(&Values) -> Result<O, SettingError>,
    O: AsRef<Common>,
    R: FnOnce(O, Client, CancellationToken) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let values = match Values::parse(program, flags, args, |name| std::env::var_os(name)) {
        Ok(values) => values,
        Err(refusal) => {
            eprint!("{}", refusal.text());
            return ExitCode::from(refusal.exit_code());
        }
    };
    let ended = (|| {
        logging::install(log_level(&values)?);
        banner(program);
        let options = configure(&values)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Name resolution only; kept short, since an idle daemon has one thread.
            .max_blocking_threads(2)
            .thread_keep_alive(Duration::from_secs(1))
            .build()?;
        runtime.block_on(async {
            let stop = CancellationToken::new();
            watch_signals(stop.clone())?;
            let client = client(&options.as_ref().source, program).await?;
            run(options, client, stop).await
        })
    })();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error: anyhow::Error = error;
            tracing::error!(op = "exit", error = format!("{error:#}").as_str(), "{program} cannot go on");
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn banner(program: &str) {
    let version = concat!("ferrolb-", env!("CARGO_PKG_VERSION"));
    let commit = option_env!("FERROLB_COMMIT").unwrap_or("unknown");
    let branch = option_env!("FERROLB_BRANCH").unwrap_or("unknown");
    tracing::info!(
        version,
        commit,
        branch,
        "MetalLB {program} starting version {version} (commit {commit}, branch {branch})"
    );
}

fn watch_signals(stop: CancellationToken) -> std::io::Result<()> {
    let mut signals = StopSignals::install()?;
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::info!(op = "shutdown", signal = name, "starting shutdown");
        stop.cancel();
        signals.next().await;
        std::process::exit(1);
    });
    Ok(())
}

/// Why the servers of a daemon are not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A port is taken.
    #[error("{server}: {error}")]
    Listen {
        /// Which server.
        server: &'static str,
        /// Why.
        error: ListenError,
    },
    /// The metrics certificate cannot be used.
    #[error("metrics: {0}")]
    Certificate(#[from] CertificateError),
}

/// The tasks of a daemon. None of them is meant to end.
pub type Tasks = JoinSet<&'static str>;

/// Opens the probe port and the metrics port, and serves them as `tasks`.
///
/// # Errors
///
/// [`ServerError`] when a port is taken or the certificate does not work.
pub fn start_servers(
    common: &Common,
    probes: Bind,
    client: Client,
    metrics: Metrics,
    readiness: Readiness,
    tasks: &mut Tasks,
) -> Result<(), ServerError> {
    let open = |server, bind, port| -> Result<TcpListener, ServerError> {
        listen(bind, port).map_err(|error| ServerError::Listen { server, error })
    };
    let health = open("probes", probes, common.health_port)?;
    tasks.spawn(async move {
        serve_health(health, readiness).await;
        "probes"
    });
    if common.metrics_port == 0 {
        tracing::info!(op = "startup", "metrics are not served, as --port=0 asks");
        return Ok(());
    }
    let server = MetricsServer {
        metrics,
        access: Access::new(client),
        tls: common.tls.clone(),
        certificate: Certificate::from_directory_or_new(Some(&common.metrics_cert_dir))?,
        path: metrics::PATH.to_owned(),
        livez: false,
    };
    let listener = open("metrics", Bind::Everywhere, common.metrics_port)?;
    tasks.spawn(async move {
        if let Err(error) = server.serve(listener).await {
            tracing::error!(op = "metrics", error = %error, "metrics cannot be served");
        }
        "metrics"
    });
    Ok(())
}

/// How long after it became ready a daemon counts as settled.
const SETTLE: Duration = Duration::from_secs(10);

/// How long after that, and again and again.
const AGAIN: Duration = Duration::from_secs(300);

/// Gives back the pages of code that nothing runs any more: once the work of the start is over (the daemon is ready,
/// and has had time to act on what it read), and every five minutes from then on.
pub fn stay_small(readiness: Readiness) {
    tokio::spawn(async move {
        readiness.ready().await;
        tokio::time::sleep(SETTLE).await;
        loop {
            if let Err(error) = ferrolb_linux::memory::release_program() {
                tracing::debug!(op = "settled", %error, "pages of the program stay mapped");
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
}

/// The end of a task that was not meant to end, as an error.
pub fn task_ended(ended: Option<Result<&'static str, JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(name)) => anyhow::anyhow!("the task {name} ended"),
        Some(Err(error)) => anyhow::anyhow!("a task broke: {error}"),
        None => anyhow::anyhow!("there is no task left"),
    }
}

/// Where the inputs of a core arrive.
#[derive(Debug)]
pub struct Inbox<I> {
    watched: mpsc::Receiver<I>,
    own: mpsc::UnboundedReceiver<I>,
}

/// The ways into an [`Inbox`].
#[derive(Debug)]
pub struct Feed<I> {
    watched: mpsc::Sender<I>,
    own: mpsc::UnboundedSender<I>,
    doubts: Arc<Doubts<I>>,
    /// Lists that are still missing.
    missing: Arc<AtomicUsize>,
    readiness: Readiness,
}

/// What cannot be decoded, of all kinds, by kind.
pub type Doubtful = BTreeMap<String, Vec<Undecodable>>;

/// What cannot be decoded of these kinds, each with its kind.
pub fn of_kinds<'a>(
    doubtful: &'a Doubtful,
    kinds: &'a [&'static str],
) -> impl Iterator<Item = (&'static str, &'a Undecodable)> {
    kinds.iter().flat_map(|kind| doubtful.get(*kind).into_iter().flatten().map(move |object| (*kind, object)))
}

/// Collects over all watches what cannot be decoded.
#[derive(Debug)]
struct Doubts<I> {
    found: Mutex<Doubtful>,
    into: fn(&Doubtful) -> Option<I>,
}

/// Makes an inbox. `readiness` becomes true when all of `lists` watches have delivered their first list;
/// `doubts` makes an input of all that cannot be decoded, whenever that changes.
pub fn inbox<I>(
    lists: usize,
    readiness: Readiness,
    doubts: fn(&Doubtful) -> Option<I>,
) -> (Feed<I>, Inbox<I>) {
    let (watched, watched_end) = mpsc::channel(INBOX);
    let (own, own_end) = mpsc::unbounded_channel();
    let doubts = Arc::new(Doubts { found: Mutex::new(Doubtful::new()), into: doubts });
    let feed = Feed { watched, own, doubts, missing: Arc::new(AtomicUsize::new(lists)), readiness };
    (feed, Inbox { watched: watched_end, own: own_end })
}

impl<I: Send + 'static> Feed<I> {
    /// Starts a watch as one of `tasks`; what it delivers becomes inputs by `into`.
    pub fn watch<K>(
        &self,
        watch: Watch<K>,
        into: fn(Change<K>) -> I,
        client: &Client,
        reach: &Reach,
        tasks: &mut Tasks,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let (sender, missing, readiness) =
            (self.watched.clone(), Arc::clone(&self.missing), self.readiness.clone());
        let (client, reach, doubts) = (client.clone(), reach.clone(), Arc::clone(&self.doubts));
        tasks.spawn(async move {
            let mut first = true;
            let take = |delivery: Delivery<K>| {
                let (complete, input) = match delivery {
                    Delivery::Change(change) => {
                        let complete = matches!(change, Change::Reset(_)) && std::mem::take(&mut first);
                        (complete, Some(into(change)))
                    }
                    Delivery::Undecodable(objects) => (false, doubts.update(&K::kind(&()), objects)),
                };
                let (sender, missing, readiness) = (sender.clone(), Arc::clone(&missing), readiness.clone());
                async move {
                    let open = match input {
                        Some(input) => sender.send(input).await.is_ok(),
                        None => true,
                    };
                    if complete && missing.fetch_sub(1, Ordering::Relaxed) == 1 {
                        readiness.set(true);
                    }
                    open
                }
            };
            watch.run(client, reach, take).await;
            "watch"
        });
    }

    /// A way in for results and reports of the process itself, which never waits.
    pub fn own(&self) -> mpsc::UnboundedSender<I> {
        self.own.clone()
    }
}

impl<I> Doubts<I> {
    fn update(&self, kind: &str, objects: Vec<Undecodable>) -> Option<I> {
        // Nothing panics while it holds the lock, so the lock is never poisoned.
        let mut found = self.found.lock().ok()?;
        found.insert(kind.to_owned(), objects);
        (self.into)(&found)
    }
}

impl<I> Inbox<I> {
    /// Waits for inputs and gives all that are there, up to a bound. May be dropped while it waits.
    pub async fn batch(&mut self) -> Vec<I> {
        let first = tokio::select! {
            Some(input) = self.own.recv() => input,
            Some(input) = self.watched.recv() => input,
            // All ways in are closed: nothing will ever come.
            else => return std::future::pending().await,
        };
        let mut batch = vec![first];
        while batch.len() < BATCH {
            match self.own.try_recv().ok().or_else(|| self.watched.try_recv().ok()) {
                Some(input) => batch.push(input),
                None => break,
            }
        }
        batch
    }
}

/// The clocks that a core is driven by.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    start: Instant,
}

impl Clocks {
    /// Time counts from here.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// One reading of both.
    pub fn read(&self) -> Clock {
        Clock { now: self.now(), wall: jiff::Timestamp::now() }
    }

    /// One reading of the monotonic one.
    pub fn now(&self) -> Time {
        Time::after(self.start.elapsed())
    }

    /// The reading that belongs to this moment; the start for what was before it.
    pub fn at(&self, moment: tokio::time::Instant) -> Time {
        Time::after(moment.into_std().saturating_duration_since(self.start))
    }

    /// Waits until a deadline; for ever if there is none.
    pub async fn until(&self, deadline: Option<Time>) {
        match deadline {
            Some(time) => tokio::time::sleep_until((self.start + time.since_start()).into()).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_there_comes_together_and_own_reports_come_first() {
        let (feed, mut inbox) = inbox::<u32>(0, Readiness::not_yet(), |_| None);
        feed.watched.send(2).await.unwrap();
        feed.watched.send(3).await.unwrap();
        feed.own().send(1).unwrap();
        let mut batch = inbox.batch().await;
        batch.sort_unstable();
        assert_eq!(batch, [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_deadline_in_the_past_is_due_at_once_and_none_never() {
        let clocks = Clocks::start();
        clocks.until(Some(Time::ZERO)).await;
        let never = clocks.until(None);
        let soon = clocks.until(Some(clocks.read().now));
        tokio::select! {
            () = never => panic!("no deadline came"),
            () = soon => {}
        }
    }
}
