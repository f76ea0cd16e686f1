// SPDX-License-Identifier: Apache-2.0
//! The wires: one network namespace per host, a switch between those of the segment, a bridge for each node's Pods.
//!
//! Every name that is about to exist is written into the ledger first, so that a lab that is killed at any moment
//! leaves nothing that the next run would not find.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use ferrolb_linux::link::{VethEnd, create_veth};
use ferrolb_linux::{Namespace, Netlink, netns, sysctl};
use ferrolb_net_types::{Mac, Prefix};

use crate::host::{Host, SECOND_INTERFACE};
use crate::ledger::Ledger;

/// The namespaces of the hosts, open.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    ledger: Arc<Ledger>,
    hosts: BTreeMap<Host, Arc<Namespace>>,
}

impl Topology {
    /// Builds the whole network: about 0.1 s.
    ///
    /// # Errors
    /// The first step that fails, by name. What was built until then is in the ledger.
    pub(crate) fn build(ledger: Arc<Ledger>) -> Result<Self> {
        let switch = create(&ledger, &namespace_name(&ledger, "switch"))?;
        sysctl::write(
            &switch,
            &[("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")],
        )?;
        let mut hosts = BTreeMap::new();
        for host in Host::ALL {
            let namespace = create(&ledger, &namespace_name(&ledger, host.name()))?;
            sysctl::write(&namespace, &settings(host.forwards()))?;
            hosts.insert(host, Arc::new(namespace));
        }
        let topology = Self { ledger, hosts };
        topology.plug(&switch)?;
        for host in Host::ALL {
            topology.configure(host).with_context(|| format!("configure the host {host}"))?;
        }
        Ok(topology)
    }

    /// The namespace of a host.
    pub(crate) fn namespace(&self, host: Host) -> &Arc<Namespace> {
        self.hosts.get(&host).expect("build and open fill in every host")
    }

    /// Makes the namespace of a Pod behind `node`, with `address` and its [`six`] on its `eth0`.
    ///
    /// # Errors
    /// The host is no node, the name is taken, or the kernel refuses.
    pub(crate) fn add_pod(&self, node: Host, pod: &str, address: Ipv4Addr) -> Result<Namespace> {
        let network = node.pod_network().with_context(|| format!("{node} is no node"))?;
        let namespace = create(&self.ledger, &namespace_name(&self.ledger, pod))?;
        sysctl::write(&namespace, &settings(false))?;
        let [_, _, third, last] = address.octets();
        let port = format!("veth{third}x{last}");
        create_veth(
            VethEnd {
                namespace: &namespace,
                name: "eth0",
                mac: Some(Mac([0x52, 0x54, 0, 0x14, third, last])),
            },
            VethEnd { namespace: self.namespace(node), name: &port, mac: None },
        )?;
        let mut at_node = Netlink::open_in(self.namespace(node))?;
        at_node.set_master(&port, Some(POD_BRIDGE))?;
        at_node.set_up(&port)?;
        let mut inside = Netlink::open_in(&namespace)?;
        inside.set_up("lo")?;
        inside.set_up("eth0")?;
        let bridge = Ipv4Addr::new(172, 20, network, 1);
        inside.add_address("eth0", address.into(), 24)?;
        inside.add_route(everything4(), bridge.into())?;
        inside.add_address("eth0", six(address).into(), 64)?;
        inside.add_route(everything6(), six(bridge).into())?;
        Ok(namespace)
    }

