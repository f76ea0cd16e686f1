// SPDX-License-Identifier: Apache-2.0
//! A datagram from the network: what is read is written back the same, and whatever it says, the member that hears it
//! stays a member, remembers no more than it is meant to, and never leaves a deadline behind.
#![no_main]

use std::time::Duration;

use ferrolb_gossip::wire::packet::MAX_MESSAGES;
use ferrolb_gossip::wire::{Codec, Key, Keyring, Message, NONCE, State};
use ferrolb_gossip::{Engine, Input, MAX_MEMBERS, Output, Role, Settings};
use ferrolb_net_types::Time;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let plain = Codec::new(None);
    let read = plain.read_packet(bytes);
    if let Ok(packet) = &read {
        assert!(packet.messages.len() <= MAX_MESSAGES && packet.refused.len() <= packet.lost);
        for message in &packet.messages {
            assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(message));
        }
    }
    // Sealed, the same is said. A label would stand outside of the seal.
    let key = Key::new(&[7; 32]).expect("32 bytes are a key");
    let keyring = Keyring::new(key, Vec::new());
    if let Ok(packet) = &read {
        let sealed = keyring.seal(bytes, b"", &[1; NONCE]);
        let keyed = Codec::new(Some(keyring.clone()));
        assert_eq!(keyed.read_packet(&sealed).as_ref(), Ok(packet));
    }
    // What nobody sealed is opened by nobody.
    assert!(keyring.open(bytes, b"").is_err());

    for role in [Role::Member, Role::Reader] {
        let address = "10.0.0.1:7946".parse().expect("an address");
        let mut settings = Settings { role, ..Settings::speaker("node-a".into(), address, plain.clone()) };
        settings.profile.packet_size = 1400;
        let mut engine = Engine::new(Time::ZERO, settings, [3; 32]);
        let source = "10.0.0.2:7946".parse().expect("an address");
        engine.handle(Time::ZERO, Input::Candidates(&[source]));
        let mut now = Time::ZERO;
        for _ in 0..4 {
            engine.handle(now, Input::Datagram { source, bytes });
            while let Some(output) = engine.poll() {
                if let Output::Datagram { bytes, .. } = output {
                    assert!(bytes.len() <= 65_507, "{} bytes are no datagram", bytes.len());
                }
            }
            now = now + Duration::from_millis(700);
            engine.handle_timeout(now);
            assert!(engine.next_deadline().is_none_or(|at| at > now));
        }
        assert!(engine.members().count() <= MAX_MEMBERS);
        let own = engine.member(&"node-a".into()).map(|own| own.state);
        assert_eq!(own, (role == Role::Member).then_some(State::Alive));
    }
});
