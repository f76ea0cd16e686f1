// SPDX-License-Identifier: Apache-2.0
//! Status objects while Pods are replaced and the garbage collector comes when it comes: in both directions of a swap
//! between MetalLB's speakers and ours there is one true object in the end, nobody fights, and no gap lasts.

use std::time::Duration;

use ferrolb_net_types::Time;
use serde_json::{Value, json};

use crate::bench::{Bench, EXCLUDE, NODE1, NODE2, endpoints, service};

const IP: &str = "192.168.10.200";

/// When the collector looks at an object, after the death of its owner; and how old what it acts upon is.
const DELAYS: [(u64, u64); 14] = [
    (0, 0),
    (500, 0),
    (990, 0),
    (1_000, 0),
    (1_000, 10),
    (1_001, 5),
    (1_003, 10),
    (1_010, 50),
    (1_100, 0),
    (2_000, 0),
    (10_000, 0),
    (30_000, 0),
    (59_000, 100),
    (60_000, 0),
];

/// The garbage collector: deletes what belongs to a Pod that is gone, once.
struct Collector {
    owner: String,
    /// When it reads, and when it acts upon that.
    reads: Time,
    acts: Time,
    found: Vec<(String, Value)>,
    done: bool,
}

impl Collector {
    fn of(owner: &str, death: Time, delay: (u64, u64)) -> Self {
        let reads = death + Duration::from_millis(delay.0);
        let acts = reads + Duration::from_millis(delay.1);
        Self { owner: owner.to_owned(), reads, acts, found: Vec::new(), done: false }
    }

    fn step(&mut self, bench: &mut Bench) {
        if self.done {
            return;
        }
        if bench.now >= self.reads && self.found.is_empty() {
            self.found = objects(bench)
                .filter(|o| o["metadata"]["ownerReferences"][0]["uid"] == json!(self.owner))
                .map(|o| (text(o, "name"), o["metadata"]["uid"].clone()))
                .collect();
        }
        if bench.now >= self.acts {
            self.done = true;
            for (name, uid) in std::mem::take(&mut self.found) {
                if objects(bench).any(|o| text(o, "name") == name && o["metadata"]["uid"] == uid) {
                    bench.api.delete("ServiceL2Status", "metallb-system", &name);
                }
            }
        }
    }
}

/// MetalLB's rule for status objects, on the node of a speaker of its that leads the Service.
fn metallb(bench: &mut Bench, owner: &str) {
    let foreign: Vec<_> = objects(bench)
        .filter(|o| o["metadata"]["labels"]["metallb.io/node"] != NODE1)
        .map(|o| text(o, "name"))
        .collect();
    for name in foreign {
        bench.api.delete("ServiceL2Status", "metallb-system", &name);
    }
    if objects(bench).next().is_none() {
        let name = format!("l2-theirs-{}", bench.now.since_start().as_millis());
        bench.api.put("ServiceL2Status", status(&name, NODE1, owner));
    }
}

fn status(name: &str, node: &str, owner: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "metallb-system",
            "name": name,
            "labels": {
                "metallb.io/node": node,
                "metallb.io/service-name": "web",
                "metallb.io/service-namespace": "demo",
            },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner }],
        },
        "spec": {},
        "status": {
            "node": node, "serviceName": "web", "serviceNamespace": "demo", "interfaces": [{ "name": "ens18" }],
        },
    })
}

fn objects(bench: &Bench) -> impl Iterator<Item = &Value> {
    bench.api.list("ServiceL2Status")
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap().to_owned()
}

/// Lets time pass in small steps; the longest time without a true object.
fn pass(bench: &mut Bench, time: Duration, mut step: impl FnMut(&mut Bench)) -> Duration {
    let (start, end) = (bench.now, bench.now + time);
    let (mut dark, mut longest) = (None, Duration::ZERO);
    while bench.now < end {
        step(bench);
        // What takes long is not that exact.
        let step = if bench.now - start < Duration::from_secs(4) { 1 } else { 100 };
        bench.run(Duration::from_millis(step).min(end - bench.now));
        let said = objects(bench).any(|o| o["status"]["node"] == NODE1);
        dark = if said { None } else { dark.or(Some(bench.now)) };
        longest = longest.max(dark.map_or(Duration::ZERO, |since| bench.now - since));
    }
    longest
}

