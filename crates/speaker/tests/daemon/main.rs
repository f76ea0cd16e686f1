// SPDX-License-Identifier: Apache-2.0
//! The speaker as a whole, against an API server on a real socket. Its advertisements name an interface that
//! does not exist, so that a test never sends a frame into the network of the machine it runs on.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test")]

mod bgp;
#[path = "../../../kube-support/tests/api/cable.rs"]
mod cable;
mod sidecar;

use std::path::PathBuf;
use std::time::Duration;

use ferrolb_api::{ConfigurationState, IPAddressPool, L2Advertisement, ServiceL2Status};
use ferrolb_gossip::wire::KeyRule;
use ferrolb_kube_support::client::Source;
use ferrolb_kube_support::common::Common;
use ferrolb_kube_support::level::Level;
use ferrolb_kube_support::tls::TlsOptions;
use ferrolb_speaker::{MemberList, Options, run};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use cable::{Bench, soon, until};

const NAMESPACE: &str = "metallb-system";

struct Speaker {
    stop: CancellationToken,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Speaker {
    fn start(bench: &Bench) -> Self {
        Self::start_with(bench, |_| {})
    }

    fn start_with(bench: &Bench, change: impl FnOnce(&mut Options)) -> Self {
        let stop = CancellationToken::new();
        let mut options = Options {
            common: Common {
                namespace: NAMESPACE.to_owned(),
                pod_name: "speaker-1".to_owned(),
                lb_class: String::new(),
                metrics_port: 0,
                health_port: 0,
                tls: TlsOptions::parse("", "", "").unwrap(),
                metrics_cert_dir: PathBuf::from("/nowhere"),
                source: Source::default(),
            },
            node: "node-1".into(),
            ignore_exclude_lb: false,
            bgp_type: String::new(),
            graceful_shutdown: Duration::ZERO,
            members: None,
            secret_directory: None,
            level: Level::A,
            state: None,
        };
        change(&mut options);
        let ended = tokio::spawn(run(options, bench.client.clone(), stop.clone()));
        Self { stop, ended }
    }

    async fn stop(self) {
        self.stop.cancel();
        soon("the speaker ends", self.ended).await.unwrap().unwrap();
    }
}

async fn create<K>(bench: &Bench, namespace: &str, object: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(bench.direct.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn create_in_cluster<K>(bench: &Bench, object: Value)
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::all(bench.direct.clone());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn cluster(bench: &Bench) {
    for name in [NAMESPACE, "demo"] {
        create_in_cluster::<Namespace>(bench, json!({"metadata": {"name": name}})).await;
    }
    for definition in ferrolb_api::crds() {
        create_in_cluster::<CustomResourceDefinition>(bench, serde_json::to_value(definition).unwrap()).await;
    }
    create_in_cluster::<Node>(bench, json!({"metadata": {"name": "node-1"}})).await;
    let pod =
        json!({"metadata": {"name": "speaker-1"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create::<Pod>(bench, NAMESPACE, pod).await;
    let custom = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let pool = custom("IPAddressPool", "first-pool", json!({"addresses": ["192.168.10.200-192.168.10.220"]}));
    create::<IPAddressPool>(bench, NAMESPACE, pool).await;
    let advertisement = custom("L2Advertisement", "l2", json!({"interfaces": ["no-such-link0"]}));
    create::<L2Advertisement>(bench, NAMESPACE, advertisement).await;
}

async fn service(bench: &Bench, name: &str, ip: &str) {
    let service = json!({
        "metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    create::<Service>(bench, "demo", service).await;
    let slice = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["172.20.1.10"], "conditions": {"ready": true}, "nodeName": "node-1"}],
    });
    create::<EndpointSlice>(bench, "demo", slice).await;
    let api: Api<Service> = Api::namespaced(bench.direct.clone(), "demo");
    let status = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}}));
    api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

async fn told(bench: &Bench, name: &str, wanted: (&str, &str)) {
    let api: Api<Event> = Api::namespaced(bench.direct.clone(), "demo");
    until(&format!("{name} is told {wanted:?}"), || async {
        let of_service = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = api.list(&of_service).await.unwrap().items;
        events
            .iter()
            .any(|event| {
                (event.reason.as_deref(), event.message.as_deref()) == (Some(wanted.0), Some(wanted.1))
                    && event.reporting_component.as_deref() == Some("metallb-speaker")
            })
            .then_some(())
    })
    .await;
}

fn no_interface(ip: &str) -> (&'static str, String) {
    no_interface_on("node-1", ip)
}

fn no_interface_on(node: &str, ip: &str) -> (&'static str, String) {
    (
        "announceFailed",
        format!(
            "the interfaces specified by LB IP \"{ip}\" doesn't exist in assigned node \"{node}\" with protocol \
             \"layer2\""
        ),
    )
}

#[tokio::test]
async fn an_owner_without_the_interface_says_so_and_the_configuration_is_valid() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let speaker = Speaker::start(&bench);
    service(&bench, "hello-lb", "192.168.10.200").await;
    let (reason, message) = no_interface("192.168.10.200");
    told(&bench, "hello-lb", (reason, &message)).await;

