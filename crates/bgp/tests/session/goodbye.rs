// SPDX-License-Identifier: Apache-2.0
//! Ending a session so that nobody loses a packet, and everybody knows why.

use ferrolb_bgp::wire::{Code, Community, Detail, Message, Notification, Update, keepalive};
use ferrolb_bgp::{Close, Down, Goodbye, Input, PeerAs, Settings, State};

use crate::bench::{Bench, asn, hold, id, peer_open, prefix, route, seconds, settings};

fn with_two_routes(settings: Settings) -> Bench {
    let mut bench = Bench::established(settings);
    let routes = [(prefix("192.0.2.1/32"), Some(route(0))), (prefix("192.0.2.2/32"), Some(route(1)))];
    bench.input(Input::Routes(&routes));
    bench.forget();
    bench
}

/// What the messages are, in a word each.
fn words(bench: &Bench) -> Vec<String> {
    let word = |message: Message| match message {
        Message::Update(received) => {
            let update = |update: &Update| match update {
                Update::Announce(some) => {
                    let marked = some.attributes().communities.contains(&Community::GRACEFUL_SHUTDOWN);
                    format!("{}{}", if marked { "marked " } else { "announced " }, some.prefixes().len())
                }
                Update::Withdraw(some) => format!("withdrawn {}", some.as_slice().len()),
                Update::EndOfRib(family) => format!("end {family}"),
            };
            received.updates.iter().map(update).collect::<Vec<_>>().join(" ")
        }
        Message::Notification(notification) => notification.to_string(),
        Message::Keepalive => "keepalive".to_owned(),
        other => panic!("{other:?}"),
    };
    bench.messages().into_iter().map(word).collect()
}

#[test]
fn s65_a_session_that_is_stopped_withdraws_its_routes_and_says_why() {
    let mut bench = with_two_routes(settings());
    let text = "node k8s-node-1: speaker shuts down";
    bench.input(Input::Stop(Goodbye::shutdown(text, seconds(0))));
    let last = format!("Administrative Shutdown (6/2): \"{text}\"");
    assert_eq!(words(&bench), ["withdrawn 2".to_owned(), last]);
    assert_eq!(bench.notification().unwrap().detail(), Detail::Text(text.to_owned()));
    assert_eq!(
        (&bench.closed[..], bench.stopped, bench.state()),
        (&[Close::AfterWriting][..], 1, State::Idle)
    );
    assert!(matches!(bench.down(), Some(Down::Stopped(_))));
    bench.pass(seconds(1000));
    assert_eq!(bench.attempts.len(), 1, "it does not connect again");
}

#[test]
fn a_peer_that_is_no_longer_configured_is_told_that() {
    let mut bench = with_two_routes(settings());
    bench.input(Input::Stop(Goodbye::deconfigured()));
    assert_eq!(words(&bench), ["withdrawn 2", "Peer De-configured (6/3)"]);
}

#[test]
fn routes_are_marked_for_a_moment_before_they_go() {
    let mut bench = with_two_routes(settings());
    bench.input(Input::Stop(Goodbye::shutdown("", seconds(2))));
    assert_eq!(words(&bench), ["marked 1", "marked 1"]);
    // A new one is marked too, one that goes goes.
    bench.input(Input::Routes(&[(prefix("192.0.2.3/32"), Some(route(0))), (prefix("192.0.2.2/32"), None)]));
    assert_eq!(words(&bench)[2..], ["marked 1", "withdrawn 1"]);
    bench.pass(seconds(2) - std::time::Duration::from_millis(1));
    assert_eq!((bench.state(), bench.stopped), (State::Established, 0));
    bench.pass(std::time::Duration::from_millis(1));
    assert_eq!(words(&bench)[4..], ["withdrawn 2", "Administrative Shutdown (6/2)"]);
    assert_eq!((bench.state(), bench.stopped), (State::Idle, 1));
}

#[test]
fn an_internal_peer_sees_the_lowest_preference_meanwhile() {
    let internal = Settings { peer: PeerAs::Internal, local_pref: 100, ..settings() };
    let mut bench = Bench::new(internal);
    bench.connect();
    let open =
        ferrolb_bgp::wire::Open::new(asn(64_512), hold(90), id("192.168.10.1"), Default::default(), vec![]);
    bench.say(&open.encode());
    bench.say(&keepalive());
    bench.input(Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(0)))]));
    bench.input(Input::Stop(Goodbye::shutdown("", seconds(2))));
    let preferences: Vec<_> = bench
        .updates()
        .iter()
        .filter_map(|update| match update {
            Update::Announce(some) => some.attributes().local_pref,
            _ => None,
        })
        .collect();
    assert_eq!(preferences, [100, 0]);
}

#[test]
fn nobody_waits_where_there_is_nothing_to_mark() {
    let mut bench = Bench::established(settings());
    bench.input(Input::Stop(Goodbye::shutdown("", seconds(60))));
    assert_eq!((bench.stopped, bench.code()), (1, Some(Code::ADMINISTRATIVE_SHUTDOWN)));
    for connected in [false, true] {
        let mut bench = Bench::new(settings());
        if connected {
            bench.connect();
        }
        bench.input(Input::Stop(Goodbye::shutdown("", seconds(60))));
        assert_eq!((bench.stopped, bench.code()), (1, connected.then_some(Code::ADMINISTRATIVE_SHUTDOWN)));
    }
}

#[test]
fn a_goodbye_ends_when_the_peer_ends_it() {
    let mut bench = with_two_routes(settings());
    bench.input(Input::Stop(Goodbye::shutdown("", seconds(60))));
    bench.say(&Notification::from(Code::CEASE).encode());
    assert_eq!((bench.stopped, bench.state()), (1, State::Idle));
    bench.pass(seconds(1000));
    assert_eq!((bench.attempts.len(), bench.stopped), (1, 1));
}

#[test]
fn who_is_in_a_hurry_ends_a_long_goodbye() {
    let mut bench = with_two_routes(settings());
    bench.input(Input::Stop(Goodbye::shutdown("", seconds(60))));
    bench.input(Input::Stop(Goodbye::shutdown("now", seconds(0))));
    assert_eq!(words(&bench)[2..], ["withdrawn 2", "Administrative Shutdown (6/2): \"now\""]);
    assert_eq!(bench.stopped, 1);
}

#[test]
fn a_peer_that_does_not_read_holds_up_no_goodbye() {
    let mut bench = with_two_routes(settings());
    bench.takes = false;
    bench.input(Input::Stop(Goodbye::shutdown("", seconds(2))));
    bench.pass(seconds(2));
    assert_eq!((bench.stopped, &bench.closed[..]), (1, &[Close::AfterWriting][..]));
}

#[test]
fn a_session_that_was_stopped_can_be_started_and_knows_its_routes() {
    let mut bench = with_two_routes(settings());
    bench.input(Input::Stop(Goodbye::reset("another address")));
    assert_eq!(words(&bench)[1..], ["Administrative Reset (6/4): \"another address\""]);
    bench.input(Input::Start);
    bench.connect();
    bench.say(&peer_open().encode());
    bench.say(&keepalive());
    assert_eq!((bench.state(), bench.session.status().told), (State::Established, 2));
}
