// SPDX-License-Identifier: Apache-2.0
//! What a speaker without the API goes on answering for, though others know better, or do not.

use std::sync::Arc;

use ferrolb_announce::AddressPlans;
use ferrolb_speaker_core::wire::Input;

use super::network::Network;
use super::numbers::name;
use super::{millis, seconds};

/// The plan of a node for six addresses, of which only node 0 can announce the first three, and one is gone.
fn plan(network: &Network, node: usize, gone: Option<usize>) -> Arc<AddressPlans> {
    let mut plan = AddressPlans::clone(&network.plan(node, 6));
    for number in 0..3 {
        let ip = network.vip(number);
        let mut address = plan.get(&ip).unwrap().as_ref().clone();
        address.candidates = [name(0)].into();
        plan.insert(ip, Arc::new(address));
    }
    if let Some(number) = gone {
        plan.remove(&network.vip(number));
    }
    Arc::new(plan)
}

/// Three nodes with such plans.
fn network(seed: u64) -> Network {
    let mut network = Network::settled(seed, 3, 6);
    for node in 0..3 {
        let plan = plan(&network, node, None);
        network.input(node, Input::Plan(plan));
    }
    network.run(seconds(5));
    network
}

fn change(network: &mut Network, nodes: &[usize], gone: Option<usize>) {
    for node in nodes {
        let plan = plan(network, *node, gone);
        network.input(*node, Input::Plan(plan));
    }
}

fn answers(network: &Network, number: usize) -> Vec<usize> {
    let owners = network.owners();
    owners.get(&network.vip(number)).into_iter().flatten().copied().collect()
}

#[test]
fn of_what_nobody_else_can_announce_only_what_is_gone_falls_silent_l2_19() {
    for seed in 0..10 {
        let mut network = network(seed);
        for number in 0..3 {
            assert_eq!(answers(&network, number), [0], "seed {seed}");
        }
        // It has heard nothing for 13 s, and does not hear that a Service is deleted.
        network.input(0, Input::Api { working: false });
        network.run(seconds(2));
        change(&mut network, &[1, 2], Some(1));
        network.forget();
        assert!(
            network.run_until(millis(17_000), |network| answers(network, 1).is_empty()),
            "seed {seed}: nobody answers half a minute after it was heard last"
        );
        network.run(seconds(60));
        assert_eq!(answers(&network, 1), [0; 0], "seed {seed}");
        for number in [0, 2] {
            let spans = network.spans();
            let ip = network.vip(number);
            assert!(spans.iter().all(|span| span.address != ip || span.owners == [0].into()), "seed {seed}");
        }
        // Another one goes.
        change(&mut network, &[1, 2], Some(2));
        assert!(network.run_until(millis(3_100), |network| answers(network, 2).is_empty()), "seed {seed}");
        assert!(
            network.run_until(millis(3_100), |network| answers(network, 1) == [0]),
            "seed {seed}: it is again"
        );
    }
}

#[test]
fn what_others_have_said_is_gone_stays_so_when_they_lose_the_api_and_until_it_was_read_again() {
    for seed in 0..10 {
        let mut network = network(seed);
        network.input(0, Input::Api { working: false });
        change(&mut network, &[1, 2], Some(1));
        network.run(seconds(25));
        assert_eq!(answers(&network, 1), [0; 0], "seed {seed}");
        network.forget();
        for node in [1, 2] {
            network.input(node, Input::Api { working: false });
        }
        network.run(seconds(60));
        assert_eq!(answers(&network, 1), [0; 0], "seed {seed}");
        for node in 0..3 {
            network.input(node, Input::Api { working: true });
        }
        network.run(seconds(2));
        let late = network.vip(1);
        assert!(
            network.spans().iter().all(|span| span.address != late || span.owners.is_empty()),
            "seed {seed}"
        );
        change(&mut network, &[0], Some(1));
        network.run(seconds(30));
        assert_eq!(answers(&network, 1), [0; 0], "seed {seed}");
        // One of that address comes.
        change(&mut network, &[0, 1, 2], None);
        network.run(seconds(1));
        assert_eq!(answers(&network, 1), [0], "seed {seed}");
    }
}

#[test]
fn where_nobody_has_the_api_everything_is_as_it_was() {
    let mut network = network(3);
    for node in 0..3 {
        network.input(node, Input::Api { working: false });
    }
    change(&mut network, &[1, 2], Some(1));
    network.forget();
    network.run(seconds(120));
    assert_eq!(answers(&network, 1), [0]);
    assert_eq!(network.longest_dark(), millis(0));
    assert_eq!(network.gratuitous, []);
}
