// SPDX-License-Identifier: Apache-2.0
//! The running speaker's control side: watches in; plans, writes, events and gauges out.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use ferrolb_api::labels;
use ferrolb_bgp::Goodbye;
use ferrolb_config::Undecodable;
use ferrolb_config::state::OwnPod;
use ferrolb_kube_support::daemon::{
    Clocks, Doubtful, Feed, Inbox, Tasks, inbox, of_kinds, start_servers, stay_small, task_ended,
};
use ferrolb_kube_support::events::Recorder;
use ferrolb_kube_support::health::Readiness;
use ferrolb_kube_support::level::Level;
use ferrolb_kube_support::listen::Bind;
use ferrolb_kube_support::metrics::Metrics;
use ferrolb_kube_support::process::own_pod;
use ferrolb_kube_support::pulse::{self, Pulse};
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::watch::Watch;
use ferrolb_kube_support::writes::Writer;
use ferrolb_net_types::PeerName;
use ferrolb_speaker_core::bgp::PeerPlan;
use ferrolb_speaker_core::wire::{BADGE_EVERY, Report, STALE_COUNTS_AFTER};
use ferrolb_speaker_core::{Core, Effect, Input, STALE_AFTER, Settings, WriteId};
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::excluded::{self, Excluded};
use crate::gauges::Gauges;
use crate::kept::Kept;
use crate::options::Options;
use crate::secret::Fallback;
use crate::secrets::Secrets;
use crate::{bgp, member_list, speakers, trim, wire};

/// Kinds that are watched; readiness waits for the first list of each.
const KINDS: usize = 13;

/// When all lose the API at the same moment nothing may move for it: a silence has to be noticed before it is one that
/// counts, or who notices late says so later still; and who heard the server last must have said so, and have been heard by
/// everybody, before what the first one said makes a difference.
const _: () = {
    let heard = BADGE_EVERY.as_secs() + SPREAD.as_secs();
    assert!(STALE_AFTER.as_secs() > pulse::NOTICED_WITHIN.as_secs());
    assert!(STALE_COUNTS_AFTER.as_secs() > pulse::NOTICED_WITHIN.as_secs() + heard);
};

/// How long gossip may take to reach every member of a large cluster.
const SPREAD: Duration = Duration::from_secs(2);

/// How long handing over and leaving may take before the process ends anyway.
const LEAVE: Duration = Duration::from_millis(1500);

/// How long BGP peers may take for the last word, beyond the time in which routes are told to be about to go. Their
/// connections have a second for it.
const FAREWELL: Duration = Duration::from_millis(1500);

/// Runs the speaker until `stop` is cancelled, and then until it has handed over and left.
///
/// # Errors
///
/// When a port is taken, a certificate or the list of excluded interfaces does not work, or one of its tasks
/// ends. It leaves then, too.
pub async fn run(options: Options, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
    run_beside(Tasks::new(), options, client, stop).await
}

/// Runs the speaker beside these tasks, and no longer than any of them.
async fn run_beside(
    mut tasks: Tasks,
    options: Options,
    client: Client,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let excluded = Excluded::read(Path::new(excluded::FILE))?;
    let metrics = Metrics::new()?;
    let gauges = Gauges::register(&metrics, options.node.clone())?;
    let bgp_gauges = bgp::Gauges::register(&metrics)?;
    let readiness = Readiness::not_yet();
    start_servers(
        &options.common,
        Bind::Loopback,
        client.clone(),
        metrics.clone(),
        readiness.clone(),
        &mut tasks,
    )?;
    let secret = options.secret_directory.as_deref();
    let fallback = Fallback { client: &client, namespace: &options.common.namespace, level: options.level };
    let list = member_list::prepare(options.members.as_ref(), secret, fallback, &options.node, &stop).await?;
    if stop.is_cancelled() {
        return Ok(());
    }
    let (wire, reports) = wire::start(options.node.clone(), excluded, list)?;
    if options.bgp_type == "frr" {
        tracing::info!(
            op = "startup",
            "METALLB_BGP_TYPE=frr: this speaker talks to routers itself, with the defaults of that type; the containers \
             for FRR beside it idle, and can be left out"
        );
    }
    tracing::info!(op = "Run", "Starting Manager");

    let reach = Reach::default();
    let kept = options.state.as_deref().map(|directory| Kept::of(directory, &options.node));
    // Whether everything is listed the core knows itself.
    let (feed, inbox) = inbox(KINDS, Readiness::not_yet(), undecodable);
    let results = feed.own();
    let clocks = Clocks::start();
    let namespace = options.common.namespace.clone();
    let mut shell = Shell {
        writer: Writer::start(client.clone(), reach.clone(), move |id, result| {
            // Nobody listens only while the process ends.
            let _ = results.send(Input::Written { id, result });
        }),
        recorder: Recorder::start(client.clone(), "metallb-speaker"),
        secrets: Secrets::new(namespace.clone(), client.clone(), reach.clone(), feed.own()),
        client,
        reach,
        namespace,
        labels: options.members.as_ref().map_or_else(String::new, |members| members.labels.clone()),
        own: feed.own(),
        kept: kept.as_ref().map(|kept| kept.clone().keep_as_task(&mut tasks)),
        wire,
        reports,
        bgp: bgp::Handle::new(options.node.clone(), clocks),
        readiness: readiness.clone(),
        metrics,
        gauges,
        bgp_gauges,
    };
    stay_small(readiness);
    let ended = control(&options, clocks, kept, &mut shell, feed, inbox, &mut tasks, &stop).await;
    let why = match &ended {
        Ok(Some(node)) => format!("node {}: the speaker is stopped, and the node is {node}", options.node),
        Ok(None) => format!("node {}: the speaker is stopped", options.node),
        Err(error) => format!("node {}: the speaker cannot go on: {error}", options.node),
    };
    // Whoever cannot go on does not know for how long others may rely on it.
    let graceful = if ended.is_ok() { options.graceful_shutdown } else { Duration::ZERO };
    shell.leave(&why, graceful).await;
    if ended.is_ok() {
        tracing::info!(op = "shutdown", "done");
    }
    ended.map(drop)
}

