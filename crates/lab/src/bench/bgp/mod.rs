// SPDX-License-Identifier: Apache-2.0
//! How fast routes are told and taken back, beside FRR, BIRD and GoBGP; how long a changed Service takes to its UPDATE; and
//! what memory all that takes.
//!
//! ```text
//!  crew ── Services, slices, status ──► API server ── watch ──► speaker on a node ── UPDATEs ──► peers on the router
//!                                              arrivals: when an event reaches the node ┘              count, and note when
//!
//!  then, on another node and without speakers: FRR, BIRD, GoBGP with the same routes ── UPDATEs ──► the same peers
//! ```
//!
//! One speaker alone runs meanwhile, and no controller: every node of a real cluster has processors of its own.

mod arrivals;
mod figures;
mod peers;
mod routers;
mod services;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolb_linux::process::{self, Identity};
use http::{Method, Request};
use nix::sys::signal::Signal;
use serde_json::json;

use super::address::crew::Crew;
use super::address::{Aim, Auditor, Writes};
use crate::bench_handle::{Bench, Daemon as Workload, Held, SYSTEM};
use crate::host::Host;
use crate::tools;

pub use figures::{Aims, BgpFigures, Change, Daemon, Table};

use arrivals::Arrivals;
use figures::Run;
use peers::{Heard, Moment, Peers};
use routers::{Kind, Router};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Services, of which each is a prefix.
    prefixes: usize,
    /// How often the speaker tells everything.
    runs: usize,
    /// How often the other daemons do.
    others: usize,
    /// How often a Service changes, in each way.
    changes: usize,
}

impl Plan {
    pub(super) const FULL: Self = Self { prefixes: 10_000, runs: 3, others: 3, changes: 250 };
    pub(super) const QUICK: Self = Self { prefixes: 500, runs: 2, others: 1, changes: 10 };
}

/// Peers, when there are several.
const PEERS: usize = 8;
/// Where the speaker runs.
const NODE: Host = Host::Node1;

pub(super) async fn measure(bench: &Bench, plan: Plan) -> Result<BgpFigures> {
    let mut peers = Peers::listen(bench, PEERS)?;
    let mut held = leave_one(bench).await?;
    let (ours, changes) = ours(bench, &mut peers, plan).await?;
    held.push(bench.hold(NODE)?);
    end(&mut peers, bench.speaker_process(NODE)?).await?;
    let (mut daemons, mut skipped) = (vec![ours], Vec::new());
    for kind in Kind::ALL {
        if let Some(tool) = kind.tools().iter().find(|tool| tools::find(tool.program).is_none()) {
            let text = format!("{}, which is not installed ({})", kind.name(), tool.install);
            bench.progress().step(&format!("NOT MEASURED: {text}"));
            skipped.push(text);
            continue;
        }
        daemons.push(theirs(bench, &mut peers, kind, plan).await?);
    }
    Ok(BgpFigures::of(plan.prefixes, PEERS, daemons, skipped, changes))
}

/// The speaker.
async fn ours(bench: &Bench, peers: &mut Peers, plan: Plan) -> Result<(Daemon, Vec<Change>)> {
    let progress = bench.progress();
    let crew = Crew::start(bench, CONNECTIONS).await?;
    bench.apply(&services::manifest(NODE, PEERS)).await?;
    progress.step(&format!("{} Services with an endpoint and an address each", plan.prefixes));
    let all = 0..plan.prefixes;
    let populate = async {
        crew.send(all.clone().map(|index| services::slice(index, NODE)).collect::<Result<_>>()?).await?;
        crew.send(all.clone().map(services::service).collect::<Result<_>>()?).await?;
        crew.send(all.map(|index| services::addressed(index, true)).collect::<Result<_>>()?).await?;
        rest(bench).await
    };
    progress.during("until nobody has anything to write", populate).await?;

    let speaker = bench.speaker_process(NODE)?;
    let (all, resident_mib, one) =
        tables(bench, peers, "the speaker", plan.prefixes, plan.runs, speaker).await?;
    let changes = changes(bench, peers, &crew, plan).await?;
    progress.step("the speaker takes all back");
    peers.forget();
    let ordered = Moment::now();
    crew.send_over(1, vec![services::silence()?]).await?;
    let (gone_ms, gone_updates) = gone(peers, ordered, plan.prefixes).await?;
    let name = "ferrolb".to_owned();
    Ok((Daemon { name, one, all, gone_ms, gone_updates, resident_mib }, changes))
}

