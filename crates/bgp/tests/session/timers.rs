// SPDX-License-Identifier: Apache-2.0
//! Timers: who waits how long for whom.

use std::time::Duration;

use ferrolb_bgp::wire::{Code, Message, Notification, Open, keepalive};
use ferrolb_bgp::{Close, DIAL, Down, Goodbye, Input, Settings, State};
use ferrolb_net_types::Time;

use crate::bench::{Bench, hex, hold, local, peer_open, prefix, route, seconds, settings};

/// When KEEPALIVEs were sent, in milliseconds.
fn keepalives(bench: &Bench) -> Vec<u128> {
    let of = |(time, message): (Time, Message)| {
        (message == Message::Keepalive).then_some(time.since_start().as_millis())
    };
    bench.timed_messages().into_iter().filter_map(of).collect()
}

fn with_hold(own: u16, peer: u16) -> Bench {
    let mut bench = Bench::new(Settings { hold_time: hold(own), ..settings() });
    bench.connect();
    bench.say(&Open { hold_time: hold(peer), ..peer_open() }.encode());
    bench.say(&keepalive());
    bench
}

#[test]
fn s62_x07_a_peer_that_falls_silent_is_dropped_after_the_hold_time_and_told_so() {
    for (own, peer, agreed) in [(90, 90, 90), (90, 30, 30), (3, 90, 3), (90, 180, 90), (90, 9, 9)] {
        let mut bench = with_hold(own, peer);
        // It lives as long as it says so.
        for _ in 0..5 {
            bench.pass(seconds(agreed) - Duration::from_millis(1));
            bench.say(&keepalive());
        }
        bench.pass(seconds(agreed) - Duration::from_millis(1));
        assert_eq!(bench.state(), State::Established, "{own} {peer}");
        bench.pass(Duration::from_millis(1));
        assert_eq!((bench.state(), bench.code()), (State::Idle, Some(Code::HOLD_TIMER_EXPIRED)));
        assert_eq!(bench.down(), Some(Down::HoldTimer { state: State::Established }));
    }
}

#[test]
fn only_a_message_that_is_whole_is_a_sign_of_life() {
    let mut bench = with_hold(9, 9);
    for byte in [0xff; 8] {
        bench.pass(seconds(1));
        bench.say(&[byte]);
    }
    bench.pass(seconds(1));
    assert_eq!(bench.code(), Some(Code::HOLD_TIMER_EXPIRED));
}

#[test]
fn keepalives_come_three_times_per_hold_time_and_an_update_is_as_good_as_one() {
    let mut bench = with_hold(10, 90);
    for _ in 0..4 {
        bench.pass(seconds(5));
        bench.say(&keepalive());
    }
    // The first confirms the OPEN.
    assert_eq!(keepalives(&bench), [0, 3333, 6666, 9999, 13_333, 16_666, 19_999]);
    let mut bench = with_hold(90, 90);
    bench.pass(seconds(20));
    bench.input(Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(0)))]));
    bench.pass(seconds(40));
    assert_eq!(keepalives(&bench), [0, 50_000]);
}

#[test]
fn bg_14_with_hold_time_0_nobody_sends_keepalives_and_the_session_stays() {
    for (own, peer) in [(0, 90), (90, 0), (0, 0)] {
        let mut bench = with_hold(own, peer);
        bench.pass(seconds(100_000));
        assert_eq!((bench.state(), keepalives(&bench)), (State::Established, vec![0]));
        assert_eq!(bench.session.next_deadline(), None, "S75: nothing is left to wait for");
    }
}

#[test]
fn another_keepalive_time_is_taken_on_while_the_session_lasts() {
    let mut bench = with_hold(90, 90);
    let other = Settings { keepalive: Some(seconds(7)), ..settings() };
    bench.pass(seconds(1));
    bench.input(Input::Configure(Box::new(other)));
    bench.pass(seconds(15));
    assert_eq!((bench.state(), keepalives(&bench)), (State::Established, vec![0, 1000, 8000, 15_000]));
}

#[test]
fn a_peer_that_never_says_anything_is_given_four_minutes() {
    let mut bench = Bench::new(settings());
    bench.connect();
    bench.pass(seconds(239));
    assert_eq!(bench.state(), State::OpenSent);
    bench.pass(seconds(1));
    assert_eq!((bench.state(), bench.code()), (State::Idle, Some(Code::HOLD_TIMER_EXPIRED)));
    assert_eq!(bench.down(), Some(Down::HoldTimer { state: State::OpenSent }));
}

