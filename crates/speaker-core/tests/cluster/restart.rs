// SPDX-License-Identifier: Apache-2.0
//! A speaker that starts among objects of a former process.

use std::time::Duration;

use ferrolb_announce::Standing;
use serde_json::json;

use crate::bench::{Bench, MASTER, NODE1, NODE2, endpoints, service};

/// Twenty Services.
fn many() -> Bench {
    let mut bench = Bench::started();
    for n in 200..220 {
        bench.api.put("EndpointSlice", endpoints(&format!("s{n}"), &[NODE1]));
        bench.api.put("Service", service(&format!("s{n}"), &format!("192.168.10.{n}")));
    }
    bench.settle();
    bench.take_writes();
    bench.take_events();
    bench
}

fn led(bench: &Bench, node: &str) -> usize {
    bench.statuses().iter().filter(|status| status.contains(node)).count()
}

#[test]
fn a_restart_in_the_same_pod_writes_nothing_and_tells_nothing() {
    let mut bench = many();
    let before = bench.statuses();
    bench.start(NODE1, "1");
    bench.settle();
    assert_eq!(bench.take_writes(), Vec::<String>::new());
    assert_eq!(bench.take_events(), Vec::<String>::new());
    assert_eq!(bench.statuses(), before);
    assert_eq!(
        bench.speakers[NODE1].announced.len(),
        led(&bench, NODE1),
        "the gauges are those of the process"
    );
}

#[test]
fn a_new_pod_takes_over_the_owner_references_and_nothing_else() {
    let mut bench = many();
    let before = bench.statuses();
    let led = led(&bench, NODE1);
    assert!(led > 3);
    bench.start(NODE1, "2");
    bench.settle();
    let writes = bench.take_writes();
    assert_eq!(writes.iter().filter(|write| *write == "PATCH servicel2statuses").count(), led);
    assert_eq!(writes.len(), led + 1, "and the ConfigurationState's: {writes:?}");
    assert_eq!(bench.take_events(), Vec::<String>::new());
    assert_eq!(bench.statuses(), before);
    for object in bench.api.list("ServiceL2Status").filter(|o| o["status"]["node"] == NODE1) {
        assert_eq!(
            object["metadata"]["ownerReferences"],
            json!([{
                "apiVersion": "v1", "kind": "Pod", "name": "speaker-k8s-node-1", "uid": "pod-k8s-node-1-2",
            }])
        );
    }
}

#[test]
fn what_a_former_process_said_and_is_no_longer_true_goes() {
    let mut bench = many();
    bench.stop(NODE1);
    let led_before = led(&bench, NODE1);
    bench.api.put("EndpointSlice", endpoints("s200", &[]));
    bench.api.delete("Service", "demo", "s202");
    bench.start(NODE1, "1");
    bench.settle();
    let owners: Vec<_> = ["192.168.10.200", "192.168.10.202"].map(|ip| bench.owner(ip)).into();
    assert_eq!(owners, [None, None]);
    assert!(bench.statuses().iter().all(|s| !s.contains("/s200@") && !s.contains("/s202@")));
    assert!(led(&bench, NODE1) < led_before);
}

#[test]
fn nothing_is_deleted_before_every_kind_is_listed_and_the_wire_has_spoken_a11() {
    let mut bench = many();
    let before = bench.statuses();
    // It sees its lists, but has no interface yet: nothing it says could be known to be untrue.
    bench.start(NODE1, "1");
    let speaker = bench.speakers.get_mut(NODE1).unwrap();
    *speaker.wire() = ferrolb_speaker_core::wire::Wire::new(NODE1.into(), None);
    bench.run(Duration::from_secs(30));
    assert_eq!(bench.statuses(), before);
    assert_eq!(bench.take_writes(), Vec::<String>::new());
    assert_eq!(bench.speakers[NODE2].announced.len(), led(&bench, NODE2));
}

#[test]
fn what_another_announced_meanwhile_is_told_again() {
    let mut bench = many();
    let led: Vec<_> = bench.speakers[NODE1].announced.iter().map(|(service, _)| service.clone()).collect();
    // Its node is excluded while it is away, and no longer when it comes back; the former objects are still there.
    bench.stop(NODE1);
    let label = |value| json!({ "metadata": { "labels": { crate::bench::EXCLUDE: value } } });
    bench.api.patch("Node", "", NODE1, &label(json!("")));
    bench.run(Duration::from_millis(1_000));
    assert_eq!(bench.take_events().len(), led.len());
    bench.api.patch("Node", "", NODE1, &label(json!(null)));
    bench.start(NODE1, "2");
    bench.settle();
    let told: Vec<_> =
        led.iter().map(|service| service.replace("demo/", "k8s-node-1: nodeAssigned ")).collect();
    assert_eq!(bench.take_events(), told, "whoever was told last is who announces");
}

/// A thousand Services, led by two of three speakers.
fn thousand() -> Bench {
    let mut bench = Bench::started();
    bench.api.patch(
        "IPAddressPool",
        "metallb-system",
        "pool",
        &json!({ "spec": { "addresses": ["10.20.0.0/22"] } }),
    );
    for n in 0..1_000 {
        bench.api.put("EndpointSlice", endpoints(&format!("s{n}"), &[NODE1]));
        bench.api.put("Service", service(&format!("s{n}"), &format!("10.20.{}.{}", n / 250, n % 250)));
    }
    bench.run(Duration::from_secs(20));
    assert_eq!(bench.statuses().len(), 1_000);
    bench.take_writes();
    bench.take_events();
    bench
}

#[test]
fn a_restart_among_a_thousand_services_writes_what_changed_and_next_to_nothing_else() {
    let mut bench = thousand();
    // The container is started again: the Pod is the same.
    bench.start(NODE1, "1");
    bench.run(Duration::from_secs(30));
    assert_eq!((bench.take_writes(), bench.take_events()), (vec![], vec![]));
    // Another Pod: it owns the objects now.
    let led = led(&bench, NODE1);
    assert!((400..600).contains(&led));
    bench.start(NODE1, "2");
    bench.run(Duration::from_secs(30));
    let (writes, events) = (bench.take_writes(), bench.take_events());
    assert!(writes.len() + events.len() <= led + 10, "{} and {}", writes.len(), events.len());
    // All restart at once, as after an outage.
    bench.start_all();
    bench.run(Duration::from_secs(30));
    let (writes, events) = (bench.take_writes(), bench.take_events());
    assert!(writes.len() + events.len() <= led + 10, "{} and {}", writes.len(), events.len());
}

#[test]
fn members_that_come_and_go_without_moving_anything_write_and_tell_nothing() {
    let mut bench = thousand();
    let ours = Standing::Ours;
    let all = [(MASTER, ours), (NODE1, ours), (NODE2, ours), ("elsewhere", ours)];
    for members in [&all[..], &all[..3], &all[1..], &all[..]] {
        bench.members(members, &[]);
        bench.run(Duration::from_secs(10));
    }
    assert_eq!((bench.take_writes(), bench.take_events()), (vec![], vec![]));
}
