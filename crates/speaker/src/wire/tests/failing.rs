// SPDX-License-Identifier: Apache-2.0
//! One interface fails, and the others do not notice (AN-10, S36, S40, S41).

use std::io;
use std::net::Ipv6Addr;
use std::sync::atomic::AtomicBool;

use ferrolb_linux::Error;
use ferrolb_linux::packet::Frames;

use super::*;

const SICK_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x22]);
const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x200);

/// Whatever the kernel may say of an interface that is about to go, or that a policy keeps from the process.
const SICKNESSES: [(&str, i32); 4] = [("EPERM", 1), ("ENXIO", 6), ("ENODEV", 19), ("ENETDOWN", 100)];

/// A node with another cable, on which no socket of this kind can be opened while the flag is up.
fn sick(bench: &Bench, frames: Frames, errno: i32) -> (Node, Arc<AtomicBool>) {
    bench.cable("ens19", Mac([2, 0, 0, 0, 0, 0x51]), SICK_MAC);
    let (index, flag) = (index_in(&bench.node, "ens19"), Arc::new(AtomicBool::new(true)));
    let is_sick = flag.clone();
    let node = bench.node_with(Box::new(move |interface, kind| {
        if interface == index && kind == frames && is_sick.load(Ordering::Relaxed) {
            return Err(Error::new("open a packet socket", io::Error::from_raw_os_error(errno)));
        }
        PacketSocket::open(interface, kind)
    }));
    (node, flag)
}

#[test]
fn an_interface_whose_socket_cannot_be_opened_stops_no_other_and_answers_once_it_can() {
    for (name, errno) in SICKNESSES {
        let Some(bench) = Bench::new("an_interface_whose_socket_cannot_be_opened_stops_no_other") else {
            return;
        };
        let (mut node, flag) = sick(&bench, Frames::ArpRequests, errno);
        node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
        // That it does not answer on the other is what the control side is told, and with it the users: in the status of
        // the Service, or by announceFailed where an advertisement names no other interface.
        node.until("it answers on the one", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18"])));
        assert_eq!(bench.prober("ens18").ask(VIP, LONG).unwrap().unwrap().mac, NODE_MAC, "{name}");
        let rounds = announcements(&mut bench.listener("ens18"), NODE_MAC, 2);
        assert_eq!(rounds, [Operation::Request, Operation::Reply], "{name}");
        let mut other = bench.prober("ens19");
        assert_eq!(other.answers(VIP, SHORT).unwrap(), [], "{name}");

        flag.store(false, Ordering::Relaxed);
        node.until("it answers on both", |seen| {
            seen.owned.get(&VIP.into()) == Some(&names(&["ens18", "ens19"]))
        });
        assert_eq!(other.ask(VIP, LONG).unwrap().unwrap().mac, SICK_MAC, "{name}");
    }
}

#[test]
fn a_protocol_that_fails_does_not_stop_the_other_on_the_same_interface() {
    for (sick_one, vip4, vip6) in [
        (Frames::ArpRequests, &["ens18"][..], &["ens18", "ens19"][..]),
        (Frames::NeighborDiscovery, &["ens18", "ens19"], &["ens18"]),
    ] {
        let Some(bench) = Bench::new("a_protocol_that_fails_does_not_stop_the_other") else { return };
        let (mut node, _) = sick(&bench, sick_one, 1);
        node.handle.set_plan(plan(&[
            (IpAddr::V4(VIP), "node", Interfaces::All),
            (IpAddr::V6(VIP6), "node", Interfaces::All),
        ]));
        node.until("each protocol answers where it can", |seen| {
            seen.owned.get(&VIP.into()) == Some(&names(vip4))
                && seen.owned.get(&VIP6.into()) == Some(&names(vip6))
        });
    }
}

/// The socket of one works no longer, while it is read and while rounds of announcements are going out.
#[test]
fn an_interface_that_goes_in_the_middle_of_a_burst_takes_no_frame_of_the_others_with_it() {
    let Some(bench) = Bench::new("an_interface_that_goes_in_the_middle_of_a_burst") else { return };
    bench.cable("ens19", Mac([2, 0, 0, 0, 0, 0x51]), SICK_MAC);
    let mut node = bench.node();
    let mut listener = bench.listener("ens18");
    node.handle.set_plan(plan(&[(VIP, "node", Interfaces::All)]));
    node.until("it answers on both", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18", "ens19"])));
    Netlink::open_in(&bench.node).unwrap().delete_link("ens19").unwrap();
    // Five rounds, each in both forms: none is missing.
    assert_eq!(announcements(&mut listener, NODE_MAC, 10).len(), 10);
    node.until("it answers on the one", |seen| seen.owned.get(&VIP.into()) == Some(&names(&["ens18"])));
    assert_eq!(bench.prober("ens18").ask(VIP, LONG).unwrap().unwrap().mac, NODE_MAC);
}
