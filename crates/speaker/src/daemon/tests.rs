// SPDX-License-Identifier: Apache-2.0
//! How the daemon ends when it cannot go on. Nothing is announced here: there is no Service.

#[allow(dead_code, reason = "the cable is not pulled here")]
#[path = "../../../kube-support/tests/api/cable.rs"]
mod cable;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ferrolb_announce::{AddressPlans, Members};
use ferrolb_gossip::wire::KeyRule;
use ferrolb_kube_support::client::Source;
use ferrolb_kube_support::common::Common;
use ferrolb_kube_support::tls::TlsOptions;
use ferrolb_net_types::NodeName;
use ferrolb_speaker_core::wire::Peer;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;
use crate::MemberList;
use cable::{Bench, soon};

const NAMESPACE: &str = "metallb-system";

/// The speaker of a node with this number, at 127.0.0.x.
fn options(number: u8, port: u16) -> Options {
    let common = Common {
        namespace: NAMESPACE.to_owned(),
        pod_name: format!("speaker-{number}"),
        lb_class: String::new(),
        metrics_port: 0,
        health_port: 0,
        tls: TlsOptions::parse("", "", "").unwrap(),
        metrics_cert_dir: PathBuf::from("/nowhere"),
        source: Source::default(),
    };
    // With the timing of wide-area networks a member that falls silent is held for dead after half a minute at the
    // earliest, which is longer than a test waits for anything.
    let members = MemberList {
        labels: "component=speaker".to_owned(),
        bind: host(number),
        port,
        wan: true,
        rule: KeyRule::default(),
    };
    Options {
        common,
        node: node(number),
        ignore_exclude_lb: false,
        bgp_type: String::new(),
        graceful_shutdown: Duration::ZERO,
        members: Some(members),
        secret_directory: None,
        level: Level::A,
        state: None,
    }
}

fn node(number: u8) -> NodeName {
    format!("node-{number}").into()
}

fn host(number: u8) -> IpAddr {
    [127, 0, 0, number].into()
}

/// Definitions, and the Pods of two speakers.
async fn cluster(bench: &Bench) {
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.direct.clone());
    for definition in ferrolb_api::crds() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(bench.direct.clone());
    let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    for number in [1, 2] {
        let name = format!("speaker-{number}");
        let pod = json!({
            "metadata": { "name": name, "labels": { "component": "speaker" } },
            "spec": { "nodeName": node(number).as_str(), "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let status =
            Patch::Merge(json!({ "status": { "podIP": host(number).to_string(), "phase": "Running" } }));
        pods.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    }
}

#[tokio::test]
async fn an_error_that_ends_the_daemon_leaves_the_member_list_s13() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let mut tasks = Tasks::new();
    tasks.spawn(async move {
        let _ = ended.await;
        "that nothing goes on without"
    });
    let daemon =
        tokio::spawn(run_beside(tasks, options(1, port), bench.client.clone(), CancellationToken::new()));

    // The other speaker is a wire thread alone.
    let stop = CancellationToken::new();
    let other = options(2, port);
    let fallback = Fallback { client: &bench.client, namespace: NAMESPACE, level: Level::A };
    let list =
        member_list::prepare(other.members.as_ref(), None, fallback, &other.node, &stop).await.unwrap();
    let (handle, mut reports) = wire::start(other.node.clone(), Excluded::default(), list).unwrap();
    handle.set_plan(Arc::new(AddressPlans::default()));
    let address = SocketAddr::new(host(1), port);
    handle.set_peers(vec![Peer { node: node(1), address, awaited: true }]);
    let mut sees = async |expected: &[u8]| {
        let expected =
            Members::from_iter(expected.iter().map(|n| (node(*n), ferrolb_announce::Standing::Ours)));
        soon("the other sees who is there", async {
            while let Some(report) = reports.recv().await {
                if report.membership.is_some_and(|membership| membership.members == expected) {
                    return;
                }
            }
            panic!("the wire thread ended");
        })
        .await;
    };
    sees(&[1, 2]).await;
    end.send(()).unwrap();
    let error = soon("the daemon ends", daemon).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the task that nothing goes on without ended");
    sees(&[2]).await;
}