    let states: Api<ConfigurationState> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    until("the ConfigurationState is valid", || async {
        let state = serde_json::to_value(states.get_opt("speaker-node-1").await.unwrap()?).unwrap();
        (state["status"]["result"] == "Valid").then_some(())
    })
    .await;
    let statuses: Api<ServiceL2Status> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    for status in statuses.list(&ListParams::default()).await.unwrap() {
        let status = serde_json::to_value(status).unwrap();
        assert!(status["status"]["interfaces"].as_array().is_none_or(Vec::is_empty), "{status}");
    }
    speaker.stop().await;
}

#[tokio::test]
async fn an_outage_ends_without_a_restart_though_the_history_is_gone() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let speaker = Speaker::start(&bench);
    service(&bench, "before", "192.168.10.200").await;
    let (reason, message) = no_interface("192.168.10.200");
    told(&bench, "before", (reason, &message)).await;

    bench.pull();
    service(&bench, "during", "192.168.10.201").await;
    bench.server.compact();
    assert!(!speaker.ended.is_finished());
    bench.plug_in();
    let (reason, message) = no_interface("192.168.10.201");
    told(&bench, "during", (reason, &message)).await;
    speaker.stop().await;
}

#[tokio::test]
async fn a_start_without_an_api_server_waits_for_it() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    service(&bench, "hello-lb", "192.168.10.200").await;
    bench.pull();
    let speaker = Speaker::start(&bench);
    tokio::task::yield_now().await;
    bench.plug_in();
    let (reason, message) = no_interface("192.168.10.200");
    told(&bench, "hello-lb", (reason, &message)).await;
    speaker.stop().await;
}

#[tokio::test]
async fn a_stop_while_the_api_server_is_away_ends_at_once() {
    let bench = Bench::new().await;
    bench.pull();
    let speaker = Speaker::start(&bench);
    tokio::task::yield_now().await;
    speaker.stop().await;
}

#[tokio::test]
async fn what_decides_is_kept_and_a_start_without_the_api_goes_on_from_it() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    service(&bench, "hello-lb", "192.168.10.200").await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("speaker-node-1.snapshot");
    let keeping = || |options: &mut Options| options.state = Some(directory.path().to_owned());
    let speaker = Speaker::start_with(&bench, keeping());
    let kept = until("something is kept", || async {
        let text = std::fs::read_to_string(&file).ok()?;
        text.contains("192.168.10.200").then_some(text)
    })
    .await;
    assert!(kept.starts_with("ferrolb speaker snapshot 1 "), "{kept}");
    speaker.stop().await;

    bench.pull();
    let speaker = Speaker::start_with(&bench, keeping());
    tokio::task::yield_now().await;
    speaker.stop().await;

    // What is damaged is as good as nothing, and is replaced.
    std::fs::write(&file, &kept[..kept.len() / 2]).unwrap();
    let speaker = Speaker::start_with(&bench, keeping());
    tokio::task::yield_now().await;
    bench.plug_in();
    until("it is whole again", || async {
        (std::fs::read_to_string(&file).ok().as_deref() == Some(kept.as_str())).then_some(())
    })
    .await;
    speaker.stop().await;
}

#[tokio::test]
async fn a_speaker_whose_port_is_closed_is_named_on_the_own_pod_and_in_its_state() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let labels = json!({ "app": "metallb", "component": "speaker" });
    let pods: Api<Pod> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    let spec = |node: &str| json!({ "nodeName": node, "containers": [{ "name": "c", "image": "i" }] });
    pods.delete("speaker-1", &Default::default()).await.unwrap();
    for (name, node, ip) in [
        ("speaker-1", "node-1", "127.0.0.1"),
        ("speaker-2", "node-2", "127.0.0.2"),
        ("web", "node-3", "127.0.0.3"),
    ] {
        let labels = if name == "web" { json!({ "app": "web" }) } else { labels.clone() };
        create::<Pod>(
            &bench,
            NAMESPACE,
            json!({ "metadata": { "name": name, "labels": labels }, "spec": spec(node) }),
        )
        .await;
        let status = Patch::Merge(json!({ "status": { "podIP": ip, "phase": "Running" } }));
        pods.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let speaker = Speaker::start_with(&bench, |options| {
        options.members = Some(MemberList {
            labels: "app=metallb,component=speaker".to_owned(),
            bind: "127.0.0.1".parse().unwrap(),
            port,
            wan: false,
            rule: KeyRule::default(),
        });
    });
    let named = format!("node-2 (127.0.0.2:{port}): its port is closed");
    let event = pod_event(&bench, "MembersUnreachable", "speaker-1").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.message.as_deref().unwrap().ends_with(&named), "{event:?}");
    assert_eq!(members_condition(&bench, "node-1").await, named);
    speaker.stop().await;
}

