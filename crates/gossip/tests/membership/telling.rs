// SPDX-License-Identifier: Apache-2.0
//! What ours say at once, to whom it concerns, where memberlist leaves it to gossip and to chance.

use std::net::SocketAddr;
use std::time::Duration;

use ferrolb_gossip::wire::{Accusation, Codec, Message, State};
use ferrolb_gossip::{Change, Engine, ExchangeError, Input, Output, Role, Settings};
use ferrolb_net_types::Time;

use super::network::{Network, Told, address, name, ours, plain};
use super::{alive, seconds};

const MOMENT: Duration = Duration::from_millis(5);

#[test]
fn who_becomes_a_member_tells_everybody_within_milliseconds() {
    for count in [2, 10, 60] {
        let mut network = Network::settled(31, count, ours);
        let newcomer = count;
        network.start(newcomer, Settings { role: Role::Reader, ..ours(newcomer) });
        network.join(newcomer, &[0]);
        network.run(seconds(1));
        network.input(newcomer, Input::Participate);
        let end = network.now + MOMENT;
        let all = |network: &Network| {
            (0..count)
                .all(|node| network.first(node, &Told::Member(Change::Joined, name(newcomer))).is_some())
        };
        assert!(network.run_until(end, all), "{count} members");
    }
}

#[test]
fn who_says_something_new_of_itself_tells_everybody_within_milliseconds() {
    for (settings, at_once) in [(ours as fn(usize) -> Settings, true), (plain, false)] {
        let mut network = Network::settled(32, 10, settings);
        network.input(4, Input::Metadata(b"stale"));
        let end = network.now + MOMENT;
        let updated = Told::Member(Change::Updated, name(4));
        let all = |network: &Network| (0..10).all(|node| network.first(node, &updated).is_some());
        assert_eq!(network.run_until(end, all), at_once);
        network.run(seconds(2));
        assert!(all(&network), "it is gossiped as well");
    }
}

#[test]
fn an_exchange_that_cannot_be_opened_is_over_before_an_operating_system_tries_again() {
    for (settings, least, most) in [(ours as fn(usize) -> Settings, 700, 999), (plain, 10_000, 10_000)] {
        let mut network = Network::new(33);
        network.start(0, settings(0));
        let asked = network.now;
        network.join(0, &[1]);
        network.run(seconds(11));
        let timeout = Told::Exchanged(address(1), Err(ExchangeError::Timeout));
        let took = network.first(0, &timeout).map(|at| (at - asked).as_millis());
        assert!(took.is_some_and(|took| (least..=most).contains(&took)), "{took:?}");
    }
}

#[test]
fn a_suspect_that_can_be_reached_again_is_cleared_within_a_second() {
    for seed in 0..10 {
        let mut network = Network::settled(seed, 10, ours);
        // Whether it is known that it should be there makes no difference: a list of Pods may be a minute old.
        if seed % 2 == 0 {
            network.expect_all();
        }
        network.part(&[3], &[0, 1, 2, 4, 5, 6, 7, 8, 9]);
        let state =
            |network: &Network, node: usize| network.nodes[&node].engine.member(&name(3)).unwrap().state;
        let others = [0, 1, 2, 4, 5, 6, 7, 8, 9];
        let suspected = |network: &Network| others.iter().all(|node| state(network, *node) == State::Suspect);
        let end = network.now + seconds(12);
        assert!(network.run_until(end, suspected), "seed {seed}");
        network.cut.clear();
        let end = network.now + seconds(1);
        let cleared = |network: &Network| others.iter().all(|node| state(network, *node) == State::Alive);
        assert!(network.run_until(end, cleared), "seed {seed}");
        assert_eq!(network.deaths().iter().filter(|(_, of)| *of == name(3)).count(), 0, "seed {seed}");
    }
}

/// One of ours, or one as memberlist has it, that knows one other and has long refuted an accusation.
fn accused(settings: Settings) -> Engine {
    let mut engine = Engine::new(Time::ZERO, Settings { codec: Codec::new(None), ..settings }, [1; 32]);
    let mut hear = |message: &Message| {
        engine.handle(Time::ZERO, Input::Datagram { source: address(1), bytes: &message.encode() });
    };
    hear(&Message::Alive(alive(1)));
    hear(&accusation(1));
    while engine.poll().is_some() {}
    engine
}

fn accusation(incarnation: u32) -> Message {
    Message::Suspect(Accusation { incarnation, node: name(0), from: name(1) })
}

#[test]
fn who_is_accused_of_what_it_has_refuted_says_so_again_to_the_accuser() {
    for (settings, told) in [(ours(0), true), (plain(0), false)] {
        let mut engine = accused(settings);
        engine.handle(Time::ZERO, Input::Datagram { source: address(1), bytes: &accusation(1).encode() });
        let said: Vec<(SocketAddr, Vec<Message>)> = std::iter::from_fn(|| engine.poll())
            .filter_map(|output| match output {
                Output::Datagram { to, bytes } => {
                    Some((to, Codec::new(None).read_packet(&bytes).unwrap().messages))
                }
                _ => None,
            })
            .collect();
        let own = engine.member(&name(0)).unwrap().incarnation;
        assert_eq!(own, 2, "it needs no higher number");
        match &said[..] {
            [] => assert!(!told),
            [(to, messages)] => {
                assert!(told);
                assert_eq!(*to, address(1));
                assert!(
                    matches!(&messages[..], [Message::Alive(word)] if word.incarnation == 2),
                    "{messages:?}"
                );
            }
            more => panic!("{more:?}"),
        }
    }
}

#[test]
fn who_takes_a_members_place_unnoticed_is_told_what_is_held_of_it_and_overrules_it() {
    // One of ours ends without a word, and one as memberlist has it takes its name and address before that is noticed. It
    // hears of the others by what they say, not by an exchange.
    let mut network = Network::settled(34, 3, ours);
    network.input(1, Input::Metadata(b"ours"));
    network.run(seconds(1));
    network.kill(1);
    network.start(1, plain(1));
    let held = |network: &Network, node: usize| network.nodes[&node].engine.member(&name(1)).unwrap().clone();
    assert!(held(&network, 0).incarnation > held(&network, 1).incarnation);
    let end = network.now + seconds(3);
    let right = |network: &Network| [0, 2].iter().all(|node| held(network, *node).meta.is_none());
    assert!(network.run_until(end, right), "{:?}", held(&network, 0));
    assert_eq!(network.deaths(), []);
}

#[test]
fn who_comes_back_without_having_heard_of_its_goodbye_is_told_of_it_and_overrules_it() {
    for leaves in [true, false] {
        let mut network = Network::settled(35, 4, ours);
        if leaves {
            network.input(1, Input::Leave { within: seconds(1) });
            network.run(seconds(1));
        }
        network.kill(1);
        network.run(seconds(12));
        assert!(!network.seen_by(0).contains(&name(1)));
        // It is started where it hears nobody, and then heard by one that does not know it, which says so on.
        network.part(&[1], &[0, 2, 3]);
        network.kill(3);
        network.run(seconds(12));
        network.start(3, ours(3));
        network.start(1, ours(1));
        network.cut.clear();
        network.join(1, &[3]);
        network.join(3, &[0]);
        let end = network.now + seconds(1);
        let all = |network: &Network| (0..4).all(|node| network.seen_by(node).len() == 4);
        assert!(network.run_until(end, all), "leaves {leaves}: {:?}", network.seen_by(0));
    }
}
