// SPDX-License-Identifier: Apache-2.0
//! What the log says of sessions: the words and keys that people search for, and what helps to mend what is wrong.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

use ferrolb_bgp::Notice;
use ferrolb_bgp::wire::{Code, Notification};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::bgp::lines::Lines;

/// A line as its fields, with `level` among them.
type Line = BTreeMap<String, String>;

/// What every session of this program said since there is a recorder. They have threads of their own, but each has its
/// peer's address in every line, and no two tests have the same one.
static HEARD: Mutex<Vec<Line>> = Mutex::new(Vec::new());

fn install() {
    static ONCE: Once = Once::new();
    // Nobody else in this program sets one.
    ONCE.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
}

/// The lines about these peers, as soon as they are so many.
fn lines(peers: &[SocketAddr], count: usize) -> Vec<Line> {
    let end = Instant::now() + PATIENCE;
    loop {
        let heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let about = |line: &Line| peers.iter().any(|peer| line.get("peer") == Some(&peer.ip().to_string()));
        let lines: Vec<_> = heard.into_iter().filter(about).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(Instant::now() < end, "not {count} lines: {lines:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Recorder;

struct Fields(Line);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Line::new());
        fields.0.insert("level".to_owned(), event.metadata().level().to_string().to_lowercase());
        event.record(&mut fields);
        if fields.0.contains_key("peer") {
            HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(fields.0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The line has these fields, and those of every line of a session.
#[track_caller]
fn assert_has(line: &Line, name: &str, peer: SocketAddr, expected: &[(&str, &str)]) {
    let (ip, port, own, theirs) =
        (peer.ip().to_string(), peer.port().to_string(), OWN.to_string(), THEIRS.to_string());
    let every: [(&str, &str); 5] =
        [("peer", &ip), ("port", &port), ("name", name), ("localASN", &own), ("peerASN", &theirs)];
    for (key, value) in every.iter().chain(expected) {
        assert_eq!(line.get(*key).map(String::as_str), Some(*value), "{key} of {line:?}");
    }
}

/// What a router says that is under maintenance.
fn maintenance() -> Vec<u8> {
    let text = "maintenance until 6";
    let data = [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    Notification { code: Code::ADMINISTRATIVE_SHUTDOWN, data }.encode()
}

const TOLD: &str = "got BGP notification code 0x0602 (Administrative Shutdown)";

#[test]
fn a_session_that_comes_up_and_ends_is_told_with_its_bgppeer_its_port_and_the_reason() {
    install();
    let router = Router::on("127.10.30.1");
    let mut bench = Bench::new();
    bench.plan("router", plan(router.address));
    let mut talk = router.session();
    bench.established("router");
    talk.say(&maintenance());
    bench.wait("router", |report| report.drops == 1);
    let lines = lines(&[router.address], 3);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_has(
        &lines[0],
        "router",
        router.address,
        &[("level", "info"), ("event", "sessionUp"), ("message", "BGP session established")],
    );
    assert_has(
        &lines[1],
        "router",
        router.address,
        &[
            ("level", "error"),
            ("event", "peerNotification"),
            ("error", TOLD),
            ("message", "peer sent notification, closing session"),
        ],
    );
    assert_has(
        &lines[2],
        "router",
        router.address,
        &[("level", "warn"), ("event", "sessionDown"), ("message", "BGP session down")],
    );
    for line in &lines[1..] {
        let reason = &line["reason"];
        assert!(
            reason.contains("Administrative Shutdown") && reason.contains("maintenance until 6"),
            "{reason}"
        );
    }
}

#[test]
fn bg_11_a_router_that_refuses_the_session_is_told_with_its_words_and_what_they_mean() {
    install();
    let mut bench = Bench::new();
    for (name, address, word, wanted) in [
        ("text", "127.10.31.1", maintenance(), "maintenance until 6"),
        // Beside another speaker of the node, such as Calico's.
        (
            "meaning",
            "127.10.31.2",
            Notification::from(Code::COLLISION_RESOLUTION).encode(),
            "the sender already has a session with this address, perhaps with another BGP speaker on the node",
        ),
    ] {
        // What is dialled once more, before it is removed, is not taken for the next one.
        let router = Router::on(address);
        bench.plan(name, plan(router.address));
        let mut talk = router.accept();
        talk.say(&word);
        bench.wait(name, |report| report.last_down.is_some());
        bench.remove(name);
        bench.over(name);
        let told: Vec<_> =
            lines(&[router.address], 1).into_iter().filter(|line| line["name"] == name).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_has(&told[0], name, router.address, &[("level", "error"), ("event", "peerNotification")]);
        assert!(told[0]["reason"].contains(wanted), "{told:?}");
    }
}

#[test]
fn an_attempt_that_fails_is_told_with_its_cause() {
    install();
    let nobody: SocketAddr = "127.10.32.1:9".parse().unwrap();
    let mut bench = Bench::new();
    bench.plan("nobody", plan(nobody));
    bench.wait("nobody", |report| report.last_down.is_some());
    let line = &lines(&[nobody], 1)[0];
    let message = ("message", "failed to connect to peer");
    assert_has(line, "nobody", nobody, &[("level", "error"), ("op", "connect"), message]);
    assert!(line["error"].contains("refused"), "{line:?}");
}

#[test]
fn two_bgppeers_of_one_address_are_told_apart() {
    install();
    let routers = ["127.10.33.1", "127.10.33.1"].map(Router::on);
    let mut bench = Bench::new();
    let mut talks = Vec::new();
    for (name, router) in ["one", "two"].into_iter().zip(&routers) {
        bench.plan(name, plan(router.address));
        talks.push(router.session());
        bench.established(name);
    }
    let lines = lines(&[routers[0].address], 2);
    for (line, (name, router)) in lines.iter().zip(["one", "two"].into_iter().zip(&routers)) {
        assert_has(line, name, router.address, &[("event", "sessionUp")]);
    }
}

#[test]
fn bg_17_where_nothing_answers_and_there_is_a_password_that_may_be_why() {
    install();
    let nowhere: SocketAddr = "127.10.34.1:179".parse().unwrap();
    let silent = Notice::Down { was: State::Connect, down: Down::NoAnswer };
    for (name, password) in [("with", Password::new(b"secret")), ("without", None)] {
        let plan = PeerPlan { password, ..plan(nowhere) };
        Lines::new(&PeerName::from(name), &plan).notice(&silent);
    }
    let lines = lines(&[nowhere], 2);
    let hint =
        "cannot connect: no answer; the router may have another password, or none, and then answers nothing";
    assert_has(&lines[0], "with", nowhere, &[("op", "connect"), ("error", hint)]);
    assert_has(&lines[1], "without", nowhere, &[("op", "connect"), ("error", "cannot connect: no answer")]);
    assert!(!format!("{lines:?}").contains("secret"));
}
