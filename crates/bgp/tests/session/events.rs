// SPDX-License-Identifier: Apache-2.0
//! Every event of RFC 4271, section 8.1, in every state.

use ferrolb_bgp::wire::{Code, Message, Notification, Open, RouteRefresh, Update, keepalive};
use ferrolb_bgp::{Close, ConnectionId, Down, Goodbye, Input, Settings, State};
use ferrolb_net_types::IpFamily;

use crate::bench::{Bench, asn, hex, hold, id, local, peer_open, seconds, settings};
use State::{Active, Connect, Established, Idle, OpenConfirm, OpenSent};

/// A session in this state, by its shortest way.
fn in_state(state: State) -> Bench {
    let mut bench = match state {
        Idle | Connect | OpenSent | OpenConfirm => Bench::new(settings()),
        Active => Bench::new(Settings { dials: false, ..settings() }),
        Established => Bench::established(settings()),
    };
    match state {
        Idle => refuse(&mut bench),
        OpenSent => bench.connect(),
        OpenConfirm => {
            bench.connect();
            bench.say(&peer_open().encode());
        }
        Active | Connect | Established => {}
    }
    assert_eq!(bench.state(), state);
    bench
}

fn refuse(bench: &mut Bench) {
    let connection = bench.connection.take().unwrap();
    bench.input(Input::ConnectFailed { connection, error: "connection refused".to_owned() });
}

fn stop(bench: &mut Bench) {
    bench.input(Input::Stop(Goodbye::shutdown("", seconds(0))));
}

fn accept(bench: &mut Bench) {
    let connection = ConnectionId::Accepted(1);
    if bench.connection.is_none() {
        bench.connection = Some(connection);
        bench.input(Input::Accepted { connection, local: local("192.168.10.20") });
    }
}

/// An UPDATE whose lengths contradict each other.
fn broken_update() -> Vec<u8> {
    hex("ffffffffffffffffffffffffffffffff00170200ff0000")
}

fn update() -> Vec<u8> {
    Update::EndOfRib(IpFamily::V4).encode(&Default::default()).unwrap()
}

/// What happens, by its number in RFC 4271, and for each state it can happen in: the state after it, and what the peer
/// is told.
type Row = (&'static str, fn(&mut Bench), &'static [(State, State, Option<Code>)]);

