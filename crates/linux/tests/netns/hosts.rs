// SPDX-License-Identifier: Apache-2.0
//! Namespaces, links, addresses, routes, settings.

use std::io;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use ferrolb_linux::link::{VethEnd, create_veth};
use ferrolb_linux::process::Pid;
use ferrolb_linux::{Namespace, Netlink, inspect, netns, sysctl};
use ferrolb_net_types::Prefix;

use crate::support::{Bench, MAC_A, eventually, is_root};

#[test]
fn a_namespace_is_made_found_and_taken_away() {
    if !is_root("a_namespace_is_made_found_and_taken_away") {
        return;
    }
    let mut bench = Bench::new();
    let one = bench.host("one");
    bench.host("two");
    let name = |short: &str| format!("{}{short}", bench.prefix());
    assert_eq!(netns::list(bench.prefix()).unwrap(), [name("one"), name("two")]);
    assert!(netns::exists(&name("one")));
    assert_eq!(Namespace::create(&name("one")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);

    netns::delete(&name("one")).unwrap();
    netns::delete(&name("one")).unwrap(); // again is no error
    assert!(!netns::exists(&name("one")));
    assert_eq!(netns::list(bench.prefix()).unwrap(), [name("two")]);
    assert_eq!(Namespace::open(&name("one")).unwrap_err().kind(), io::ErrorKind::NotFound);
    drop(one);
}

#[test]
fn a_closure_runs_inside_and_the_caller_stays_outside() {
    if !is_root("a_closure_runs_inside_and_the_caller_stays_outside") {
        return;
    }
    let mut bench = Bench::new();
    let host = bench.host("host");
    let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let there = host.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_ne!(here, there);
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), here);
}

#[test]
fn the_processes_of_a_namespace_are_those_that_were_started_in_it() {
    if !is_root("the_processes_of_a_namespace_are_those_that_were_started_in_it") {
        return;
    }
    let mut bench = Bench::new();
    let host = bench.host("host");
    assert_eq!(host.processes().unwrap(), []);
    let mut child =
        host.run(|| Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap()).unwrap();
    assert_eq!(host.processes().unwrap(), [Pid(child.id())]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(host.processes().unwrap(), []);
}

#[test]
fn a_cable_carries_final_names_and_macs_and_a_bridge_takes_ports() {
    if !is_root("a_cable_carries_final_names_and_macs_and_a_bridge_takes_ports") {
        return;
    }
    let mut bench = Bench::new();
    let (host, switch) = (bench.host("host"), bench.host("switch"));
    create_veth(
        VethEnd { namespace: &host, name: "ens18", mac: Some(MAC_A) },
        VethEnd { namespace: &switch, name: "host", mac: None },
    )
    .unwrap();
    let mut in_switch = Netlink::open_in(&switch).unwrap();
    in_switch.create_bridge("br0").unwrap();
    in_switch.set_up("br0").unwrap();
    in_switch.set_master("host", Some("br0")).unwrap();
    in_switch.set_up("host").unwrap();
    let ports = inspect::interfaces(&mut in_switch).unwrap();
    let find = |name: &str| ports.iter().find(|port| port.name.as_str() == name).unwrap();
    assert_eq!(find("host").master, Some(find("br0").index));
    assert!(find("br0").master.is_none() && find("br0").up && find("br0").broadcast);

    let mut in_host = Netlink::open_in(&host).unwrap();
    let interface = |netlink: &mut Netlink| {
        inspect::interfaces(netlink).unwrap().into_iter().find(|i| i.name.as_str() == "ens18").unwrap()
    };
    assert_eq!(interface(&mut in_host).mac, Some(MAC_A));
    assert!(!interface(&mut in_host).up);
    in_host.set_up("ens18").unwrap();
    in_host.add_address("ens18", "192.0.2.1".parse().unwrap(), 24).unwrap();
    in_host.add_address("ens18", "2001:db8::1".parse().unwrap(), 64).unwrap();
    let now = interface(&mut in_host);
    assert!(now.up && now.carrier && !now.noarp && !now.loopback);
    assert!(now.addresses.contains(&("192.0.2.1".parse().unwrap(), 24)));
    assert!(now.addresses.contains(&("2001:db8::1".parse().unwrap(), 64)));
    // Not to be used before nobody else is known to have it.
    eventually("a link-local address that can be used", || interface(&mut in_host).link_local());
    let (local, _) = now
        .addresses
        .iter()
        .find(|(ip, _)| ip.is_ipv6() && *ip != "2001:db8::1".parse::<IpAddr>().unwrap())
        .unwrap();
    assert!(now.tentative.contains(local) && now.link_local().is_none());

    let again = in_host.add_address("ens18", "192.0.2.1".parse().unwrap(), 24).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(in_host.set_up("eth9").unwrap_err().os_error(), Some(libc::ENODEV));

    in_switch.set_down("host").unwrap();
    eventually("the host notices that its port lost the carrier", || {
        (!interface(&mut in_host).carrier).then_some(())
    });
}

#[test]
fn routes_and_settings_take_effect() {
    if !is_root("routes_and_settings_take_effect") {
        return;
    }
    let mut bench = Bench::new();
    let (a, _b) = bench.pair(true);
    let mut netlink = Netlink::open_in(&a).unwrap();
    let everything: Prefix = "0.0.0.0/0".parse().unwrap();
    let net: Prefix = "198.51.100.0/24".parse().unwrap();
    netlink.add_route(everything, "192.0.2.2".parse().unwrap()).unwrap();
    netlink.add_route(net, "192.0.2.2".parse().unwrap()).unwrap();
    let routes = || a.run(|| std::fs::read_to_string("/proc/thread-self/net/route").unwrap()).unwrap();
    assert!(routes().contains("ens18\t00000000\t020200C0"), "{}", routes());
    assert!(routes().contains("ens18\t006433C6\t020200C0"), "{}", routes());
    netlink.delete_route(net).unwrap();
    assert!(!routes().contains("ens18\t006433C6"), "{}", routes());
    let unreachable = netlink.add_route(net, "203.0.113.1".parse().unwrap()).unwrap_err();
    assert_eq!(unreachable.kind(), io::ErrorKind::NetworkUnreachable);

    sysctl::write(&a, &[("ipv4/ip_forward", "1"), ("ipv4/conf/ens18/rp_filter", "0")]).unwrap();
    assert_eq!(a.run(|| sysctl::read_here("ipv4/ip_forward").unwrap()).unwrap(), "1");
    let missing = sysctl::write(&a, &[("ipv4/no_such_setting", "1")]).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}