    /// Removes the namespace of a Pod.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn remove_pod(&self, pod: &str) -> Result<()> {
        let name = namespace_name(&self.ledger, pod);
        netns::delete(&name)?;
        self.ledger.forget_namespace(&name);
        Ok(())
    }

    /// Plugs an interface of this name into the second segment of a host, as a NIC that is added to a machine that runs. It is
    /// down and has no address.
    ///
    /// # Errors
    /// The name is taken, or the kernel refuses.
    pub(crate) fn add_interface(&self, host: Host, name: &str, mac: Mac) -> Result<()> {
        let switch = Namespace::open(&namespace_name(&self.ledger, "switch"))?;
        let mut ports = Netlink::open_in(&switch)?;
        let port = format!("{}-{}", host.name(), name.trim_start_matches(|c: char| !c.is_ascii_digit()));
        create_veth(
            VethEnd { namespace: self.namespace(host), name, mac: Some(mac) },
            VethEnd { namespace: &switch, name: &port, mac: None },
        )?;
        ports.set_master(&port, Some("br1"))?;
        Ok(ports.set_up(&port)?)
    }

    /// Takes the carrier of a host's port on the first segment away, or gives it back.
    ///
    /// # Errors
    /// The host has no such port, or the kernel refuses.
    pub(crate) fn plug_in(&self, host: Host, plugged: bool) -> Result<()> {
        let mut ports = Netlink::open_in(&Namespace::open(&namespace_name(&self.ledger, "switch"))?)?;
        if plugged {
            ports.set_up(host.name())?
        } else {
            ports.set_down(host.name())?
        }
        Ok(())
    }

    /// The switches, their cables, and the cable between router and outside.
    fn plug(&self, switch: &Namespace) -> Result<()> {
        let mut ports = Netlink::open_in(switch)?;
        ports.create_bridge("br1")?;
        ports.set_up("br1")?;
        for host in Host::SEGMENT {
            if let Some((mac, _)) = host.second() {
                self.add_interface(host, SECOND_INTERFACE, mac)?;
            }
        }
        ports.create_bridge("br0")?;
        ports.set_up("br0")?;
        for host in Host::SEGMENT {
            create_veth(
                VethEnd { namespace: self.namespace(host), name: host.interface(), mac: Some(host.mac()) },
                VethEnd { namespace: switch, name: host.name(), mac: None },
            )?;
            ports.set_master(host.name(), Some("br0"))?;
            ports.set_up(host.name())?;
        }
        create_veth(
            VethEnd {
                namespace: self.namespace(Host::Outside),
                name: Host::Outside.interface(),
                mac: Some(Host::Outside.mac()),
            },
            VethEnd {
                namespace: self.namespace(Host::Router),
                name: ROUTER_OUTSIDE,
                mac: Some(ROUTER_OUTSIDE_MAC),
            },
        )?;
        Ok(())
    }

    /// Addresses and routes of one host.
    fn configure(&self, host: Host) -> Result<()> {
        let mut link = Netlink::open_in(self.namespace(host))?;
        let interface = host.interface();
        link.set_up("lo")?;
        link.set_up(interface)?;
        for address in host.addresses() {
            link.add_address(interface, address.into(), 24)?;
        }
        link.add_address(interface, host.address6().into(), 64)?;
        if let Some((_, address)) = host.second() {
            link.set_up(SECOND_INTERFACE)?;
            link.add_address(SECOND_INTERFACE, address.into(), 24)?;
        }
        match host {
            Host::Router => {
                link.set_up(ROUTER_OUTSIDE)?;
                link.add_address(ROUTER_OUTSIDE, ROUTER_OUTSIDE_ADDRESS.into(), 24)?;
                link.add_address(ROUTER_OUTSIDE, ROUTER_OUTSIDE_ADDRESS6.into(), 64)?;
            }
            Host::Outside => {
                link.add_route(everything4(), ROUTER_OUTSIDE_ADDRESS.into())?;
                link.add_route(everything6(), ROUTER_OUTSIDE_ADDRESS6.into())?;
            }
            _ => {
                link.add_route(everything4(), Host::Router.address().into())?;
                link.add_route(everything6(), Host::Router.address6().into())?;
            }
        }
        if let Some(own) = host.pod_network() {
            link.create_bridge(POD_BRIDGE)?;
            link.set_up(POD_BRIDGE)?;
            let bridge = Ipv4Addr::new(172, 20, own, 1);
            link.add_address(POD_BRIDGE, bridge.into(), 24)?;
            link.add_address(POD_BRIDGE, six(bridge).into(), 64)?;
            for other in Host::NODES {
                match other.pod_network() {
                    Some(network) if network != own => {
                        let [four, six] = pods_of(network);
                        link.add_route(four, other.address().into())?;
                        link.add_route(six, other.address6().into())?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The name of a namespace of this lab: `ferrolb-client`.
pub(crate) fn namespace_name(ledger: &Ledger, host: &str) -> String {
    format!("{}-{host}", ledger.lab())
}

/// The networks of every Pod of the cluster, of IPv4 and of IPv6.
pub(crate) const ALL_PODS: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(172, 20, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0)), 48),
];

/// The networks of the Pods of one node, of IPv4 and of IPv6.
pub(crate) fn pods_of(network: u8) -> [Prefix; 2] {
    let four = Ipv4Addr::new(172, 20, network, 0);
    [prefix((four.into(), 24)), prefix((six(four).into(), 64))]
}

/// The IPv6 address of a Pod beside its IPv4 address: `fd00:20:0:1::7` beside 172.20.1.7.
pub(crate) fn six(address: Ipv4Addr) -> Ipv6Addr {
    let [_, _, network, last] = address.octets();
    Ipv6Addr::new(0xfd00, 0x20, 0, network.into(), 0, 0, 0, last.into())
}

/// A network of the bench.
pub(crate) fn prefix((address, length): (IpAddr, u8)) -> Prefix {
    Prefix::new(address, length).expect("the lengths of the bench's networks are right")
}

fn create(ledger: &Ledger, name: &str) -> Result<Namespace> {
    ledger.note_namespace(name)?;
    Ok(Namespace::create(name)?)
}

/// Kernel settings of a host, written before it has an interface: what comes later takes the defaults over.
fn settings(forwards: bool) -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for scope in ["all", "default"] {
        for (name, value) in [("accept_dad", "0"), ("dad_transmits", "0"), ("accept_ra", "0")] {
            all.push((format!("ipv6/conf/{scope}/{name}"), value));
        }
        for name in ["rp_filter", "send_redirects", "accept_redirects"] {
            all.push((format!("ipv4/conf/{scope}/{name}"), "0"));
        }
    }
    if forwards {
        all.push(("ipv4/ip_forward".to_owned(), "1"));
        all.push(("ipv6/conf/all/forwarding".to_owned(), "1"));
        // By addresses alone: every connection of one client takes the same way, as on the tutorial's router.
        all.push(("ipv4/fib_multipath_hash_policy".to_owned(), "0"));
        all.push(("ipv6/fib_multipath_hash_policy".to_owned(), "0"));
    }
    all
}

fn everything4() -> Prefix {
    Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0).expect("0 is a length of every prefix")
}

fn everything6() -> Prefix {
    Prefix::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0).expect("0 is a length of every prefix")
}

/// The bridge of a node's Pods. MetalLB's list of excluded interfaces names it, as it does the ports `veth…`.
const POD_BRIDGE: &str = "cni0";
const ROUTER_OUTSIDE: &str = "eth2";
const ROUTER_OUTSIDE_MAC: Mac = Mac([0x52, 0x54, 0x00, 0x3a, 0x30, 0x01]);
const ROUTER_OUTSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 30, 1);
const ROUTER_OUTSIDE_ADDRESS6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, 1);