const ROWS: &[Row] = &[
    (
        "1 ManualStart",
        |bench| bench.input(Input::Start),
        &[
            (Idle, Connect, None),
            (Connect, Connect, None),
            (Active, Active, None),
            (OpenSent, OpenSent, None),
            (OpenConfirm, OpenConfirm, None),
            (Established, Established, None),
        ],
    ),
    (
        "2 ManualStop",
        stop,
        &[
            (Idle, Idle, None),
            (Connect, Idle, None),
            (Active, Idle, None),
            (OpenSent, Idle, Some(Code::ADMINISTRATIVE_SHUTDOWN)),
            (OpenConfirm, Idle, Some(Code::ADMINISTRATIVE_SHUTDOWN)),
            (Established, Idle, Some(Code::ADMINISTRATIVE_SHUTDOWN)),
        ],
    ),
    ("9 ConnectRetryTimer_Expires", |bench| bench.pass(seconds(10)), &[(Connect, Idle, None)]),
    (
        "10 HoldTimer_Expires",
        // In OpenSent the timer is large; the others send KEEPALIVEs meanwhile and hear none.
        |bench| bench.pass(if bench.state() == OpenSent { seconds(240) } else { seconds(90) }),
        &[
            (OpenSent, Idle, Some(Code::HOLD_TIMER_EXPIRED)),
            (OpenConfirm, Idle, Some(Code::HOLD_TIMER_EXPIRED)),
            (Established, Idle, Some(Code::HOLD_TIMER_EXPIRED)),
        ],
    ),
    (
        "11 KeepaliveTimer_Expires",
        |bench| {
            bench.forget();
            bench.pass(seconds(30));
            assert_eq!(bench.messages(), [Message::Keepalive]);
        },
        &[(OpenConfirm, OpenConfirm, None), (Established, Established, None)],
    ),
    (
        "13 IdleHoldTimer_Expires",
        |bench| assert!(bench.until_attempt() < seconds(2)),
        &[(Idle, Connect, None)],
    ),
    ("16 Tcp_CR_Acked", Bench::connect, &[(Connect, OpenSent, None)]),
    ("17 TcpConnectionConfirmed", accept, &[(Active, OpenSent, None)]),
    ("18 TcpConnectionFails, connecting", refuse, &[(Connect, Idle, None)]),
    (
        "18 TcpConnectionFails",
        Bench::hang_up,
        &[(OpenSent, Idle, None), (OpenConfirm, Idle, None), (Established, Idle, None)],
    ),
    (
        "19 BGPOpen",
        |bench| bench.say(&peer_open().encode()),
        &[
            (OpenSent, OpenConfirm, None),
            (OpenConfirm, Idle, Some(Code::UNEXPECTED_IN_OPEN_CONFIRM)),
            (Established, Idle, Some(Code::UNEXPECTED_IN_ESTABLISHED)),
        ],
    ),
    (
        "21 BGPHeaderErr",
        |bench| bench.say(&[0; 19]),
        &[
            (OpenSent, Idle, Some(Code::NOT_SYNCHRONIZED)),
            (OpenConfirm, Idle, Some(Code::NOT_SYNCHRONIZED)),
            (Established, Idle, Some(Code::NOT_SYNCHRONIZED)),
        ],
    ),
    (
        "22 BGPOpenMsgErr",
        |bench| bench.say(&Open { my_as: 64_999, capabilities: vec![], ..peer_open() }.encode()),
        &[(OpenSent, Idle, Some(Code::BAD_PEER_AS))],
    ),
    (
        "24 NotifMsgVerErr",
        |bench| bench.say(&Notification::from(Code::UNSUPPORTED_VERSION).encode()),
        &[(OpenSent, Idle, None), (OpenConfirm, Idle, None), (Established, Idle, None)],
    ),
    (
        "25 NotifMsg",
        |bench| bench.say(&Notification::from(Code::CONNECTION_REJECTED).encode()),
        &[(OpenSent, Idle, None), (OpenConfirm, Idle, None), (Established, Idle, None)],
    ),
    (
        "26 KeepAliveMsg",
        |bench| bench.say(&keepalive()),
        &[
            (OpenSent, Idle, Some(Code::UNEXPECTED_IN_OPEN_SENT)),
            (OpenConfirm, Established, None),
            (Established, Established, None),
        ],
    ),
    (
        "27 UpdateMsg",
        |bench| bench.say(&update()),
        &[
            (OpenSent, Idle, Some(Code::UNEXPECTED_IN_OPEN_SENT)),
            (OpenConfirm, Idle, Some(Code::UNEXPECTED_IN_OPEN_CONFIRM)),
            (Established, Established, None),
        ],
    ),
    (
        "28 UpdateMsgErr",
        |bench| bench.say(&broken_update()),
        &[
            (OpenSent, Idle, Some(Code::UNEXPECTED_IN_OPEN_SENT)),
            (OpenConfirm, Idle, Some(Code::UNEXPECTED_IN_OPEN_CONFIRM)),
            (Established, Idle, Some(Code::MALFORMED_ATTRIBUTE_LIST)),
        ],
    ),
    (
        "RouteRefresh (RFC 2918)",
        |bench| bench.say(&RouteRefresh::new(IpFamily::V4).encode()),
        &[
            (OpenSent, Idle, Some(Code::UNEXPECTED_IN_OPEN_SENT)),
            (OpenConfirm, Idle, Some(Code::UNEXPECTED_IN_OPEN_CONFIRM)),
            (Established, Established, None),
        ],
    ),
    (
        "an unknown type",
        |bench| bench.say(&hex("ffffffffffffffffffffffffffffffff001406 00".replace(' ', "").as_str())),
        &[
            (OpenSent, Idle, Some(Code::BAD_TYPE)),
            (OpenConfirm, Idle, Some(Code::BAD_TYPE)),
            (Established, Idle, Some(Code::BAD_TYPE)),
        ],
    ),
    (
        "a configuration that needs another session",
        |bench| bench.input(Input::Configure(Box::new(Settings { hold_time: hold(30), ..settings() }))),
        &[
            (Idle, Connect, None),
            (Connect, Connect, None),
            (OpenSent, Idle, Some(Code::CONFIGURATION_CHANGE)),
            (OpenConfirm, Idle, Some(Code::CONFIGURATION_CHANGE)),
            (Established, Idle, Some(Code::CONFIGURATION_CHANGE)),
        ],
    ),
];

