// SPDX-License-Identifier: Apache-2.0
//! A frame of IPv6 from the network: whatever it holds, the engine answers only a solicitation for an address that it
//! announces, with an advertisement to who asked, and what the codec reads it writes back the same.
#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use ferrolb_l2::wire::ipv6::{ALL_NODES, group_mac};
use ferrolb_l2::wire::ndp::{Advertisement, Frame, Message, Solicitation};
use ferrolb_l2::{Engine, Input, Interface, Output, Purpose};
use ferrolb_net_types::{IfIndex, Interfaces, Mac, Time};
use libfuzzer_sys::fuzz_target;

const ENS18: IfIndex = IfIndex(2);
const MAC: Mac = Mac([0x52, 0x54, 0x00, 0x3a, 0x10, 0x20]);
const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x5054, 0xff, 0xfe3a, 0x1020);
const ANNOUNCED: [Ipv6Addr; 2] = [Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0x201), Ipv6Addr::UNSPECIFIED];

fuzz_target!(|bytes: &[u8]| {
    // Nearly nothing has a right checksum by chance.
    let mut bytes = bytes.to_vec();
    mend(&mut bytes);
    let bytes = bytes.as_slice();

    let read = Frame::parse(bytes);
    if let Ok(frame) = read {
        let written = frame.emit();
        assert_eq!(Frame::parse(&written), Ok(frame));
    }

    let mut engine = Engine::new();
    let interface =
        Interface { index: ENS18, name: "ens18".into(), mac: MAC, arp: true, link_local: Some(LOCAL) };
    engine.handle(Time::ZERO, Input::Interfaces(&[interface]));
    for address in ANNOUNCED {
        engine.handle(Time::ZERO, Input::Announce { address: address.into(), interfaces: &Interfaces::All });
    }
    engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes });
    let mut answers = 0;
    while let Some(output) = engine.poll() {
        let Output::Send { interface, address, purpose, frame } = output else { continue };
        answers += 1;
        assert_eq!((interface, purpose), (ENS18, Purpose::Answer));
        let asked = read.expect("only a valid message is answered");
        let Message::Solicitation(Solicitation { target, .. }) = asked.packet.message else {
            panic!("only a solicitation is answered")
        };
        assert!(ANNOUNCED.contains(&target) && IpAddr::V6(target) == address);
        assert_ne!(asked.packet.source, target);
        let told = Frame::parse(&frame).expect("what the engine sends can be read");
        assert_eq!((told.source, told.packet.source), (MAC, LOCAL));
        let Message::Advertisement(Advertisement { target: about, target_mac, solicited, .. }) =
            told.packet.message
        else {
            panic!("only advertisements are sent")
        };
        assert_eq!((about, target_mac), (target, Some(MAC)));
        if asked.packet.source.is_unspecified() {
            assert_eq!(
                (told.packet.destination, told.destination, solicited),
                (ALL_NODES, group_mac(ALL_NODES), false)
            );
        } else {
            assert_eq!((told.packet.destination, solicited), (asked.packet.source, true));
        }
    }
    assert!(answers <= 1);
});

/// Puts length and checksum right, if there is room for them.
fn mend(bytes: &mut [u8]) {
    let length = bytes.len().saturating_sub(54) as u16;
    if length < 24 || length == u16::MAX {
        return;
    }
    bytes[18..20].copy_from_slice(&length.to_be_bytes());
    bytes[56..58].fill(0);
    let words = bytes[22..]
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)));
    let mut sum = words.sum::<u64>() + u64::from(length) + 58;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[56..58].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
