// SPDX-License-Identifier: Apache-2.0
//! Packet sockets, the monitor of interfaces, the prober.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferrolb_linux::packet::Frames;
use ferrolb_linux::probe::{Listener, Prober};
use ferrolb_linux::{LinkMonitor, Namespace, Netlink, PacketSocket, Poller, inspect, sysctl};
use ferrolb_net_types::Mac;

use crate::support::{Bench, MAC_A, MAC_B, eventually, index, is_root};

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
const LONG: Duration = Duration::from_secs(5);
/// Long enough for an answer that would come.
const SHORT: Duration = Duration::from_millis(150);

/// Answers for one address until told to stop, as simply as possible. Gives the number of frames it received.
fn answer(
    namespace: &Namespace,
    address: Ipv4Addr,
    mac: Mac,
    ready: &AtomicBool,
    stop: &AtomicBool,
) -> usize {
    let index = index(namespace);
    let socket = namespace.run(|| PacketSocket::open(index, Frames::ArpRequests).unwrap()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add(&socket, 0).unwrap();
    ready.store(true, Ordering::Release);
    let mut received = 0;
    while !stop.load(Ordering::Acquire) {
        poller.wait(Some(Instant::now() + Duration::from_millis(5))).unwrap().for_each(drop);
        let mut buffer = [0; 128];
        while let Some(frame) = socket.receive(&mut buffer).unwrap() {
            received += 1;
            assert!(!frame.outgoing && frame.length >= 42);
            if buffer[38..42] == address.octets() {
                let header = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2];
                let asker = &buffer[22..28];
                let octets = address.octets();
                let reply =
                    [asker, &mac.0, &header, &mac.0, &octets, asker, &buffer[28..32], &[0; 18]].concat();
                socket.send(&reply).unwrap();
            }
        }
    }
    received
}

#[test]
fn a_packet_socket_answers_without_any_address_and_the_kernel_believes_it() {
    if !is_root("a_packet_socket_answers_without_any_address_and_the_kernel_believes_it") {
        return;
    }
    let mut bench = Bench::new();
    let (a, b) = bench.pair(false);
    let (ready, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let responder = scope.spawn(|| answer(&b, VIP, MAC_B, &ready, &stop));
        eventually("the responder listens", || ready.load(Ordering::Acquire).then_some(()));
        let mut prober = a.run(|| Prober::open("ens18", A).unwrap()).unwrap();
        let answers = prober.answers(VIP, SHORT).unwrap();
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].mac, answers[0].frame.len()), (MAC_B, 60));
        assert!(answers[0].elapsed < SHORT && !answers[0].elapsed.is_zero());
        assert_eq!(prober.ask(B, SHORT).unwrap(), None);

        // The kernel of the other host asks by itself and keeps what it is told.
        let ping = || Command::new("ping").args(["-c1", "-W1", &VIP.to_string()]).output().map(drop);
        let known = || {
            let mut netlink = Netlink::open_in(&a).unwrap();
            let entries = inspect::neighbours(&mut netlink).unwrap();
            entries.into_iter().find(|entry| entry.address == VIP).and_then(|entry| entry.mac)
        };
        a.run(|| {
            // A datagram is enough to make it ask; ping may be missing.
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(b"x", (VIP, 9)).unwrap();
            let _ = ping();
        })
        .unwrap();
        assert_eq!(eventually("a neighbour entry", known), MAC_B);
        Netlink::open_in(&a).unwrap().delete_neighbour("ens18", VIP.into()).unwrap();
        assert_eq!(known(), None);
        stop.store(true, Ordering::Release);
        assert!(responder.join().unwrap() >= 3);
    });
}

#[test]
fn the_kernel_answers_for_its_own_address_and_the_prober_measures_it() {
    if !is_root("the_kernel_answers_for_its_own_address_and_the_prober_measures_it") {
        return;
    }
    let mut bench = Bench::new();
    let (a, _b) = bench.pair(true);
    let mut prober = a.run(|| Prober::open("ens18", A).unwrap()).unwrap();
    for _ in 0..20 {
        let answer = prober.ask(B, LONG).unwrap().unwrap();
        assert_eq!(answer.mac, MAC_B);
        assert!(answer.elapsed < Duration::from_millis(100), "{:?}", answer.elapsed);
    }
    let missing = a.run(|| Prober::open("eth9", A).unwrap_err()).unwrap();
    assert_eq!(missing.os_error(), Some(libc::ENODEV));
}

