// SPDX-License-Identifier: Apache-2.0
//! Going, being away, and coming back, as ours do it.

use std::time::Duration;

use ferrolb_gossip::{Change, Input, Role};
use ferrolb_net_types::Time;

use super::network::{Network, Told, address, name, ours, plain};
use super::seconds;

#[test]
fn go_11_a_goodbye_of_ours_reaches_everybody_within_milliseconds() {
    for count in [2, 3, 10, 30] {
        let mut network = Network::settled(7, count, ours);
        let asked = network.now;
        network.input(1, Input::Leave { within: seconds(1) });
        let left = Told::Member(Change::Left, name(1));
        let all = |network: &Network| (0..count).all(|node| network.first(node, &left).is_some());
        assert!(network.run_until(asked + Duration::from_millis(5), all), "{count} members");
        // It is gossiped as well, since a datagram may be lost.
        assert!(network.run_until(asked + seconds(1), |network| network.first(1, &Told::Left).is_some()));
    }
}

#[test]
fn who_left_and_returns_reads_at_first_and_is_a_member_again_above_its_goodbye() {
    for settings in [plain, ours] {
        let mut network = Network::settled(8, 3, settings);
        network.expect_all();
        network.input(1, Input::Leave { within: seconds(1) });
        network.run(seconds(5));
        network.input(1, Input::Return);
        assert_eq!(network.nodes[&1].engine.role(), Role::Reader);
        assert!(network.nodes[&1].engine.member(&name(1)).is_none());
        network.told.clear();
        network.join(1, &[0, 2]);
        network.run(seconds(5));
        let seen = |network: &Network, node: usize| network.seen_by(node).contains(&name(1));
        assert!(!seen(&network, 0) && !seen(&network, 2), "a reader is not seen");
        network.input(1, Input::Participate);
        network.join(1, &[0, 2]);
        let end = network.now + seconds(1);
        assert!(network.run_until(end, |network| (0..3).all(|node| seen(network, node))));
        network.run(seconds(60));
        assert_eq!(network.deaths(), []);
        assert_eq!(network.seen_by(1).len(), 3);
    }
}

#[test]
fn who_slept_accuses_nobody_for_what_it_did_not_hear_meanwhile() {
    let mut network = Network::settled(9, 3, ours);
    // A suspicion is under way when the process stops.
    network.cut.extend([(1, 0), (1, 2), (0, 1), (2, 1)]);
    let suspected = |network: &Network| {
        network.nodes[&1].engine.member(&name(0)).is_some_and(|member| !member_is_well(member))
    };
    let end = network.now + seconds(10);
    assert!(network.run_until(end, suspected));
    network.cut.clear();
    let woken = network.now + seconds(20);
    let engine = &mut network.nodes.get_mut(&1).unwrap().engine;
    engine.handle(woken, Input::Woken);
    while engine.next_deadline().is_some_and(|deadline| deadline <= woken) {
        engine.handle_timeout(woken);
    }
    assert!(engine.members().all(|member| member.is_usable()), "{:?}", engine.members().collect::<Vec<_>>());
    assert!(engine.next_deadline().is_some_and(|deadline| deadline > woken));
}

fn member_is_well(member: &ferrolb_gossip::Member) -> bool {
    member.state == ferrolb_gossip::wire::State::Alive
}

#[test]
fn one_that_is_missed_and_heard_is_told_and_only_now_and_then() {
    let mut network = Network::settled(10, 2, ours);
    network.expect_all();
    network.part(&[0], &[1]);
    network.run(seconds(60));
    assert_eq!(network.seen_by(0).len(), 1);
    network.told.clear();
    // Only one direction is whole again: 0 hears 1 and cannot answer.
    network.cut.remove(&(1, 0));
    network.run(seconds(2));
    let heard = Told::Heard(address(1));
    let times: Vec<Time> = network
        .told
        .iter()
        .filter(|(_, node, told)| *node == 0 && *told == heard)
        .map(|told| told.0)
        .collect();
    let apart = |pair: &[Time]| pair[1] - pair[0] >= Duration::from_millis(500);
    assert!(times.len() >= 2 && times.windows(2).all(apart), "{times:?}");
    network.cut.clear();
    let end = network.now + seconds(1);
    assert!(network.run_until(end, |network| network.seen_by(0).len() == 2 && network.seen_by(1).len() == 2));
}
