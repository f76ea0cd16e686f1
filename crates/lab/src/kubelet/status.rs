// SPDX-License-Identifier: Apache-2.0
//! What the kubelet stand-in says of a Pod. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::container::Placed;
use crate::topology;

/// How a container is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not started, and why.
    Waiting {
        /// One word, as `kubectl get pods` shows it.
        reason: &'static str,
        /// What to do about it.
        message: String,
    },
    /// Its process lives since then.
    Running(Timestamp),
}

/// Everything that the status of a Pod is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Observed {
    pub(super) state: State,
    pub(super) ready: bool,
    /// `Ready` is false whatever the container says while its node is not.
    pub(super) node_ready: bool,
    pub(super) restarts: u32,
    /// Exit code of the process before this one.
    pub(super) last_exit: Option<i32>,
    pub(super) started: Timestamp,
    /// When `ready` last changed.
    pub(super) since: Timestamp,
}

/// The whole status.
pub(super) fn status(pod: &Pod, placed: Option<Placed>, observed: &Observed) -> Value {
    let running = matches!(observed.state, State::Running(_));
    let ready = observed.ready && running;
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let image = container.and_then(|container| container.image.clone()).unwrap_or_default();
    let condition = |kind: &str, good: bool, at: Timestamp| {
        let status = if good { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": time(at)})
    };
    let state = match &observed.state {
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running(since) => json!({"running": {"startedAt": time(*since)}}),
    };
    let last = observed.last_exit.map_or_else(
        || json!({}),
        |code| {
            let reason = if code == 0 { "Completed" } else { "Error" };
            json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": time(observed.started)}})
        },
    );
    let mut status = json!({
        "phase": if running || observed.restarts > 0 { "Running" } else { "Pending" },
        "startTime": time(observed.started),
        "qosClass": "BestEffort",
        "conditions": [
            condition("PodReadyToStartContainers", placed.is_some(), observed.started),
            condition("Initialized", true, observed.started),
            condition("Ready", ready && observed.node_ready, observed.since),
            condition("ContainersReady", ready, observed.since),
            condition("PodScheduled", true, observed.started),
        ],
        "containerStatuses": [{
            "name": container.map(|container| container.name.clone()).unwrap_or_default(),
            "image": image, "imageID": format!("lab://{image}"),
            "ready": ready, "started": running, "restartCount": observed.restarts,
            "state": state, "lastState": last,
        }],
    });
    if let (Some(placed), Some(status)) = (placed, status.as_object_mut()) {
        let (host, own) = (placed.host.address().to_string(), placed.address.to_string());
        status.insert("hostIP".to_owned(), json!(host));
        status.insert("hostIPs".to_owned(), json!([{"ip": host}]));
        status.insert("podIP".to_owned(), json!(own));
        let mut all = vec![json!({"ip": own})];
        // Of the nodes' own network the stand-in tells one family, as the stories have always had it.
        if placed.address != placed.host.address() {
            all.push(json!({"ip": topology::six(placed.address)}));
        }
        status.insert("podIPs".to_owned(), json!(all));
    }
    status
}

/// A time as Kubernetes writes it: whole seconds.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    #[test]
    fn a_pod_is_ready_only_while_its_process_lives_its_probe_agrees_and_its_node_is_ready() {
        let now = Timestamp::UNIX_EPOCH;
        let pod: Pod =
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})).unwrap();
        let waiting = State::Waiting { reason: "CrashLoopBackOff", message: String::new() };
        let placed = Placed { host: Host::Node1, address: [172, 20, 1, 2].into() };
        for (state, ready, node_ready, expected) in [
            (State::Running(now), true, true, "True"),
            (State::Running(now), false, true, "False"),
            (State::Running(now), true, false, "False"),
            (waiting, true, true, "False"),
        ] {
            let observed = Observed {
                state,
                ready,
                node_ready,
                restarts: 1,
                last_exit: Some(137),
                started: now,
                since: now,
            };
            let status = status(&pod, Some(placed), &observed);
            assert_eq!(status["conditions"][2]["status"], expected, "{observed:?}");
            assert_eq!(status["phase"], "Running");
            assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137);
            assert_eq!(status["podIPs"][0]["ip"], "172.20.1.2");
            // What the API's types take is what a client reads.
            serde_json::from_value::<k8s_openapi::api::core::v1::PodStatus>(status).unwrap();
        }
    }
}