/// Another daemon.
async fn theirs(bench: &Bench, peers: &mut Peers, kind: Kind, plan: Plan) -> Result<Daemon> {
    let (progress, name) = (bench.progress(), format!("{} {}", kind.name(), kind.version().await?));
    progress.step(&format!("{name} with {} routes", plan.prefixes));
    let router = Router::start(bench, kind, PEERS, plan.prefixes);
    let router = progress.during("until it runs", router).await?;
    let identity = router.identity();
    let (all, resident_mib, one) = tables(bench, peers, &name, plan.prefixes, plan.others, identity).await?;
    progress.step(&format!("{name} takes all back"));
    peers.forget();
    let ordered = Moment::now();
    router.silence().await?;
    let (gone_ms, gone_updates) = gone(peers, ordered, plan.prefixes).await?;
    end(peers, identity).await?;
    Ok(Daemon { name, one, all, gone_ms, gone_updates, resident_mib })
}

/// Has everything told to all peers and to one, so often each; and looks at the memory in between, while all of them know it.
async fn tables(
    bench: &Bench,
    peers: &mut Peers,
    who: &str,
    prefixes: usize,
    runs: usize,
    process: Identity,
) -> Result<(Table, f64, Table)> {
    let all = table(bench, peers, who, PEERS, prefixes, runs).await?;
    let bytes = process::resident_bytes(process.pid).with_context(|| format!("{who} has ended"))?;
    peers.hang_up(PEERS).await?;
    let one = table(bench, peers, who, 1, prefixes, runs).await?;
    // No process of this machine is as large as the numbers that a float has no more room for.
    Ok((all, bytes as f64 / f64::from(1 << 20), one))
}

/// Has everything told to the first `count` peers, so often. The last sessions stay.
async fn table(
    bench: &Bench,
    peers: &mut Peers,
    who: &str,
    count: usize,
    prefixes: usize,
    runs: usize,
) -> Result<Table> {
    bench.progress().step(&format!("{who} tells {count} peers everything, {runs} times"));
    let mut measured = Vec::new();
    for run in 0..runs {
        if run > 0 {
            peers.hang_up(count).await?;
        }
        let up =
            bench.progress().during("until its sessions come up", peers.come_up(count, UP_WITHIN)).await?;
        peers.told(count, TOLD_WITHIN, |heard| heard.announced >= prefixes).await?;
        // The End-of-RIB; and what should not be said at all.
        peers.listen_for(AFTERWARDS).await;
        let heard = peers.told(count, TOLD_WITHIN, |_| true).await?;
        let last = heard.iter().filter_map(|heard| heard.last).map(|last| last.at).max();
        let last = last.context("nothing was told")?;
        if let Some(Heard { announced, withdrawn, .. }) =
            heard.iter().find(|heard| heard.announced < prefixes || heard.withdrawn > 0)
        {
            bail!("of {prefixes} prefixes {who} announced {announced}, and withdrew {withdrawn}");
        }
        measured.push(Run {
            time: last.saturating_duration_since(up.at),
            updates: heard.iter().map(|heard| heard.updates).max().unwrap_or_default(),
            end_of_rib: heard.iter().all(|heard| heard.end_of_rib),
        });
    }
    Table::of(&measured)
}

/// Waits until the first peer knows nothing any more: the milliseconds, and the UPDATEs.
async fn gone(peers: &mut Peers, ordered: Moment, prefixes: usize) -> Result<(f64, usize)> {
    let heard = peers.told(1, TOLD_WITHIN, |heard| heard.withdrawn >= prefixes).await?;
    let first = heard.first().context("there is a first peer")?;
    let last = first.last.context("nothing was told")?.at;
    Ok((last.saturating_duration_since(ordered.at).as_secs_f64() * 1e3, first.updates))
}

