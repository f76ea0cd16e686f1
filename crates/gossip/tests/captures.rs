// SPDX-License-Identifier: Apache-2.0
//! Conversations of memberlist's members that were captured, played: ours takes each part in turn, is told what the
//! captured one was told, and says what it said.
//!
//! Where a packet was sent twice, ours may send it oftener or to somebody else first: chance decides that. What it says,
//! and in which order, is compared.

#![allow(clippy::unwrap_used)] // the helpers of tests

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use ferrolb_gossip::wire::{
    Accusation, Alive, Codec, Key, Keyring, Message, State, StreamMessage, StreamReader,
};
use ferrolb_gossip::{Change, Engine, Input, Name, Output, Settings, StreamId, VERSIONS};
use ferrolb_net_types::Time;
use serde_json::Value;

/// A capture.
struct Capture {
    codec: Codec,
    vectors: Vec<Value>,
}

impl Capture {
    fn load(name: &str) -> Self {
        let path = format!("{}/tests/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let mut file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let key = Key::new(&unhex(&file["key_hex"])).unwrap();
        let vectors = file["vectors"].as_array_mut().unwrap().drain(..).collect();
        Self { codec: Codec::new(Some(Keyring::new(key, Vec::new()))), vectors }
    }

    /// The datagrams from one member to another, with what they say.
    fn datagrams(&self, from: &str, to: &str) -> Vec<(Vec<u8>, Vec<Message>)> {
        let between = |vector: &&Value| {
            vector["from"] == socket(from).to_string() && vector["to"] == socket(to).to_string()
        };
        let bytes = self.vectors.iter().filter(between).map(|vector| unhex(&vector["hex"]));
        bytes.map(|bytes| (bytes.clone(), self.messages(&bytes))).collect()
    }

    /// The exchanges, as what was asked and what was answered.
    fn exchanges(&self) -> Vec<(StreamMessage, StreamMessage)> {
        let read = |mut reader: StreamReader, said: &Value| {
            reader.push(&self.codec, &unhex(&said["hex"])).unwrap().unwrap()
        };
        let streams = self.vectors.iter().filter(|vector| vector["transport"] == "stream");
        streams
            .map(|vector| {
                let asked = read(StreamReader::accepted(), &vector["client_sends"]);
                (asked, read(StreamReader::dialled(), &vector["server_sends"]))
            })
            .collect()
    }

    fn messages(&self, bytes: &[u8]) -> Vec<Message> {
        self.codec.read_packet(bytes).unwrap().messages
    }

    /// A member of ours in the place of one that was captured.
    fn member(&self, name: &str, now: Time) -> Engine {
        let settings = Settings::plain(name.into(), socket(name), self.codec.clone());
        let mut engine = Engine::new(now, settings, [7; 32]);
        take(&mut engine);
        engine
    }

    /// What it sends within this time from now on: to whom, and what it says.
    fn sent(&self, engine: &mut Engine, from: Time, within: Duration) -> Vec<(SocketAddr, Vec<Message>)> {
        let mut sent = self.said(take(engine));
        while let Some(at) = engine.next_deadline().filter(|at| *at <= from + within) {
            engine.handle_timeout(at);
            sent.extend(self.said(take(engine)));
        }
        sent
    }

    fn said(&self, outputs: Vec<Output>) -> Vec<(SocketAddr, Vec<Message>)> {
        let datagram = |output| match output {
            Output::Datagram { to, bytes } => Some((to, self.messages(&bytes))),
            _ => None,
        };
        outputs.into_iter().filter_map(datagram).collect()
    }
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Where the captured members are: node-a at 127.0.0.11, node-b at 127.0.0.12, and so on.
fn socket(name: &str) -> SocketAddr {
    let number = name.as_bytes()[name.len() - 1] - b'a';
    SocketAddr::from(([127, 0, 0, 11 + number], 7946))
}

fn alive(name: &str) -> Message {
    let SocketAddr::V4(address) = socket(name) else { unreachable!("all are") };
    Message::Alive(Alive {
        incarnation: 1,
        node: name.into(),
        address: address.ip().octets().to_vec(),
        port: 7946,
        meta: None,
        versions: Some(VERSIONS.to_vec()),
    })
}

fn dead(name: &str, from: &str) -> Message {
    Message::Dead(Accusation { incarnation: 1, node: name.into(), from: from.into() })
}

fn take(engine: &mut Engine) -> Vec<Output> {
    std::iter::from_fn(|| engine.poll()).collect()
}

/// Says something to a member, encrypted as the others do.
fn tell(capture: &Capture, engine: &mut Engine, now: Time, from: &str, message: &Message) {
    let bytes = capture.codec.packet(message.encode(), false, &[3; 12]);
    engine.handle(now, Input::Datagram { source: socket(from), bytes: &bytes });
}

/// A cluster of four as one of them sees it, all news of which have long been spread.
fn one_of_four(capture: &Capture, name: &str) -> (Engine, Time) {
    let mut engine = capture.member(name, Time::ZERO);
    for other in ["node-a", "node-b", "node-c", "node-d"] {
        if other != name {
            tell(capture, &mut engine, Time::ZERO, other, &alive(other));
        }
    }
    let now = Time::millis(400);
    let mut spread = capture.sent(&mut engine, Time::ZERO, Duration::from_millis(400)).len();
    while spread > 0 && engine.next_deadline().is_some_and(|at| at < Time::millis(900)) {
        spread = capture.sent(&mut engine, now, Duration::from_millis(500)).len();
    }
    (engine, Time::millis(900))
}

#[test]
fn who_leaves_says_what_memberlist_says_to_the_living_and_to_the_dead() {
    let capture = Capture::load("live_leave");
    let (mut engine, now) = one_of_four(&capture, "node-c");
    // What the captured one had found out just before.
    tell(&capture, &mut engine, now, "node-c", &dead("node-d", "node-c"));
    engine.handle(now, Input::Leave { within: Duration::from_secs(1) });
    let sent = capture.sent(&mut engine, now, Duration::from_millis(650));
    for to in ["node-a", "node-b", "node-d"] {
        let [(_, captured)] = &capture.datagrams("node-c", to)[..] else { panic!("one to each") };
        let word = &captured[0];
        assert_eq!(*word, dead("node-c", "node-c"));
        let is_gossip = |said: &[Message]| said.iter().all(|word| matches!(word, Message::Dead(_)));
        let told = sent.iter().filter(|(address, said)| *address == socket(to) && is_gossip(said));
        assert!(told.clone().count() > 0, "nothing was sent to {to}");
        assert!(told.clone().all(|(_, messages)| messages.contains(word)), "{to}: {sent:?}");
        if captured.len() > 1 {
            // The newer and the older news in one packet, the newer first.
            assert!(
                told.clone().any(|(_, messages)| messages == captured),
                "{to}: {sent:?} and {captured:?}"
            );
        }
    }
    assert!(engine.member(&"node-c".into()).is_some_and(|own| own.state == State::Left));
}

#[test]
fn who_hears_of_a_leave_knows_it_for_one_and_says_the_same_on() {
    let capture = Capture::load("live_leave");
    for (hearer, others) in [("node-a", ["node-b", "node-d"]), ("node-b", ["node-a", "node-d"])] {
        let (mut engine, now) = one_of_four(&capture, hearer);
        tell(&capture, &mut engine, now, "node-c", &dead("node-d", "node-c"));
        take(&mut engine);
        for (bytes, _) in capture.datagrams("node-c", hearer) {
            engine.handle(now, Input::Datagram { source: socket("node-c"), bytes: &bytes });
        }
        let outputs = take(&mut engine);
        let changes: Vec<(&Change, &Name)> = outputs
            .iter()
            .filter_map(|output| match output {
                Output::Member { change, member } => Some((change, &member.name)),
                _ => None,
            })
            .collect();
        assert_eq!(changes, [(&Change::Left, &"node-c".into())], "{hearer}");
        let sent = capture.sent(&mut engine, now, Duration::from_millis(450));
        let told: BTreeSet<SocketAddr> = sent
            .iter()
            .filter(|(_, messages)| messages.contains(&dead("node-c", "node-c")))
            .map(|(to, _)| *to)
            .collect();
        assert_eq!(told, others.map(socket).into(), "{hearer} tells those that are left, and the dead one");
    }
    // What node-b said on was captured: just this.
    let [(_, said)] = &capture.datagrams("node-b", "node-d")[..] else { panic!("it was captured once") };
    assert_eq!(said[..], [dead("node-c", "node-c")]);
}

#[test]
fn who_comes_back_asks_as_memberlist_does_and_overrules_what_it_is_told_of_itself() {
    let capture = Capture::load("live_restart");
    let [after_leave, after_crash] = &capture.exchanges()[..] else { panic!("two were captured") };
    for (asked, answered) in [after_leave, after_crash] {
        let now = Time::millis(500);
        let mut engine = capture.member("node-b", now);
        engine.handle(now, Input::Join(&[socket("node-a")]));
        let outputs = take(&mut engine);
        let [Output::Open { stream, to, message }] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!((*to, message), (socket("node-a"), asked));
        let stream = *stream;
        engine.handle(now, Input::Connected(stream));
        engine.handle(now, Input::Received { stream, message: answered.clone() });
        let told = |states: &StreamMessage| match states {
            StreamMessage::PushPull(exchange) => {
                exchange.states.iter().find(|state| state.name == "node-b".into()).unwrap().incarnation
            }
            other => panic!("{other:?}"),
        };
        let own = engine.member(&"node-b".into()).unwrap().incarnation;
        assert_eq!(own, told(answered) + 1, "it overrules what was said of it by one");
        let sent = capture.sent(&mut engine, now, Duration::from_millis(450));
        let (to, said) = &sent[0];
        assert_eq!(*to, socket("node-a"));
        if told(answered) == 1 {
            // Its former word about itself, which memberlist sends as well, is left out: the new one overrules it.
            let (_, captured) = &capture.datagrams("node-b", "node-a")[0];
            let expected: Vec<&Message> = captured.iter().filter(|word| **word != alive("node-b")).collect();
            let unordered = |words: &[&Message]| -> BTreeSet<Vec<u8>> {
                words.iter().map(|word| word.encode()).collect()
            };
            assert_eq!(unordered(&said.iter().collect::<Vec<_>>()), unordered(&expected));
        }
    }
}

#[test]
fn who_is_asked_by_one_that_comes_back_answers_as_memberlist_does_and_believes_its_refutation() {
    let capture = Capture::load("live_restart");
    let mut now = Time::millis(100);
    let mut engine = capture.member("node-a", Time::ZERO);
    capture.sent(&mut engine, Time::ZERO, Duration::from_millis(100));
    tell(&capture, &mut engine, now, "node-b", &alive("node-b"));
    tell(&capture, &mut engine, now, "node-b", &dead("node-b", "node-b"));
    for (number, (asked, answered)) in (0_u64..).zip(capture.exchanges()) {
        take(&mut engine);
        let source = SocketAddr::from(([127, 0, 0, 12], 40_000));
        let stream = StreamId::Accepted(number);
        engine.handle(now, Input::Accepted { stream: number, source });
        engine.handle(now, Input::Received { stream, message: asked });
        let outputs = take(&mut engine);
        let answer = outputs.iter().find_map(|output| match output {
            Output::Answer { message, .. } => Some(message),
            _ => None,
        });
        // The order in which members are listed is left to chance.
        assert_eq!(answer.map(sorted), Some(sorted(&answered)), "exchange {number}");
        let overruled = outputs.iter().any(|output| matches!(output, Output::Member { .. }));
        assert!(!overruled, "its first word is not above what is known: {outputs:?}");
        engine.handle(now, Input::Closed(stream));

        let heard = capture.datagrams("node-b", "node-a");
        let passed_on = capture.datagrams("node-a", "node-b");
        assert_eq!((heard.len(), passed_on.len()), (2, 2));
        if number == 0 {
            engine.handle(now, Input::Datagram { source: socket("node-b"), bytes: &heard[0].0 });
            let outputs = take(&mut engine);
            let back = |output: &Output| {
                matches!(output, Output::Member { change: Change::Joined, member }
                    if member.name == "node-b".into() && member.incarnation == 2)
            };
            assert!(outputs.iter().any(back), "{outputs:?}");
            let sent = capture.sent(&mut engine, now, Duration::from_millis(1000));
            let is_gossip = |said: &[Message]| said.iter().all(|word| matches!(word, Message::Alive(_)));
            let gossip: Vec<_> = sent.iter().filter(|(_, said)| is_gossip(said)).collect();
            assert!(gossip.len() >= passed_on.len(), "{sent:?}");
            for (_, said) in gossip {
                // The captured one had spread its own word before.
                let news: Vec<&Message> = said.iter().filter(|word| **word != alive("node-a")).collect();
                assert_eq!(news, passed_on[0].1.iter().collect::<Vec<_>>(), "it says on what it heard");
            }
            // The same again is no news.
            now = now + Duration::from_millis(1000);
            engine.handle(now, Input::Datagram { source: socket("node-b"), bytes: &heard[1].0 });
            assert_eq!(take(&mut engine), []);
        }
    }
}

fn sorted(message: &StreamMessage) -> StreamMessage {
    let mut message = message.clone();
    if let StreamMessage::PushPull(exchange) = &mut message {
        exchange.states.sort_by(|a, b| a.name.cmp(&b.name));
    }
    message
}
