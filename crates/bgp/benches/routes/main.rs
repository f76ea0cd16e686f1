// SPDX-License-Identifier: Apache-2.0
//! What telling routes costs, from what is wanted to bytes and back: `cargo bench -p ferrolb-bgp`.

#![allow(clippy::unwrap_used)] // values of its own

#[allow(dead_code)] // each bench needs a part of it
#[path = "../../../ipam/benches/allocation/table.rs"]
mod table;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrolb_bgp::wire::{Community, Context, Families, HoldTime, Message, Open, Reader, RouterId, keepalive};
use ferrolb_bgp::{ConnectionId, Input, Local, Output, PeerAs, Route, Session, Settings};
use ferrolb_net_types::{Asn, Prefix, Time};

use crate::table::{Table, Unit};

const MANY: u32 = 10_000;
type Change = (Prefix, Option<Arc<Route>>);

fn main() -> ExitCode {
    let mut table = Table::from_arguments();
    let aim = Some(Duration::from_millis(10));
    let wanted = routes(MANY, 1);

    let up = table.best(|| waiting(&wanted), |session| come_up(session).0);
    table.time("10,000 routes from the first KEEPALIVE to the last byte", up, aim, Unit::Milliseconds);
    let bytes = come_up(waiting(&wanted)).1;
    table.count("UPDATEs, with two for the end of the table", updates(&bytes), 15);
    let hundred = routes(MANY, 100);
    let apart = table.best(|| waiting(&hundred), |session| come_up(session).0);
    table.ratio("the same with 100 sets of attributes, to one", apart, up, 4.0);

    let told = table.best(|| told(&[]), |mut session| say(&mut session, &wanted));
    table.time("10,000 routes wanted of an established session", told, aim, Unit::Milliseconds);
    let gone: Vec<Change> = wanted.iter().map(|(prefix, _)| (*prefix, None)).collect();
    let withdrawn = table.best(|| self::told(&wanted), |mut session| say(&mut session, &gone));
    table.time("10,000 routes withdrawn", withdrawn, aim, Unit::Milliseconds);

    let changed = |count: u32| {
        let among = routes(count, 1);
        let (prefix, _) = among[among.len() / 2];
        let variants = [route(7), route(8)].map(|route| [(prefix, Some(route))]);
        let turns = |mut session| {
            for turn in 0..1000 {
                assert_eq!(updates(&say(&mut session, &variants[turn % 2])), 1);
            }
            session
        };
        table.best(|| self::told(&among), turns) / 1000
    };
    let (among_many, among_few) = (changed(MANY), changed(10));
    table.time("one route changed among 10,000", among_many, None, Unit::Microseconds);
    table.ratio("of that, to one among 10", among_many, among_few, 3.0);

    let read = table.best(|| bytes.clone(), |bytes| updates(&bytes));
    table.time("10,000 routes read", read, aim, Unit::Milliseconds);
    table.finish()
}

fn routes(count: u32, sets: u32) -> Vec<Change> {
    let sets: Vec<Arc<Route>> = (0..sets).map(|n| route(n.try_into().unwrap())).collect();
    let nth = |n: u32| {
        let prefix = Prefix::host(Ipv4Addr::from_bits(0x0a00_0000 + n).into());
        (prefix, Some(Arc::clone(&sets[n as usize % sets.len()])))
    };
    (0..count).map(nth).collect()
}

fn route(low: u16) -> Arc<Route> {
    Arc::new(Route { communities: [Community::new(64_512, low)].into(), ..Route::default() })
}

/// A session that waits for its peer's first KEEPALIVE.
fn waiting(wanted: &[Change]) -> Session {
    let asn = |number| Asn::new(number).unwrap();
    let settings = Settings::native(asn(64_512), PeerAs::External);
    let mut session = Session::new(Time::ZERO, settings, 1);
    session.handle(Time::ZERO, Input::Routes(wanted));
    let address = Ipv4Addr::new(192, 168, 10, 20).into();
    let local = Local::new(address, &[address], None, "node1");
    session.handle(Time::ZERO, Input::Connected { connection: ConnectionId::Dialled(1), local });
    let id = RouterId::new(Ipv4Addr::new(192, 168, 10, 1)).unwrap();
    let open = Open::new(asn(64_513), HoldTime::seconds(90).unwrap(), id, Families::BOTH, vec![]);
    hear(&mut session, &open.encode());
    drain(&mut session);
    session
}

/// The session once it has told everything.
fn told(wanted: &[Change]) -> Session {
    let (session, _) = come_up(waiting(wanted));
    assert_eq!(session.status().told, wanted.len());
    session
}

fn come_up(mut session: Session) -> (Session, Vec<u8>) {
    hear(&mut session, &keepalive());
    let bytes = drain(&mut session);
    (session, bytes)
}

fn hear(session: &mut Session, bytes: &[u8]) {
    session.handle(Time::ZERO, Input::Received { connection: ConnectionId::Dialled(1), bytes });
}

fn say(session: &mut Session, changes: &[Change]) -> Vec<u8> {
    session.handle(Time::ZERO, Input::Routes(changes));
    drain(session)
}

/// What is sent, all of it written at once.
fn drain(session: &mut Session) -> Vec<u8> {
    let mut sent = Vec::new();
    while let Some(output) = session.poll() {
        if let Output::Send { connection, bytes } = output {
            sent.extend_from_slice(&bytes);
            session.handle(Time::ZERO, Input::Written { connection, bytes: bytes.len() });
        }
    }
    sent
}

/// Reads UPDATEs; how many.
fn updates(mut bytes: &[u8]) -> usize {
    let context = Context { families: Families::BOTH, ..Context::default() };
    let (mut reader, mut count) = (Reader::new(), 0);
    while let Some(message) = reader.read(&mut bytes, &context).unwrap() {
        assert!(matches!(message, Message::Update(_)));
        count += 1;
    }
    count
}
