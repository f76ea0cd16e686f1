// SPDX-License-Identifier: Apache-2.0
//! Laws: whatever happens in whichever order, nobody's address is given away, and the outcome is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolb_api::request::{Resource, WriteError};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NS};

/// One thing that happens to a small cluster.
#[derive(Clone, Debug)]
enum Happening {
    Service { name: u8, wish: u8 },
    Delete(u8),
    Stranger { name: u8, low: u8 },
    Pool(u8),
    Restart,
    Relist,
    Lag(bool),
    Fail(u8),
    Time(u16),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => (0..6_u8, 0..8_u8).prop_map(|(name, wish)| Happening::Service { name, wish }),
        2 => (0..6_u8).prop_map(Happening::Delete),
        1 => (0..6_u8, 0..5_u8).prop_map(|(name, low)| Happening::Stranger { name, low }),
        2 => (0..5_u8).prop_map(Happening::Pool),
        1 => Just(Happening::Restart),
        1 => Just(Happening::Relist),
        2 => any::<bool>().prop_map(Happening::Lag),
        1 => (0..4_u8).prop_map(Happening::Fail),
        6 => (0..200_u16).prop_map(Happening::Time),
    ]
}

fn wish(n: u8) -> Value {
    match n {
        0 => {
            json!({ "ann": { "allow-shared-ip": "k", "address-pool": null }, "ports": [80], "loadBalancerIP": null })
        }
        1 => {
            json!({ "ann": { "allow-shared-ip": "k", "address-pool": null }, "ports": [81], "loadBalancerIP": null })
        }
        2 => {
            json!({ "ann": { "allow-shared-ip": null, "address-pool": "p" }, "ports": [80], "loadBalancerIP": null })
        }
        3 => json!({ "ann": { "allow-shared-ip": null, "address-pool": null }, "loadBalancerIP": "1.2.3.1" }),
        4 => json!({ "ann": { "allow-shared-ip": null, "address-pool": "q" }, "loadBalancerIP": null }),
        5 => json!({ "type": "ClusterIP" }),
        6 => json!({ "type": "LoadBalancer" }),
        _ => json!({ "ann": { "allow-shared-ip": null, "address-pool": null }, "loadBalancerIP": null }),
    }
}

fn pool(n: u8) -> Value {
    match n {
        0 => json!({ "name": "p", "addresses": ["1.2.3.0/30"] }),
        1 => json!({ "name": "p", "addresses": ["1.2.3.0/31"] }),
        2 => json!({ "name": "p", "addresses": ["1.2.3.0/32"], "avoidBuggyIPs": true }),
        3 => json!({ "name": "q", "addresses": ["4.4.4.0/31"] }),
        _ => json!({ "name": "p", "addresses": ["1.2.3.9-1.2.3.1"] }),
    }
}

fn happen(cluster: &mut Cluster, what: &Happening) {
    let named = |name: u8| format!("s{name}");
    let there = |cluster: &Cluster, name: &str| cluster.object("services", NS, name).is_some();
    match what {
        Happening::Service { name, wish: n } => {
            let mut short = wish(*n);
            short["name"] = json!(named(*name));
            cluster.service(short);
        }
        Happening::Delete(name) => {
            cluster.delete("services", NS, &named(*name));
        }
        Happening::Stranger { name, low } => {
            if there(cluster, &named(*name)) {
                // Not an address that somebody else lists: that is the stranger's fault, not ours.
                let ip = format!("1.2.3.{low}");
                if !cluster
                    .objects("services")
                    .any(|object| object.to_string().contains(&format!("\"{ip}\"")))
                {
                    cluster.foreign_status(&named(*name), json!([ip]), "stranger");
                }
            }
        }
        Happening::Pool(n) => cluster.pool(pool(*n)),
        Happening::Restart => {
            cluster.stop();
            cluster.start();
        }
        Happening::Relist => cluster.relist(),
        Happening::Lag(lag) => {
            if *lag {
                cluster.watches_lag = true;
            } else {
                cluster.catch_up();
            }
        }
        Happening::Fail(n) => {
            let mut left = *n;
            cluster.fate = Box::new(move |request| {
                let fail = request.resource == Resource::Services && left > 0;
                left = left.saturating_sub(1);
                // A refusal: after a failure that leaves the outcome open an address may stay reserved for good.
                fail.then(|| WriteError::refused(429, "TooManyRequests", ""))
            });
        }
        Happening::Time(ms) => cluster.run_until(cluster.now + Duration::from_millis(u64::from(*ms))),
    }
}

