// SPDX-License-Identifier: Apache-2.0
//! A frame from the network: whatever it holds, the engine answers only with a reply for an address it
//! announces, and what the codec reads it writes back the same.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use ferrolb_l2::wire::{Frame, MINIMUM, Operation};
use ferrolb_l2::{Engine, Input, Interface, Output, Purpose};
use ferrolb_net_types::{IfIndex, Interfaces, Mac, Time};
use libfuzzer_sys::fuzz_target;

const ENS18: IfIndex = IfIndex(2);
const MAC: Mac = Mac([0x52, 0x54, 0x00, 0x3a, 0x10, 0x20]);
const ANNOUNCED: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 168, 10, 200)), IpAddr::V4(Ipv4Addr::new(0, 0, 0, 0))];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::parse(bytes) {
        let written = frame.emit();
        assert_eq!(Frame::parse(&written), Ok(frame));
        assert_eq!(Frame::parse(&written).map(|again| again.emit()), Ok(written));
    }

    let mut engine = Engine::new();
    let interface = Interface { index: ENS18, name: "ens18".into(), mac: MAC, arp: true, link_local: None };
    engine.handle(Time::ZERO, Input::Interfaces(&[interface]));
    for address in ANNOUNCED {
        engine.handle(Time::ZERO, Input::Announce { address, interfaces: &Interfaces::All });
    }
    engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes });
    let mut answers = 0;
    while let Some(output) = engine.poll() {
        let Output::Send { interface, address, purpose, frame } = output else {
            assert!(matches!(output, Output::Claimed { mac, .. } if mac != MAC), "{output:?}");
            continue;
        };
        answers += 1;
        assert_eq!((interface, purpose, frame.len()), (ENS18, Purpose::Answer, MINIMUM));
        assert!(ANNOUNCED.contains(&address), "{address} is not announced");
        let asked = Frame::parse(bytes).expect("only a whole request is answered");
        let reply = Frame::parse(&frame).expect("what the engine sends can be read");
        assert_eq!(asked.packet.operation, Operation::Request);
        assert_eq!(reply.packet.operation, Operation::Reply);
        assert_eq!(
            (reply.source, reply.packet.sender_mac, IpAddr::V4(reply.packet.sender_ip)),
            (MAC, MAC, address)
        );
        assert_eq!(
            (reply.destination, reply.packet.target_mac),
            (asked.packet.sender_mac, asked.packet.sender_mac)
        );
        assert_eq!(IpAddr::V4(asked.packet.target_ip), address);
        assert_ne!(IpAddr::V4(asked.packet.sender_ip), address);
    }
    assert!(answers <= 1);
});
