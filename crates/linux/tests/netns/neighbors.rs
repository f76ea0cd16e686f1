// SPDX-License-Identifier: Apache-2.0
//! Sockets for Neighbor Discovery, and memberships of groups, beside the kernel's own asking.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use ferrolb_linux::packet::Frames;
use ferrolb_linux::{Groups, Namespace, Netlink, PacketSocket, inspect, sysctl};
use ferrolb_net_types::{IfIndex, Mac};

use crate::support::{Bench, MAC_A, MAC_B, eventually, index, is_root};

/// Long enough for a frame that would come.
const SHORT: Duration = Duration::from_millis(100);

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Has the kernel of the namespace ask for an address by sending a datagram there.
fn ask(namespace: &Namespace, address: Ipv6Addr) {
    let send = || {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        let _ = socket.send_to(b"x", (address, 9));
    };
    namespace.run(send).unwrap();
}

/// A pair of hosts whose `a` has fd00::1/64, usable.
fn pair(bench: &mut Bench) -> (Namespace, Namespace) {
    let (a, b) = bench.pair(false);
    let mut netlink = Netlink::open_in(&a).unwrap();
    netlink.add_address("ens18", ip("fd00::1").into(), 64).unwrap();
    eventually("the address is usable", || {
        let found = inspect::interfaces(&mut netlink).unwrap().into_iter().find(|i| i.index == index(&a))?;
        (found.tentative.is_empty() && found.link_local().is_some()).then_some(())
    });
    (a, b)
}

fn open(namespace: &Namespace, frames: Frames) -> PacketSocket {
    let index = index(namespace);
    namespace.run(|| PacketSocket::open(index, frames).unwrap()).unwrap()
}

/// The targets of what the socket has received.
fn targets(socket: &PacketSocket) -> Vec<Ipv6Addr> {
    let mut buffer = [0; 2048];
    let mut targets = Vec::new();
    while let Some(received) = socket.receive(&mut buffer).unwrap() {
        assert!(received.length >= 78 && matches!(buffer[54], 135 | 136) && !received.outgoing);
        targets.push(Ipv6Addr::from_octets(buffer[62..78].try_into().unwrap()));
    }
    targets
}

#[test]
fn only_what_is_about_the_named_addresses_reaches_the_socket() {
    if !is_root("only_what_is_about_the_named_addresses_reaches_the_socket") {
        return;
    }
    let mut bench = Bench::new();
    let (a, b) = pair(&mut bench);
    let socket = open(&b, Frames::NeighborDiscovery);
    let [one, two, three] = [1, 2, 3].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, last));
    ask(&a, one);
    std::thread::sleep(SHORT);
    assert!(targets(&socket).is_empty(), "nothing before it is told of addresses");
    socket.narrow(&BTreeSet::from(["192.0.2.1".parse().unwrap()])).unwrap();
    socket.narrow(&BTreeSet::from([two.into(), three.into()])).unwrap();
    for address in [one, two] {
        ask(&a, address);
    }
    // The kernel repeats what is not answered, so this has an end.
    let mut heard = BTreeSet::new();
    eventually("a solicitation", || {
        heard.extend(targets(&socket));
        (!heard.is_empty()).then_some(())
    });
    socket.narrow(&BTreeSet::from([IpAddr::from(three)])).unwrap();
    ask(&a, three);
    eventually("a solicitation", || {
        heard.extend(targets(&socket));
        heard.contains(&three).then_some(())
    });
    assert_eq!(heard, BTreeSet::from([two, three]));
}

/// What the kernel of the other host does with an advertisement built by hand.
#[test]
fn a_socket_without_any_address_of_ipv6_answers_and_the_kernel_believes_it() {
    if !is_root("a_socket_without_any_address_of_ipv6_answers_and_the_kernel_believes_it") {
        return;
    }
    let mut bench = Bench::new();
    let (a, b) = pair(&mut bench);
    sysctl::write(&b, &[("ipv6/conf/ens18/disable_ipv6", "1")]).unwrap();
    let vip = ip("fd00::200");
    let socket = open(&b, Frames::NeighborDiscovery);
    socket.narrow(&BTreeSet::from([vip.into()])).unwrap();
    let mut asking = Netlink::open_in(&a).unwrap();
    eventually("a neighbour that is reachable", || {
        ask(&a, vip);
        for target in targets(&socket) {
            assert_eq!(target, vip);
            socket.send(&advertisement(MAC_A, MAC_B, ip("fe80::b"), ip("fd00::1"), vip)).unwrap();
            // The kernel asks from either of its addresses.
            let local = inspect::interfaces(&mut asking).unwrap().into_iter().find_map(|i| i.link_local());
            socket.send(&advertisement(MAC_A, MAC_B, ip("fe80::b"), local.unwrap(), vip)).unwrap();
        }
        let known =
            inspect::neighbours(&mut asking).unwrap().into_iter().find(|entry| entry.address == vip)?;
        (known.mac == Some(MAC_B) && known.state == inspect::NeighbourState::Reachable).then_some(())
    });
}

/// A solicited advertisement with its checksum (RFC 4861 section 4.4).
fn advertisement(to: Mac, from: Mac, source: Ipv6Addr, destination: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let mut body = [&[136, 0, 0, 0, 0x40, 0, 0, 0][..], &target.octets(), &[2, 1], &from.0].concat();
    let pseudo = [&source.octets()[..], &destination.octets(), &[0, 0, 0, 32, 0, 0, 0, 58], &body].concat();
    let sum: u32 = pseudo.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255];
    [&to.0[..], &from.0, &header, &source.octets(), &destination.octets(), &body].concat()
}

/// How many sockets of the namespace are in each group on `ens18`, as the kernel lists them.
fn memberships(namespace: &Namespace) -> Vec<Ipv6Addr> {
    // /proc/net is the namespace's of the main thread.
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/igmp6").unwrap()).unwrap();
    let group = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        (words.next() == Some("ens18")).then(|| u128::from_str_radix(words.next().unwrap(), 16).unwrap())
    };
    text.lines().filter_map(group).map(Ipv6Addr::from_bits).collect()
}

#[test]
fn groups_are_joined_until_they_are_left_however_many_they_are() {
    if !is_root("groups_are_joined_until_they_are_left_however_many_they_are") {
        return;
    }
    let mut bench = Bench::new();
    let (_a, b) = bench.pair(false);
    let index = index(&b);
    let group = |n: u16| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff11, n);
    let joined =
        || memberships(&b).into_iter().filter(|g| g.segments()[6] == 0xff11).collect::<BTreeSet<_>>();
    b.run(|| {
        let mut groups = Groups::new(index);
        groups.leave(group(1));
        // More than one socket can hold.
        for n in 0..1_000 {
            groups.join(group(n)).unwrap();
            groups.join(group(n)).unwrap();
        }
        assert_eq!(joined().len(), 1_000);
        for n in 1..1_000 {
            groups.leave(group(n));
        }
        assert_eq!(joined(), BTreeSet::from([group(0)]));
        for n in 0..1_000 {
            groups.join(group(n)).unwrap();
        }
        assert_eq!(joined().len(), 1_000);
        drop(groups);
        assert_eq!(joined(), BTreeSet::new());
        let error = Groups::new(IfIndex(9_999)).join(group(1)).unwrap_err();
        assert_eq!(error.os_error(), Some(libc::ENODEV));
    })
    .unwrap();
}
