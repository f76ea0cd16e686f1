// SPDX-License-Identifier: Apache-2.0
//! Dying, sleeping, being cut off, and coming back.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_speaker_core::wire::Input;

use super::network::Network;
use super::{millis, seconds};

#[test]
fn go_2_a_killed_speaker_s_addresses_move_within_memberlists_bound_and_no_others() {
    for seed in 0..20 {
        let mut network = Network::settled(seed, 3, 12);
        let before = network.owners();
        network.kill(2);
        let moved = |network: &Network| network.owners() == network.rightful();
        assert!(network.run_until(seconds(8), moved), "seed {seed}");
        network.run(seconds(30));
        for span in network.spans() {
            let kept = !before[&span.address].contains(&2);
            assert!(!kept || span.owners == before[&span.address], "seed {seed}: {span:?}");
        }
    }
}

#[test]
fn who_restarts_and_cannot_read_the_api_is_taken_over_from_and_comes_back_with_it() {
    for seed in 0..10 {
        let mut network = Network::settled(seed, 3, 12);
        network.kill(0);
        network.run(millis(300));
        network.start_with(0, None);
        let others = [1, 2].into();
        let taken = |network: &Network| network.owners() == network.rightful_among(&others);
        assert!(network.run_until(seconds(8), taken), "seed {seed}: {:?}", network.owners());
        network.run(seconds(30));
        assert!(taken(&network), "seed {seed}");
        let peers = network.peers(0);
        network.input(0, Input::Peers(&peers));
        network.run(seconds(2));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
    }
}

#[test]
fn a_quick_restart_moves_nothing() {
    for seed in 0..10 {
        let mut network = Network::settled(seed, 3, 12);
        let before = network.owners();
        network.kill(0);
        network.run(millis(1000));
        network.start(0);
        network.run(seconds(30));
        assert_eq!(network.owners(), before, "seed {seed}");
        for span in network.spans() {
            let own = before[&span.address].contains(&0);
            assert!(
                span.owners == before[&span.address] || own && span.owners.is_empty(),
                "seed {seed}: {span:?}"
            );
        }
        assert!(network.longest_dark() <= millis(1100), "seed {seed}: {:?}", network.longest_dark());
    }
}

#[test]
fn go_1_halves_that_were_apart_are_one_within_a_second_and_have_one_owner() {
    for seed in 0..20 {
        let mut network = Network::settled(seed, 5, 20);
        network.tear(&[0, 1], &[2, 3, 4]);
        network.run(seconds(120));
        for half in [[0, 1].as_slice(), &[2, 3, 4]] {
            let rightful = network.rightful_among(&half.iter().copied().collect());
            for (address, owner) in rightful {
                assert!(
                    network.owners()[&address].is_superset(&owner),
                    "seed {seed}: cut off, each half serves"
                );
            }
        }
        network.heal();
        let healed = network.now;
        let one = |network: &Network| network.owners() == network.rightful();
        assert!(network.run_until(seconds(1), one), "seed {seed}: {:?}", network.owners());
        let took = network.now - healed;
        network.run(seconds(60));
        assert!(one(&network), "seed {seed}, after {took:?}");
        // In the other half neighbours look for it where it was.
        for (address, owners) in network.owners() {
            let said = network
                .gratuitous
                .iter()
                .any(|(at, node, ip)| *at >= healed && owners.contains(node) && *ip == address);
            assert!(said, "seed {seed}: {address} of {owners:?}");
        }
        let late = network.spans().into_iter().filter(|span| span.to > healed + seconds(1));
        for span in late {
            assert_eq!(span.owners.len(), 1, "seed {seed}: {span:?}");
        }
    }
}

