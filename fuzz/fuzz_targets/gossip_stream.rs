// SPDX-License-Identifier: Apache-2.0
//! What somebody writes to a stream: read in pieces it is the same as read at once, it is written back the same, and
//! the member that takes it stays a member.
#![no_main]

use std::time::Duration;

use ferrolb_gossip::wire::{Codec, Key, Keyring, NONCE, State, StreamReader};
use ferrolb_gossip::{Engine, Input, MAX_MEMBERS, Settings, StreamId};
use ferrolb_net_types::Time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let codec = Codec::new(None);
    let Ok(Some(message)) = StreamReader::accepted().push(&codec, bytes) else { return };

    let mut reader = StreamReader::accepted();
    let piece = 1 + bytes.len() / 7;
    let pieces = bytes.chunks(piece).find_map(|piece| reader.push(&codec, piece).transpose());
    assert_eq!(pieces, Some(Ok(message.clone())));

    let key = Key::new(&[7; 16]).expect("16 bytes are a key");
    let keyed = Codec::new(Some(Keyring::new(key, Vec::new())));
    for codec in [&codec, &keyed] {
        for dialler in [true, false] {
            let written = codec.stream(&message, dialler, &[1; NONCE]);
            let mut reader = if dialler { StreamReader::accepted() } else { StreamReader::dialled() };
            assert_eq!(reader.push(codec, &written), Ok(Some(message.clone())));
        }
    }

    let (own, source) =
        ("10.0.0.1:7946".parse().expect("an address"), "10.0.0.2:40000".parse().expect("an address"));
    let mut engine = Engine::new(Time::ZERO, Settings::plain("node-a".into(), own, codec), [3; 32]);
    let mut now = Time::ZERO;
    for stream in 0..3 {
        engine.handle(now, Input::Accepted { stream, source });
        engine.handle(now, Input::Received { stream: StreamId::Accepted(stream), message: message.clone() });
        while engine.poll().is_some() {}
        now = now + Duration::from_secs(7);
        engine.handle_timeout(now);
        assert!(engine.next_deadline().is_none_or(|at| at > now));
    }
    assert!(engine.members().count() <= MAX_MEMBERS);
    assert_eq!(engine.member(&"node-a".into()).map(|own| own.state), Some(State::Alive));
});