#[test]
fn connecting_is_given_up_after_ten_seconds() {
    let mut bench = Bench::new(settings());
    bench.pass(DIAL - Duration::from_millis(1));
    assert_eq!(bench.state(), State::Connect);
    bench.pass(Duration::from_millis(1));
    assert_eq!((bench.state(), bench.down()), (State::Idle, Some(Down::NoAnswer)));
    assert_eq!(bench.closed, [Close::AtOnce]);
    // What came too late is not there.
    let waits = bench.until_attempt();
    assert!(waits >= seconds(1) && waits < seconds(2));
}

/// How long the session waited before each attempt, with a peer that ends each in this way.
fn waits(count: usize, settings: Settings, end: impl Fn(&mut Bench)) -> Vec<Duration> {
    let mut bench = Bench::new(settings);
    let mut wait = |_| {
        end(&mut bench);
        bench.until_attempt()
    };
    (0..count).map(&mut wait).collect()
}

fn refuse(bench: &mut Bench) {
    let connection = bench.connection.take().unwrap();
    bench.input(Input::ConnectFailed { connection, error: "connection refused".to_owned() });
}

fn come_up(bench: &mut Bench) {
    bench.connect();
    bench.say(&peer_open().encode());
    bench.say(&keepalive());
    assert_eq!(bench.state(), State::Established);
}

/// How a peer ends a connection, and a name for it.
type End = (&'static str, fn(&mut Bench));

#[test]
fn x08_s63_bg_6_bg_10_the_next_attempt_waits_a_second_then_twice_as_long_whatever_the_end_was() {
    let ends: [End; 8] = [
        ("refused", refuse),
        ("no answer", |bench| bench.pass(DIAL)),
        ("closed after the OPEN", |bench| {
            bench.connect();
            bench.hang_up();
        }),
        ("a NOTIFICATION after the OPEN", |bench| {
            bench.connect();
            bench.say(&peer_open().encode());
            bench.say(&hex("ffffffffffffffffffffffffffffffff0015030602"));
        }),
        ("BG-6 a NOTIFICATION after the first UPDATE", |bench| {
            come_up(bench);
            bench.say(&hex("ffffffffffffffffffffffffffffffff001503030b"));
        }),
        ("S63 closed 50 ms after it came up", |bench| {
            come_up(bench);
            bench.pass(Duration::from_millis(50));
            bench.hang_up();
        }),
        ("an OPEN that is refused", |bench| {
            bench.connect();
            bench.say(&Open { capabilities: vec![], my_as: 1, ..peer_open() }.encode());
        }),
        ("closed 29 s after it came up", |bench| {
            come_up(bench);
            bench.pass(seconds(29));
            bench.hang_up();
        }),
    ];
    for (what, end) in ends {
        for (wait, least) in waits(10, settings(), end).into_iter().zip([1, 2, 4, 8, 16, 32, 64, 90, 90, 90])
        {
            let most = seconds(120).min(seconds(least) * 4 / 3 + Duration::from_millis(1));
            assert!(seconds(least) <= wait && wait <= most, "{what}: {wait:?} for {least} s");
        }
    }
}

#[test]
fn bg_10_a_peer_that_shuts_down_at_once_sees_at_most_8_connections_in_a_minute() {
    let mut bench = Bench::new(settings());
    while bench.now < Time::millis(60_000) {
        bench.connect();
        bench.say(&hex("ffffffffffffffffffffffffffffffff00350104fc01005ac00002011802060104000100010202800002020200020641040000fc01"));
        bench.say(&Notification::from(Code::ADMINISTRATIVE_SHUTDOWN).encode());
        bench.until_attempt();
    }
    let within = bench.attempts.iter().filter(|at| **at <= Time::millis(60_000)).count();
    assert!((5..=8).contains(&within), "{within}");
}

#[test]
fn a_session_that_lasted_30_seconds_was_no_failure() {
    let long = |bench: &mut Bench| {
        come_up(bench);
        bench.pass(seconds(30));
        bench.hang_up();
    };
    assert!(waits(10, settings(), long).iter().all(|wait| (seconds(1)..seconds(2)).contains(wait)));
}

#[test]
fn the_longest_wait_is_a_setting() {
    let five = Settings { retry_at_most: seconds(5), ..settings() };
    let waits = waits(20, five, refuse);
    assert!(waits.iter().all(|wait| (seconds(1)..=seconds(5)).contains(wait)), "{waits:?}");
    assert!(waits[10..].iter().all(|wait| *wait >= Duration::from_millis(3750)), "{waits:?}");
}

#[test]
fn who_asks_for_it_does_not_have_to_wait() {
    let mut bench = Bench::new(settings());
    for _ in 0..8 {
        refuse(&mut bench);
        bench.until_attempt();
    }
    refuse(&mut bench);
    bench.input(Input::Start);
    assert_eq!(bench.state(), State::Connect);
    refuse(&mut bench);
    assert!(bench.until_attempt() < seconds(2), "and begins anew");
    // So does another configuration, which may be the right one.
    for _ in 0..8 {
        refuse(&mut bench);
        bench.until_attempt();
    }
    refuse(&mut bench);
    bench.input(Input::Configure(Box::new(Settings { hold_time: hold(9), ..settings() })));
    assert_eq!(bench.state(), State::Connect);
    bench.connect();
    assert!(matches!(&bench.messages()[..], [Message::Open(open)] if open.hold_time == hold(9)));
}

#[test]
fn a_peer_that_never_reads_is_dropped_after_the_send_hold_time() {
    // Whether or not the operating system has room for it: so many bytes of it.
    for (takes, more) in [(false, false), (true, false), (true, true)] {
        let mut bench = Bench::established(settings());
        (bench.takes, bench.acknowledges) = (takes, false);
        bench.input(Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(0)))]));
        bench.forget();
        // It keeps on talking, so that its own hold timer and ours are content.
        for second in 1..480_u16 {
            bench.pass(seconds(1));
            bench.say(&keepalive());
            assert_eq!(bench.state(), State::Established, "after {second} s");
            if more && second % 7 == 0 {
                bench.input(Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(second)))]));
            }
        }
        if !takes {
            assert_eq!(bench.messages(), [], "nothing is added to what it does not read");
        }
        // What it has read before is seen by the time somebody looks: within an eighth of that time.
        for _ in 480..=540 {
            bench.say(&keepalive());
            bench.pass(seconds(1));
            if bench.connection.is_none() {
                break;
            }
        }
        assert_eq!((bench.state(), bench.down()), (State::Idle, Some(Down::SendHoldTimer)));
        assert_eq!(bench.closed, [Close::AtOnce], "a last word would not be read either");
    }
}