/// Has one Service after the other lose its endpoint, get it back, lose its address and get it back.
async fn changes(bench: &Bench, peers: &mut Peers, crew: &Crew, plan: Plan) -> Result<Vec<Change>> {
    let kinds: [(&str, bool); 4] = [
        ("its endpoint is not ready any more", false),
        ("its endpoint is ready", true),
        ("its address is taken away", false),
        ("it has an address", true),
    ];
    bench.progress().step(&format!("one Service changes, in {} ways {} times", kinds.len(), plan.changes));
    let arrivals = Arrivals::at(bench, NODE)?;
    let mut times = vec![Vec::new(); kinds.len()];
    let measured = async {
        for turn in 0..plan.changes {
            let index = plan.prefixes / plan.changes * turn;
            let requests = [
                services::ready(index, NODE, false)?,
                services::ready(index, NODE, true)?,
                services::addressed(index, false)?,
                services::addressed(index, true)?,
            ];
            for ((request, (what, announces)), times) in requests.into_iter().zip(kinds).zip(&mut times) {
                arrivals.quiet(QUIET).await?;
                peers.forget();
                let before = Moment::now();
                crew.send_over(1, vec![request]).await?;
                let heard = peers.told(1, TOLD_WITHIN, |heard| heard.updates > 0).await.context(what)?;
                let heard = heard.first().context("there is a first peer")?;
                let told = (heard.announced, heard.withdrawn);
                ensure!(
                    told == if announces { (1, 0) } else { (0, 1) },
                    "{what}: {told:?} prefixes were told"
                );
                let seen = heard.last.context("nothing was told")?.wall;
                times.push(seen.saturating_sub(arrivals.first_after(before).await?));
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    bench.progress().during("until it has changed so often", measured).await?;
    kinds.iter().zip(&times).map(|((what, _), times)| Change::of(what, times)).collect()
}

/// Ends the controller and all speakers but one.
async fn leave_one(bench: &Bench) -> Result<Vec<Held>> {
    bench.progress().step(&format!("ending the controller, and the speakers but the one on {NODE}"));
    let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/{}", Workload::Controller.name());
    let none = Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header("content-type", "application/merge-patch+json")
        .body(json!({"spec": {"replicas": 0}}).to_string().into_bytes())?;
    bench.client().request_text(none).await.context("end the controller")?;
    let mut held = Vec::new();
    for node in Host::NODES.into_iter().filter(|node| *node != NODE) {
        held.push(bench.hold(node)?);
        bench.speaker_process(node)?.signal(Signal::SIGKILL)?;
    }
    Ok(held)
}

/// Ends a daemon that has a session with the first peer, and waits until no session of it is left.
async fn end(peers: &mut Peers, process: Identity) -> Result<()> {
    process.signal(Signal::SIGKILL)?;
    peers.hang_up(1).await?;
    // Those that waited to come up are noticed, too.
    peers.listen_for(AFTERWARDS).await;
    Ok(())
}

/// Waits until the daemons write nothing any more.
///
/// # Errors
///
/// They still do after [`ROUNDS`], and what; or the API does not answer.
async fn rest(bench: &Bench) -> Result<()> {
    let auditor = Auditor::of(bench);
    let mut written = Vec::new();
    for _ in 0..ROUNDS {
        let mark = auditor.mark().await?;
        written.clear();
        auditor.settled("once more", Aim::Nothing, mark, &mut written).await?;
        if written.iter().all(|writes| writes.met) {
            return Ok(());
        }
    }
    bail!("the daemons keep writing; in the last round:\n{}", Writes::table(&written))
}

/// How often the daemons are waited for until they write nothing: the first time they create everything's status.
const ROUNDS: usize = 5;

/// Connections that create Services.
const CONNECTIONS: usize = 4;

/// Whose sessions end soon waits longer and longer until it dials again, two minutes at most.
const UP_WITHIN: Duration = Duration::from_secs(150);
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// How long a peer listens for more when everything was told.
const AFTERWARDS: Duration = Duration::from_millis(300);

/// How long the API server has had nothing to say to the node before a Service changes.
const QUIET: Duration = Duration::from_millis(15);