#[test]
fn only_what_is_for_this_host_or_everybody_reaches_the_socket() {
    if !is_root("only_what_is_for_this_host_or_everybody_reaches_the_socket") {
        return;
    }
    let mut bench = Bench::new();
    let (a, b) = bench.pair(false);
    let from = |namespace: &Namespace, frames| {
        let index = index(namespace);
        namespace.run(|| PacketSocket::open(index, frames).unwrap()).unwrap()
    };
    let (sender, receiver) = (from(&a, Frames::ArpRequests), from(&b, Frames::ArpRequests));
    let frame = |to: Mac, kind: [u8; 2], operation: u8, target: u8| {
        let header = [0, 1, 0x08, 0, 6, 4, 0, operation];
        let target = [192, 0, 2, target];
        [&to.0[..], &MAC_A.0, &kind, &header, &MAC_A.0, &A.octets(), &[0; 6], &target, &[0; 18]].concat()
    };
    const ARP: [u8; 2] = [0x08, 0x06];
    let stranger = Mac([2, 0, 0, 0, 0, 0x77]);
    sender.send(&frame(Mac::BROADCAST, ARP, 2, 1)).unwrap(); // a reply: it may claim an address
    sender.send(&frame(Mac::BROADCAST, [0x08, 0], 1, 2)).unwrap(); // not ARP
    sender.send(&frame(stranger, ARP, 1, 3)).unwrap(); // for another host
    sender.send(&frame(Mac::BROADCAST, ARP, 1, 4)).unwrap();
    let mut tagged = frame(Mac::BROADCAST, ARP, 1, 5);
    tagged.splice(12..12, [0x81, 0, 0x20, 5]); // VLAN 5, priority 1
    sender.send(&tagged).unwrap();
    sender.send(&frame(MAC_B, ARP, 1, 6)).unwrap();

    let mut targets = Vec::new();
    let mut buffer = [0; 128];
    eventually("the last request", || {
        while let Some(received) = receiver.receive(&mut buffer).unwrap() {
            // A kernel may hand over the tagged one, but then it says so.
            assert_eq!(received.vlan, (buffer[41] == 5).then_some(5));
            targets.push(buffer[41]);
        }
        targets.contains(&6).then_some(())
    });
    targets.retain(|target| *target != 5);
    assert_eq!(targets, [1, 4, 6]);
}

/// The kernel takes every program, also one that gives a socket no more memory than kernels before 6.7 do.
#[test]
fn a_socket_can_be_narrowed_to_ten_thousand_addresses_wherever_they_are() {
    if !is_root("a_socket_can_be_narrowed_to_ten_thousand_addresses_wherever_they_are") {
        return;
    }
    let mut bench = Bench::new();
    let (_a, b) = bench.pair(false);
    let strewn =
        |n: u32| [IpAddr::from(Ipv4Addr::from(n * 400_000)), Ipv6Addr::from(u128::from(n) << 40 | 7).into()];
    let addresses: BTreeSet<IpAddr> = (0..10_000).flat_map(strewn).collect();
    let index = index(&b);
    let narrow = || {
        for frames in [Frames::ArpRequests, Frames::NeighborDiscovery] {
            let socket = b.run(|| PacketSocket::open(index, frames).unwrap()).unwrap();
            for _ in 0..3 {
                socket.narrow(&addresses).unwrap();
            }
        }
    };
    narrow();
    // Where the setting belongs to the whole machine it is left alone.
    if sysctl::write(&b, &[("core/optmem_max", "20480")]).is_ok() {
        narrow();
    }
}

