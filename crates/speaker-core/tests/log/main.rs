// SPDX-License-Identifier: Apache-2.0
//! The lines of the log that people search for.
#![allow(clippy::unwrap_used)] // the helpers of tests

mod bgp;
mod recorder;
mod statuses;

use ferrolb_api::{Change, Clock};
use ferrolb_net_types::{NodeName, Time};
use ferrolb_speaker_core::wire::Report;
use ferrolb_speaker_core::{Core, Input, Settings};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use recorder::Line;

const CLOCK: Clock = Clock { now: Time::ZERO, wall: jiff::Timestamp::UNIX_EPOCH };

struct Log {
    core: Core,
    lines: Vec<Line>,
}

impl Log {
    /// A speaker on `n1` with a pool and its advertisement on `ens18`.
    fn new() -> Self {
        let settings = Settings {
            node: NodeName::from("n1"),
            namespace: "metallb-system".into(),
            lb_class: String::new(),
            ignore_exclude_lb: false,
            bgp_type: String::new(),
            pod: None,
            member_port: None,
            member_labels: String::new(),
            keeps_snapshots: false,
        };
        recorder::install();
        let mut log = Self { core: Core::new(settings), lines: vec![] };
        let none = || Change::Reset(Vec::new());
        let config =
            |spec: Value| json!({ "metadata": { "namespace": "metallb-system", "name": "c" }, "spec": spec });
        for input in [
            Input::Services(Change::Reset(Vec::new())),
            Input::EndpointSlices(Change::Reset(vec![decode(json!({
                "metadata": {
                    "namespace": "demo", "name": "web-1", "labels": { "kubernetes.io/service-name": "web" },
                },
                "addressType": "IPv4",
                "endpoints": [{ "addresses": ["10.1.1.1"] }],
            }))])),
            Input::Nodes(Change::Reset(vec![decode(json!({ "metadata": { "name": "n1" } }))])),
            Input::Namespaces(Change::Reset(Vec::new())),
            Input::Pools(Change::Reset(vec![decode(config(json!({ "addresses": ["192.168.10.200/28"] })))])),
            Input::L2Advertisements(Change::Reset(vec![decode(config(json!({ "interfaces": ["ens18"] })))])),
            Input::BGPAdvertisements(Change::Reset(Vec::new())),
            Input::BGPPeers(Change::Reset(Vec::new())),
            Input::BFDProfiles(Change::Reset(Vec::new())),
            Input::Communities(Change::Reset(Vec::new())),
            Input::L2Statuses(Change::Reset(Vec::new())),
            Input::BGPStatuses(Change::Reset(Vec::new())),
            Input::ConfigurationStates(none()),
        ] {
            log.core.handle(CLOCK, input);
        }
        log.drain();
        log
    }

    fn drain(&mut self) {
        let core = &mut self.core;
        self.lines.extend(recorder::lines_of(|| while core.poll().is_some() {}));
    }

    /// What is logged when the Service's status holds this address.
    fn service(&mut self, ip: &str) -> Vec<Line> {
        let object = decode(json!({
            "metadata": { "namespace": "demo", "name": "web" },
            "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": ip }] } },
        }));
        self.input(Input::Services(Change::Applied(Box::new(object))))
    }

    fn input(&mut self, input: Input) -> Vec<Line> {
        let core = &mut self.core;
        self.lines = recorder::lines_of(|| {
            core.handle(CLOCK, input);
            while core.poll().is_some() {}
        });
        self.lines.clone()
    }

    fn owned(&mut self, ip: &str, interfaces: Option<&[&str]>) -> Vec<Line> {
        let on = interfaces.map(|names| names.iter().map(|name| (*name).into()).collect());
        let owned = [(ip.parse().unwrap(), on)].into();
        self.input(Input::Wire(Report { owned, ..Report::default() }))
    }
}

fn decode<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The line has these fields, among others.
fn assert_has(line: &Line, expected: &[(&str, &str)]) {
    for (key, value) in expected {
        assert_eq!(line.get(*key).map(String::as_str), Some(*value), "{key} of {line:?}");
    }
}

#[test]
fn announcing_and_withdrawing_name_service_addresses_and_reason_s15() {
    let mut log = Log::new();
    let layer2 = |lines: Vec<Line>| -> Vec<Line> {
        lines
            .into_iter()
            .filter(|line| line.get("protocol").is_none_or(|protocol| protocol != "bgp"))
            .collect()
    };
    assert_eq!(layer2(log.service("192.168.10.200")), [], "the wire has not said anything yet");
    let lines = log.owned("192.168.10.200", Some(&["ens18"]));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_has(
        &lines[0],
        &[
            ("level", "info"),
            ("event", "serviceAnnounced"),
            ("service", "demo/web"),
            ("ips", "[\"192.168.10.200\"]"),
            ("pool", "c"),
            ("protocol", "layer2"),
            ("message", "service has IP, announcing"),
        ],
    );
    for (about, reason, lines) in [
        ("another address", "loadBalancerIPChanged", log.service("192.168.10.201")),
        ("and back", "", log.service("192.168.10.200")),
        ("deleted", "serviceDeleted", {
            let gone = Change::Deleted { namespace: "demo".into(), name: "web".into() };
            log.input(Input::Services(gone))
        }),
    ] {
        let line = &lines[0];
        if reason.is_empty() {
            assert_has(line, &[("event", "serviceAnnounced")]);
            continue;
        }
        assert_eq!(lines.len(), 1, "{about}: {lines:?}");
        assert_has(
            line,
            &[
                ("level", "info"),
                ("event", "serviceWithdrawn"),
                ("service", "demo/web"),
                ("ip", "[\"192.168.10.200\"]"),
                ("reason", reason),
                ("message", "withdrawing service announcement"),
            ],
        );
    }
}