#[test]
fn a_peer_that_reads_slowly_is_not_dropped_until_it_stops() {
    for hold_time in [hold(90), hold(0)] {
        let mine = Settings { hold_time, send_hold: Some(seconds(80)), ..settings() };
        let mut bench = Bench::established(mine);
        bench.acknowledges = false;
        let many: Vec<_> = (0..250).map(|n| (prefix(&format!("192.0.2.{n}/32")), Some(route(0)))).collect();
        bench.input(Input::Routes(&many));
        for _ in 0..20 {
            bench.pass(seconds(69));
            bench.say(&keepalive());
            bench.unacknowledged -= 1;
            assert_eq!(bench.state(), State::Established);
        }
        // It is seen when somebody looks: within an eighth of that time.
        bench.pass(seconds(79));
        bench.say(&keepalive());
        assert_eq!(bench.state(), State::Established);
        bench.pass(seconds(11));
        assert_eq!(bench.down(), Some(Down::SendHoldTimer));
    }
}

#[test]
fn what_is_acknowledged_leaves_nothing_to_look_after() {
    let mut bench = with_hold(0, 0);
    bench.acknowledges = false;
    bench.input(Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(0)))]));
    let mut looks = 0;
    while let Some(due) = bench.session.next_deadline().filter(|_| looks < 4) {
        bench.pass(due - bench.now);
        looks += 1;
    }
    assert_eq!((looks, bench.now), (4, Time::millis(4 * 60_000)));
    bench.unacknowledged = 0;
    bench.pass(seconds(60));
    assert_eq!((bench.state(), bench.session.next_deadline()), (State::Established, None));
}

#[test]
fn bg_42_a_peer_that_was_never_reached_leaves_nothing_behind() {
    let mut bench = Bench::new(settings());
    for _ in 0..3 {
        bench.pass(DIAL);
        bench.until_attempt();
    }
    bench.input(Input::Stop(Goodbye::deconfigured()));
    assert_eq!((bench.stopped, bench.session.next_deadline()), (1, None));
    assert_eq!((bench.state(), bench.connection), (State::Idle, None));
    let connection = ferrolb_bgp::ConnectionId::Dialled(4);
    bench.input(Input::Connected { connection, local: local("192.168.10.20") });
    assert_eq!(bench.state(), State::Idle);
}
