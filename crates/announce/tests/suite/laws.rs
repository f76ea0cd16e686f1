// SPDX-License-Identifier: Apache-2.0
//! Laws of the plan: deciding only what changed gives what a full pass gives; every node names the same owner; a
//! node that leaves or joins moves nothing but its own addresses; beside MetalLB's speakers no address has two owners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_announce::{
    Endpoint, Ingress, Inputs, Members, Node, NodePlan, Service, Settings, Standing, metallb, owner, plan,
};
use ferrolb_config::{Config, L2Advertisement, Pool};
use ferrolb_net_types::{Interfaces, NodeName, PoolName, ServiceKey};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];

fn nodes() -> impl Strategy<Value = BTreeSet<NodeName>> {
    btree_set(prop::sample::select(&NODES[..]).prop_map(NodeName::from), 0..=4)
}

fn services() -> impl Strategy<Value = BTreeMap<ServiceKey, Service>> {
    let key = (0..6_u8).prop_map(|n| ServiceKey::new("default", &format!("s{n}")));
    btree_map(key, service(), 0..6)
}

fn service() -> impl Strategy<Value = Service> {
    // Few addresses, so that many share; 5 lies in no pool, 6 is a host name.
    let entry = (0..=6_u8).prop_map(|n| match n {
        6 => Ingress::Hostname("lb.example".into()),
        n => Ingress::Ip([10, 0, 0, n].into()),
    });
    let ips = vec(entry, 0..3);
    (any::<bool>(), prop::bool::weighted(0.9), 0..3_i64, ips, nodes()).prop_map(
        |(local, load_balancer, created, ingress, nodes)| Service {
            load_balancer,
            created,
            ingress,
            local,
            endpoints: nodes
                .iter()
                .map(|n| Endpoint { node: Some(n.as_str()), ..Endpoint::default() })
                .collect(),
            ..Service::default()
        },
    )
}

fn config() -> impl Strategy<Value = Config> {
    let ad = (nodes(), any::<bool>(), 0..3_u32).prop_map(|(nodes, all, weight)| {
        Arc::new(L2Advertisement {
            name: "ad".into(),
            preferences: nodes.first().map(|n| (n.clone(), weight)).into_iter().collect(),
            interfaces: if all { Interfaces::All } else { Interfaces::Named(["eth0".into()].into()) },
            nodes,
            service_selectors: Vec::new(),
        })
    });
    vec(ad, 0..3).prop_map(|l2_advertisements| {
        let pool = Pool {
            name: PoolName::from("p"),
            blocks: vec!["10.0.0.0/30".parse().unwrap(), "10.0.0.4/32".parse().unwrap()],
            auto_assign: true,
            avoid_buggy_ips: false,
            allocation: None,
            l2_advertisements,
        };
        Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() }
    })
}

fn states() -> impl Strategy<Value = BTreeMap<NodeName, Node>> {
    let state = (prop::bool::weighted(0.2), prop::bool::weighted(0.2))
        .prop_map(|(excluded, network_unavailable)| Node { excluded, network_unavailable });
    vec(state, 4).prop_map(|states| NODES.into_iter().map(NodeName::from).zip(states).collect())
}

#[derive(Debug)]
struct World {
    config: Config,
    nodes: BTreeMap<NodeName, Node>,
    services: BTreeMap<ServiceKey, Service>,
}

impl World {
    fn inputs<'a>(&'a self, node: &'a NodeName, settings: &'a Settings) -> Inputs<'a> {
        Inputs { node, config: &self.config, nodes: &self.nodes, services: &self.services, settings }
    }
}

fn world() -> impl Strategy<Value = World> {
    (config(), states(), services()).prop_map(|(config, nodes, services)| World { config, nodes, services })
}