/// Lets the core decide, until the process cannot go on or is to end: then says what the node is, if it is about to go.
#[expect(clippy::too_many_arguments, reason = "each is one thing, and there is one caller")]
async fn control(
    options: &Options,
    clocks: Clocks,
    kept: Option<Kept>,
    shell: &mut Shell,
    feed: Feed<Input>,
    mut inbox: Inbox<Input>,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> anyhow::Result<Option<String>> {
    let common = &options.common;
    let mut core = Core::new(Settings {
        node: options.node.clone(),
        namespace: common.namespace.clone(),
        lb_class: common.lb_class.clone(),
        ignore_exclude_lb: options.ignore_exclude_lb,
        bgp_type: options.bgp_type.clone(),
        pod: None,
        member_port: options.members.as_ref().map(|members| members.port),
        member_labels: options.members.as_ref().map_or_else(String::new, |members| members.labels.clone()),
        keeps_snapshots: kept.is_some(),
    });
    if let Some(bytes) = kept.and_then(|kept| kept.read())
        && let Err(error) = core.resume(clocks.read(), &bytes)
    {
        tracing::warn!(op = "startup", %error, "what the last process kept is of no use");
    }
    shell.drain(&mut core);
    let (client, reach) = (shell.client.clone(), shell.reach.clone());
    let say = feed.own();
    let felt = pulse::feel(client.clone(), reach.clone(), move |pulse| {
        let _ = say.send(match pulse {
            Pulse::Answers => Input::ApiAnswers,
            Pulse::Silent { since } => Input::ApiSilent { since: clocks.at(since) },
        });
    });
    tasks.spawn(async move {
        felt.await;
        "pulse"
    });
    // Whoever writes has to know in whose name, so nothing is watched before.
    let mut own_pod = pin!(own_pod(&client, &reach, &common.namespace, &common.pod_name));
    let mut introduced = false;
    loop {
        tokio::select! {
            pod = &mut own_pod, if !introduced => {
                introduced = true;
                core.handle(clocks.read(), Input::OwnPod(OwnPod { name: pod.name, uid: pod.uid }));
                start_watches(&feed, options, &client, &reach, tasks);
            }
            batch = inbox.batch() => {
                for input in batch {
                    core.handle(clocks.read(), input);
                }
            }
            report = shell.reports.recv() => match report {
                Some(report) => core.handle(clocks.read(), Input::Wire(report)),
                None => anyhow::bail!("the wire thread ended"),
            },
            news = shell.bgp.news() => for (peer, report) in news? {
                if let Some(report) = &report {
                    shell.bgp_gauges.report(&peer, report);
                }
                core.handle(clocks.read(), Input::Peer { peer, report });
            },
            () = clocks.until(core.next_deadline()) => core.handle_timeout(clocks.read()),
            ended = tasks.join_next() => return Err(task_ended(ended)),
            () = stop.cancelled() => return Ok(core.departure()),
        }
        shell.drain(&mut core);
    }
}

fn start_watches(feed: &Feed<Input>, options: &Options, client: &Client, reach: &Reach, tasks: &mut Tasks) {
    let (namespace, node) = (options.common.namespace.as_str(), &options.node);
    feed.watch(Watch::cluster().trim(trim::service), Input::Services, client, reach, tasks);
    feed.watch(Watch::cluster().trim(trim::endpoint_slice), Input::EndpointSlices, client, reach, tasks);
    feed.watch(Watch::cluster().trim(trim::node), Input::Nodes, client, reach, tasks);
    feed.watch(Watch::cluster().trim(trim::namespace), Input::Namespaces, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::Pools, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::L2Advertisements, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::BGPAdvertisements, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::BGPPeers, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::BFDProfiles, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::Communities, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::L2Statuses, client, reach, tasks);
    // A cluster has as many as it has nodes times Services, or peers.
    let own = format!("{}={}", labels::NODE, labels::value(node.as_str()));
    let statuses = Watch::namespaced(namespace).labels(own.clone());
    feed.watch(statuses, Input::BGPStatuses, client, reach, tasks);
    if options.level == Level::B {
        // Under MetalLB's manifests there is no such kind. Before it is listed, none is written.
        feed.watch(Watch::namespaced(namespace).labels(own), Input::BGPSessions, client, reach, tasks);
    }
    let states = Watch::namespaced(namespace).fields(format!("metadata.name=speaker-{node}"));
    feed.watch(states, Input::ConfigurationStates, client, reach, tasks);
}

/// Configuration objects that exist but cannot be decoded.
fn undecodable(doubtful: &Doubtful) -> Option<Input> {
    const KINDS: &[&str] =
        &["IPAddressPool", "L2Advertisement", "BGPAdvertisement", "BGPPeer", "BFDProfile", "Community"];
    let objects = of_kinds(doubtful, KINDS).map(|(kind, object)| Undecodable {
        kind,
        name: object.name.clone(),
        message: object.error.clone(),
    });
    Some(Input::Undecodable(objects.collect()))
}

/// Where effects go.
struct Shell {
    client: Client,
    reach: Reach,
    namespace: String,
    /// The labels of the speakers' Pods.
    labels: String,
    /// Where snapshots go.
    kept: Option<watch::Sender<Vec<u8>>>,
    /// The way back for answers.
    own: mpsc::UnboundedSender<Input>,
    writer: Writer<WriteId>,
    recorder: Recorder,
    secrets: Secrets,
    wire: wire::Handle,
    reports: mpsc::Receiver<Report>,
    bgp: bgp::Handle,
    readiness: Readiness,
    metrics: Metrics,
    gauges: Gauges,
    bgp_gauges: bgp::Gauges,
}

impl Shell {
    /// Does what the core wants to be done.
    fn drain(&mut self, core: &mut Core) {
        while let Some(effect) = core.poll() {
            self.carry_out(core, effect);
        }
    }

    fn carry_out(&mut self, core: &Core, effect: Effect) {
        match effect {
            Effect::Write { id, request } => self.writer.send(id, request),
            Effect::Event(event) => self.recorder.record(event),
            Effect::Plan(plan) => self.wire.set_plan(plan),
            Effect::ListPods => self.list_pods(),
            Effect::Peers(peers) => self.wire.set_peers(peers),
            Effect::Api { working } => self.wire.set_api(working),
            Effect::Save => {
                if let Some(kept) = &self.kept {
                    kept.send_replace(core.snapshot());
                }
            }
            Effect::Ready(ready) => self.readiness.set(ready),
            Effect::Announced { service, protocol, ip, on } => {
                self.gauges.announced(&service, protocol, ip, on);
            }
            Effect::Secrets(names) => self.secrets.watch(&names),
            Effect::Session { peer, plan } => self.set_session(peer, plan),
            Effect::Routes { peer, changes } => self.bgp.routes(&peer, changes),
            Effect::L2Counters { ip, counters } => self.gauges.counters(ip, counters),
            Effect::Configuration { loaded, stale } => {
                self.metrics.config_loaded.set(loaded.into());
                self.metrics.config_stale.set(stale.into());
            }
            Effect::Reconciled { failed } => {
                self.metrics.updates.inc();
                if failed {
                    self.metrics.update_errors.inc();
                }
            }
        }
    }

    /// Asks for the speakers' Pods; the answer comes as an input.
    fn list_pods(&self) {
        let (client, reach, own) = (self.client.clone(), self.reach.clone(), self.own.clone());
        let (namespace, labels) = (self.namespace.clone(), self.labels.clone());
        tokio::spawn(async move {
            let pods = speakers::list(&client, &reach, &namespace, &labels).await;
            let _ = own.send(Input::Pods(pods));
        });
    }

    fn set_session(&mut self, peer: PeerName, plan: Option<Box<PeerPlan>>) {
        match &plan {
            Some(plan) => self.bgp_gauges.session(&peer, plan.remote),
            None => self.bgp_gauges.no_session(&peer),
        }
        self.bgp.session(peer, plan);
    }

    /// Hands over what this node leads, leaves the member list, and says goodbye to its routers: why, and for how long
    /// its routes are told to be about to go before they do.
    async fn leave(&mut self, why: &str, graceful: Duration) {
        self.wire.leave();
        self.bgp.leave(&Goodbye::shutdown(why, graceful));
        let reports = &mut self.reports;
        let handed_over = async { while reports.recv().await.is_some() {} };
        let (handed_over, said) = tokio::join!(
            tokio::time::timeout(LEAVE, handed_over),
            tokio::time::timeout(graceful + FAREWELL, self.bgp.left()),
        );
        if handed_over.is_err() {
            tracing::warn!(op = "shutdown", "the addresses could not be handed over in time");
        }
        if said.is_err() {
            tracing::warn!(op = "shutdown", "not every BGP peer was told goodbye in time");
        }
    }
}
