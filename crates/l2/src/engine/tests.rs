// SPDX-License-Identifier: Apache-2.0
//! What the engine does with each input, one case at a time.

use std::net::Ipv4Addr;

use super::*;
use crate::wire::{Frame, MINIMUM, Operation, Packet};
use crate::{GAP, ROUNDS};

const VIP4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
const VIP: IpAddr = IpAddr::V4(VIP4);
const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const ENS18: IfIndex = IfIndex(2);
const ENS19: IfIndex = IfIndex(3);

fn interface(index: IfIndex, name: &str, mac: Mac) -> Interface {
    Interface { index, name: name.into(), mac, arp: true, link_local: None }
}

fn named(names: &[&str]) -> Interfaces {
    Interfaces::Named(names.iter().map(|name| InterfaceName::from(*name)).collect())
}

fn request(destination: Mac, operation: Operation, target_ip: Ipv4Addr) -> [u8; MINIMUM] {
    let sender_ip = Ipv4Addr::new(192, 0, 2, 50);
    let packet = Packet { operation, sender_mac: OTHER, sender_ip, target_mac: Mac::ZERO, target_ip };
    Frame { destination, source: OTHER, packet }.emit()
}

/// An engine with ens18 and ens19 that announces the address there; its bursts are over.
fn engine(on: &Interfaces) -> Engine {
    let mut engine = Engine::new();
    let both = [interface(ENS18, "ens18", OWN), interface(ENS19, "ens19", OWN)];
    engine.handle(Time::ZERO, Input::Interfaces(&both));
    engine.handle(Time::ZERO, Input::Announce { address: VIP, interfaces: on });
    sent(&mut engine);
    engine
}

/// Runs the engine until it is idle (counters of withdrawn addresses apart): (ms, interface) of every frame.
fn sent(engine: &mut Engine) -> Vec<(u128, IfIndex)> {
    let mut frames = Vec::new();
    for _ in 0..1_000 {
        let Some(at) = engine.bursts.next_deadline() else { return frames };
        engine.handle_timeout(at);
        while let Some(Output::Send { interface, purpose, address, frame }) = engine.poll() {
            assert_eq!((purpose, address), (Purpose::Gratuitous, VIP));
            assert!(Frame::parse(&frame).is_ok());
            frames.push((at.since_start().as_millis(), interface));
        }
    }
    panic!("still busy after a thousand rounds");
}

/// A02 to A07, AN-2, AN-3, AN-27; X04 is among the recorded frames.
#[test]
fn each_frame_that_is_not_answered_has_its_reason() {
    let engine = engine(&named(&["ens18"]));
    let ask = |destination, operation, target| request(destination, operation, target);
    let unknown = Ipv4Addr::new(192, 0, 2, 1);
    let mut announcement = request(Mac::BROADCAST, Operation::Request, VIP4);
    announcement[28..32].copy_from_slice(&VIP4.octets());
    for (interface, vlan, bytes, wanted) in [
        (ENS18, None, ask(Mac::BROADCAST, Operation::Request, VIP4), None),
        (ENS18, None, ask(OWN, Operation::Request, VIP4), None),
        (ENS18, Some(0), ask(OWN, Operation::Request, VIP4), None),
        (ENS18, Some(7), ask(OWN, Operation::Request, VIP4), Some(DropReason::Vlan(7))),
        (ENS18, None, ask(OTHER, Operation::Request, VIP4), Some(DropReason::EthernetDestination)),
        (ENS18, None, ask(Mac::ZERO, Operation::Request, VIP4), Some(DropReason::EthernetDestination)),
        (ENS18, None, ask(Mac::BROADCAST, Operation::Reply, VIP4), Some(DropReason::ArpReply)),
        (ENS18, None, ask(Mac::BROADCAST, Operation::Unknown(3), VIP4), Some(DropReason::MessageType(3))),
        (
            ENS18,
            None,
            ask(Mac::BROADCAST, Operation::Request, unknown),
            Some(DropReason::AnnounceIp(unknown.into())),
        ),
        (ENS18, None, announcement, Some(DropReason::Announcement { address: VIP, mac: OTHER })),
        (ENS19, None, ask(OWN, Operation::Request, VIP4), Some(DropReason::NotMatchInterface(VIP))),
        (IfIndex(9), None, ask(OWN, Operation::Request, VIP4), Some(DropReason::Closed)),
    ] {
        assert_eq!(engine.answer(interface, vlan, &bytes).err(), wanted, "{interface:?} {bytes:02x?}");
    }
    let reason = engine.answer(ENS18, None, &[0; 13]).unwrap_err();
    assert_eq!((reason.to_string().as_str(), matches!(reason, DropReason::Malformed(_))), ("error", true));
}

