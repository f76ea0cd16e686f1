// SPDX-License-Identifier: Apache-2.0
//! The running controller: watches in, writes, events and gauges out.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_config::Undecodable;
use ferrolb_controller_core::{Core, Effect, Input, Replicas, Settings, WriteId};
use ferrolb_kube_support::daemon::{
    Clocks, Doubtful, Feed, Tasks, inbox, of_kinds, start_servers, stay_small, task_ended,
};
use ferrolb_kube_support::events::Recorder;
use ferrolb_kube_support::health::Readiness;
use ferrolb_kube_support::level::Level;
use ferrolb_kube_support::listen::Bind;
use ferrolb_kube_support::metrics::Metrics;
use ferrolb_kube_support::process::own_pod;
use ferrolb_kube_support::pulse;
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::watch::Watch;
use ferrolb_kube_support::writes::Writer;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::gauges::Gauges;
use crate::memberlist_secret;
use crate::options::{Options, WebhookMode};
use crate::replicas::Replica;
use crate::webhook::{self, Webhooks};

/// The first word of the User-Agent, under which the API server files writes that name no manager.
const FIELD_MANAGER: &str = "controller";
/// Kinds that are watched; readiness waits for the first list of each.
const KINDS: usize = 5;
/// Kinds that are watched besides where conditions are written.
const ANNOUNCEMENTS: usize = 2;
/// How long a controller that ends waits until it has given up the Lease.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs the controller until `stop` is cancelled.
///
/// # Errors
///
/// When a port is taken, a certificate does not work, or one of its tasks ends.
pub async fn run(options: Options, client: Client, stop: CancellationToken) -> anyhow::Result<()> {
    let metrics = Metrics::new()?;
    let gauges = Gauges::register(&metrics)?;
    let readiness = Readiness::not_yet();
    let mut tasks = Tasks::new();
    start_servers(
        &options.common,
        Bind::Everywhere,
        client.clone(),
        metrics.clone(),
        readiness.clone(),
        &mut tasks,
    )?;
    tracing::info!(op = "Run", "Starting Manager");

    let reach = Reach::default();
    let common = &options.common;
    let listed = Readiness::not_yet();
    let Webhooks { settled, closed } = match options.webhook_mode {
        WebhookMode::Enabled | WebhookMode::OnlyWebhook => {
            webhook::start(&options, &client, &reach, &stop, &mut tasks)
        }
        WebhookMode::Disabled => Webhooks::none(),
    };
    tokio::spawn(ready_until(stop.clone(), listed.clone(), settled, readiness.clone()));
    if let Some(secret) = options.memberlist_secret.clone() {
        let (namespace, deployment) = (common.namespace.clone(), options.deployment.clone());
        tokio::spawn(memberlist_secret::ensure(client.clone(), namespace, secret, deployment));
    }
    let ended_well = async {
        stop.cancelled().await;
        closed.cancelled().await;
    };
    if options.webhook_mode == WebhookMode::OnlyWebhook {
        // There is nothing to list, and nothing to decide.
        listed.set(true);
        stay_small(readiness);
        return tokio::select! {
            ended = tasks.join_next() => Err(task_ended(ended)),
            () = ended_well => Ok(()),
        };
    }
    let pod = tokio::select! {
        pod = own_pod(&client, &reach, &common.namespace, &common.pod_name) => pod,
        ended = tasks.join_next() => return Err(task_ended(ended)),
        () = ended_well => return Ok(()),
    };

    let clocks = Clocks::start();
    let ours = options.level == Level::B;
    let settings = Settings {
        namespace: common.namespace.clone(),
        bgp_type: options.bgp_type.clone(),
        lb_class: common.lb_class.clone(),
        pod_name: pod.name.clone(),
        pod_uid: pod.uid.clone(),
        field_manager: FIELD_MANAGER.to_owned(),
        replicas: match options.level {
            Level::A => Replicas::Rivals,
            Level::B => Replicas::Lease { identity: format!("{}_{}", pod.name, pod.uid) },
        },
        conditions: ours,
    };
    let mut core = Core::new(clocks.read(), settings);
    let kinds = if ours { KINDS + ANNOUNCEMENTS } else { KINDS };
    let (feed, mut inbox) = inbox(kinds, listed, undecodable);
    start_watches(&feed, &common.namespace, &client, &reach, &mut tasks);
    if ours {
        watch_announcements(&feed, &common.namespace, &client, &reach, &mut tasks);
    }
    let say = feed.own();
    let returns = pulse::returns(reach.clone(), move || {
        let _ = say.send(Input::ApiAnswers);
    });
    tasks.spawn(async move {
        returns.await;
        "pulse"
    });
    let results = feed.own();
    let writer = Writer::start(client.clone(), reach.clone(), move |id, result| {
        // Nobody listens only while the process ends.
        let _ = results.send(Input::Written { id, result });
    });
    let shell = Shell {
        replica: Replica {
            client: client.clone(),
            reach,
            namespace: common.namespace.clone(),
            pod_name: pod.name,
            pod_uid: pod.uid,
            selector: Arc::default(),
            field_manager: FIELD_MANAGER,
            answers: feed.own(),
        },
        recorder: Recorder::behind(writer.idle(), client, "metallb-controller"),
        writer,
        metrics,
        gauges,
    };

    let mut stopped = pin!(stop.cancelled());
    stay_small(readiness);
    loop {
        tokio::select! {
            batch = inbox.batch() => {
                for input in batch {
                    core.handle(clocks.read(), input);
                }
            }
            () = clocks.until(core.next_deadline()) => core.handle_timeout(clocks.read()),
            ended = tasks.join_next() => return Err(task_ended(ended)),
            () = &mut stopped => break,
        }
        while let Some(effect) = core.poll() {
            shell.carry_out(effect);
        }
    }
    core.handle(clocks.read(), Input::Stopping);
    let farewell = async {
        while let Some(effect) = core.poll() {
            shell.carry_out(effect);
        }
        while !core.is_stopped() {
            for input in inbox.batch().await {
                core.handle(clocks.read(), input);
            }
            while let Some(effect) = core.poll() {
                shell.carry_out(effect);
            }
        }
    };
    // Whoever waits in vain loses nothing: the others take the Lease when it expires.
    let _ = tokio::join!(tokio::time::timeout(FAREWELL, farewell), closed.cancelled());
    tracing::info!(op = "shutdown", "done");
    Ok(())
}

