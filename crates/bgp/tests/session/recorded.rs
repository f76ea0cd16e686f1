// SPDX-License-Identifier: Apache-2.0
//! What MetalLB's sessions were recorded to be: the same bytes at its settings, and the right outcome where it had none.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_bgp::wire::{
    Code, Context, Families, HoldTime, Message, Notification, Open, Reader, RouterId, Update,
};
use ferrolb_bgp::{Down, Input, Local, PeerAs, Route, Settings, State};
use ferrolb_net_types::{Asn, Prefix, Time};
use serde_json::Value;

use crate::bench::{Bench, hex, prefix, route, seconds};

fn recording() -> Value {
    serde_json::from_str(include_str!("../data/metallb.json")).unwrap()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap()
}

/// The settings that a recorded BGPPeer has.
fn settings(peer: &Value) -> Settings {
    let asn = |field: &str| Asn::new(peer[field].as_u64().unwrap().try_into().unwrap()).unwrap();
    let mut settings = Settings::native(asn("myASN"), PeerAs::Exactly(asn("peerASN")));
    let unset = peer["apiVersion"] == "metallb.io/v1beta1";
    let hold_time = match peer["holdTime"].as_str() {
        Some(text) if text.ends_with("ms") => {
            Duration::from_millis(text.trim_end_matches("ms").parse().unwrap())
        }
        Some(text) => seconds(text.trim_end_matches('s').parse().unwrap()),
        None if unset => seconds(0),
        None => seconds(90),
    };
    settings.hold_time = HoldTime::try_from(hold_time).unwrap();
    settings
}

fn own_end(peer: &Value) -> Local {
    let address = peer["sourceAddress"].as_str().unwrap_or("192.168.10.20").parse().unwrap();
    let configured = peer["routerID"].as_str().map(|text| RouterId::new(text.parse().unwrap()).unwrap());
    Local::new(address, &[address], configured, "node1")
}

/// Plays the recorder's part of a session up to a time; messages that come before our OPEN was read come after it.
fn play(messages: &[Value], peer: &Value, announced: &str) -> Bench {
    let mut bench = Bench::new(settings(peer));
    bench.input(Input::Routes(&[(prefix(announced), Some(route(0)))]));
    let connection = bench.connection.unwrap();
    bench.input(Input::Connected { connection, local: own_end(peer) });
    for message in messages.iter().filter(|message| message["speaker"] == false) {
        if bench.connection.is_none() {
            break;
        }
        bench.say(&hex(message["hex"].as_str().unwrap()));
    }
    bench
}

fn said(messages: &[Value]) -> Vec<Vec<u8>> {
    let of = |message: &&Value| message["speaker"] == true;
    messages.iter().filter(of).map(|message| hex(message["hex"].as_str().unwrap())).collect()
}

/// Ours, without the marks that all was told, which MetalLB does not send.
fn ours(bench: &Bench) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for (_, bytes) in &bench.sent {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (message, behind) = rest.split_at(u16::from_be_bytes([rest[16], rest[17]]).into());
            messages.push(message.to_vec());
            rest = behind;
        }
    }
    let mark = |message: &Vec<u8>| {
        message[18] == 2 && (message.len() == 23 || message.len() == 29 && message[23] == 0x80)
    };
    messages.retain(|message| !mark(message));
    messages
}