/// X05, AN-13, AN-14.
#[test]
fn a_gain_is_announced_five_times_where_it_is_chosen_and_counted() {
    let mut engine = Engine::new();
    let both = [interface(ENS18, "ens18", OWN), interface(ENS19, "ens19", OWN)];
    engine.handle(Time::ZERO, Input::Interfaces(&both));
    assert_eq!(engine.next_deadline(), None);
    let at = Time::millis(50);
    engine.handle(at, Input::Announce { address: VIP, interfaces: &named(&["ens18", "eth9"]) });
    assert_eq!(engine.next_deadline(), Some(at));
    let times = [50, 50, 1150, 1150, 2250, 2250, 3350, 3350, 4450, 4450];
    assert_eq!(sent(&mut engine), times.map(|ms| (ms, ENS18)));
    let counters = Counters { gratuitous: 10, ..Counters::default() };
    assert_eq!(engine.counters().collect::<Vec<_>>(), [(VIP, counters)]);
    assert_eq!(engine.answering(VIP).map(|i| i.index).collect::<Vec<_>>(), [ENS18]);
}

/// S42, S59.
#[test]
fn announcing_again_is_no_gain() {
    let mut engine = engine(&Interfaces::All);
    assert_eq!(engine.take_changes(), Changes { gained: vec![VIP], lost: false });
    engine.handle(Time::millis(9_000), Input::Announce { address: VIP, interfaces: &Interfaces::All });
    assert_eq!(sent(&mut engine), []);
    // Fewer interfaces: those left were told already.
    let fewer = named(&["ens18"]);
    engine.handle(Time::millis(9_000), Input::Announce { address: VIP, interfaces: &fewer });
    assert_eq!(sent(&mut engine), []);
    // More: only the new one is told.
    engine.handle(Time::millis(9_000), Input::Announce { address: VIP, interfaces: &Interfaces::All });
    assert!(sent(&mut engine).iter().all(|(_, index)| *index == ENS19));
    assert_eq!(engine.take_changes(), Changes::default());
    engine.handle(Time::millis(9_000), Input::Withdraw { address: VIP });
    assert_eq!(engine.take_changes(), Changes { gained: Vec::new(), lost: true });
}

