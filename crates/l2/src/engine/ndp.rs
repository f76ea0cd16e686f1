// SPDX-License-Identifier: Apache-2.0
//! NDP (RFC 4861 section 7.2): which solicitation is answered how, and what a gain looks like.
//!
//! The answer to a solicitation with the asker's hardware address leaves O unset, as MetalLB's does. Solicitations that
//! MetalLB does not answer, those without it, are answered with O set, as section 7.2.4 prefers.

use std::net::{IpAddr, Ipv6Addr};

use ferrolb_net_types::Mac;

use super::{Answer, Engine, Interface};
use crate::DropReason;
use crate::wire::ipv6::{ALL_NODES, ALL_ROUTERS, group_mac, solicited_node};
use crate::wire::ndp::{Advertisement, Frame, Message, Packet, Solicitation};

impl Engine {
    /// The answer to a frame of IPv6, from the interface's link-local address.
    pub(super) fn answer_ndp(
        &self,
        interface: &Interface,
        link_local: Ipv6Addr,
        bytes: &[u8],
    ) -> Result<Answer, DropReason> {
        let asking = Frame::parse(bytes).map_err(DropReason::Malformed)?;
        // A promiscuous interface sees what is for others.
        if !asking.destination.is_multicast() && asking.destination != interface.mac {
            return Err(DropReason::EthernetDestination);
        }
        let target = asking.packet.message.target();
        let address = IpAddr::V6(target);
        let Solicitation { source_mac, .. } = match asking.packet.message {
            Message::Solicitation(solicitation) => solicitation,
            Message::Advertisement(Advertisement { target_mac, solicited, .. }) => {
                let mac = target_mac.unwrap_or(asking.source);
                if solicited && self.asked.contains(&address) {
                    return Err(DropReason::Answer { address, mac });
                }
                self.asked_for(address)?;
                return Err(DropReason::Announcement { address, mac });
            }
        };
        let heard = [target, solicited_node(target), ALL_NODES, ALL_ROUTERS, link_local];
        if !heard.contains(&asking.packet.destination) {
            return Err(DropReason::Destination(asking.packet.destination));
        }
        let announced = self.asked_for(address)?;
        let mac = source_mac.unwrap_or(asking.source);
        if asking.packet.source == target {
            return Err(DropReason::Announcement { address, mac });
        }
        if !interface.answers(address, announced) {
            return Err(DropReason::NotMatchInterface(address));
        }
        // Who has no address yet checks whether somebody has this one, and can only be told with everybody.
        let probe = asking.packet.source.is_unspecified();
        let (to, at) = if probe { (ALL_NODES, group_mac(ALL_NODES)) } else { (asking.packet.source, mac) };
        let advertisement = Advertisement {
            target,
            router: false,
            solicited: !probe,
            overrides: source_mac.is_none(),
            target_mac: Some(interface.mac),
        };
        let message = Message::Advertisement(advertisement);
        let packet = Packet { source: link_local, destination: to, message };
        let frame = Frame { destination: at, source: interface.mac, packet };
        Ok(Answer { address, frame: frame.emit() })
    }
}

/// Asks one host whether it has the address: to the address's group, as everybody is asked (RFC 4861 section 7.2.2), in a
/// frame for that host alone. A solicitation to the address itself (section 7.3.3) would not do: MetalLB's speaker gets
/// what its kernel takes in, and to that the address is none of its own, but the speaker has joined the group. The kernel
/// may not drop what comes for a group in a unicast frame (RFC 6085 section 3), and MetalLB was seen to answer it.
pub(super) fn question(address: Ipv6Addr, of: Mac, mac: Mac, link_local: Ipv6Addr) -> Frame {
    let message = Message::Solicitation(Solicitation { target: address, source_mac: Some(mac) });
    let packet = Packet { source: link_local, destination: solicited_node(address), message };
    Frame { destination: of, source: mac, packet }
}

/// One round: an unsolicited advertisement to everybody (RFC 4861 section 7.2.6).
pub(super) fn announcement(target: Ipv6Addr, mac: Mac, link_local: Ipv6Addr) -> Frame {
    let advertisement =
        Advertisement { target, router: false, solicited: false, overrides: true, target_mac: Some(mac) };
    let message = Message::Advertisement(advertisement);
    let packet = Packet { source: link_local, destination: ALL_NODES, message };
    Frame { destination: group_mac(ALL_NODES), source: mac, packet }
}

#[cfg(test)]
mod tests {
    use ferrolb_net_types::{IfIndex, Interfaces, Time};

    use super::*;
    use crate::{Counters, GAP, Input, Output, Purpose};

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ASKER: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const ENS18: IfIndex = IfIndex(2);
    const ENS19: IfIndex = IfIndex(3);

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn vip() -> Ipv6Addr {
        ip("2001:db8:0:1::100")
    }