#[test]
fn who_comes_back_from_isolation_exchanges_state_before_it_answers() {
    for seed in 0..15 {
        let mut network = Network::settled(seed, 3, 12);
        // Its cable is pulled, and plugged in again.
        network.part(&[0], &[1, 2]);
        network.off_segment.insert(0);
        network.run(seconds(60));
        assert!(network.owners().values().all(|owners| owners.contains(&0)), "alone it leads everything");
        network.cut.clear();
        network.off_segment.clear();
        let healed = network.now;
        let one = |network: &Network| network.owners() == network.rightful();
        assert!(network.run_until(seconds(1), one), "seed {seed}: {:?}", network.owners());
        network.run(seconds(30));
        for (address, owners) in network.owners() {
            let said =
                |(at, node, ip): &(_, usize, _)| *at >= healed && owners.contains(node) && *ip == address;
            assert!(network.gratuitous.iter().any(said), "seed {seed}: {address} of {owners:?}");
        }
        for span in network.spans().into_iter().filter(|span| span.to > healed + seconds(1)) {
            assert_eq!(span.owners.len(), 1, "seed {seed}: {span:?}");
        }
    }
}

#[test]
fn a_process_that_slept_answers_nothing_until_a_member_has_acknowledged_it() {
    for seed in 0..15 {
        for slept in [5, 20, 300] {
            let mut network = Network::settled(seed, 3, 12);
            network.freeze(0);
            network.run(seconds(slept));
            network.forget();
            network.thaw(0);
            network.run(seconds(20));
            assert_eq!(network.owners(), network.rightful(), "seed {seed}, {slept} s");
            // The others announce nothing anew: nobody answered beside them.
            assert!(network.gratuitous.iter().all(|(_, node, _)| *node == 0), "seed {seed}, {slept} s");
            assert!(network.longest_double() <= millis(50), "seed {seed}, {slept} s: {:?}", network.spans());
        }
    }
}

#[test]
fn a_process_that_slept_and_reaches_nobody_is_silent_until_nobody_is_left_to_ask() {
    let mut network = Network::settled(1, 3, 6);
    network.freeze(0);
    network.run(seconds(60));
    network.part(&[0], &[1, 2]);
    let woken = network.now;
    network.thaw(0);
    network.run(seconds(3));
    assert!(network.owners().values().all(|owners| !owners.contains(&0)));
    assert!(!network.told[&0].eligible);
    assert!(network.run_until(seconds(60), |network| network.told[&0].eligible));
    assert!(network.now - woken >= seconds(5), "not before it has held them for dead");
    assert!(network.owners().values().all(|owners| owners.contains(&0)));
}

#[test]
fn a_process_that_slept_answers_again_although_it_can_open_no_streams() {
    for seed in 0..5 {
        let mut network = Network::settled(seed, 3, 12);
        network.no_streams.extend([(0, 1), (0, 2)]);
        for slept in [5, 60] {
            network.freeze(0);
            network.run(seconds(slept));
            network.thaw(0);
            network.forget();
            assert!(
                network.run_until(seconds(40), |network| network.owners() == network.rightful()),
                "seed {seed}, {slept} s: {:?}",
                network.owners()
            );
            network.run(seconds(40));
            assert_eq!(network.owners(), network.rightful(), "seed {seed}, {slept} s");
        }
    }
}

#[test]
fn where_nobody_is_probed_nobody_is_held_for_dead_and_a_timer_that_is_late_is_no_sleep() {
    let mut network = Network::new(3, 3, 12);
    network.probe_interval = Some(Duration::ZERO);
    (0..3).for_each(|node| network.start(node));
    network.run(seconds(15));
    network.forget();
    for slept in [3, 60] {
        network.freeze(0);
        network.run(seconds(slept));
        network.thaw(0);
        network.forget();
        network.run(seconds(5));
        assert_eq!((network.longest_dark(), network.gratuitous.len()), (millis(0), 0), "{slept} s");
        assert_eq!(network.owners(), network.rightful());
    }
}

#[test]
fn alone_or_for_a_moment_a_process_may_sleep() {
    let mut network = Network::settled(1, 1, 3);
    network.freeze(0);
    network.run(seconds(600));
    network.thaw(0);
    network.forget();
    network.run(seconds(5));
    assert_eq!((network.longest_dark(), network.gratuitous.len()), (millis(0), 0));

    let mut network = Network::settled(1, 3, 6);
    network.freeze(0);
    network.run(seconds(3));
    network.thaw(0);
    network.forget();
    network.run(seconds(30));
    assert_eq!(
        (network.longest_dark(), network.longest_double(), network.gratuitous.len()),
        (millis(0), millis(0), 0)
    );
}