#[test]
fn a_loss_ends_the_burst_and_the_answers_without_a_word_and_the_counters_stay_for_a_while_s48() {
    let mut engine = engine(&Interfaces::All);
    engine.handle(Time::millis(9_000), Input::Withdraw { address: VIP });
    assert_eq!(engine.poll(), None, "the heir's announcement is the word that counts");
    engine.handle(Time::millis(9_100), Input::Announce { address: VIP, interfaces: &Interfaces::All });
    engine.handle_timeout(Time::millis(9_100));
    engine.handle(Time::millis(9_200), Input::Withdraw { address: VIP });
    while engine.poll().is_some() {}
    assert_eq!(sent(&mut engine), []);
    assert!(!engine.announces(VIP));
    let bytes = request(Mac::BROADCAST, Operation::Request, VIP4);
    engine.handle(Time::millis(9_300), Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
    assert_eq!(engine.poll(), None);
    assert_eq!(engine.counters().count(), 1);
    let gone = engine.next_deadline().unwrap();
    assert_eq!(gone, Time::millis(9_200) + COUNTERS_KEPT);
    engine.handle_timeout(gone);
    assert_eq!((engine.counters().count(), engine.next_deadline()), (0, None));
}

/// X10, S38, S39, AN-9.
#[test]
fn an_interface_that_comes_back_or_has_another_mac_announces_what_it_answers_for() {
    let mut engine = engine(&Interfaces::All);
    let same = [interface(ENS18, "ens18", OWN), interface(ENS19, "ens19", OWN)];
    engine.handle(Time::millis(9_000), Input::Interfaces(&same));
    assert_eq!(sent(&mut engine), []);
    engine.handle(Time::millis(9_000), Input::Interfaces(&same[..1]));
    assert_eq!(sent(&mut engine), []);
    engine.handle(Time::millis(10_000), Input::Interfaces(&same));
    let again = sent(&mut engine);
    assert_eq!((again.len(), again[0]), (usize::from(ROUNDS) * 2, (10_000, ENS19)));

    let moved = [interface(ENS18, "ens18", OTHER), interface(ENS19, "ens19", OWN)];
    engine.handle(Time::millis(20_000), Input::Interfaces(&moved));
    engine.handle_timeout(Time::millis(20_000));
    let Some(Output::Send { frame, interface, .. }) = engine.poll() else { panic!("nothing sent") };
    assert_eq!((Frame::parse(&frame).unwrap().packet.sender_mac, interface), (OTHER, ENS18));
}

#[test]
fn ten_thousand_gains_at_once_are_spread_over_many_calls() {
    let mut engine = Engine::new();
    engine.handle(Time::ZERO, Input::Interfaces(&[interface(ENS18, "ens18", OWN)]));
    for number in 0..10_000 {
        let address = Ipv4Addr::from_bits(0x0a00_0000 + number).into();
        engine.handle(Time::ZERO, Input::Announce { address, interfaces: &Interfaces::All });
    }
    let mut calls = 0;
    while engine.next_deadline() < Some(Time::ZERO + GAP) {
        engine.handle_timeout(Time::ZERO);
        let frames = std::iter::from_fn(|| engine.poll()).count();
        assert!(frames <= 128, "{frames} frames in one call");
        calls += 1;
    }
    assert_eq!(calls, 10_000_usize.div_ceil(64));
}

#[test]
fn a_frame_that_could_not_be_sent_is_not_counted() {
    let mut engine = engine(&Interfaces::All);
    let bytes = request(Mac::BROADCAST, Operation::Request, VIP4);
    for _ in 0..2 {
        engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
    }
    engine.handle(Time::ZERO, Input::SendFailed { address: VIP, purpose: Purpose::Answer });
    let (_, counters) = engine.counters().next().unwrap();
    assert_eq!((counters.requests, counters.responses), (2, 1));
}

/// S33, S34: the former selection is taken back, also by one that no interface is in.
#[test]
fn an_edited_selection_takes_back_the_earlier_one() {
    let mut engine = engine(&named(&["ens18"]));
    let bytes = request(Mac::BROADCAST, Operation::Request, VIP4);
    for (on, answering) in [(named(&["eth9"]), vec![]), (named(&["ens19"]), vec![ENS19])] {
        engine.handle(Time::millis(9_000), Input::Announce { address: VIP, interfaces: &on });
        assert_eq!(engine.answering(VIP).map(|interface| interface.index).collect::<Vec<_>>(), answering);
        assert_eq!(engine.answer(ENS18, None, &bytes), Err(DropReason::NotMatchInterface(VIP)));
        assert!(sent(&mut engine).iter().all(|(_, index)| answering.contains(index)));
    }
}

/// AN-17: two nodes, one address, a hundred moves.
#[test]
fn while_an_address_moves_to_and_fro_only_its_owner_announces_it() {
    let mut engines = [OWN, OTHER].map(|mac| {
        let mut engine = Engine::new();
        engine.handle(Time::ZERO, Input::Interfaces(&[interface(ENS18, "ens18", mac)]));
        engine
    });
    let mut announced = 0;
    for turn in 0..100 {
        let (begin, end) = (Time::millis(turn * 200), Time::millis(turn * 200 + 200));
        let owner = usize::from(turn % 2 == 1);
        engines[1 - owner].handle(begin, Input::Withdraw { address: VIP });
        engines[owner].handle(begin, Input::Announce { address: VIP, interfaces: &Interfaces::All });
        for (who, engine) in engines.iter_mut().enumerate() {
            while let Some(at) = engine.bursts.next_deadline().filter(|at| *at < end) {
                engine.handle_timeout(at);
            }
            let frames = std::iter::from_fn(|| engine.poll()).count();
            assert_eq!(frames, if who == owner { 2 } else { 0 }, "turn {turn}");
            announced += frames;
        }
    }
    assert_eq!(announced, 200);
}

/// S47, and what a node that hands an address over waits for.
#[test]
fn an_announcement_of_somebody_else_is_told_and_not_answered() {
    let mut engine = engine(&Interfaces::All);
    let mut bytes = request(Mac::BROADCAST, Operation::Request, VIP4);
    bytes[28..32].copy_from_slice(&VIP4.octets());
    engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
    assert_eq!(engine.poll(), Some(Output::Claimed { interface: ENS18, address: VIP, mac: OTHER }));
    assert_eq!(engine.poll(), None);
    // AN-3: the same as a reply.
    bytes[21] = 2;
    engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
    assert_eq!(engine.poll(), Some(Output::Claimed { interface: ENS18, address: VIP, mac: OTHER }));
    assert_eq!(engine.poll(), None);
    // The own announcement, sent on another interface of the same segment.
    bytes[22..28].copy_from_slice(&OWN.0);
    engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes: &bytes });
    assert_eq!(engine.poll(), None);
    assert_eq!(engine.counters().next().unwrap().1.requests, 0);
}