/// What the node's ConfigurationState, which is valid, says of members.
async fn members_condition(bench: &Bench, node: &str) -> String {
    let states: Api<ConfigurationState> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    until("its state says it", || async {
        let state = states.get_opt(&format!("speaker-{node}")).await.unwrap()?;
        let state = serde_json::to_value(state).unwrap();
        let conditions = state["status"]["conditions"].as_array()?;
        let members = conditions.iter().find(|condition| condition["type"] == "ferrolb.io/Members")?;
        assert_eq!(members["status"], "False");
        let message = members["message"].as_str()?.to_owned();
        (state["status"]["result"] == "Valid").then_some(message)
    })
    .await
}

/// The event of this reason on the Pod.
async fn pod_event(bench: &Bench, reason: &str, pod: &str) -> Event {
    let events: Api<Event> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    until("an event is there", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(|event| {
            let of = event.involved_object.name.as_deref();
            (event.reason.as_deref(), of) == (Some(reason), Some(pod))
        })
    })
    .await
}

/// With labels that select no speaker each would be alone, and announce everything.
#[tokio::test]
async fn speakers_whose_labels_select_none_of_them_say_so_and_find_each_other_all_the_same() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    create_in_cluster::<Node>(&bench, json!({"metadata": {"name": "node-2"}})).await;
    let pod =
        json!({"metadata": {"name": "speaker-2"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create::<Pod>(&bench, NAMESPACE, pod).await;
    let nodes: Api<Node> = Api::all(bench.direct.clone());
    for (node, address) in [("node-1", "127.0.0.1"), ("node-2", "127.0.0.2")] {
        let addresses =
            json!([{"type": "Hostname", "address": node}, {"type": "InternalIP", "address": address}]);
        let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
        nodes.patch_status(node, &PatchParams::default(), &status).await.unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |number: u8| {
        Speaker::start_with(&bench, |options| {
            options.node = format!("node-{number}").into();
            options.common.pod_name = format!("speaker-{number}");
            options.members = Some(MemberList {
                labels: "app=metalb".to_owned(),
                bind: [127, 0, 0, number].into(),
                port,
                wan: false,
                rule: KeyRule::default(),
            });
        })
    };
    let speakers = [start(1), start(2)];
    for number in [1, 2] {
        let said = pod_event(&bench, "MembersUnknown", &format!("speaker-{number}")).await.message.unwrap();
        assert!(said.contains("METALLB_ML_LABELS or --ml-labels: \"app=metalb\""), "{said}");
        assert_eq!(members_condition(&bench, &format!("node-{number}")).await, said);
    }
    let leader = |ip: &str| {
        let digest = |node: &&str| ferrolb_announce::digest(&(*node).into(), ip.parse().unwrap());
        ["node-1", "node-2"].into_iter().min_by_key(digest).unwrap()
    };
    let led_by = |node: &str, nth: usize| {
        let ips = (200..=220).map(|last| format!("192.168.10.{last}"));
        ips.filter(|ip| leader(ip) == node).nth(nth).unwrap()
    };
    // Who is told of a Service was told of those before it.
    let services = [("a", "node-1", 0), ("b", "node-2", 0), ("c", "node-1", 1), ("d", "node-2", 1)]
        .map(|(name, node, nth)| (name, node, led_by(node, nth)));
    for (name, node, ip) in &services {
        service(&bench, name, ip).await;
        let (reason, message) = no_interface_on(node, ip);
        told(&bench, name, (reason, &message)).await;
    }
    let events: Api<Event> = Api::namespaced(bench.direct.clone(), "demo");
    for (name, node, _) in &services[..3] {
        let of_service = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = events.list(&of_service).await.unwrap().items;
        let by: Vec<_> = events.iter().filter_map(|event| event.message.as_deref()).collect();
        assert!(by.iter().all(|text| text.contains(node)), "{name} is {node}'s alone: {by:?}");
    }
    for speaker in speakers {
        speaker.stop().await;
    }
}
