// SPDX-License-Identifier: Apache-2.0
//! Routers that break a rule, as they were recorded in front of MetalLB, in front of the task: the right outcome each.

use ferrolb_bgp::wire::Code;
use ferrolb_bgp::{Down, PeerAs, State};
use ferrolb_net_types::Time;
use serde_json::Value;

use super::router::{Heard, Router, Talk, asn};
use super::{Bench, announce, plan, prefix, withdraw};

enum Outcome {
    /// A session, with a route that is told.
    Up,
    /// The router is told this, and so is the user.
    Told(Code),
    /// The router said this.
    Said(Code),
    /// The router closes, in good order or not.
    Closed,
}

pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

fn recording() -> Value {
    const TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bgp/tests/data/metallb.json"));
    serde_json::from_str(TEXT).unwrap()
}

#[test]
fn each_recorded_router_gets_the_right_outcome_over_a_real_socket() {
    use Outcome::{Closed, Said, Told, Up};
    // What has no connection, or waits for minutes, is played elsewhere: in the tests beside this one, and in simulated
    // time.
    let table: &[(&str, Outcome, Option<&str>)] = &[
        ("wrong-asn", Told(Code::BAD_PEER_AS), None),
        ("as4-needed", Up, None),
        ("as-65536-no-as4", Up, None),
        ("open-no-options", Up, None),
        ("open-short-options", Up, None),
        ("open-hold-1", Told(Code::UNACCEPTABLE_HOLD_TIME), None),
        ("open-hold-2", Told(Code::UNACCEPTABLE_HOLD_TIME), None),
        ("open-version-3", Told(Code::UNSUPPORTED_VERSION), None),
        ("open-bad-marker", Told(Code::NOT_SYNCHRONIZED), None),
        ("open-authentication-parameter", Told(Code::UNSUPPORTED_PARAMETER), None),
        ("open-extended-options", Told(Code::OPEN_UNSPECIFIC), None),
        ("open-identifier-zero", Told(Code::BAD_IDENTIFIER), None),
        ("open-identifier-equal", Up, None),
        ("capability-length-bad", Told(Code::OPEN_UNSPECIFIC), None),
        ("notification-for-open", Said(Code::BAD_PEER_AS), None),
        ("keepalive-for-open", Told(Code::UNEXPECTED_IN_OPEN_SENT), None),
        ("accept-then-close", Closed, Some("close")),
        ("notification-later", Said(Code::ADMINISTRATIVE_SHUTDOWN), None),
        ("fin-later", Closed, Some("close")),
        ("rst-later", Closed, Some("reset")),
        ("fin-at-once-always", Closed, Some("close")),
        ("bad-marker-later", Told(Code::NOT_SYNCHRONIZED), Some("00000000000000000000000000000000001304")),
        ("length-18-later", Told(Code::BAD_LENGTH), Some("ffffffffffffffffffffffffffffffff001204")),
        ("open-again-later", Told(Code::UNEXPECTED_IN_ESTABLISHED), None),
    ];
    let recording = recording();
    let mut bench = Bench::new();
    let mut good = Good::beside("127.11.1.1", &mut bench);
    for (number, (name, outcome, then)) in table.iter().enumerate() {
        let cases = recording["trouble"].as_array().unwrap();
        let case = cases.iter().find(|case| case["case"] == *name).unwrap();
        let router = Router::on(&format!("127.11.0.{}", number + 1));
        let mut wanted = plan(router.address);
        let number = |field: &str| asn(case["peer"][field].as_u64().unwrap().try_into().unwrap());
        (wanted.settings.asn, wanted.settings.peer) = (number("myASN"), PeerAs::Exactly(number("peerASN")));
        // The one whose identifier is the router's, too.
        wanted.router_id = ferrolb_bgp::wire::RouterId::new("192.168.10.20".parse().unwrap());
        bench.plan(name, wanted);
        bench.routes(name, announce(100));
        let mut talk = router.accept();
        play(&mut talk, case, *then);
        match outcome {
            Up => {
                let report = bench.wait(name, |report| report.told == 1 && report.settled);
                assert_eq!((report.state, report.drops), (State::Established, 0), "{name}");
            }
            Told(code) => {
                assert_eq!(talk.last_code(), Some(*code), "{name}");
                let down = down(&mut bench, name);
                assert_eq!(down.notification().map(|last| last.code), Some(*code), "{name}");
            }
            Said(code) => assert_eq!(down(&mut bench, name), Down::Told((*code).into()), "{name}"),
            Closed => {
                // With what play left to be done with it: a reset, if it is to be one.
                drop(talk);
                let down = down(&mut bench, name);
                assert!(matches!(down, Down::Closed { .. }), "{name}: {down:?}");
            }
        }
        if !matches!(outcome, Up) {
            // S63: nobody is dialled again within a second.
            let report = bench.wait(name, |report| report.next_attempt.is_some());
            let wait = report.next_attempt.unwrap() - report.since;
            assert!(wait >= std::time::Duration::from_secs(1), "{name}: {wait:?}");
        }
        good.hears_news(&bench, name);
    }
    good.was_never_touched(&mut bench);
}