    fn interface(index: IfIndex, link_local: Option<&str>) -> Interface {
        let name = if index == ENS18 { "ens18" } else { "ens19" };
        Interface { index, name: name.into(), mac: OWN, arp: true, link_local: link_local.map(ip) }
    }

    fn named(name: &str) -> Interfaces {
        Interfaces::Named([name.into()].into())
    }

    /// ens18 answers by NDP, ens19 by ARP only.
    fn engine() -> Engine {
        let mut engine = Engine::new();
        let both = [interface(ENS18, Some("fe80::1")), interface(ENS19, None)];
        engine.handle(Time::ZERO, Input::Interfaces(&both));
        engine
    }

    fn announce(engine: &mut Engine, at: Time, address: Ipv6Addr, interfaces: &Interfaces) {
        engine.handle(at, Input::Announce { address: address.into(), interfaces });
    }

    fn outputs(engine: &mut Engine) -> Vec<Output> {
        std::iter::from_fn(|| engine.poll()).collect()
    }

    /// Everything the engine sends by itself: (ms, interface, flags S and O, destination).
    fn sent(engine: &mut Engine) -> Vec<(u128, IfIndex, (bool, bool), Ipv6Addr)> {
        let mut frames = Vec::new();
        while let Some(at) = engine.next_deadline().filter(|at| *at < Time::millis(300_000)) {
            engine.handle_timeout(at);
            for output in outputs(engine) {
                let Output::Send { interface, purpose, frame, .. } = output else { panic!("{output:?}") };
                assert_eq!(purpose, Purpose::Gratuitous);
                let Frame { packet, .. } = Frame::parse(&frame).unwrap();
                let Message::Advertisement(told) = packet.message else { panic!("{packet}") };
                let flags = (told.solicited, told.overrides);
                frames.push((at.since_start().as_millis(), interface, flags, packet.destination));
            }
        }
        frames
    }

    fn solicitation(source: &str, destination: &str, at: Mac, source_mac: Option<Mac>) -> Frame {
        let message = Message::Solicitation(Solicitation { target: vip(), source_mac });
        let packet = Packet { source: ip(source), destination: ip(destination), message };
        Frame { destination: at, source: ASKER, packet }
    }

    /// AN-18, AN-19 and what RFC 4861 section 7.2.4 says of each: (S, O, IPv6 destination, Ethernet destination).
    #[test]
    fn each_solicitation_is_answered_with_the_right_flags_to_the_right_place() {
        let mut engine = engine();
        announce(&mut engine, Time::ZERO, vip(), &Interfaces::All);
        let (group, global, local) = ("ff02::1:ff00:100", "2001:db8:0:1::1", "fe80::9");
        let given = Mac([2, 0, 0, 0, 0, 8]);
        let all_nodes = group_mac(ALL_NODES);
        let group_at = group_mac(ip(group));
        for (what, asking, wanted) in [
            (
                "AN-1 for IPv6",
                solicitation(global, group, group_at, Some(ASKER)),
                (true, false, global, ASKER),
            ),
            (
                "from a link-local address",
                solicitation(local, group, group_at, Some(ASKER)),
                (true, false, local, ASKER),
            ),
            (
                "the option counts, not the frame",
                solicitation(local, group, group_at, Some(given)),
                (true, false, local, given),
            ),
            ("AN-18", solicitation(global, "2001:db8:0:1::100", OWN, None), (true, true, global, ASKER)),
            (
                "a probe of reachability",
                solicitation(global, "2001:db8:0:1::100", OWN, Some(ASKER)),
                (true, false, global, ASKER),
            ),
            (
                "to the group without the option",
                solicitation(global, group, group_at, None),
                (true, true, global, ASKER),
            ),
            ("AN-19", solicitation("::", group, group_at, None), (false, true, "ff02::1", all_nodes)),
            (
                "to all nodes",
                solicitation(local, "ff02::1", all_nodes, Some(ASKER)),
                (true, false, local, ASKER),
            ),
            (
                "to the own address",
                solicitation(local, "fe80::1", OWN, Some(ASKER)),
                (true, false, local, ASKER),
            ),
        ] {
            let answer = engine
                .answer(ENS18, None, &asking.emit())
                .unwrap_or_else(|reason| panic!("{what}: {reason}"));
            let Frame { destination, source, packet } = Frame::parse(&answer.frame).unwrap();
            let Message::Advertisement(told) = packet.message else { panic!("{what}: {packet}") };
            let (solicited, overrides, to, at) = wanted;
            assert_eq!(
                (told.solicited, told.overrides, told.router),
                (solicited, overrides, false),
                "{what}"
            );
            assert_eq!((packet.destination, destination), (ip(to), at), "{what}");
            assert_eq!(
                (told.target, told.target_mac, packet.source, source),
                (vip(), Some(OWN), ip("fe80::1"), OWN),
                "{what}"
            );
        }
    }

