// SPDX-License-Identifier: Apache-2.0
//! Entering: on whom a speaker counts that begins to answer, and with how many it talks.

use std::collections::BTreeSet;

use ferrolb_gossip::wire::{NodeState, PushPull, State, StreamMessage};
use ferrolb_gossip::{Settings, StreamId, VERSIONS};
use ferrolb_net_types::{NodeName, Time};
use ferrolb_speaker_core::wire::{Gossip, Input, Output, Peer, Wire};

use super::network::{Network, SECRET, codec};
use super::numbers::{address, name};
use super::{millis, seconds};

/// Two start at once beside a member; one of them waits for a host that is silent. Whom the other one sees meanwhile.
fn seen_beside(start_third: fn(&mut Network)) -> BTreeSet<NodeName> {
    let mut network = Network::new(41, 4, 6);
    start_third(&mut network);
    network.run(seconds(1));
    network.start(1);
    let running: Vec<Peer> = network.peers(0).into_iter().filter(|peer| peer.address != address(3)).collect();
    network.part(&[3], &[0, 1, 2]);
    network.start_with(0, Some(&running));
    network.run(seconds(1));
    assert!(network.told[&0].eligible && !network.told[&1].eligible, "the one waits, the other does not");
    network.members(0)
}

#[test]
fn who_is_about_to_be_a_member_counts_among_ours_and_not_beside_metallbs() {
    let beside_ours = seen_beside(|network| network.start_with(2, Some(&[])));
    assert_eq!(beside_ours, [name(0), name(1), name(2)].into());
    // Its speakers do not count on it, and lead what it will lead.
    let beside_theirs = seen_beside(|network| network.start_plain(2, 3));
    assert_eq!(beside_theirs, [name(0), name(2)].into());
}

/// How many streams a speaker opens when it begins to answer, with so many others that run.
fn opened_on_entering(others: usize) -> usize {
    let settings = Settings::speaker(name(0).as_str().into(), address(0), codec(SECRET));
    let mut wire = Wire::new(name(0), Some(Gossip { settings, seed: [5; 32] }));
    let now = Time::millis(1000);
    wire.handle(now, Input::Plan(Network::new(1, 1, 1).plan(0, 1)));
    let peer = |node| Peer { node: name(node), address: address(node), awaited: true };
    let peers: Vec<Peer> = (1..=others).map(peer).collect();
    wire.handle(now, Input::Peers(&peers));
    let states = |node: usize| NodeState {
        name: name(node).as_str().into(),
        address: vec![10, 0, 0, u8::try_from(node).unwrap() + 1],
        port: 7946,
        meta: None,
        incarnation: 1,
        state: State::Alive,
        versions: Some(VERSIONS.to_vec()),
    };
    let all: Vec<NodeState> = (1..=others).map(states).collect();
    let open = |wire: &mut Wire| -> Vec<StreamId> {
        std::iter::from_fn(|| wire.poll(now))
            .filter_map(|output| match output {
                Output::Gossip(ferrolb_gossip::Output::Open { stream, .. }) => Some(stream),
                _ => None,
            })
            .collect()
    };
    let asked = open(&mut wire);
    assert_eq!(asked.len(), others, "it reads from everybody");
    for stream in asked {
        let exchange = PushPull { join: false, states: all.clone(), user_state: Vec::new() };
        let message = StreamMessage::PushPull(exchange);
        wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Connected(stream)));
        wire.handle(now, Input::Gossip(ferrolb_gossip::Input::Received { stream, message }));
    }
    while wire.next_deadline().is_some_and(|at| at <= now + millis(1)) {
        wire.handle_timeout(now + millis(1));
    }
    open(&mut wire).len()
}

#[test]
fn who_enters_exchanges_everything_with_all_of_a_few_and_with_some_of_many() {
    assert_eq!(opened_on_entering(3), 3);
    assert_eq!(opened_on_entering(32), 32);
    let of_many = opened_on_entering(120);
    assert!((16..=32).contains(&of_many), "{of_many}");
}