/// Ready as soon as it may be, and not any more from the stop on: who is to end is sent nobody.
async fn ready_until(stop: CancellationToken, listed: Readiness, settled: Readiness, ready: Readiness) {
    tokio::select! {
        () = webhook::ready_with(listed, settled, ready.clone()) => stop.cancelled().await,
        () = stop.cancelled() => {}
    }
    ready.set(false);
}

fn start_watches(feed: &Feed<Input>, namespace: &str, client: &Client, reach: &Reach, tasks: &mut Tasks) {
    feed.watch(Watch::cluster().whole(), Input::Services, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace).whole(), Input::Pools, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace), Input::Communities, client, reach, tasks);
    let namespaces = Watch::cluster().trim(|namespace: &mut Namespace| {
        namespace.metadata.annotations = None;
        namespace.spec = None;
        namespace.status = None;
    });
    feed.watch(namespaces, Input::Namespaces, client, reach, tasks);
    let states = Watch::namespaced(namespace).fields(format!("metadata.name={FIELD_MANAGER}"));
    feed.watch(states, Input::ConfigurationStates, client, reach, tasks);
}

/// Who announces what, as the speakers say.
fn watch_announcements(
    feed: &Feed<Input>,
    namespace: &str,
    client: &Client,
    reach: &Reach,
    tasks: &mut Tasks,
) {
    feed.watch(Watch::namespaced(namespace).optional(), Input::L2Statuses, client, reach, tasks);
    feed.watch(Watch::namespaced(namespace).optional(), Input::BgpStatuses, client, reach, tasks);
}

/// Configuration objects that exist but cannot be decoded.
fn undecodable(doubtful: &Doubtful) -> Option<Input> {
    let objects = of_kinds(doubtful, &["IPAddressPool", "Community"]).map(|(kind, object)| Undecodable {
        kind,
        name: object.name.clone(),
        message: object.error.clone(),
    });
    Some(Input::Undecodable(objects.collect()))
}

/// Where effects go.
struct Shell {
    replica: Replica,
    writer: Writer<WriteId>,
    recorder: Recorder,
    metrics: Metrics,
    gauges: Gauges,
}

impl Shell {
    fn carry_out(&self, effect: Effect) {
        match effect {
            Effect::Write { id, request } => self.writer.send(id, request),
            Effect::Lease(_) | Effect::ListServices | Effect::FindRivals => self.replica.carry_out(effect),
            // The core has said it in the log.
            Effect::Leads(_) => {}
            Effect::Event(event) => self.recorder.record(event),
            Effect::PoolCounters { pool, counters } => self.gauges.set(&pool, counters),
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
}
