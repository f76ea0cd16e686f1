// SPDX-License-Identifier: Apache-2.0
//! Whatever happens in whatever order and however late it is heard of: afterwards exactly the node of the formula
//! answers, the status objects say so, and no more was written than happened.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ferrolb_announce::digest;
use ferrolb_net_types::NodeName;
use proptest::prelude::*;
use serde_json::json;

use crate::bench::{Bench, EXCLUDE, NODES, endpoints, service};

/// One thing that a user or the cluster does.
#[derive(Clone, Debug)]
enum Deed {
    /// The Service exists with endpoints on these nodes (bits) and this traffic policy.
    Serve {
        service: u8,
        nodes: u8,
        local: bool,
    },
    Delete {
        service: u8,
    },
    Exclude {
        node: usize,
        on: bool,
    },
    Restart {
        node: usize,
    },
    Wait {
        millis: u64,
    },
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0..4_u8, 0..8_u8, any::<bool>())
            .prop_map(|(service, nodes, local)| Deed::Serve { service, nodes, local }),
        1 => (0..4_u8).prop_map(|service| Deed::Delete { service }),
        2 => (0..3_usize, any::<bool>()).prop_map(|(node, on)| Deed::Exclude { node, on }),
        1 => (0..3_usize).prop_map(|node| Deed::Restart { node }),
        2 => (0..3_000_u64).prop_map(|millis| Deed::Wait { millis }),
    ]
}

/// What should be, from what was done.
#[derive(Default)]
struct Model {
    services: BTreeMap<u8, (u8, bool)>,
    excluded: [bool; 3],
}

impl Model {
    fn owner(&self, service: u8) -> Option<&'static str> {
        let (nodes, local) = self.services.get(&service)?;
        if *nodes == 0 {
            return None;
        }
        let ip: IpAddr = address(service).parse().unwrap();
        let eligible = (0..3).filter(|i| !self.excluded[*i] && (!local || nodes & (1 << i) != 0));
        eligible.map(|i| NODES[i]).min_by_key(|node| digest(&NodeName::from(*node), ip))
    }
}

fn address(service: u8) -> String {
    format!("192.168.10.{}", 200 + service)
}

fn play(bench: &mut Bench, model: &mut Model, deed: &Deed) {
    match *deed {
        Deed::Serve { service: n, nodes, local } => {
            let name = format!("s{n}");
            let on: Vec<_> = (0..3).filter(|i| nodes & (1 << i) != 0).map(|i| NODES[i]).collect();
            bench.api.put("EndpointSlice", endpoints(&name, &on));
            let mut object = service(&name, &address(n));
            object["spec"]["externalTrafficPolicy"] = json!(if local { "Local" } else { "Cluster" });
            bench.api.put("Service", object);
            model.services.insert(n, (nodes, local));
        }
        Deed::Delete { service } => {
            if model.services.remove(&service).is_some() {
                bench.api.delete("Service", "demo", &format!("s{service}"));
            }
        }
        Deed::Exclude { node, on } => {
            let label = if on { json!("") } else { json!(null) };
            bench.api.patch(
                "Node",
                "",
                NODES[node],
                &json!({ "metadata": { "labels": { EXCLUDE: label } } }),
            );
            model.excluded[node] = on;
        }
        Deed::Restart { node } => bench.start(NODES[node], "1"),
        Deed::Wait { millis } => bench.run(Duration::from_millis(millis)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn everything_settles_on_one_owner_per_address(
        deeds in prop::collection::vec(deed(), 1..25),
        delays in prop::array::uniform3(0..400_u64),
    ) {
        let mut bench = Bench::started();
        let mut model = Model { excluded: [true, false, false], ..Model::default() };
        bench.take_writes();
        for deed in &deeds {
            // A speaker that was started again hears as late as before.
            for (node, delay) in NODES.iter().zip(delays) {
                bench.speakers.get_mut(node).unwrap().delay = Duration::from_millis(delay);
            }
            play(&mut bench, &mut model, deed);
        }
        bench.run(Duration::from_secs(20));
        let mut expected = Vec::new();
        for n in 0..4 {
            let owner = model.owner(n);
            prop_assert_eq!(bench.owner(&address(n)), owner, "s{}", n);
            expected.extend(owner.map(|owner| format!("demo/s{n}@{owner} ens18")));
        }
        prop_assert_eq!(bench.statuses(), expected);
        // A move is a deletion, a creation and a status; a deed moves four Services at most, and a label's news
        // may reach the three nodes one by one.
        let writes = bench.take_writes();
        prop_assert!(writes.len() <= deeds.len() * 4 * 3 * 2, "{writes:?} after {deeds:?}");
        // And then there is peace.
        bench.gratuitous.clear();
        bench.run(Duration::from_secs(600));
        prop_assert_eq!(bench.take_writes(), Vec::<String>::new());
        prop_assert!(bench.gratuitous.is_empty());
    }
}
