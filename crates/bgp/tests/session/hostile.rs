// SPDX-License-Identifier: Apache-2.0
//! Peers that wear a speaker out: with nothing, with half of something, with all the time in the world.

use ferrolb_bgp::wire::{Code, Update, keepalive};
use ferrolb_bgp::{Down, Goodbye, Input, Settings, State};
use ferrolb_net_types::IpFamily;

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