/// Every address that two Services list which may not share it.
fn double_use(cluster: &Cluster) -> Vec<String> {
    let mut users: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for object in cluster.objects("services") {
        for entry in object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten() {
            users.entry(entry["ip"].to_string()).or_default().push(object);
        }
    }
    let key = |object: &Value| object["metadata"]["annotations"]["metallb.io/allow-shared-ip"].clone();
    let ports = |object: &Value| object["spec"]["ports"][0]["port"].clone();
    let mut found = Vec::new();
    for (ip, objects) in users {
        for (n, a) in objects.iter().enumerate() {
            for b in &objects[n + 1..] {
                if key(a).is_null() || key(a) != key(b) || ports(a) == ports(b) {
                    found.push(format!("{ip}: {} and {}", a["metadata"]["name"], b["metadata"]["name"]));
                }
            }
        }
    }
    found
}

/// ST-5: every pool whose status does not say what the Services' statuses come to.
fn miscounted(cluster: &Cluster) -> Vec<String> {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for object in cluster.objects("services") {
        for entry in object["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten() {
            // Not what the annotation says: while a pool cannot be read, what lies in it keeps any annotation it has.
            let ip = entry["ip"].to_string();
            let pool = if ip.contains("4.4.4.") { "q" } else { "p" };
            used.entry(pool.to_owned()).or_default().insert(ip);
        }
    }
    let mut found = Vec::new();
    for pool in cluster.objects("ipaddresspools") {
        let name = pool["metadata"]["name"].as_str().unwrap();
        // One that never could be read is none, and has no figures.
        let Some(shown) = cluster.counters.get(name) else { continue };
        let count = i64::try_from(used.get(name).map_or(0, BTreeSet::len)).unwrap();
        let status = (&pool["status"]["assignedIPv4"], &pool["status"]["availableIPv4"]);
        let available = shown.ipv4.capacity - count + shown.ipv4.withheld;
        if status != (&json!(count), &json!(available)) || !(0..=1).contains(&shown.ipv4.withheld) {
            found.push(format!("{name}: {count} in use, but {}", pool["status"]));
        }
    }
    found
}