fn web() -> Bench {
    let mut bench = Bench::started();
    bench.api.put("EndpointSlice", endpoints("web", &[NODE1, NODE2]));
    bench.api.put("Service", service("web", IP));
    bench.settle();
    assert_eq!(bench.owner(IP), Some(NODE1));
    bench.take_writes();
    bench.take_events();
    bench
}

#[test]
fn from_metallb_to_ours_the_object_that_is_true_gets_a_new_owner_or_is_made_again_s52() {
    for delay in DELAYS {
        let mut bench = web();
        // The speaker of NODE1 was MetalLB's until now: its object stays when its Pod goes.
        bench.stop(NODE1);
        let name = text(objects(&bench).next().unwrap(), "name");
        bench.api.delete("ServiceL2Status", "metallb-system", &name);
        bench.api.put("ServiceL2Status", status("l2-theirs", NODE1, "theirs"));
        bench.settle();
        bench.take_writes();
        let mut collector = Collector::of("theirs", bench.now, delay);
        pass(&mut bench, Duration::from_secs(1), |bench| collector.step(bench));
        bench.start(NODE1, "ours");
        pass(&mut bench, Duration::from_millis(200), |bench| collector.step(bench));
        let gap = pass(&mut bench, Duration::from_secs(70), |bench| collector.step(bench));
        assert!(gap <= Duration::from_millis(50), "{delay:?}: {gap:?}");
        let all: Vec<_> = objects(&bench).collect();
        let [object] = &all[..] else { panic!("{delay:?}: {all:?}") };
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "pod-k8s-node-1-ours", "{delay:?}");
        assert_eq!(object["status"]["node"], NODE1, "{delay:?}");
        let writes: Vec<_> =
            bench.take_writes().into_iter().filter(|write| write.contains("servicel2status")).collect();
        assert!(writes.len() <= 3, "{delay:?}: {writes:?}");
    }
}

#[test]
fn from_ours_to_metallb_nobody_of_ours_writes_anything() {
    for delay in DELAYS {
        let mut bench = web();
        bench.stop(NODE1);
        let mut collector = Collector::of("pod-k8s-node-1-1", bench.now, delay);
        pass(&mut bench, Duration::from_secs(1), |bench| collector.step(bench));
        // From now on MetalLB's speaker runs there, and leads.
        let gap = pass(&mut bench, Duration::from_secs(70), |bench| {
            collector.step(bench);
            metallb(bench, "theirs");
        });
        assert!(gap <= Duration::from_millis(5), "{delay:?}: {gap:?}");
        assert_eq!(objects(&bench).count(), 1, "{delay:?}");
        assert_eq!(bench.take_writes(), Vec::<String>::new(), "{delay:?}");
    }
}

#[test]
fn an_heir_of_ours_makes_way_for_metallb_when_it_comes_back() {
    for delay in DELAYS {
        for away in [500, 1_900, 2_100, 5_000] {
            let mut bench = web();
            bench.stop(NODE1);
            let mut collector = Collector::of("pod-k8s-node-1-1", bench.now, delay);
            let label = |value: Value| json!({ "metadata": { "labels": { EXCLUDE: value } } });
            bench.api.patch("Node", "", NODE1, &label(json!("")));
            pass(&mut bench, Duration::from_millis(away), |bench| collector.step(bench));
            assert_eq!(bench.owner(IP), Some(NODE2));
            assert!(objects(&bench).any(|o| o["status"]["node"] == NODE2), "{delay:?}");
            bench.api.patch("Node", "", NODE1, &label(Value::Null));
            bench.run(Duration::from_millis(20));
            pass(&mut bench, Duration::from_secs(70), |bench| {
                collector.step(bench);
                metallb(bench, "theirs");
            });
            let all: Vec<_> = objects(&bench).collect();
            assert!(matches!(&all[..], [o] if o["status"]["node"] == NODE1), "{delay:?}, {away}: {all:?}");
            let writes = bench.take_writes();
            // Created, filled, perhaps the dead one's deleted, its own deleted.
            assert!(writes.len() <= 4, "{delay:?}, {away}: {writes:?}");
        }
    }
}

#[test]
fn what_is_collected_late_is_made_again_however_late_that_is() {
    for seconds in [0, 1, 10, 60] {
        let mut bench = web();
        bench.run(Duration::from_secs(seconds));
        let name = text(objects(&bench).next().unwrap(), "name");
        bench.api.delete("ServiceL2Status", "metallb-system", &name);
        bench.run(Duration::from_millis(1_100));
        assert_eq!(bench.statuses(), ["demo/web@k8s-node-1 ens18"], "{seconds}");
    }
}