    #[test]
    fn each_solicitation_that_is_not_answered_has_its_reason() {
        let mut engine = engine();
        announce(&mut engine, Time::ZERO, vip(), &named("ens18"));
        let both = [interface(ENS18, Some("fe80::1")), interface(ENS19, Some("fe80::2"))];
        engine.handle(Time::ZERO, Input::Interfaces(&both));
        let group_at = group_mac(solicited_node(vip()));
        let good = solicitation("fe80::9", "ff02::1:ff00:100", group_at, Some(ASKER));
        let to = |destination: &str| Frame {
            packet: Packet { destination: ip(destination), ..good.packet },
            ..good
        };
        let unknown = Message::Solicitation(Solicitation { target: ip("2001:db8::100"), source_mac: None });
        let told = announcement(vip(), ASKER, ip("fe80::9"));
        let said = DropReason::Announcement { address: vip().into(), mac: ASKER };
        for (what, on, vlan, frame, wanted) in [
            (
                "AN-21: a group of others",
                ENS18,
                None,
                to("ff02::1:ff00:101"),
                DropReason::Destination(ip("ff02::1:ff00:101")),
            ),
            (
                "to another address of the node",
                ENS18,
                None,
                to("2001:db8::20"),
                DropReason::Destination(ip("2001:db8::20")),
            ),
            ("overheard", ENS18, None, Frame { destination: ASKER, ..good }, DropReason::EthernetDestination),
            ("another VLAN", ENS18, Some(7), good, DropReason::Vlan(7)),
            ("an interface not chosen", ENS19, None, good, DropReason::NotMatchInterface(vip().into())),
            ("no interface", IfIndex(9), None, good, DropReason::Closed),
            (
                "another address",
                ENS18,
                None,
                Frame { packet: Packet { message: unknown, ..good.packet }, ..good },
                DropReason::AnnounceIp(ip("2001:db8::100").into()),
            ),
            (
                "from the address itself",
                ENS18,
                None,
                Frame { packet: Packet { source: vip(), ..good.packet }, ..good },
                said,
            ),
            ("an advertisement", ENS18, None, told, said),
        ] {
            assert_eq!(engine.answer(on, vlan, &frame.emit()), Err(wanted), "{what}");
        }
        let reason = engine.answer(ENS18, None, &good.emit()[..60]).unwrap_err();
        assert_eq!(reason.to_string(), "error");
    }

    #[test]
    fn a_gain_is_five_unsolicited_advertisements_where_ndp_is_spoken() {
        let mut engine = engine();
        announce(&mut engine, Time::millis(50), vip(), &Interfaces::All);
        let group = solicited_node(vip());
        assert_eq!(outputs(&mut engine), [Output::Join { interface: ENS18, group }]);
        let times = [50, 1_150, 2_250, 3_350, 4_450];
        assert_eq!(sent(&mut engine), times.map(|ms| (ms, ENS18, (false, true), ALL_NODES)));
        let counters = Counters { gratuitous: 5, ..Counters::default() };
        assert_eq!(engine.counters().collect::<Vec<_>>(), [(vip().into(), counters)]);
        assert_eq!(engine.answering(vip().into()).map(|i| i.index).collect::<Vec<_>>(), [ENS18]);
    }

    /// AN-23: two addresses with the same last three bytes.
    #[test]
    fn a_group_is_left_when_the_last_of_its_addresses_goes() {
        let mut engine = engine();
        let (one, other) = (ip("2001:db8:0:1::1:100"), ip("2001:db8:0:2::1:100"));
        let group = solicited_node(one);
        let (join, leave) =
            (Output::Join { interface: ENS18, group }, Output::Leave { interface: ENS18, group });
        announce(&mut engine, Time::ZERO, one, &named("ens19")); // a selection does not limit joins
        assert_eq!(outputs(&mut engine), [join]);
        announce(&mut engine, Time::ZERO, other, &Interfaces::All);
        announce(&mut engine, Time::ZERO, one, &Interfaces::All);
        engine.handle(Time::ZERO, Input::Withdraw { address: one.into() });
        engine.handle(Time::ZERO, Input::Withdraw { address: one.into() });
        assert_eq!(outputs(&mut engine), []);
        engine.handle(Time::ZERO, Input::Withdraw { address: other.into() });
        assert_eq!(outputs(&mut engine), [leave]);
    }

