// SPDX-License-Identifier: Apache-2.0
//! Routers that break a rule, as they were recorded in front of MetalLB, in front of the task: the right outcome each.

use ferrolb_bgp::wire::Code;
use ferrolb_bgp::{Down, PeerAs, State};
use serde_json::Value;

use super::router::{Router, Talk, asn};
use super::{Bench, announce, plan};

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