/// A question goes to one host, names no sender, and is answered by an engine that has the address.
#[test]
fn a_host_that_is_asked_says_whether_it_has_the_address() {
    let mut asking = Engine::new();
    asking.handle(Time::ZERO, Input::Interfaces(&[interface(ENS18, "ens18", OTHER)]));
    let ask = Input::Ask { interface: ENS18, address: VIP, of: OWN };
    asking.handle(Time::ZERO, ask.clone());
    let Some(Output::Send { interface: ENS18, address: VIP, purpose: Purpose::Question, frame }) =
        asking.poll()
    else {
        panic!("no question")
    };
    let question = Frame::parse(&frame).unwrap();
    assert_eq!((question.destination, question.packet.sender_ip), (OWN, Ipv4Addr::UNSPECIFIED));

    let mut asked = engine(&Interfaces::All);
    let hear = |engine: &mut Engine, bytes: &[u8]| {
        engine.handle(Time::ZERO, Input::Frame { interface: ENS18, vlan: None, bytes });
        engine.poll()
    };
    let Some(Output::Send { purpose: Purpose::Answer, frame: answer, .. }) = hear(&mut asked, &frame) else {
        panic!("no answer")
    };
    let answered = Some(Output::Answered { interface: ENS18, address: VIP, mac: OWN });
    assert_eq!(hear(&mut asking, &answer), answered);
    asking.handle(Time::ZERO, ask);
    asking.poll();
    // To another host, or to somebody's address, it is no answer; nor is it when nobody wants to know.
    let mut other = answer.to_vec();
    other[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    assert_eq!(hear(&mut asking, &other), None);
    assert_eq!(hear(&mut asking, &request(OTHER, Operation::Reply, VIP4)), None);
    asking.handle(Time::ZERO, Input::Forget { address: VIP });
    assert_eq!(hear(&mut asking, &answer), None);
    assert_eq!(asking.counters().count(), 0);
    // Where an interface does not speak ARP, nothing can be asked.
    asking.handle(Time::ZERO, Input::Ask { interface: ENS19, address: VIP, of: OWN });
    assert_eq!(asking.poll(), None);
}
