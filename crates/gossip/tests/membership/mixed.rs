// SPDX-License-Identifier: Apache-2.0
//! What ours do so that members which do exactly as memberlist does know whom they should.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_gossip::wire::State;
use ferrolb_gossip::{Change, Input, Role, Settings};

use super::network::{Network, Told, name, ours, plain};
use super::seconds;

/// One of ours, which says so.
fn badged(node: usize) -> Settings {
    Settings { meta: Some(b"ours".to_vec()), ..ours(node) }
}

/// Of the first `plain_ones` each does as memberlist does; all others are ours.
fn network(seed: u64, plain_ones: usize, count: usize) -> Network {
    let mut network = Network::new(seed);
    for node in 0..count {
        network.start(node, if node < plain_ones { plain(node) } else { badged(node) });
        if node > 0 {
            network.join(node, &[0]);
        }
    }
    network.run(seconds(5));
    network.expect_all();
    let all: BTreeSet<_> = (0..count).map(name).collect();
    assert!((0..count).all(|node| network.seen_by(node) == all), "seed {seed}");
    network
}

fn state_of(network: &Network, at: usize, of: usize) -> Option<State> {
    network.nodes[&at].engine.member(&name(of)).map(|member| member.state)
}

#[test]
fn one_that_was_cut_off_and_gave_others_up_is_told_that_they_are_there_as_soon_as_it_is_back() {
    let mut played = 0;
    for seed in 0..60 {
        let mut network = network(seed, 1, 3);
        network.part(&[0], &[1, 2]);
        // It gives up another one, by which it is suspected at most.
        let given_up = |network: &Network| {
            (1..3).find(|other| {
                state_of(network, 0, *other) == Some(State::Dead)
                    && state_of(network, *other, 0) == Some(State::Suspect)
            })
        };
        let end = network.now + seconds(30);
        network.run_until(end, |network| given_up(network).is_some());
        // What it says of that in the first moments is said in vain.
        network.run(Duration::from_millis(500));
        let Some(other) = given_up(&network) else { continue };
        played += 1;
        network.cut.clear();
        let end = network.now + seconds(4);
        let whole = |network: &Network| network.seen_by(0).len() == 3;
        assert!(network.run_until(end, whole), "seed {seed}: {other} {:?}", network.seen_by(0));
    }
    assert!(played >= 10, "{played}");
}

#[test]
fn a_goodbye_that_one_of_ours_hears_reaches_all_of_memberlists() {
    let mut played = 0;
    for seed in 0..20 {
        let mut network = network(seed, 4, 5);
        let others = [0, 1, 2];
        // Nothing of what it says reaches them.
        network.cut.extend(others.map(|other| (3, other)));
        network.input(3, Input::Leave { within: seconds(1) });
        let left = Told::Member(Change::Left, name(3));
        let end = network.now + seconds(1);
        // Left to chance: it says so four times, to anybody.
        if !network.run_until(end, |network| network.first(4, &left).is_some()) {
            continue;
        }
        played += 1;
        let end = network.now + Duration::from_millis(5);
        let all = |network: &Network| others.iter().all(|other| network.first(*other, &left).is_some());
        assert!(network.run_until(end, all), "seed {seed}");
    }
    assert!(played >= 5, "{played}");
}

#[test]
fn one_that_could_not_be_told_of_a_new_member_is_told_when_it_can() {
    let mut network = network(2, 1, 3);
    network.input(2, Input::Leave { within: seconds(1) });
    network.run(seconds(2));
    network.kill(2);
    network.start(2, Settings { role: Role::Reader, ..badged(2) });
    network.expect_all();
    network.join(2, &[0, 1]);
    network.run(seconds(1));
    assert_eq!(state_of(&network, 2, 0), Some(State::Alive));
    // Nothing passes between the two at the moment at which it becomes a member, and for a second after.
    network.part(&[0], &[2]);
    network.input(2, Input::Participate);
    network.cut.extend([(1, 0)]);
    network.run(seconds(1));
    network.cut.clear();
    assert_ne!(state_of(&network, 0, 2), Some(State::Alive));
    let end = network.now + seconds(4);
    assert!(network.run_until(end, |network| state_of(network, 0, 2) == Some(State::Alive)));
}