#[test]
fn a_narrowed_socket_gets_requests_for_its_addresses_only() {
    if !is_root("a_narrowed_socket_gets_requests_for_its_addresses_only") {
        return;
    }
    let mut bench = Bench::new();
    let (a, b) = bench.pair(false);
    let open = |namespace: &Namespace| {
        let index = index(namespace);
        namespace.run(|| PacketSocket::open(index, Frames::ArpRequests).unwrap()).unwrap()
    };
    let (sender, receiver) = (open(&a), open(&b));
    let ask = |target: Ipv4Addr| {
        let header = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
        let frame = [
            &Mac::BROADCAST.0[..],
            &MAC_A.0,
            &header,
            &MAC_A.0,
            &A.octets(),
            &[0; 6],
            &target.octets(),
            &[0; 18],
        ];
        sender.send(&frame.concat()).unwrap();
    };
    let [one, two, three] = [4, 5, 6].map(|last| Ipv4Addr::new(192, 0, 2, last));
    let mut buffer = [0; 128];
    // The last one asked for always passes, so that waiting for it is enough.
    let mut heard = |targets: &[Ipv4Addr], asked: &[Ipv4Addr]| {
        receiver.narrow(&targets.iter().map(|target| (*target).into()).collect()).unwrap();
        let mut seen = Vec::new();
        eventually("the last request", || {
            asked.iter().for_each(|target| ask(*target));
            while receiver.receive(&mut buffer).unwrap().is_some() {
                seen.push(Ipv4Addr::new(buffer[38], buffer[39], buffer[40], buffer[41]));
            }
            seen.contains(asked.last().unwrap()).then_some(())
        });
        seen.dedup();
        seen
    };
    assert_eq!(heard(&[three], &[one, two, three]), [three]);
    assert_eq!(heard(&[one, three], &[two, one]), [one]);
    assert_eq!(heard(&[two], &[one, three, two]), [two]);
}

#[test]
fn a_listener_hears_what_others_send_in_both_directions() {
    if !is_root("a_listener_hears_what_others_send_in_both_directions") {
        return;
    }
    let mut bench = Bench::new();
    let (a, _b) = bench.pair(true);
    let index = index(&a);
    let mut listener = a.run(|| Listener::open(index).unwrap()).unwrap();
    let mut prober = a.run(|| Prober::open("ens18", A).unwrap()).unwrap();
    prober.ask(B, LONG).unwrap().unwrap();
    let end = Instant::now() + LONG;
    let asked = listener.next(end).unwrap().unwrap();
    let answered = listener.next(end).unwrap().unwrap();
    assert!(asked.outgoing && !answered.outgoing && answered.at > asked.at);
    assert_eq!(listener.next(Instant::now()).unwrap(), None);
}

#[test]
fn a_monitor_wakes_its_poller_when_an_interface_changes() {
    if !is_root("a_monitor_wakes_its_poller_when_an_interface_changes") {
        return;
    }
    let mut bench = Bench::new();
    let (a, _b) = bench.pair(true);
    let mut monitor = a.run(|| LinkMonitor::open().unwrap()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add(&monitor, 3).unwrap();
    let mut quiet = || {
        // Link-local addresses become valid some time after the cable is plugged in.
        while monitor.take().unwrap() {
            thread::sleep(Duration::from_millis(20));
        }
        monitor.take().unwrap()
    };
    assert!(!quiet());
    let mut netlink = Netlink::open_in(&a).unwrap();
    netlink.set_mac("ens18", Mac([2, 0, 0, 0, 0, 0x55])).unwrap();
    assert_eq!(poller.wait(Some(Instant::now() + LONG)).unwrap().collect::<Vec<_>>(), [3]);
    assert!(monitor.take().unwrap());
}

#[test]
fn a_socket_on_an_interface_that_is_down_says_so_once_and_lives_on() {
    if !is_root("a_socket_on_an_interface_that_is_down_says_so_once_and_lives_on") {
        return;
    }
    let mut bench = Bench::new();
    let (a, b) = bench.pair(true);
    let index = index(&b);
    let socket = b.run(|| PacketSocket::open(index, Frames::ArpRequests).unwrap()).unwrap();
    let mut netlink = Netlink::open_in(&b).unwrap();
    netlink.set_down("ens18").unwrap();
    let mut buffer = [0; 128];
    let error = eventually("the error", || socket.receive(&mut buffer).err());
    assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
    assert_eq!(socket.receive(&mut buffer).unwrap(), None);
    assert!(socket.send(&[0; 60]).is_err());
    netlink.set_up("ens18").unwrap();
    let mut prober = a.run(|| Prober::open("ens18", A).unwrap()).unwrap();
    eventually("a request after it is up again", || {
        prober.ask(VIP, Duration::from_millis(20)).unwrap();
        socket.receive(&mut buffer).unwrap()
    });
    netlink.delete_link("ens18").unwrap();
    let gone = b.run(|| PacketSocket::open(index, Frames::ArpRequests).unwrap_err()).unwrap();
    assert_eq!(gone.os_error(), Some(libc::ENODEV));
}
