// SPDX-License-Identifier: Apache-2.0
//! The controller: started, ended, scraped, and looked at while it works.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ferrolb_linux::container::Spec;
use ferrolb_linux::process::Pid;
use http::Request;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::{Map, Value};

use crate::bench_handle::SYSTEM;
use crate::http as plain_http;
use crate::launch::{self, Launch, Process};
use crate::ledger::Ledger;

/// Name of the Pod that the controller takes itself for.
pub(crate) const POD: &str = "controller-0";

/// How a controller is started.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The network namespace it runs in; `None` is the caller's.
    pub(crate) namespace: Option<String>,
    pub(crate) kubeconfig: PathBuf,
    /// `METALLB_BGP_TYPE`, if it is set.
    pub(crate) bgp_type: Option<String>,
    /// Token of somebody who may read metrics.
    pub(crate) scraper: String,
    pub(crate) metrics_port: u16,
    pub(crate) health_port: u16,
}

/// The controller, running or not.
pub(crate) struct Daemon {
    ledger: Arc<Ledger>,
    settings: Settings,
    log: PathBuf,
    process: Option<Process>,
}

/// What the threads of a process have done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Work {
    /// Nanoseconds on a processor.
    ran: u64,
    /// Whether a thread runs, or waits for a processor or a disk.
    busy: bool,
}

impl Daemon {
    pub(crate) fn new(ledger: &Arc<Ledger>, settings: Settings) -> Result<Self> {
        Ok(Self { ledger: Arc::clone(ledger), settings, log: ledger.log("controller")?, process: None })
    }

    /// Starts it and waits until it says that it is ready. It may run already.
    ///
    /// # Errors
    /// It ends, or is not ready in time; the end of its log is in the text.
    pub(crate) async fn start(&mut self) -> Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let mut process = Process::start(&self.ledger, &self.launch()?, &self.log)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.settings.health_port));
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            // It blocks, and what it waits for may be served by this very thread.
            let asked = tokio::task::spawn_blocking(move || {
                plain_http::status_of("GET", address, "/readyz", Duration::from_secs(2))
            });
            if matches!(asked.await?, Ok(200)) {
                self.process = Some(process);
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the controller is not ready after {} s:\n{}", READY_WITHIN.as_secs(), self.log_end());
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
                status = process.ended() => bail!("the controller ended with {}:\n{}", status?, self.log_end()),
            }
        }
    }

    /// SIGTERM, and wait for the end. It may have been stopped already.
    ///
    /// # Errors
    /// It does not end by itself.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let status = process.stop(END_WITHIN).await?;
        if !status.success() {
            bail!("the controller answered SIGTERM with {status}:\n{}", self.log_end());
        }
        Ok(())
    }

    /// Its metrics of the families that begin with one of `prefixes`: series and value.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) async fn scrape(&self, prefixes: &[&str]) -> Result<Map<String, Value>> {
        let url = format!("https://127.0.0.1:{}", self.settings.metrics_port);
        let mut config = Config::new(url.parse().context("the address of the metrics")?);
        // It signs its own certificate for this port.
        config.accept_invalid_certs = true;
        config.auth_info =
            AuthInfo { token: Some(self.settings.scraper.clone().into()), ..AuthInfo::default() };
        let client = Client::try_from(config).context("make a client for the metrics")?;
        let request = Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await.context("read the metrics")?;
        Ok(series(&text, prefixes))
    }

    /// What its threads have done so far. Of a process that does not run, nothing.
    pub(crate) fn work(&self) -> Work {
        self.process.as_ref().map_or_else(Work::default, |process| Work::of(process.pid()))
    }

    fn launch(&self) -> Result<Launch> {
        let Settings { namespace, kubeconfig, bgp_type, metrics_port, health_port, .. } = &self.settings;
        let program = launch::daemons()?;
        let mut environment = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        if let Some(bgp_type) = bgp_type {
            environment.push(("METALLB_BGP_TYPE".to_owned(), bgp_type.clone()));
        }
        if let Ok(level) = std::env::var(LEVEL) {
            environment.push((LEVEL.to_owned(), level));
        }
        Ok(Launch {
            role: format!("{POD}/controller"),
            spec: Spec { namespace: namespace.clone(), environment: Some(environment), ..Spec::host("") },
            argv: vec![
                program.to_str().context("the path of the own program is not text")?.to_owned(),
                "controller".to_owned(),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--namespace={SYSTEM}"),
                format!("--pod-name={POD}"),
                format!("--port={metrics_port}"),
                format!("--health-probe-port={health_port}"),
                "--log-level=info".to_owned(),
            ],
        })
    }

    /// The last lines of its log.
    pub(crate) fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Work {
    fn of(pid: Pid) -> Self {
        let mut work = Self::default();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            // schedstat: nanoseconds on a processor, nanoseconds of waiting for one, slices.
            work.ran += read("schedstat").split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or(0);
            // stat: pid (name) state …; the name may hold anything.
            let stat = read("stat");
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            work.busy |= matches!(state, Some('R' | 'D'));
        }
        work
    }

    /// Whether no thread does anything at the moment.
    pub(crate) const fn is_idle(&self) -> bool {
        !self.busy
    }

    /// Whether more was done since `before` than renewing a lease takes.
    pub(crate) const fn is_more_than(&self, before: &Self) -> bool {
        self.ran.saturating_sub(before.ran) > TRIFLE
    }
}

/// Series of the Prometheus text format with their values.
fn series(text: &str, prefixes: &[&str]) -> Map<String, Value> {
    let lines = text.lines().filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix)));
    lines
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse::<f64>().ok()?.into()))
        })
        .collect()
}

const READY_WITHIN: Duration = Duration::from_secs(60);
const END_WITHIN: Duration = Duration::from_secs(10);
/// Nanoseconds.
const TRIFLE: u64 = 3_000_000;
/// The variable by which manifests name the level of their rights; passed on from the caller.
const LEVEL: &str = "FERROLB_LEVEL";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn series_are_read_with_their_labels() {
        let text = "# TYPE m_a gauge\nm_a{pool=\"p q\"} 2\nm_b 1e3\nother 4\nm_c NaN\n";
        let expected = json!({"m_a{pool=\"p q\"}": 2.0, "m_b": 1000.0, "m_c": null});
        assert_eq!(Value::Object(series(text, &["m_"])), expected);
    }

    #[test]
    fn a_thread_that_computes_is_seen_at_work() {
        let own = Pid(std::process::id());
        let before = Work::of(own);
        let end = Instant::now() + Duration::from_secs(20);
        while !Work::of(own).is_more_than(&before) {
            assert!(Instant::now() < end, "nothing is counted");
        }
        assert!(!Work::of(own).is_idle(), "this thread runs");
    }

    #[test]
    fn a_process_that_sleeps_is_idle() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid(child.id());
        let end = Instant::now() + Duration::from_secs(20);
        while !Work::of(pid).is_idle() || Work::of(pid) == Work::default() {
            assert!(Instant::now() < end, "it never rests");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
