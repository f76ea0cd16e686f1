// SPDX-License-Identifier: Apache-2.0
//! IPv6 addresses: what the kernel of another host makes of the answers, and of the groups.

use std::net::{Ipv6Addr, UdpSocket};

use ferrolb_l2::wire::ipv6::{ALL_NODES, group_mac, solicited_node};
use ferrolb_l2::wire::ndp::{Advertisement, Frame, Message, Packet, Solicitation};
use ferrolb_linux::packet::Frames;
use ferrolb_linux::{PacketSocket, sysctl};

use super::*;

const ASKER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0x50);
const VIP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0x201);
/// Shares the group of [`VIP6`].
const SIBLING: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0x201);

#[test]
fn the_kernel_of_another_host_finds_an_ipv6_address_and_probes_for_it_are_answered() {
    let Some(bench) = Bench::new("the_kernel_of_another_host_finds_an_ipv6_address") else { return };
    bench.address("ens18");
    let mut node = bench.node();
    let mut listener = bench.ndp_listener("ens18");
    node.handle.set_plan(plan(&[(VIP6, "node", Interfaces::All)]));
    node.until("it answers", |seen| seen.owned.get(&VIP6.into()) == Some(&names(&["ens18"])));

    // Announced: to everybody, not solicited, overriding.
    let told = next_advertisement(&mut listener, VIP6);
    assert_eq!((told.packet.destination, told.destination), (ALL_NODES, group_mac(ALL_NODES)));
    let Message::Advertisement(advertisement) = told.packet.message else { panic!("{}", told.packet) };
    let announced = Advertisement {
        target: VIP6,
        router: false,
        solicited: false,
        overrides: true,
        target_mac: Some(NODE_MAC),
    };
    assert_eq!(advertisement, announced);

    // Found: the kernel asks the group and believes the answer.
    assert_eq!(bench.reachable(VIP6), NODE_MAC);
    assert_eq!(bench.memberships("ens18", VIP6), 1);

    // AN-18 and AN-19: a probe of reachability, and one for duplicates.
    for (source, destination, at, solicited) in [
        (ASKER6, VIP6, NODE_MAC, true),
        (Ipv6Addr::UNSPECIFIED, solicited_node(VIP6), group_mac(solicited_node(VIP6)), false),
    ] {
        let mut listener = bench.ndp_listener("ens18");
        let message = Message::Solicitation(Solicitation { target: VIP6, source_mac: None });
        let asking =
            Frame { destination: at, source: ASKER_MAC, packet: Packet { source, destination, message } };
        bench.ndp_socket("ens18").send(&asking.emit()).unwrap();
        let to = if solicited { source } else { ALL_NODES };
        loop {
            // Rounds of the announcement may come in between.
            let answer = next_advertisement(&mut listener, VIP6);
            let Message::Advertisement(told) = answer.packet.message else { panic!("{}", answer.packet) };
            if told.solicited == solicited && answer.packet.destination == to {
                assert!(told.overrides);
                break;
            }
        }
    }
    node.until("it counted", |seen| {
        let counters = seen.counters.get(&VIP6.into()).copied().flatten().unwrap_or_default();
        counters.requests >= 3 && counters.responses == counters.requests && counters.gratuitous >= 1
    });
}

/// AN-22, AN-23, S37, S38, X10, X13.
#[test]
fn groups_are_joined_on_every_interface_also_on_one_that_comes_later_and_left_with_the_last_address() {
    let Some(bench) = Bench::new("groups_are_joined_on_every_interface") else { return };
    let mut node = bench.node();
    let both = [(VIP6, "node", Interfaces::All), (SIBLING, "node", Interfaces::All)];
    node.handle.set_plan(plan(&both));
    let joined = |interface: &str, count| {
        eventually("the group", || (bench.memberships(interface, VIP6) == count).then_some(()));
    };
    joined("ens18", 1);

    // A new cable: joined, answered, announced.
    bench.cable("ens19", Mac([2, 0, 0, 0, 0, 0x51]), Mac([2, 0, 0, 0, 0, 0x22]));
    let mut listener = bench.ndp_listener("ens19");
    next_advertisement(&mut listener, VIP6);
    joined("ens19", 1);
    bench.address("ens19");
    assert_eq!(bench.reachable(VIP6), Mac([2, 0, 0, 0, 0, 0x22]));

    // Down and up again.
    let mut in_node = Netlink::open_in(&bench.node).unwrap();
    in_node.set_down("ens18").unwrap();
    node.until("it lost ens18", |seen| seen.owned.get(&VIP6.into()) == Some(&names(&["ens19"])));
    let mut listener = bench.ndp_listener("ens18");
    in_node.set_up("ens18").unwrap();
    node.until("it has ens18 again", |seen| {
        seen.owned.get(&VIP6.into()) == Some(&names(&["ens18", "ens19"]))
    });
    joined("ens18", 1);
    next_advertisement(&mut listener, VIP6);

    // The group serves two addresses.
    node.handle.set_plan(plan(&both[1..]));
    node.until("it gave one up", |seen| seen.owned.keys().eq([&IpAddr::V6(SIBLING)]));
    joined("ens18", 1);
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    joined("ens18", 0);
    joined("ens19", 0);
}

