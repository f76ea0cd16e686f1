// SPDX-License-Identifier: Apache-2.0
//! Starting and stopping: nobody claims what is another's, nothing goes unanswered.

use std::collections::BTreeSet;

use ferrolb_speaker_core::wire::{Input, Peer};

use super::network::Network;
use super::numbers::{address, name};
use super::{millis, seconds};

#[test]
fn who_is_alone_answers_at_once_and_who_knows_of_nobody_never() {
    let mut network = Network::new(1, 1, 3);
    network.start_with(0, None);
    network.run(seconds(60));
    assert_eq!(network.longest_dark(), seconds(60));
    assert!(!network.told[&0].eligible);
    network.input(0, Input::Peers(&[]));
    assert_eq!(network.owners(), network.rightful());
    assert!(network.told[&0].eligible);
}

#[test]
fn s30_a_fresh_speaker_claims_nothing_that_another_leads() {
    for seed in 0..30 {
        let mut network = Network::settled(seed, 3, 12);
        network.kill(1);
        network.run(seconds(20));
        network.forget();
        let before = network.owners();
        network.start(1);
        assert!(
            network.run_until(seconds(1), |network| network.told.get(&1).is_some_and(|told| told.eligible))
        );
        network.run(seconds(10));
        let after = network.owners();
        assert_eq!(after, network.rightful(), "seed {seed}");
        for span in network.spans() {
            let right = [&before[&span.address], &after[&span.address]];
            let owners = right.iter().copied().flatten().copied().collect::<BTreeSet<_>>();
            assert!(span.owners.is_subset(&owners), "seed {seed}: {span:?}");
        }
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
        assert!(network.longest_double() <= millis(50), "seed {seed}: {:?}", network.longest_double());
    }
}

#[test]
fn all_that_start_together_never_have_a_wrong_owner() {
    for seed in 0..30 {
        let nodes = [2, 3, 10][seed as usize % 3];
        let mut network = Network::new(seed, nodes, 20);
        for node in 0..nodes {
            network.start(node);
            let pause = network.random(30);
            network.run(millis(pause));
        }
        network.run(seconds(10));
        let rightful = network.rightful();
        assert_eq!(network.owners(), rightful, "seed {seed}");
        for span in network.spans() {
            assert!(span.owners.is_subset(&rightful[&span.address]), "seed {seed}: {span:?}");
        }
        assert!(network.longest_dark() <= seconds(1), "seed {seed}: {:?}", network.longest_dark());
    }
}

#[test]
fn two_of_three_that_restart_together_are_found_by_all() {
    for seed in 0..30 {
        let mut network = Network::settled(seed, 3, 12);
        network.input(0, Input::Stop);
        network.input(1, Input::Stop);
        network.run(seconds(2));
        network.forget();
        network.start(0);
        let pause = network.random(30);
        network.run(millis(pause));
        network.start(1);
        network.run(seconds(2));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        network.run(seconds(60));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert!(network.longest_double() <= millis(50), "seed {seed}: {:?}", network.longest_double());
        assert!(network.longest_dark() <= millis(50), "seed {seed}: {:?}", network.longest_dark());
    }
}

#[test]
fn who_has_no_plan_reads_and_is_nobodys_candidate_until_it_has_one() {
    for seed in 0..10 {
        let mut network = Network::settled(seed, 3, 12);
        network.kill(1);
        network.run(seconds(20));
        network.forget();
        let before = network.owners();
        network.planned = false;
        network.start(1);
        assert!(network.run_until(seconds(1), |network| network.told[&1].heard), "seed {seed}");
        network.run(seconds(60));
        assert!(!network.told[&1].eligible, "seed {seed}");
        assert_eq!(network.members(1), [name(0), name(2)].into(), "it knows the others");
        assert_eq!(network.members(0), [name(0), name(2)].into(), "and they do not count on it");
        assert_eq!((network.owners(), network.longest_dark()), (before, millis(0)), "seed {seed}");

        // Who goes meanwhile is noticed, too.
        network.input(2, Input::Stop);
        network.run(seconds(12));
        assert_eq!(network.members(1), [name(0)].into(), "seed {seed}");
        // It waits once more for the one that is awaited and no longer answers.
        network.plan_now(1);
        assert!(network.run_until(seconds(6), |network| network.told[&1].eligible), "seed {seed}");
    }
}

#[test]
fn an_awaited_speaker_that_is_silent_is_waited_for_five_seconds_and_others_are_not() {
    for (awaited, least, most) in [(true, 5000, 5000), (false, 0, 20)] {
        let mut network = Network::settled(3, 3, 6);
        network.kill(1);
        network.kill(2);
        network.run(seconds(20));
        network.part(&[1], &[2]);
        let peers = [
            Peer { node: name(0), address: address(0), awaited: true },
            Peer { node: name(2), address: address(2), awaited },
        ];
        let began = network.now;
        network.start_with(1, Some(&peers));
        assert!(
            network.run_until(seconds(10), |network| network.told.get(&1).is_some_and(|told| told.eligible))
        );
        let took = network.now - began;
        assert!((millis(least)..=millis(most)).contains(&took), "awaited {awaited}: {took:?}");
    }
}