#[test]
fn an_address_outside_the_pools_is_an_error_once() {
    let mut log = Log::new();
    let lines = log.service("10.0.0.1");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_has(
        &lines[0],
        &[
            ("level", "error"),
            ("op", "setBalancer"),
            ("service", "demo/web"),
            ("error", "assigned IP not allowed by config"),
            ("message", "IP allocated by controller not allowed by config"),
        ],
    );
    assert_eq!(log.service("10.0.0.1"), []);
    let lines = log.service("nonsense");
    assert_has(&lines[0], &[("error", "invalid LoadBalancer IP \"nonsense\"")]);
}

#[test]
fn missing_interfaces_are_a_warning_that_names_what_there_is() {
    let mut log = Log::new();
    log.service("192.168.10.200");
    let interfaces = Some([("eth0").into()].into());
    log.input(Input::Wire(Report { interfaces, ..Report::default() }));
    let lines = log.owned("192.168.10.200", Some(&[]));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_has(
        &lines[0],
        &[
            ("level", "warn"),
            ("op", "SetBalancer"),
            ("protocol", "layer2"),
            ("service", "demo/web"),
            ("IPAdvertisement", "[\"ens18\"]"),
            ("localIfs", "[\"eth0\"]"),
            ("message", "the specified interfaces used to announce LB IP don't exist"),
        ],
    );
}

#[test]
fn a_configuration_object_that_is_refused_is_named_once() {
    let mut log = Log::new();
    let bad = || {
        let spec = json!({ "addresses": ["192.168.10.9-192.168.10.1"] });
        let object =
            decode(json!({ "metadata": { "namespace": "metallb-system", "name": "bad" }, "spec": spec }));
        Input::Pools(Change::Applied(Box::new(object)))
    };
    let lines = log.input(bad());
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "error").collect();
    assert_eq!(errors.len(), 1, "{lines:?}");
    assert_has(errors[0], &[("controller", "ConfigReconciler"), ("kind", "IPAddressPool"), ("name", "bad")]);
    assert!(log.input(bad()).iter().all(|line| line["level"] != "error"));
}

#[test]
fn no_line_of_any_level_holds_a_password_or_a_dump_of_an_object_s16_x17() {
    const SECRET: &str = "correct-horse-battery-staple";
    let mut log = Log::new();
    let peer = |spec: Value| {
        let metadata = json!({
            "namespace": "metallb-system", "name": "router", "annotations": { "copy": SECRET },
        });
        let object = decode(json!({ "metadata": metadata, "spec": spec }));
        Input::BGPPeers(Change::Applied(Box::new(object)))
    };
    let good = json!({ "myASN": 1, "peerASN": 2, "peerAddress": "10.0.0.1", "password": SECRET });
    let bad = json!({ "myASN": 0, "peerASN": 0, "peerAddress": "nonsense", "password": SECRET });
    let mut lines = log.input(peer(good));
    lines.extend(log.input(peer(bad)));
    assert!(lines.len() > 1, "{lines:?}");
    let object = decode(json!({
        "metadata": { "namespace": "demo", "name": "web", "annotations": { "copy": SECRET } },
        "spec": { "type": "LoadBalancer" },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.10.200" }] } },
    }));
    lines.extend(log.input(Input::Services(Change::Applied(Box::new(object)))));
    lines.extend(log.owned("192.168.10.200", Some(&["ens18"])));
    for line in &lines {
        for (key, value) in line {
            assert!(!value.contains(SECRET) && value.len() < 500, "{key}: {value}");
            assert!(!key.contains(['{', ' ', '&']), "a key is a name: {key} (S27)");
        }
    }
}

#[test]
fn a_service_that_this_node_skips_says_why_at_level_debug() {
    let mut log = Log::new();
    log.service("192.168.10.200");
    let label = |labels: Value| {
        let node = decode(json!({ "metadata": { "name": "n1", "labels": labels } }));
        Input::Nodes(Change::Applied(Box::new(node)))
    };
    let skipped = |lines: &[Line]| {
        let line = lines.iter().find(|line| line.get("level").is_some_and(|level| level == "debug"));
        line.unwrap_or_else(|| panic!("{lines:?}")).clone()
    };
    let excluded = label(json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "" }));
    assert_has(
        &skipped(&log.input(excluded)),
        &[
            ("event", "skipping should announce l2"),
            ("protocol", "layer2"),
            ("service", "demo/web"),
            (
                "reason",
                "speaker's node has labeled 'node.kubernetes.io/exclude-from-external-load-balancers'",
            ),
        ],
    );
    log.input(label(json!({})));
    let none = Change::Deleted { namespace: "demo".into(), name: "web-1".into() };
    assert_has(
        &skipped(&log.input(Input::EndpointSlices(none))),
        &[
            ("event", "shouldannounce"),
            ("protocol", "l2"),
            ("service", "demo/web"),
            ("message", "failed no active endpoints"),
        ],
    );
}
