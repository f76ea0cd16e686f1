// SPDX-License-Identifier: Apache-2.0
//! Peers that wear a speaker out: with nothing, with half of something, with all the time in the world.

use std::time::Duration;

use ferrolb_bgp::wire::{Code, Families, Message, RouteRefresh, Update, keepalive};
use ferrolb_bgp::{Down, Goodbye, Input, Settings, State};
use ferrolb_net_types::{IpFamily, Prefix, Time};

use crate::bench::{Bench, hold, peer_open, prefix, route, seconds, settings};

fn nothing() -> Vec<u8> {
    Update::EndOfRib(IpFamily::V4).encode(&Default::default()).unwrap()
}

#[test]
fn updates_of_nothing_by_the_hundred_thousand_leave_nothing() {
    let mut bench = Bench::established(settings());
    bench.forget();
    let many = nothing().repeat(1_000);
    for _ in 0..100 {
        bench.say(&many);
    }
    assert_eq!((bench.state(), bench.messages().len(), bench.notices.len()), (State::Established, 0, 0));
    assert_eq!(bench.session.counters().received.updates, 100_000);
    assert_eq!(bench.session.counters().faulty_updates, 0);
}

/// The UPDATEs that were sent, by the second.
fn told(bench: &Bench) -> Vec<u64> {
    let update = |(at, message): (Time, Message)| {
        matches!(message, Message::Update(_)).then_some(at.since_start().as_secs())
    };
    bench.timed_messages().into_iter().filter_map(update).collect()
}

#[test]
fn however_often_a_peer_asks_for_everything_it_is_told_once_and_again_when_it_has_taken_that() {
    let both = Settings { families: Families::BOTH, ..settings() };
    let mut bench = Bench::established(both);
    let address = |n: u32| Prefix::host(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into());
    let many: Vec<_> = (0..3000).map(|n| (address(n), Some(route(1)))).collect();
    bench.input(Input::Routes(&many));
    let table = told(&bench).len() - 2; // Two for the end of each family.
    assert_eq!(table, 4);
    bench.forget();
    // As many as one read holds, for one family and for both.
    let flood = RouteRefresh::new(IpFamily::V4).encode().repeat(712);
    let either =
        [IpFamily::V4, IpFamily::V6].map(|family| RouteRefresh::new(family).encode()).concat().repeat(356);
    for (second, flood) in [&flood, &either, &flood].into_iter().enumerate() {
        bench.say(flood);
        assert_eq!(told(&bench).len(), table * (second + 1), "once per read");
        bench.pass(seconds(1));
    }
    bench.forget();
    // One that does not take the answer gets no other, however long it goes on: a minute of it, a read every tenth of a
    // second.
    bench.takes = false;
    for _ in 0..600 {
        bench.say(&flood);
        bench.pass(Duration::from_millis(100));
        bench.say(&keepalive());
    }
    assert_eq!(told(&bench), [3; 4]);
    assert_eq!(bench.session.counters().received.route_refreshes, 3 * 712 + 600 * 712);
    let bytes = bench.sent.iter().map(|(_, bytes)| bytes.len()).sum();
    bench.takes = true;
    let connection = bench.connection.unwrap();
    bench.input(Input::Written { connection, bytes });
    assert_eq!(told(&bench), [3, 3, 3, 3, 63, 63, 63, 63], "what it has asked for since");
    bench.pass(seconds(10));
    assert_eq!(told(&bench).len(), 8);
    assert_eq!((bench.session.status().told, bench.session.status().settled), (3000, true));
}

#[test]
fn who_asks_while_it_is_told_something_is_told_all_of_it_again_afterwards() {
    let mut bench = Bench::established(settings());
    let one = [(prefix("192.0.2.1/32"), Some(route(0)))];
    let two = [(prefix("192.0.2.2/32"), Some(route(0)))];
    bench.input(Input::Routes(&one));
    bench.forget();
    bench.takes = false;
    bench.input(Input::Routes(&two));
    bench.say(&RouteRefresh::new(IpFamily::V4).encode());
    let bytes = bench.sent[0].1.len();
    assert_eq!(bench.updates().len(), 1);
    bench.takes = true;
    bench.forget();
    let connection = bench.connection.unwrap();
    bench.input(Input::Written { connection, bytes });
    let [Update::Announce(all)] = &bench.updates()[..] else { panic!("{:?}", bench.updates()) };
    assert_eq!(all.prefixes(), [one[0].0, two[0].0]);
    // A wish ends with its connection.
    bench.takes = false;
    bench.input(Input::Routes(&[(one[0].0, None)]));
    bench.say(&RouteRefresh::new(IpFamily::V4).encode());
    bench.hang_up();
    bench.takes = true;
    bench.until_attempt();
    bench.connect();
    bench.say(&peer_open().encode());
    bench.say(&keepalive());
    assert_eq!(told(&bench).len(), 3, "the one route and two ends");
}

#[test]
fn an_open_may_come_by_the_byte_but_not_for_ever() {
    let mut bench = Bench::new(settings());
    bench.connect();
    for byte in peer_open().encode() {
        bench.pass(seconds(1));
        bench.say(&[byte]);
    }
    assert_eq!(bench.state(), State::OpenConfirm);
    // One that never comes to its end is as good as none.
    let mut bench = Bench::new(settings());
    bench.connect();
    let mut waited = 0;
    for byte in peer_open().encode() {
        bench.pass(seconds(10));
        waited += 10;
        if bench.connection.is_none() {
            break;
        }
        bench.say(&[byte]);
    }
    assert_eq!((waited, bench.code()), (240, Some(Code::HOLD_TIMER_EXPIRED)));
}

#[test]
fn whatever_happens_while_an_update_is_half_read_happens_in_good_order() {
    let half = || {
        let mut bench = Bench::established(settings());
        bench.input(Input::Routes(&[(prefix("192.0.2.1/32"), Some(route(0)))]));
        bench.forget();
        bench.say(&nothing()[..20]);
        bench
    };
    let mut stopped = half();
    stopped.input(Input::Stop(Goodbye::deconfigured()));
    assert_eq!((stopped.code(), stopped.stopped), (Some(Code::PEER_DECONFIGURED), 1));
    let mut changed = half();
    changed.input(Input::Configure(Box::new(Settings { hold_time: hold(30), ..settings() })));
    assert_eq!(changed.code(), Some(Code::CONFIGURATION_CHANGE));
    let mut silent = half();
    silent.pass(seconds(90));
    assert_eq!(silent.down(), Some(Down::HoldTimer { state: State::Established }));
    let mut closed = half();
    closed.hang_up();
    assert_eq!(closed.down(), Some(Down::Closed { state: State::Established, error: None }));
    // The rest of it belongs to a connection that is no more: the next one begins anew.
    let wait = closed.until_attempt();
    assert!(wait >= seconds(1));
    closed.connect();
    closed.say(&peer_open().encode());
    closed.say(&keepalive());
    assert_eq!((closed.state(), closed.session.status().told), (State::Established, 1));
    let mut goes_on = half();
    goes_on.say(&nothing()[20..]);
    assert_eq!((goes_on.state(), goes_on.session.counters().received.updates), (State::Established, 1));
}
