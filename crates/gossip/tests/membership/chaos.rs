// SPDX-License-Identifier: Apache-2.0
//! Whatever happens to a cluster: once it is left in peace, everybody sees everybody, as they are.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_gossip::wire::State;
use ferrolb_gossip::{Input, Role, Settings};

use super::network::{Network, name, ours, plain};

/// One minute of trouble, then peace; what was wrong when it should have been over.
fn trouble(seed: u64, settings: fn(usize) -> Settings) -> Network {
    let mut network = Network::new(seed);
    let count = 3 + network.random(6) as usize;
    let all: Vec<usize> = (0..count).collect();
    for &node in &all {
        network.start(node, settings(node));
    }
    network.expect_all();
    for &node in &all[1..] {
        network.join(node, &[0]);
    }
    let mut generation = 0;
    while network.now.since_start() < Duration::from_secs(60) {
        let node = network.random(count as u64) as usize;
        let other = network.random(count as u64) as usize;
        match network.random(12) {
            0 | 1 => {
                let (left, right) = all.split_at(1 + network.random(count as u64 - 1) as usize);
                network.part(left, right);
            }
            2 => drop(network.cut.insert((node, other))),
            3 => drop(network.no_datagrams.insert((node, other))),
            4 | 5 => {
                network.cut.clear();
                network.no_datagrams.clear();
            }
            6 => network.loss = network.random(40),
            7 => network.kill(node),
            8 => {
                network.input(node, Input::Leave { within: Duration::from_secs(1) });
                let pause = network.random(1500);
                network.run(Duration::from_millis(pause));
                network.kill(node);
            }
            9 | 10 => {
                // A Pod that is started where one may still be running takes its place.
                network.kill(node);
                network.start(node, Settings { role: Role::Reader, ..settings(node) });
                let there: Vec<usize> =
                    network.nodes.keys().copied().filter(|there| *there != node).collect();
                network.join(node, &there);
                let pause = network.random(300);
                network.run(Duration::from_millis(pause));
                network.input(node, Input::Participate);
                network.join(node, &there);
                network.expect_all();
            }
            _ => {
                generation += 1;
                network.input(node, Input::Metadata(format!("{generation}").as_bytes()));
            }
        }
        network.delay = 1 + network.random(100);
        let pause = network.random(6000);
        network.run(Duration::from_millis(pause));
    }
    network.cut.clear();
    network.no_datagrams.clear();
    network.loss = 0;
    network.delay = 5;
    for &node in &all {
        let gone = network.nodes.get(&node).is_none_or(|there| there.engine.member(&name(node)).is_none());
        if gone {
            network.start(node, settings(node));
        }
    }
    network.expect_all();
    network
}

/// Everybody sees everybody alive, with the incarnation and metadata that it has itself.
fn is_whole(network: &Network) -> bool {
    let own: BTreeSet<_> = network
        .nodes
        .iter()
        .filter_map(|(node, there)| there.engine.member(&name(*node)))
        .map(|own| (own.name.clone(), own.state, own.incarnation, own.meta.clone()))
        .collect();
    network.nodes.values().all(|there| {
        let seen: BTreeSet<_> = there
            .engine
            .members()
            .map(|member| (member.name.clone(), member.state, member.incarnation, member.meta.clone()))
            .collect();
        seen == own && seen.iter().all(|(_, state, ..)| *state == State::Alive)
    })
}

#[test]
fn after_any_trouble_ours_are_whole_again_and_stay_so() {
    for seed in 0..60 {
        let mut network = trouble(seed, ours);
        // Suspicions that have begun may run out first.
        let end = network.now + Duration::from_secs(40);
        let whole = network.run_until(end, is_whole);
        assert!(whole, "seed {seed}: {:#?}", view(&network));
        network.run(Duration::from_secs(5));
        network.told.clear();
        network.run(Duration::from_secs(60));
        assert!(is_whole(&network), "seed {seed}");
        assert_eq!(network.deaths(), [], "seed {seed}");
    }
}

#[test]
fn after_any_trouble_members_as_memberlist_has_them_agree_once_they_are_joined() {
    for seed in 100..130 {
        let mut network = trouble(seed, plain);
        // Nobody tries the dead again, so somebody joins everybody to everybody, as MetalLB does every minute.
        let all: Vec<usize> = network.nodes.keys().copied().collect();
        let mut whole = false;
        for _ in 0..4 {
            for &node in &all {
                network.join(node, &all);
            }
            let end = network.now + Duration::from_secs(30);
            whole = whole || network.run_until(end, is_whole);
        }
        assert!(whole, "seed {seed}: {:#?}", view(&network));
    }
}

/// Who sees whom how, where it is not as it should be.
fn view(network: &Network) -> Vec<String> {
    network
        .nodes
        .iter()
        .flat_map(|(node, there)| {
            there.engine.members().map(move |member| {
                format!(
                    "{node} sees {} {:?} {} {:?}",
                    member.name, member.state, member.incarnation, member.meta
                )
            })
        })
        .collect()
}