#[test]
fn good_sessions_are_the_same_byte_by_byte() {
    let recording = recording();
    for session in list(&recording, "sessions") {
        let (case, messages) = (session["case"].as_str().unwrap(), list(session, "messages"));
        match case {
            // S72: it takes IPv6 alone, and gets no IPv4 route.
            "peer-mp-v6-only" => {
                let bench = play(messages, &session["peer"], "192.168.20.100/32");
                assert_eq!(
                    (bench.state(), ours(&bench)),
                    (State::Established, said(messages)[..2].to_vec()),
                    "{case}"
                );
            }
            // S64, S62: it never confirms our OPEN.
            "peer-silent" => {
                let mut bench = play(messages, &session["peer"], "192.168.20.100/32");
                assert_eq!(
                    (bench.state(), ours(&bench)),
                    (State::OpenConfirm, said(messages)[..2].to_vec()),
                    "{case}"
                );
                bench.pass(seconds(3));
                assert_eq!(bench.code(), Some(Code::HOLD_TIMER_EXPIRED));
            }
            // Its last message has a type that nobody knows.
            "peer-talks" => {
                let bench = play(messages, &session["peer"], "192.168.20.100/32");
                assert_eq!(ours(&bench)[..3], said(messages)[..], "{case}");
                assert_eq!(bench.notification(), Some(Notification::new(Code::BAD_TYPE, &[6])));
            }
            _ => {
                let mut bench = play(messages, &session["peer"], "192.168.20.100/32");
                assert_eq!((bench.state(), ours(&bench)), (State::Established, said(messages)), "{case}");
                same_keepalives(&mut bench, session, case);
            }
        }
    }
}

/// The KEEPALIVEs come when MetalLB's came, from the start of the session on.
fn same_keepalives(bench: &mut Bench, session: &Value, case: &str) {
    let times = list(session, "keepalives_sent_at_s").iter().map(|time| time.as_f64().unwrap());
    let times: Vec<f64> = times.collect();
    let end = Time::ZERO + Duration::from_secs_f64(times.last().unwrap() - times[0] + 0.1);
    while bench.now < end {
        bench.pass((end - bench.now).min(seconds(2)));
        bench.say(&ferrolb_bgp::wire::keepalive());
    }
    let ours = bench.timed_messages().into_iter().filter(|(_, message)| *message == Message::Keepalive);
    let ours: Vec<f64> = ours.map(|(time, _)| time.since_start().as_secs_f64()).collect();
    assert_eq!(ours.len(), times.len(), "{case}");
    for (ours, theirs) in ours.iter().zip(&times) {
        assert!((ours - (theirs - times[0])).abs() < 0.1, "{case}: {ours} for {theirs}");
    }
}

#[test]
fn sessions_after_a_restart_are_the_same() {
    let recording = recording();
    for start in list(&recording, "starts") {
        for (name, peer_asn) in [("ebgp", 64_513), ("ibgp", 64_512), ("ebgp-no-as4", 64_513)] {
            let messages = start["connections"][name].as_array().unwrap();
            let peer = serde_json::json!({ "myASN": 64_512, "peerASN": peer_asn });
            let bench = play(messages, &peer, "192.168.20.0/32");
            assert_eq!(ours(&bench), said(messages), "{} {name}", start["case"]);
        }
    }
}

/// What a peer is told, by prefix: the attributes in bytes; none where it was withdrawn.
type Table = BTreeMap<Prefix, Option<Vec<u8>>>;

/// Reads UPDATEs: the last word on each prefix.
fn table(messages: &[Vec<u8>], context: &Context) -> Table {
    let mut table = Table::new();
    for message in messages {
        let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], context) else {
            panic!()
        };
        let withdrawn = usize::from(u16::from_be_bytes([message[19], message[20]]));
        let attributes = &message[21 + withdrawn..];
        let length = usize::from(u16::from_be_bytes([attributes[0], attributes[1]]));
        for update in &received.updates {
            match update {
                Update::Announce(some) => {
                    let told = |prefix: &Prefix| (*prefix, Some(attributes[2..2 + length].to_vec()));
                    table.extend(some.prefixes().iter().map(told));
                }
                Update::Withdraw(some) => table.extend(some.as_slice().iter().map(|prefix| (*prefix, None))),
                Update::EndOfRib(_) => {}
            }
        }
    }
    table
}