/// An UPDATE of these attributes, with a route behind them.
fn update(attributes: &str) -> Vec<u8> {
    let (attributes, route) = (hex(&attributes.replace(' ', "")), [0x18, 0xcb, 0x00, 0x71]);
    let count = |length: usize| u16::try_from(length).unwrap().to_be_bytes();
    let length = count(19 + 4 + attributes.len() + route.len());
    [&[0xff; 16][..], &length, &[2, 0, 0], &count(attributes.len()), &attributes, &route].concat()
}

#[test]
fn updates_of_every_treatment_that_are_malformed_leave_other_sessions_alone() {
    const ORIGIN: &str = "400101 00";
    const PATH: &str = "400206 0201 0000fc01";
    const HOP: &str = "400304 c0a80a01";
    let with = |more: &str| format!("{ORIGIN} {PATH} {HOP} {more}");
    let mut bench = Bench::new();
    let mut good = Good::beside("127.11.2.1", &mut bench);
    let table = [
        ("nothing-wrong", with(""), None),
        ("discarded", with("400101 07"), None),
        ("withdrawn-origin", format!("400101 03 {PATH} {HOP}"), None),
        ("withdrawn-no-path", format!("{ORIGIN} {HOP}"), None),
        ("withdrawn-breaks-off", with("c008ff 00010002"), None),
        ("reset-next-hop", with("800e05 000201 0100"), Some(Code::OPTIONAL_ATTRIBUTE)),
        ("reset-twice", with("800f03 000201 800f03 000201"), Some(Code::MALFORMED_ATTRIBUTE_LIST)),
        ("reset-unreachable", with("800f02 0002"), Some(Code::OPTIONAL_ATTRIBUTE)),
    ];
    for (number, (name, attributes, reset)) in table.into_iter().enumerate() {
        let router = Router::on(&format!("127.11.2.{}", number + 2));
        bench.plan(name, plan(router.address));
        let mut talk = router.session();
        bench.established(name);
        talk.say(&update(&attributes));
        match reset {
            Some(code) => {
                assert_eq!(talk.last_word().map(|last| last.code), Some(code), "{name}");
                assert_eq!(bench.wait(name, |report| report.drops == 1).told, 0, "{name}");
            }
            None => {
                let report = bench.wait(name, |report| report.counters.received.updates == 1);
                assert_eq!((report.state, report.drops), (State::Established, 0), "{name}");
                let report = bench.wait(name, |report| report.finding.is_some() == (name != "nothing-wrong"));
                assert_eq!(report.drops, 0, "{name}");
            }
        }
        good.hears_news(&bench, name);
    }
    good.was_never_touched(&mut bench);
}

/// A session beside those that have trouble, which hears everything all the time.
struct Good {
    talk: Talk,
    since: Time,
    _router: Router,
}

impl Good {
    fn beside(address: &str, bench: &mut Bench) -> Self {
        let router = Router::on(address);
        bench.plan("good", plan(router.address));
        let mut talk = router.session();
        assert_eq!(talk.hear(), Heard::EndOfRib);
        Self { talk, since: bench.established("good").since, _router: router }
    }

    fn hears_news(&mut self, bench: &Bench, beside: &str) {
        bench.routes("good", announce(200));
        assert_eq!(self.talk.hear(), Heard::Announced(vec![prefix(200)]), "beside {beside}");
        bench.routes("good", withdraw(200));
        assert_eq!(self.talk.hear(), Heard::Withdrawn(vec![prefix(200)]), "beside {beside}");
    }

    fn was_never_touched(&self, bench: &mut Bench) {
        let report = bench.wait("good", |report| report.wanted == 0 && report.settled);
        assert_eq!((report.since, report.drops, report.last_down), (self.since, 0, None));
    }
}

fn down(bench: &mut Bench, name: &str) -> Down {
    bench.wait(name, |report| report.last_down.is_some()).last_down.unwrap().1
}

/// Says what was recorded of a router, once it has read our OPEN.
fn play(talk: &mut Talk, case: &Value, then: Option<&str>) {
    assert!(talk.read().is_some());
    let messages = case["messages"].as_array().unwrap().iter().filter(|message| message["speaker"] == false);
    for message in messages {
        let _ = talk.try_say(&hex(message["hex"].as_str().unwrap()));
    }
    match then {
        None => {}
        Some("close") => talk.stream.shutdown(std::net::Shutdown::Both).unwrap(),
        Some("reset") => {
            let socket = socket2::SockRef::from(&talk.stream);
            socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
        Some(bytes) => assert!(talk.try_say(&hex(bytes))),
    }
}
