// SPDX-License-Identifier: Apache-2.0
//! `ferrolb lab conformance FILE…`: brings a cluster up, plays every case, takes it down.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolb_linux::{Namespace, Netlink};

use super::case::Corpus;
use super::cluster::Cluster;
use super::intended::{DIFFERENCES, Intended};
use super::play::{self, Stage};
use super::quiet::Watches;
use super::report::{FileReport, Report};
use crate::api_server::ApiSource;
use crate::cli::Output;
use crate::host::LabName;
use crate::ledger::Ledger;
use crate::progress::Progress;
use crate::stage::{Interrupted, Signals};
use crate::supervisor::ApiKind;
use crate::{tools, topology};

/// What `lab conformance` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct ConformanceArgs {
    /// Files of cases.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// `fakekube` (in memory) or `kapi` (what the script named by FERROLB_KAPI brings up).
    #[arg(long, default_value = "fakekube")]
    api: ApiKind,
    /// Play in the cluster of this kubeconfig, which nothing else may use meanwhile and whose API server runs on this
    /// machine.
    #[arg(long, conflicts_with = "api")]
    kubeconfig: Option<PathBuf>,
    /// Play only cases whose id contains this.
    #[arg(long)]
    case: Option<String>,
    /// METALLB_BGP_TYPE of the controller; without this, what the title of each file names.
    #[arg(long)]
    bgp_type: Option<String>,
    /// How to show the run: every case as it is played, or a report at the end.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Name of the lab.
    #[arg(long, default_value = "conformance")]
    name: LabName,
}

/// A file that was read.
struct Given {
    file: String,
    corpus: Corpus,
    bgp_type: Option<String>,
}

/// Plays the cases and reports. Exit code 1 when something was unexpected.
///
/// # Errors
/// A file cannot be read or understood, or a case cannot be played.
pub fn run(args: &ConformanceArgs) -> Result<ExitCode> {
    let files = args.files.iter().map(|path| read(path, args)).collect::<Result<Vec<_>>>()?;
    let intended = Intended::parse(DIFFERENCES).context("the intended differences")?;
    tools::require_root()?;
    tools::require(&[tools::NFT])?;
    let (source, api) = match (&args.kubeconfig, args.api) {
        (Some(path), _) => (ApiSource::Kubeconfig(path.clone()), path.display().to_string()),
        (None, kind) => (kind.source(), kind.name().to_owned()),
    };
    let ledger = Arc::new(Ledger::claim(&args.name)?);
    let played = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("conformance".to_owned());
        // On a thread of its own, since it moves into a network of its own.
        let played = thread.spawn_scoped(scope, || stage(args, &source, &api, &files, intended, &ledger))?;
        Ok::<_, std::io::Error>(played.join())
    });
    let swept = ledger.sweep().context("take the cluster down");
    let report = match played? {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(report) => report?,
    };
    swept?;
    let mut stdout = anstream::stdout().lock();
    match args.output {
        Output::Text => writeln!(stdout, "{}", report.summary())?,
        Output::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(&report)?)?,
    }
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path, args: &ConformanceArgs) -> Result<Given> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("read {file}"))?;
    let mut corpus = Corpus::parse(&file, &text)?;
    let bgp_type = args.bgp_type.clone().or_else(|| corpus.bgp_type().map(str::to_owned));
    if let Some(part) = &args.case {
        corpus.cases.retain(|case| case.id.contains(part));
    }
    Ok(Given { file, corpus, bgp_type })
}

fn stage(
    args: &ConformanceArgs,
    source: &ApiSource,
    api: &str,
    files: &[Given],
    mut intended: Intended,
    ledger: &Arc<Ledger>,
) -> Result<Report> {
    let namespace = match source {
        ApiSource::Kubeconfig(_) => None,
        _ => {
            let name = topology::namespace_name(ledger, "cluster");
            ledger.note_namespace(&name)?;
            let namespace = Namespace::create(&name)?;
            Netlink::open_in(&namespace)?.set_up("lo")?;
            namespace.enter()?;
            Some(Arc::new(namespace))
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played = runtime.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            played = play_all(args, source, files, &mut intended, ledger, namespace) => played,
            name = signals.next() => Err(Interrupted(name).into()),
        }
    });
    // A probe that hangs must not keep the cluster up.
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Report::new(api, played?, &intended))
}

async fn play_all(
    args: &ConformanceArgs,
    source: &ApiSource,
    files: &[Given],
    intended: &mut Intended,
    ledger: &Arc<Ledger>,
    namespace: Option<Arc<Namespace>>,
) -> Result<Vec<FileReport>> {
    let cluster = Cluster::start(source, ledger, namespace, &Progress::stderr()).await?;
    let watches = Watches::start(&cluster.client);
    let mut reports = Vec::new();
    let mut number = 0;
    for Given { file, corpus, bgp_type } in files {
        let mut daemon = cluster.controller(bgp_type.as_deref()).await?;
        let mut cases = Vec::new();
        for case in &corpus.cases {
            number += 1;
            let mut stage =
                Stage { api: &cluster.api, daemon: &mut daemon, watches: &watches, intended: &mut *intended };
            // A name that no run before has used: an API server may keep what lay in a namespace that is gone.
            let namespace = format!("case-{}-{number}", std::process::id());
            let played = play::play(&mut stage, case, &namespace).await;
            let report = played.with_context(|| format!("{file}\n{}", daemon.log_end()))?;
            if args.output == Output::Text {
                writeln!(anstream::stdout().lock(), "{}", report.text())?;
            }
            cases.push(report);
        }
        daemon.stop().await?;
        reports.push(FileReport { file: file.clone(), title: corpus.title.clone(), cases });
    }
    drop(watches);
    cluster.stop().await;
    Ok(reports)
}
