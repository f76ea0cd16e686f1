// SPDX-License-Identifier: Apache-2.0
//! Requests that a running memberlist 0.5.1 was sent, one by one: the engine, under the same name at the same address,
//! answers each with the same message, at the same place, or not at all.

#![allow(clippy::unwrap_used)] // the helpers of tests

use std::net::SocketAddr;
use std::time::Duration;

use ferrolb_gossip::wire::{Codec, Key, Keyring, StreamMessage, StreamReader};
use ferrolb_gossip::{Engine, Input, Output, Settings, StreamFailure, StreamId};
use ferrolb_net_types::Time;
use serde_json::Value;

const SENDER: &str = "127.0.0.99:7946";

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn outputs(engine: &mut Engine) -> Vec<Output> {
    std::iter::from_fn(|| engine.poll()).filter(|output| !matches!(output, Output::Notice(_))).collect()
}

/// Datagrams that are sent in answer to this one, which comes at a time at which nothing else is due.
fn ask(engine: &mut Engine, bytes: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
    let source = SENDER.parse().unwrap();
    engine.handle(Time::millis(1), Input::Datagram { source, bytes });
    outputs(engine)
        .into_iter()
        .map(|output| match output {
            Output::Datagram { to, bytes } => (to, bytes),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// What is said on a stream on which this was said; none: it is closed without a word, at the latest by its timeout.
fn talk(
    engine: &mut Engine,
    codec: &Codec,
    number: u64,
    bytes: &[u8],
    half_closed: bool,
) -> Option<StreamMessage> {
    let now = Time::millis(1);
    let stream = StreamId::Accepted(number);
    let mut reader = StreamReader::accepted();
    engine.handle(now, Input::Accepted { stream: number, source: SENDER.parse().unwrap() });
    match reader.push(codec, bytes) {
        Ok(Some(message)) => engine.handle(now, Input::Received { stream, message }),
        Ok(None) if half_closed => {
            let failure = StreamFailure::Unreadable(reader.ended());
            engine.handle(now, Input::Failed { stream, failure });
        }
        Ok(None) => {
            // Silence, until the time is over. Nothing else is wanted of that time.
            let at = now + Duration::from_secs(10);
            assert_eq!(outputs(engine), []);
            engine.handle_timeout(at);
        }
        Err(error) => engine.handle(now, Input::Failed { stream, failure: error.into() }),
    }
    let mut said = outputs(engine).into_iter().filter(|output| !matches!(output, Output::Datagram { .. }));
    let answer = match said.next() {
        Some(Output::Answer { message, .. }) => {
            engine.handle(now, Input::Closed(stream));
            Some(message)
        }
        Some(Output::Close(closed)) => {
            assert_eq!(closed, stream);
            None
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(said.next(), None);
    answer
}

fn replay(name: &str, least: usize) {
    let path = format!("{}/tests/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let keyring = file.get("key_hex").map(|key| Keyring::new(Key::new(&unhex(key)).unwrap(), Vec::new()));
    let codec = Codec::new(keyring);
    let settings = Settings::plain("node-a".into(), "127.0.0.11:7946".parse().unwrap(), codec.clone());
    let mut engine = Engine::new(Time::ZERO, settings, [1; 32]);
    outputs(&mut engine);

    let vectors = file["vectors"].as_array().unwrap();
    assert!(vectors.len() >= least);
    for (number, vector) in vectors.iter().enumerate() {
        let name = vector["name"].as_str().unwrap();
        let sent = unhex(&vector["sent_hex"]);
        if vector["transport"] == "packet" {
            let answers = ask(&mut engine, &sent);
            let Some(reply) = vector["reply_hex"].as_str().map(|_| unhex(&vector["reply_hex"])) else {
                assert_eq!(answers, [], "{name}");
                continue;
            };
            let to = match vector["reply_to"].as_str().unwrap() {
                "sender" => SENDER.to_owned(),
                address => format!("{address}:7946"),
            };
            let (found_to, found) = &answers[0];
            assert_eq!(found_to.to_string(), to, "{name}");
            assert_eq!(codec.read_packet(found), codec.read_packet(&reply), "{name}");
        } else {
            let half_closed = name.contains("half-closed");
            let answer = talk(&mut engine, &codec, number as u64, &sent, half_closed);
            let expected = vector["reply_hex"].as_str().map(|_| {
                StreamReader::dialled().push(&codec, &unhex(&vector["reply_hex"])).unwrap().unwrap()
            });
            match (&answer, &expected) {
                // The words are ours.
                (Some(StreamMessage::Error(_)), Some(StreamMessage::Error(_))) => {}
                _ => assert_eq!(answer, expected, "{name}"),
            }
        }
    }
}

#[test]
fn without_a_key_every_request_is_answered_as_memberlist_does() {
    replay("behaviour_plain", 30);
}

#[test]
fn with_a_key_every_request_is_answered_as_memberlist_does() {
    replay("behaviour_encrypted", 35);
}