proptest! {
    #[test]
    fn deciding_what_changed_equals_deciding_everything(mut world in world(), next in vec(services(), 1..4)) {
        let (node, settings) = (NodeName::from("n0"), Settings::default());
        let mut incremental = plan(&world.inputs(&node, &settings));
        for services in next {
            let before = std::mem::replace(&mut world.services, services);
            let keys: BTreeSet<_> = before.keys().chain(world.services.keys()).collect();
            let changed: Vec<_> = keys
                .into_iter()
                .filter(|key| before.get(*key) != world.services.get(*key))
                .cloned()
                .collect();
            let former = incremental.clone();
            let moved = incremental.replan(&world.inputs(&node, &settings), &changed);
            prop_assert_eq!(&incremental, &plan(&world.inputs(&node, &settings)));
            assert_reported(&former, &incremental, &moved)?;
        }
    }

    #[test]
    fn a_pass_over_everything_repairs_a_plan_of_other_nodes_and_settings(first in world(), second in world()) {
        let (node, settings) = (NodeName::from("n0"), Settings::default());
        let mut repaired = plan(&first.inputs(&node, &settings));
        let keys: BTreeSet<_> = first.services.keys().chain(second.services.keys()).collect();
        repaired.replan(&second.inputs(&node, &settings), keys);
        prop_assert_eq!(repaired, plan(&second.inputs(&node, &settings)));
    }

    #[test]
    fn every_node_names_the_same_owner_and_the_owner_may_announce(world in world(), members in nodes()) {
        let (settings, members) = (Settings::default(), ours(&members));
        let plans: Vec<_> = NODES
            .into_iter()
            .map(NodeName::from)
            .map(|node| (plan(&world.inputs(&node, &settings)), node))
            .collect();
        for (ip, address) in plans[0].0.addresses.iter() {
            let named = owner(address, &members);
            for (plan, node) in &plans {
                prop_assert_eq!(owner(&plan.addresses[ip], &members), named);
                let announced = address.services.iter().any(|service| {
                    plan.verdict(node, service, &members).is_ok_and(|ips| ips.contains(ip))
                });
                prop_assert_eq!(announced, named == Some(node), "{} on {}", ip, node);
            }
        }
    }

    #[test]
    fn beside_speakers_of_metallb_there_is_one_owner(world in world(), mixture in mixture()) {
        let (settings, members) = (Settings::default(), Members::Known(mixture.clone()));
        let anywhere = NodeName::from("n0");
        let inputs = world.inputs(&anywhere, &settings);
        let plans: BTreeMap<_, _> =
            mixture.keys().map(|node| (node, plan(&world.inputs(node, &settings)))).collect();
        let addresses: BTreeSet<_> = plans.values().flat_map(|plan| plan.addresses.keys()).copied().collect();
        for ip in addresses {
            let holders = || world.services.values().filter(|s| s.ingress.contains(&Ingress::Ip(ip)));
            let theirs: BTreeSet<&NodeName> = holders()
                .filter_map(|service| metallb::leader(&inputs, service, &members))
                .filter(|leader| mixture[*leader] == Standing::Metallb)
                .collect();
            let answering: BTreeSet<&NodeName> = mixture
                .iter()
                .filter(|(node, standing)| match standing {
                    Standing::Metallb => holders().any(|service| {
                        metallb::verdict(&world.inputs(node, &settings), service, &members) == Ok(())
                    }),
                    _ => owner(&plans[node].addresses[&ip], &members) == Some(*node),
                })
                .map(|(node, _)| node)
                .collect();
            if !theirs.is_empty() {
                // Ours are silent; several of theirs are MetalLB's own fault.
                prop_assert_eq!(&answering, &theirs, "{}", ip);
                continue;
            }
            let able = |wanted| {
                mixture.iter().any(|(node, standing)| {
                    *standing == wanted && plans[node].addresses[&ip].candidates.contains(node)
                })
            };
            let expected = match (able(Standing::Ours), able(Standing::Stale)) {
                (true, _) => vec![Standing::Ours],
                (false, true) => vec![Standing::Stale],
                (false, false) => vec![],
            };
            let standings: Vec<_> = answering.iter().map(|node| mixture[*node]).collect();
            prop_assert_eq!(standings, expected, "{}: {:?}", ip, answering);
        }
    }

    #[test]
    fn a_leaving_node_moves_only_what_it_led(world in world(), leaving in 0..4_usize) {
        let (node, settings) = (NodeName::from("n0"), Settings::default());
        let all: BTreeSet<NodeName> = NODES.into_iter().map(NodeName::from).collect();
        let mut rest = all.clone();
        rest.remove(NODES[leaving]);
        for address in plan(&world.inputs(&node, &settings)).addresses.values() {
            let before = owner(address, &ours(&all));
            let after = owner(address, &ours(&rest));
            prop_assert!(before == after || before.map(NodeName::as_str) == Some(NODES[leaving]));
        }
    }
}

fn ours(nodes: &BTreeSet<NodeName>) -> Members {
    nodes.iter().map(|node| (node.clone(), Standing::Ours)).collect()
}

fn mixture() -> impl Strategy<Value = BTreeMap<NodeName, Standing>> {
    let standing = prop::sample::select(
        &[None, Some(Standing::Metallb), Some(Standing::Ours), Some(Standing::Stale)][..],
    );
    vec(standing, 4).prop_map(|standings| {
        let nodes = NODES.into_iter().map(NodeName::from);
        nodes.zip(standings).filter_map(|(node, standing)| Some((node, standing?))).collect()
    })
}

/// The addresses reported as changed are exactly those that differ, and the others kept their allocation.
fn assert_reported(
    before: &NodePlan,
    after: &NodePlan,
    reported: &BTreeSet<std::net::IpAddr>,
) -> Result<(), TestCaseError> {
    for ip in before.addresses.keys().chain(after.addresses.keys()) {
        let (old, new) = (before.addresses.get(ip), after.addresses.get(ip));
        prop_assert_eq!(reported.contains(ip), old != new, "{}", ip);
        if let (Some(old), Some(new), false) = (old, new, reported.contains(ip)) {
            prop_assert!(Arc::ptr_eq(old, new), "{}", ip);
        }
    }
    Ok(())
}