#[test]
fn why_the_session_ended_is_known_still_when_attempts_have_failed_since() {
    let mut bench = Bench::new(settings());
    refuse(&mut bench);
    assert_eq!(bench.session.status().last_drop, None, "there was no session");
    let mut bench = in_state(Established);
    bench.hang_up();
    let dropped = bench.session.status().last_drop.unwrap().clone();
    assert_eq!(bench.down(), Some(dropped.1.clone()));
    let wait = bench.until_attempt();
    bench.pass(wait);
    refuse(&mut bench);
    assert!(matches!(bench.down(), Some(Down::NotConnected(_))));
    assert_eq!(bench.session.status().last_drop, Some(&dropped));
}

/// Those of RFC 4271's events that have no row, and why.
const WITHOUT_ROW: &[(u8, &str)] = &[
    (3, "a session is started by being made, and starts again by itself: event 13"),
    (4, "one that does not dial is Active from the start"),
    (5, "as 4"),
    (6, "every session is damped: event 13"),
    (7, "as 6"),
    (8, "its one cause in RFC 4271 is too many prefixes of the peer's, and none are kept"),
    (12, "DelayOpen is off"),
    (14, "whether a connection is taken shows by event 17; there is a test of who may connect when"),
    (15, "as 14"),
    (20, "DelayOpen is off"),
    (23, "two connections are played with two engines face to face"),
];

#[test]
fn every_event_of_rfc_4271_has_a_row_or_a_reason() {
    let number = |event: &str| event.split(' ').next().and_then(|word| word.parse().ok());
    let rows = ROWS.iter().filter_map(|(event, ..)| number(event));
    let mut all: Vec<u8> = rows.chain(WITHOUT_ROW.iter().map(|(number, _)| *number)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..=28).collect::<Vec<_>>());
}

#[test]
fn every_event_in_every_state() {
    for (event, happen, states) in ROWS {
        for (before, after, told) in *states {
            let mut bench = in_state(*before);
            let what = format!("{event} in {before}");
            happen(&mut bench);
            assert_eq!((bench.state(), bench.code()), (*after, *told), "{what}");
            let connected = !matches!(before, Idle | Connect | Active);
            if connected && *after == Idle {
                // What was said last is worth a moment; where nothing was, there is nothing to wait for.
                let how = if told.is_some() { Close::AfterWriting } else { Close::AtOnce };
                let by_peer = event.starts_with("18");
                assert_eq!(bench.closed, if by_peer { vec![] } else { vec![how] }, "{what}");
                assert_eq!(bench.session.status().drops, u64::from(*before == Established), "{what}");
            }
            let waits = *after == Idle && !event.starts_with("2 ");
            assert_eq!(bench.session.status().next_attempt.is_some(), waits, "{what}");
            if waits {
                assert!(bench.until_attempt() >= seconds(1), "{what}: it connects again, not at once");
            }
        }
    }
}

#[test]
fn what_is_said_of_a_connection_that_is_no_more_is_ignored() {
    for state in [Idle, OpenSent, Established] {
        let mut bench = in_state(state);
        let (outputs, gone) = (bench.states.len(), [ConnectionId::Dialled(0), ConnectionId::Accepted(9)]);
        for connection in gone {
            bench.input(Input::Received { connection, bytes: &[0; 40] });
            bench.input(Input::Written { connection, bytes: 5 });
            bench.input(Input::Unacknowledged { connection, bytes: 5 });
            bench.input(Input::Closed { connection, error: None });
            bench.input(Input::ConnectFailed { connection, error: String::new() });
            bench.input(Input::Connected { connection, local: local("192.168.10.20") });
        }
        assert_eq!((bench.state(), bench.states.len()), (state, outputs));
    }
}