#[test]
fn go_11_a_stop_hands_over_without_a_gap() {
    for seed in 0..30 {
        let mut network = Network::settled(seed, 3, 12);
        let before = network.owners();
        network.input(1, Input::Stop);
        let began = network.now;
        assert!(network.run_until(seconds(1), |network| network.stopped.contains_key(&1)), "seed {seed}");
        assert!(network.now - began <= millis(600), "seed {seed}: {:?}", network.now - began);
        network.run(seconds(60));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
        assert!(network.longest_double() <= millis(50), "seed {seed}: {:?}", network.longest_double());
        // Nothing else moves, and nothing else is announced.
        for (_, node, address) in &network.gratuitous {
            assert!(before[address].contains(&1), "seed {seed}: {node} announced {address}");
        }
    }
}

#[test]
fn a_stop_without_heirs_is_over_at_once_and_with_a_silent_one_after_half_a_second() {
    let mut network = Network::settled(1, 1, 3);
    network.input(0, Input::Stop);
    assert!(network.stopped.contains_key(&0));

    let mut network = Network::settled(1, 2, 6);
    network.off_segment.insert(1);
    let began = network.now;
    network.input(0, Input::Stop);
    assert!(network.run_until(seconds(1), |network| network.stopped.contains_key(&0)));
    let took = network.now - began;
    assert!((millis(500)..=millis(600)).contains(&took), "{took:?}");

    // A reader was never there.
    let mut network = Network::settled(1, 2, 6);
    network.kill(1);
    network.start_with(1, None);
    network.input(1, Input::Stop);
    assert!(network.stopped.contains_key(&1));
}

#[test]
fn a_heir_of_metallbs_that_keeps_silent_is_given_less_time() {
    let answered = |network: &Network| network.owners().values().filter(|owners| owners.contains(&0)).count();
    let mut network = Network::new(1, 2, 12);
    network.start(0);
    network.run(seconds(15));
    assert_eq!(answered(&network), 12);
    // It never announces, as if it had just before.
    network.start_plain(1, 0);
    assert!(network.run_until(seconds(5), |network| {
        network.told.get(&0).is_some_and(|told| told.members.any_metallb())
    }));
    network.run(millis(55));
    let kept = answered(&network);
    assert!((1..12).contains(&kept), "{kept}");
    network.run(seconds(2));
    assert_eq!(answered(&network), kept, "nothing more was to be given up");

    network.input(0, Input::Stop);
    network.run(millis(90));
    assert_eq!(answered(&network), kept, "it has to hear of that first");
    network.run(millis(20));
    assert_eq!(answered(&network), 0);
}

#[test]
fn addresses_that_a_plan_moves_are_handed_over_and_those_it_drops_are_dropped() {
    let mut network = Network::settled(5, 3, 8);
    let before = network.owners();
    for node in 0..3 {
        network.set_addresses(node, 4);
        network.run(millis(7));
    }
    let after = network.owners();
    for (address, owners) in before {
        let kept = network.rightful().contains_key(&address);
        assert_eq!(after[&address], if kept { owners } else { BTreeSet::new() }, "{address}");
    }
}

#[test]
fn a_change_of_membership_announces_nothing_that_does_not_move() {
    let mut network = Network::settled(6, 4, 20);
    network.kill(3);
    network.run(seconds(20));
    network.start(3);
    network.run(seconds(20));
    network.forget();
    // Known again to all, and gone again.
    let before = network.owners();
    network.kill(3);
    network.run(seconds(30));
    for (_, node, address) in &network.gratuitous {
        assert!(before[address].contains(&3), "{node} announced {address}");
    }
}

/// A member that listens on all addresses of a host with several says of itself what may not be its Pod's.
#[test]
fn a_member_at_another_address_than_its_pod_is_no_missing_one() {
    let mut network = Network::new(5, 3, 6);
    network.elsewhere.extend([1, 2]);
    (0..3).for_each(|node| network.start(node));
    network.run(seconds(15));
    assert_eq!(network.owners(), network.rightful());
    network.streams = 0;
    network.run(seconds(60));
    // Everything is exchanged with somebody every 30 s, and nobody is joined again every 2 s.
    assert!(network.streams <= 9, "{}", network.streams);
    // Its Pod is where it is looked for once it is none, and it is one again as soon as it is back.
    network.kill(1);
    network.run(seconds(20));
    assert_eq!(network.owners(), network.rightful());
    network.start(1);
    network.run(seconds(8));
    assert_eq!(network.owners(), network.rightful());
    network.part(&[2], &[0, 1]);
    network.run(seconds(60));
    network.heal();
    network.run(seconds(2));
    assert_eq!(network.owners(), network.rightful());
}