fn outcome(cluster: &Cluster) -> Vec<(Value, Value, Value)> {
    let part = |object: &Value| {
        (
            object["metadata"]["name"].clone(),
            object["status"]["loadBalancer"].clone(),
            object["metadata"]["annotations"]["metallb.io/ip-allocated-from-pool"].clone(),
        )
    };
    cluster.objects("services").map(part).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_two_services_list_one_address_unless_they_may_share(
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let mut cluster = Cluster::new();
        cluster.pool(pool(0));
        for what in &happenings {
            happen(&mut cluster, what);
        }
        cluster.catch_up();
        cluster.fate = Box::new(|_| None);
        // Longer than any pause.
        cluster.run_until(cluster.now + Duration::from_secs(400));
        prop_assert_eq!(double_use(&cluster), Vec::<String>::new());
        prop_assert_eq!(miscounted(&cluster), Vec::<String>::new());
        // A full pass over the same store has nothing to add.
        let before = outcome(&cluster);
        cluster.service_writes();
        cluster.stop();
        cluster.start();
        cluster.quiet();
        prop_assert_eq!(outcome(&cluster), before);
        prop_assert_eq!(cluster.service_writes(), vec![]);
    }

    #[test]
    fn an_address_is_never_written_while_another_status_lists_it(
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let mut cluster = Cluster::new();
        cluster.pool(pool(0));
        cluster.quiet();
        for what in &happenings {
            match what {
                // Sharers may list one address, and a watch that lags hides who lists what.
                Happening::Service { wish: 0 | 1, .. } | Happening::Lag(_) => {}
                other => happen(&mut cluster, other),
            }
            cluster.run_until(cluster.now);
            prop_assert_eq!(double_use(&cluster), Vec::<String>::new());
        }
    }

    #[test]
    fn the_order_in_which_things_arrive_decides_nothing(
        services in prop::collection::vec((0..8_u8, prop::option::of(0..6_u8)), 1..8),
        first in Just([0, 1, 2, 3, 4]).prop_shuffle(),
        second in Just([0, 1, 2, 3, 4]).prop_shuffle(),
    ) {
        let run = |lists: &[usize]| {
            let mut cluster = Cluster::new();
            cluster.pool(pool(0));
            cluster.quiet();
            cluster.stop();
            for (n, (kind, low)) in services.iter().enumerate() {
                let mut short = wish(*kind);
                short["name"] = json!(format!("s{}", (n * 5) % 8));
                if let Some(low) = low {
                    short["st"] = json!([format!("1.2.3.{low}")]);
                }
                cluster.service(short);
            }
            cluster.start_in_order(lists);
            cluster.quiet();
            cluster
        };
        let (a, b) = (run(&first), run(&second));
        prop_assert_eq!(outcome(&a), outcome(&b));
        prop_assert_eq!(double_use(&a), Vec::<String>::new());
    }

    #[test]
    fn the_order_of_the_list_takes_no_address_from_anybody(
        order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
        holders in prop::collection::btree_map(0..8_usize, 0..6_u8, 1..6),
    ) {
        // AL-1, A3: whoever comes first in the list, and however old it is.
        let mut cluster = Cluster::new();
        cluster.pool(json!({ "name": "p", "addresses": ["1.2.3.0-1.2.3.3"] }));
        cluster.quiet();
        cluster.stop();
        let mut legal: BTreeMap<u8, String> = BTreeMap::new();
        for n in 0..8 {
            let name = format!("s{}", (n * 5) % 8);
            let mut short = json!({ "name": name });
            if let Some(low) = holders.get(&n) {
                short["st"] = json!([format!("1.2.3.{low}")]);
                if *low < 4 {
                    // The oldest of those who list it.
                    legal.entry(*low).or_insert(name);
                }
            }
            cluster.service(short);
        }
        cluster.start_with_services_in_order(&order);
        cluster.quiet();
        for (low, name) in legal {
            prop_assert_eq!(cluster.ips(&name), format!("1.2.3.{low}"));
        }
        let served = (0..8).filter(|n| !cluster.ips(&format!("s{n}")).is_empty()).count();
        prop_assert_eq!(served, 4, "nothing stays free while somebody waits");
    }

    #[test]
    fn services_that_come_together_are_served_as_if_they_had_been_listed(
        order in Just([0, 1, 2, 3, 4, 5, 6, 7]).prop_shuffle(),
    ) {
        let create = |cluster: &mut Cluster| {
            for n in 0..8 {
                let mut short = wish(n);
                short["name"] = json!(format!("s{n}"));
                cluster.service(short);
            }
        };
        let mut listed = Cluster::new();
        listed.pool(pool(0));
        listed.quiet();
        listed.stop();
        create(&mut listed);
        listed.start();
        listed.quiet();

        let mut watched = Cluster::new();
        watched.pool(pool(0));
        watched.quiet();
        create(&mut watched);
        watched.shuffle_inputs(&order);
        watched.quiet();
        prop_assert_eq!(outcome(&watched), outcome(&listed));
    }
}