/// The routes that the recorded messages tell, as they would be asked for.
fn wanted(messages: &[Vec<u8>], context: &Context) -> Vec<(Prefix, Option<Arc<Route>>)> {
    let mut last = BTreeMap::new();
    for message in messages {
        let Ok(Some(Message::Update(received))) = Reader::new().read(&mut &message[..], context) else {
            panic!()
        };
        for update in &received.updates {
            match update {
                Update::Announce(some) => {
                    let route = Route {
                        local_pref: some.attributes().local_pref.filter(|preference| *preference != 0),
                        communities: some.attributes().communities.clone(),
                        ..Route::default()
                    };
                    last.extend(
                        some.prefixes().iter().map(|prefix| (*prefix, Some(Arc::new(route.clone())))),
                    );
                }
                Update::Withdraw(some) => last.extend(some.as_slice().iter().map(|prefix| (*prefix, None))),
                Update::EndOfRib(_) => {}
            }
        }
    }
    last.into_iter().collect()
}

#[test]
fn the_story_of_updates_tells_the_same_routes_with_the_same_attributes_in_no_more_messages() {
    let recording = recording();
    for (name, peer_asn, as4) in
        [("ebgp", 64_513, true), ("ibgp", 64_512, true), ("ebgp-no-as4", 64_513, false)]
    {
        let peer = serde_json::json!({ "myASN": 64_512, "peerASN": peer_asn });
        let mut bench = Bench::new(settings(&peer));
        bench.connect();
        let asn = Asn::new(peer_asn).unwrap();
        let id = RouterId::new(Ipv4Addr::new(192, 168, 10, 1)).unwrap();
        let mut open = Open::new(asn, HoldTime::seconds(90).unwrap(), id, Families::BOTH, vec![]);
        if !as4 {
            open.capabilities.pop();
        }
        bench.say(&open.encode());
        bench.say(&ferrolb_bgp::wire::keepalive());
        let context = Context { four_octet_as: as4, internal: peer_asn == 64_512, families: Families::BOTH };
        let mut known = Table::new();
        for step in list(&recording, "updates") {
            let Some(recorded) = step["sent"][name].as_array() else { continue };
            let recorded: Vec<Vec<u8>> = recorded.iter().map(|text| hex(text.as_str().unwrap())).collect();
            bench.forget();
            bench.input(Input::Routes(&wanted(&recorded, &context)));
            let ours = ours(&bench);
            let what = format!("{} to {name}", step["step"]);
            let mut theirs = table(&recorded, &context);
            // What came and went within the step, or looks as before, leaves nothing to be told.
            theirs.retain(|prefix, told| known.get(prefix).unwrap_or(&None) != told);
            assert_eq!(table(&ours, &context), theirs, "{what}");
            assert!(ours.len() <= recorded.len(), "{what}: {} messages for {}", ours.len(), recorded.len());
            known.extend(theirs);
        }
    }
}

enum Outcome {
    /// A session, with an UPDATE about the Service.
    Up,
    /// The peer is told this.
    Told(Code),
    /// The peer ends it.
    Ended(fn(&Down) -> bool),
    /// There is no connection; the operating system says why, or time does.
    NotConnected,
}