#[test]
fn a_peer_may_only_connect_while_it_is_waited_for() {
    let mut passive = in_state(Active);
    accept(&mut passive);
    passive.hang_up();
    let idle = (passive, true);
    let states = [(Idle, false), (Connect, false), (Active, false), (Established, true)];
    for (mut bench, refused) in
        states.map(|(state, refused)| (in_state(state), refused)).into_iter().chain([idle])
    {
        let state = bench.state();
        let (before, connection) = (bench.connection, ConnectionId::Accepted(1));
        bench.connection = Some(connection);
        bench.session.handle(bench.now, Input::Accepted { connection, local: local("192.168.10.20") });
        let first = bench.session.poll();
        let close = ferrolb_bgp::Output::Close { connection, how: Close::AtOnce };
        assert_eq!(first == Some(close), refused, "{state}: {first:?}");
        bench.connection = before;
    }
}

#[test]
fn the_open_says_who_is_wanted() {
    let refused = |open: Open| {
        let mut bench = in_state(OpenSent);
        bench.say(&open.encode());
        (bench.code(), bench.down().map(|down| down.to_string()))
    };
    let text = |text: &str| Some(text.to_owned());
    // BG-15
    let other = Open::new(asn(64_497), hold(90), id("192.168.10.1"), Default::default(), vec![]);
    assert_eq!(refused(other), (Some(Code::BAD_PEER_AS), text("unexpected peer ASN 64497, want 64513")));
    let nobody = Open { my_as: 0, capabilities: vec![], ..peer_open() };
    assert_eq!(refused(nobody), (Some(Code::BAD_PEER_AS), text("unexpected peer ASN 0, want 64513")));
}

#[test]
fn an_identifier_may_be_the_own_one_only_in_another_system() {
    let own = id("192.168.10.20");
    let mut external = in_state(OpenSent);
    external.say(&Open { identifier: own, ..peer_open() }.encode());
    assert_eq!(external.state(), OpenConfirm);
    let mut internal = Bench::new(Settings { peer: ferrolb_bgp::PeerAs::Internal, ..settings() });
    internal.connect();
    internal.say(&Open::new(asn(64_512), hold(90), own, Default::default(), vec![]).encode());
    assert_eq!((internal.state(), internal.code()), (Idle, Some(Code::BAD_IDENTIFIER)));
}

#[test]
fn bg_9_s80_a_notification_before_any_open_is_a_clean_end_with_its_meaning() {
    let mut bench = in_state(OpenSent);
    bench.say(&hex("ffffffffffffffffffffffffffffffff0015030202"));
    assert_eq!(bench.down(), Some(Down::Told(Code::BAD_PEER_AS.into())));
    assert_eq!(
        bench.down().unwrap().to_string(),
        "the peer sent NOTIFICATION Bad Peer AS (2/2): the autonomous system is not the one that is configured on \
         the other side"
    );
    let mut bench = Bench::established(settings());
    bench.say(&hex("ffffffffffffffffffffffffffffffff001b030602056d61696e74"));
    assert_eq!(
        bench.down().unwrap().to_string(),
        "the peer sent NOTIFICATION Administrative Shutdown (6/2): \"maint\": the session was shut down on the \
         sender's side",
        "BG-11"
    );
    // Next to another BGP speaker on the node: the router has a session with this address already.
    let mut bench = in_state(OpenSent);
    bench.say(&Notification::from(Code::COLLISION_RESOLUTION).encode());
    assert!(bench.down().unwrap().to_string().contains("another BGP speaker on the node"));
}

#[test]
fn s64_a_session_is_not_up_before_the_peers_keepalive() {
    let mut bench = in_state(OpenConfirm);
    assert_eq!(bench.states, [Connect, OpenSent, OpenConfirm]);
    assert_eq!(bench.updates(), []);
    bench.say(&keepalive());
    assert_eq!(bench.state(), Established);
    assert_eq!(bench.updates().len(), 2, "the end of two tables");
}

#[test]
fn a_session_comes_up_however_its_bytes_are_cut() {
    let stream = [peer_open().encode(), keepalive(), update(), keepalive()].concat();
    for size in [1, 2, 18, 19, 20, stream.len()] {
        let mut bench = in_state(OpenSent);
        stream.chunks(size).for_each(|piece| bench.say(piece));
        assert_eq!(bench.states, [Connect, OpenSent, OpenConfirm, Established], "pieces of {size}");
        let received = bench.session.counters().received;
        assert_eq!((received.opens, received.keepalives, received.updates, received.total()), (1, 2, 1, 4));
    }
}