    /// X13, S37, S38; AN-25, where the link-local address comes later than the interface.
    #[test]
    fn an_interface_that_comes_later_joins_the_groups_and_announces() {
        let mut engine = engine();
        announce(&mut engine, Time::ZERO, vip(), &Interfaces::All);
        announce(&mut engine, Time::ZERO, ip("2001:db8::1"), &named("ens18"));
        sent_after_joins(&mut engine);
        let both = [interface(ENS18, Some("fe80::1")), interface(ENS19, Some("fe80::2"))];
        engine.handle(Time::millis(9_000), Input::Interfaces(&both));
        let joins: Vec<_> = [ip("ff02::1:ff00:1"), ip("ff02::1:ff00:100")]
            .map(|group| Output::Join { interface: ENS19, group })
            .into();
        assert_eq!(outputs(&mut engine), joins);
        let told = sent(&mut engine);
        assert_eq!((told.len(), told[0].0, told[0].1), (5, 9_000, ENS19));
        // Another hardware address: told, but the groups are still joined (S39).
        let moved = [Interface { mac: ASKER, ..both[0].clone() }, both[1].clone()];
        engine.handle(Time::millis(20_000), Input::Interfaces(&moved));
        assert_eq!(outputs(&mut engine), []);
        assert!(sent(&mut engine).iter().all(|(_, index, ..)| *index == ENS18));
    }

    #[test]
    fn a_host_that_is_asked_says_whether_it_has_the_address() {
        let mut asked = engine();
        announce(&mut asked, Time::ZERO, vip(), &Interfaces::All);
        sent_after_joins(&mut asked);
        let mut asking = Engine::new();
        let there = Interface { mac: ASKER, ..interface(ENS18, Some("fe80::9")) };
        asking.handle(Time::ZERO, Input::Interfaces(&[there]));
        asking.handle(Time::ZERO, Input::Ask { interface: ENS18, address: vip().into(), of: OWN });
        assert_eq!(asking.asked().collect::<Vec<_>>(), [IpAddr::from(vip())]);
        assert_eq!(asking.take_changes().gained, [IpAddr::from(vip())], "what is said of it is to be let in");
        let hear = |engine: &mut Engine, bytes: &[u8]| {
            engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes });
            engine.poll()
        };
        let frame_of = |output: Option<Output>, wanted: Purpose| match output {
            Some(Output::Send { purpose, frame, .. }) if purpose == wanted => frame,
            other => panic!("{other:?}"),
        };
        let question = frame_of(asking.poll(), Purpose::Question);
        let answer = frame_of(hear(&mut asked, &question), Purpose::Answer);
        let answered = Output::Answered { interface: ENS18, address: vip().into(), mac: OWN };
        assert_eq!(hear(&mut asking, &answer), Some(answered));
        // An announcement of an address that this engine does not have is no answer.
        assert_eq!(hear(&mut asking, &announcement(vip(), OWN, ip("fe80::1")).emit()), None);
        asking.handle(Time::ZERO, Input::Forget { address: vip().into() });
        assert!(asking.take_changes().lost && asking.asked().next().is_none());
        assert_eq!(hear(&mut asking, &answer), None);
    }

    fn sent_after_joins(engine: &mut Engine) {
        assert!(outputs(engine).iter().all(|output| matches!(output, Output::Join { .. })));
        sent(engine);
    }

    /// S36: each protocol of an interface fails alone.
    #[test]
    fn arp_and_ndp_of_an_interface_do_not_depend_on_each_other() {
        let mut engine = engine();
        let vip4 = IpAddr::from([192, 0, 2, 200]);
        engine.handle(Time::ZERO, Input::Announce { address: vip4, interfaces: &Interfaces::All });
        announce(&mut engine, Time::ZERO, vip(), &Interfaces::All);
        engine.handle_timeout(Time::ZERO + GAP * 10);
        let on = |engine: &Engine, address| engine.answering(address).map(|i| i.index).collect::<Vec<_>>();
        let no_arp = Interface { arp: false, ..interface(ENS18, Some("fe80::1")) };
        engine.handle(Time::millis(30_000), Input::Interfaces(&[no_arp]));
        assert_eq!((on(&engine, vip4), on(&engine, vip().into())), (vec![], vec![ENS18]));
        engine.handle(Time::millis(30_000), Input::Interfaces(&[interface(ENS18, None)]));
        assert_eq!((on(&engine, vip4), on(&engine, vip().into())), (vec![ENS18], vec![]));
        let frame = solicitation("fe80::9", "ff02::1", OWN, None).emit();
        assert_eq!(engine.answer(ENS18, None, &frame), Err(DropReason::Closed));
    }
}