#[test]
fn who_hears_and_is_not_heard_does_not_begin_again_and_again() {
    let mut network = Network::settled(2, 3, 12);
    network.part(&[0], &[1, 2]);
    network.run(seconds(60));
    // Only what the others send arrives.
    network.cut.retain(|(from, _)| *from == 0);
    network.forget();
    network.run(seconds(120));
    let own: BTreeSet<_> =
        network.gratuitous.iter().filter(|(_, node, _)| *node == 0).map(|(time, ..)| *time).collect();
    // Bursts of five rounds each; once more at each of the few times that it believes to have found somebody.
    assert!(own.len() <= 60, "{}", own.len());
    network.cut.clear();
    network.run(seconds(2));
    assert_eq!(network.owners(), network.rightful());
}

#[test]
fn after_any_trouble_there_is_one_owner_for_each_address() {
    for seed in 0..15 {
        let mut network = Network::settled(seed, 5, 15);
        for _ in 0..12 {
            let (node, other) = (network.random(5) as usize, network.random(5) as usize);
            match network.random(6) {
                0 if network.told.len() > 2 => network.kill(node),
                1 if !network.told.contains_key(&node) => network.start(node),
                2 => {
                    network.freeze(node);
                    let time = network.random(20);
                    network.run(seconds(time));
                    network.thaw(node);
                }
                3 if node != other => network.part(&[node], &[other]),
                4 => {
                    network.cut.insert((node, other));
                }
                _ => network.cut.clear(),
            }
            let time = network.random(15_000);
            network.run(millis(time));
        }
        network.cut.clear();
        for node in 0..5 {
            if !network.told.contains_key(&node) {
                network.start(node);
            }
        }
        network.run(seconds(30));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        network.forget();
        network.run(seconds(120));
        assert!(network.spans().iter().all(|span| span.owners.len() == 1), "seed {seed}");
        assert_eq!(network.gratuitous.len(), 0, "seed {seed}");
    }
}

/// Starts a speaker that goes on from what was kept, without the API.
fn resume(network: &mut Network, node: usize) {
    network.planned = false;
    network.start_with(node, None);
    network.planned = true;
    network.input(node, Input::Api { working: false });
    network.plan_now(node);
    let peers = network.peers(node);
    network.input(node, Input::Peers(&peers));
}

#[test]
fn who_resumes_without_the_api_after_it_was_given_up_never_leads_what_others_have() {
    for seed in 0..20 {
        let mut network = Network::settled(seed, 3, 12);
        network.kill(0);
        network.run(seconds(20));
        let taken = network.owners();
        assert_eq!(taken, network.rightful());
        network.forget();
        resume(&mut network, 0);
        network.run(seconds(30));
        assert_eq!(network.owners(), taken, "seed {seed}");
        assert!(network.spans().iter().all(|span| span.owners == taken[&span.address]), "seed {seed}");
        assert_eq!(network.gratuitous, [], "seed {seed}");
        network.input(0, Input::Api { working: true });
        network.run(seconds(5));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
    }
}

#[test]
fn who_resumes_without_the_api_before_it_is_given_up_leads_on_until_all_know_that_it_is_stale() {
    for seed in 0..20 {
        let mut network = Network::settled(seed, 3, 12);
        let before = network.owners();
        network.kill(0);
        network.run(millis(500));
        network.forget();
        resume(&mut network, 0);
        network.run(seconds(1));
        assert_eq!(network.owners(), before, "seed {seed}");
        network.run(seconds(30));
        let others = network.rightful_among(&[1, 2].into());
        assert_eq!(network.owners(), others, "seed {seed}");
        assert!(network.longest_dark() <= millis(50), "seed {seed}: {:?}", network.longest_dark());
    }
}

#[test]
fn where_nobody_has_the_api_whoever_resumes_leads_what_it_led() {
    for seed in 0..20 {
        let mut network = Network::settled(seed, 3, 12);
        let before = network.owners();
        (0..3).for_each(|node| network.input(node, Input::Api { working: false }));
        network.run(seconds(30));
        network.kill(0);
        network.run(seconds(20));
        network.forget();
        resume(&mut network, 0);
        network.run(seconds(30));
        assert_eq!(network.owners(), before, "seed {seed}");
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
    }
}