/// S36, AN-25, AN-26: what is wrong with NDP of an interface is none of ARP's business, and is over when it is over.
#[test]
fn a_node_without_ipv6_answers_by_arp_and_by_ndp_as_soon_as_it_has_it() {
    let Some(bench) = Bench::new("a_node_without_ipv6_answers_by_arp") else { return };
    sysctl::write(&bench.node, &[("ipv6/conf/ens18/disable_ipv6", "1")]).unwrap();
    bench.address("ens18");
    let mut node = bench.node();
    let addresses = [(IpAddr::from(VIP), "node", Interfaces::All), (VIP6.into(), "node", Interfaces::All)];
    node.handle.set_plan(plan(&addresses));
    node.until("it answers by ARP alone", |seen| {
        seen.owned.get(&VIP.into()) == Some(&names(&["ens18"]))
            && seen.owned.get(&VIP6.into()) == Some(&names(&[]))
    });
    assert_eq!(bench.prober("ens18").ask(VIP, LONG).unwrap().unwrap().mac, NODE_MAC);

    // Its link-local address is looked for on the segment first, and is not to be used before.
    sysctl::write(&bench.node, &[("ipv6/conf/ens18/disable_ipv6", "0")]).unwrap();
    node.until("it answers by both", |seen| seen.owned.get(&VIP6.into()) == Some(&names(&["ens18"])));
    assert_eq!(bench.reachable(VIP6), NODE_MAC);
    assert_eq!(bench.prober("ens18").ask(VIP, LONG).unwrap().unwrap().mac, NODE_MAC);
}

impl Bench {
    /// Gives the asker an address on the interface and waits until it may use it.
    fn address(&self, interface: &str) {
        let mut netlink = Netlink::open_in(&self.asker).unwrap();
        netlink.add_address(interface, ASKER6.into(), 64).unwrap();
        eventually("an address that can be used", || {
            let found = inspect::interfaces(&mut netlink).unwrap();
            let found = found.into_iter().find(|i| i.name.as_str() == interface)?;
            (found.tentative.is_empty() && found.link_local().is_some()).then_some(())
        });
    }

    /// Has the asker's kernel look for the address until the neighbour is reachable; its hardware address.
    fn reachable(&self, address: Ipv6Addr) -> Mac {
        let mut netlink = Netlink::open_in(&self.asker).unwrap();
        let send = || {
            let socket = UdpSocket::bind("[::]:0").unwrap();
            let _ = socket.send_to(b"x", (address, 9));
        };
        eventually("a neighbour that is reachable", || {
            self.asker.run(send).unwrap();
            let entries = inspect::neighbours(&mut netlink).unwrap();
            let entry = entries.into_iter().find(|entry| entry.address == address)?;
            entry.mac.filter(|_| entry.state == inspect::NeighbourState::Reachable)
        })
    }

    /// How many members the address's group has on the node's interface, as its kernel says.
    fn memberships(&self, interface: &str, address: Ipv6Addr) -> usize {
        let list = || std::fs::read_to_string("/proc/thread-self/net/igmp6").unwrap();
        let group = format!("{:032x}", solicited_node(address).to_bits());
        let text = self.node.run(list).unwrap();
        let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let lines = words.filter(|words| words.get(1..3) == Some(&[interface, &group]));
        lines.filter_map(|words| words.get(3)?.parse::<usize>().ok()).sum()
    }

    fn ndp_listener(&self, interface: &str) -> Listener {
        let index = index_in(&self.asker, interface);
        self.asker.run(|| Listener::open_ndp(index).unwrap()).unwrap()
    }

    fn ndp_socket(&self, interface: &str) -> PacketSocket {
        let index = index_in(&self.asker, interface);
        self.asker.run(|| PacketSocket::open(index, Frames::NeighborDiscovery).unwrap()).unwrap()
    }
}

/// The next advertisement of the address that comes in.
fn next_advertisement(listener: &mut Listener, address: Ipv6Addr) -> Frame {
    let end = Instant::now() + LONG;
    loop {
        let heard = listener.next(end).unwrap().expect("an advertisement");
        if let Ok(frame) = Frame::parse(&heard.frame)
            && let Message::Advertisement(Advertisement { target, .. }) = frame.packet.message
            && target == address
            && !heard.outgoing
        {
            assert_eq!(heard.frame.len(), 86);
            return frame;
        }
    }
}