#[test]
fn peers_that_break_a_rule_get_the_right_outcome() {
    use Outcome::{Ended, NotConnected, Told, Up};
    let table: &[(&str, Outcome, Option<&str>)] = &[
        ("refused", NotConnected, None),
        ("wrong-asn", Told(Code::BAD_PEER_AS), None),
        // S71: neither is a reason to go.
        ("as4-needed", Up, None),
        ("as-65536-no-as4", Up, None),
        // S70
        ("open-no-options", Up, None),
        ("open-short-options", Up, None),
        ("open-hold-1", Told(Code::UNACCEPTABLE_HOLD_TIME), None),
        ("open-hold-2", Told(Code::UNACCEPTABLE_HOLD_TIME), None),
        ("open-version-3", Told(Code::UNSUPPORTED_VERSION), None),
        ("open-bad-marker", Told(Code::NOT_SYNCHRONIZED), None),
        ("open-authentication-parameter", Told(Code::UNSUPPORTED_PARAMETER), None),
        // What was recorded has one octet too many to be RFC 9072's form, which a test of OPENs has.
        ("open-extended-options", Told(Code::OPEN_UNSPECIFIC), None),
        ("open-identifier-zero", Told(Code::BAD_IDENTIFIER), None),
        // RFC 6286: another system may use the number.
        ("open-identifier-equal", Up, None),
        ("capability-length-bad", Told(Code::OPEN_UNSPECIFIC), None),
        ("notification-for-open", Ended(|down| *down == Down::Told(Code::BAD_PEER_AS.into())), None),
        ("keepalive-for-open", Told(Code::UNEXPECTED_IN_OPEN_SENT), None),
        (
            "accept-then-close",
            Ended(|down| matches!(down, Down::Closed { state: State::OpenSent, .. })),
            Some("close"),
        ),
        ("accept-mute", Told(Code::HOLD_TIMER_EXPIRED), Some("wait")),
        ("notification-later", Ended(|down| *down == Down::Told(Code::ADMINISTRATIVE_SHUTDOWN.into())), None),
        ("fin-later", Ended(|down| matches!(down, Down::Closed { .. })), Some("close")),
        ("rst-later", Ended(|down| matches!(down, Down::Closed { .. })), Some("close")),
        ("fin-at-once-always", Ended(|down| matches!(down, Down::Closed { .. })), Some("close")),
        ("bad-marker-later", Told(Code::NOT_SYNCHRONIZED), Some("00000000000000000000000000000000001304")),
        ("length-18-later", Told(Code::BAD_LENGTH), Some("ffffffffffffffffffffffffffffffff001204")),
        ("open-again-later", Told(Code::UNEXPECTED_IN_ESTABLISHED), None),
        // S61: an address like any other.
        ("ipv6-address", Up, Some("v6")),
        ("source-missing", NotConnected, None),
        ("password-mismatch", NotConnected, None),
        ("password-unexpected", NotConnected, None),
    ];
    let recording = recording();
    let cases = list(&recording, "trouble");
    assert!(cases.iter().map(|case| case["case"].as_str().unwrap()).eq(table.iter().map(|(case, ..)| *case)));
    for (case, (what, outcome, then)) in cases.iter().zip(table) {
        let (messages, peer) = (list(case, "messages"), &case["peer"]);
        let mut bench = Bench::new(settings(peer));
        let mut messages: Vec<Value> = messages.clone();
        if matches!(outcome, NotConnected) {
            let connection = bench.connection.take().unwrap();
            bench.input(Input::ConnectFailed { connection, error: case["about"].to_string() });
        } else {
            if *then == Some("v6") {
                // Nothing was recorded, since MetalLB cannot connect; a good peer stands in.
                messages = list(&list(&recording, "sessions")[0], "messages").clone();
            }
            bench = play(&messages, peer, "192.168.20.100/32");
        }
        match then {
            Some("close") => bench.hang_up(),
            Some("wait") => bench.pass(seconds(240)),
            Some("v6") | None => {}
            Some(bytes) => bench.say(&hex(bytes)),
        }
        match outcome {
            Up => {
                assert_eq!((bench.state(), bench.session.status().told), (State::Established, 1), "{what}");
                bench.pass(seconds(80));
                assert_eq!(bench.attempts.len(), 1, "{what}");
                continue;
            }
            Told(code) => assert_eq!(bench.code(), Some(*code), "{what}"),
            Ended(right) => assert!(right(&bench.down().unwrap()), "{what}: {:?}", bench.down()),
            NotConnected => assert!(matches!(bench.down(), Some(Down::NotConnected(_))), "{what}"),
        }
        assert_eq!(bench.state(), State::Idle, "{what}");
        let wait = bench.until_attempt();
        assert!(wait >= seconds(1), "{what}: the next attempt comes after {wait:?}");
    }
}
