// SPDX-License-Identifier: Apache-2.0
//! The nftables rules of a node: a pure function of the Services' ports, the node, and the cluster's Pod network.
//!
//! Table, map and chain names are those of kube-proxy's nftables mode, so that what a reader knows of the real one
//! holds here. The text replaces both tables, one for each family, in one transaction: a packet sees the old rules or the new ones.
//!
//! ```text
//!  prerouting, output (nat) ─► services ─► service-ips ─► service-… ─► endpoint-… ─► dnat
//!                                     └──► service-nodeports ─► external-… ─┘
//!  input, forward, output (filter) ─► no-endpoint-services: reject or drop
//!                               └───► a load balancer's address on a port that no Service has: drop
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use ferrolb_net_types::Prefix;

use super::port::{Backend, ServicePort};

/// What the rules of one node are made from.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Its name, as slices give it.
    pub name: &'a str,
    /// The networks of all Pods of the cluster, of IPv4 and of IPv6: traffic from there is not hidden.
    pub pods: [Prefix; 2],
}

/// What nftables calls a family's things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Words {
    /// The table's family, and the header of its packets.
    ip: &'static str,
    /// The type of an address.
    address: &'static str,
    loopback: &'static str,
    is_six: bool,
}

const FAMILIES: [Words; 2] = [
    Words { ip: "ip", address: "ipv4_addr", loopback: "127.0.0.0/8", is_six: false },
    Words { ip: "ip6", address: "ipv6_addr", loopback: "::1", is_six: true },
];

/// The complete text for `nft -f -`.
pub fn ruleset(node: Node<'_>, ports: &[ServicePort]) -> String {
    let of = |(words, pods): (Words, Prefix)| {
        let own = ports.iter().filter(|port| port.cluster_ip.is_ipv6() == words.is_six);
        table(words, node.name, pods, own)
    };
    FAMILIES.into_iter().zip(node.pods).map(of).collect()
}

/// The text for one family's table.
fn table<'a>(words: Words, node: &str, pods: Prefix, ports: impl Iterator<Item = &'a ServicePort>) -> String {
    let mut chains = String::new();
    let mut tables = Verdicts::default();
    let mut endpoints = BTreeSet::new();
    for port in ports {
        service(words, (node, pods), port, &mut chains, &mut tables, &mut endpoints);
    }
    let ip = words.ip;
    let mut text =
        format!("add table {ip} kube-proxy\ndelete table {ip} kube-proxy\ntable {ip} kube-proxy {{\n");
    text.push_str(&tables.sets(words));
    text.push_str(&BASE.replace("127.0.0.0/8", words.loopback).replace("ip daddr", &format!("{ip} daddr")));
    text.push_str(&chains);
    text.push_str("}\n");
    text
}

/// Elements of the verdict maps and sets.
#[derive(Default)]
struct Verdicts {
    service_ips: BTreeSet<String>,
    node_ports: BTreeSet<String>,
    no_endpoints: BTreeSet<String>,
    no_endpoint_node_ports: BTreeSet<String>,
    firewall: BTreeSet<String>,
    load_balancer_ips: BTreeSet<String>,
}

impl Verdicts {
    fn sets(&self, words: Words) -> String {
        let by_address = format!("{} . inet_proto . inet_service : verdict", words.address);
        const BY_PORT: &str = "inet_proto . inet_service : verdict";
        let mut text = String::new();
        let all = [
            ("map", "service-ips", by_address.as_str(), &self.service_ips),
            ("map", "service-nodeports", BY_PORT, &self.node_ports),
            ("map", "no-endpoint-services", &by_address, &self.no_endpoints),
            ("map", "no-endpoint-nodeports", BY_PORT, &self.no_endpoint_node_ports),
            ("map", "firewall-ips", &by_address, &self.firewall),
            ("set", "load-balancer-ips", words.address, &self.load_balancer_ips),
        ];
        for (kind, name, key, elements) in all {
            let _ = write!(text, "  {kind} {name} {{\n    type {key}\n");
            if !elements.is_empty() {
                let list: Vec<&str> = elements.iter().map(String::as_str).collect();
                let _ = writeln!(text, "    elements = {{ {} }}", list.join(",\n      "));
            }
            text.push_str("  }\n");
        }
        text
    }
}

/// Chains of one port, and its elements of the maps.
fn service(
    words: Words,
    (node, pods): (&str, Prefix),
    port: &ServicePort,
    chains: &mut String,
    tables: &mut Verdicts,
    endpoints: &mut BTreeSet<String>,
) {
    let (path, ip) = (port.path(), words.ip);
    let protocol = port.protocol.name();
    let here = port.backends_on(node);
    let cluster = if port.internal_local { &here } else { &port.backends };
    let key = |address: IpAddr| format!("{address} . {protocol} . {}", port.port);
    tables.load_balancer_ips.extend(port.load_balancer.iter().map(ToString::to_string));

    for backend in &port.backends {
        let chain = endpoint_chain(&path, backend);
        if endpoints.insert(chain.clone()) {
            let (address, to) = (backend.address, SocketAddr::new(backend.address, backend.port));
            // A Pod that reaches itself through its Service must see another source than itself.
            let _ = write!(
                chains,
                "  chain {chain} {{\n    {ip} saddr {address} jump mark-for-masquerade\n    \
                 meta l4proto {protocol} dnat to {to}\n  }}\n"
            );
        }
    }

    if cluster.is_empty() {
        let verdict =
            if port.internal_local && !port.backends.is_empty() { "drop" } else { "goto reject-chain" };
        tables.no_endpoints.insert(format!("{} : {verdict}", key(port.cluster_ip)));
    } else {
        tables.service_ips.insert(format!("{} : goto service-{path}", key(port.cluster_ip)));
        let _ = write!(
            chains,
            "  chain service-{path} {{\n    {ip} daddr {} {protocol} dport {} {ip} saddr != {pods} jump mark-for-masquerade\n    {}\n  }}\n",
            port.cluster_ip,
            port.port,
            spread(&path, cluster),
        );
    }

    if port.load_balancer.is_empty() && port.node_port.is_none() {
        return;
    }
    let external = if port.local { &here } else { &port.backends };
    if external.is_empty() {
        let verdict = if port.backends.is_empty() { "goto reject-chain" } else { "drop" };
        tables
            .no_endpoints
            .extend(port.load_balancer.iter().map(|address| format!("{} : {verdict}", key(*address))));
        tables
            .no_endpoint_node_ports
            .extend(port.node_port.iter().map(|number| format!("{protocol} . {number} : {verdict}")));
    }
    if port.backends.is_empty() {
        return;
    }
    tables
        .service_ips
        .extend(port.load_balancer.iter().map(|address| format!("{} : goto external-{path}", key(*address))));
    tables
        .node_ports
        .extend(port.node_port.iter().map(|number| format!("{protocol} . {number} : goto external-{path}")));
    let _ = writeln!(chains, "  chain external-{path} {{");
    if port.local {
        // Who is inside the cluster reaches every backend, whatever the policy for those outside.
        let inside = spread(&path, &port.backends);
        let _ = writeln!(chains, "    {ip} saddr {pods} goto internal-{path}");
        let _ = writeln!(chains, "    fib saddr type local jump mark-for-masquerade");
        let _ = writeln!(chains, "    fib saddr type local goto internal-{path}");
        if !here.is_empty() {
            let _ = writeln!(chains, "    {}", spread(&path, &here));
        }
        let _ = write!(chains, "  }}\n  chain internal-{path} {{\n    {inside}\n  }}\n");
    } else {
        let _ = write!(chains, "    jump mark-for-masquerade\n    {}\n  }}\n", spread(&path, &port.backends));
    }
    if !port.source_ranges.is_empty() {
        tables.firewall.extend(
            port.load_balancer.iter().map(|address| format!("{} : goto firewall-{path}", key(*address))),
        );
        let ranges: Vec<String> = port.source_ranges.iter().map(ToString::to_string).collect();
        let _ = write!(
            chains,
            "  chain firewall-{path} {{\n    {ip} saddr != {{ {} }} drop\n  }}\n",
            ranges.join(", ")
        );
    }
}

/// One rule that sends a new connection to one of the backends, each as likely as the others.
fn spread(path: &str, backends: &BTreeSet<Backend>) -> String {
    let mut text = format!("numgen random mod {} vmap {{ ", backends.len());
    for (index, backend) in backends.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{index} : goto {}", endpoint_chain(path, backend));
    }
    text.push_str(" }");
    text
}

fn endpoint_chain(path: &str, backend: &Backend) -> String {
    // A chain's name has no colon.
    format!("endpoint-{path}__{}/{}", backend.address.to_string().replace(':', "."), backend.port)
}

/// Chains that do not depend on any Service.
const BASE: &str = "
  chain services {
    ip daddr . meta l4proto . th dport vmap @service-ips
    ip daddr != 127.0.0.0/8 fib daddr type local meta l4proto . th dport vmap @service-nodeports
  }
  chain mark-for-masquerade {
    meta mark set meta mark or 0x4000
  }
  chain reject-chain {
    reject
  }
  chain service-endpoints-check {
    ip daddr . meta l4proto . th dport vmap @no-endpoint-services
    ip daddr != 127.0.0.0/8 fib daddr type local meta l4proto . th dport vmap @no-endpoint-nodeports
  }
  chain filter-prerouting-pre-dnat {
    type filter hook prerouting priority dstnat - 10
    ct state new ip daddr . meta l4proto . th dport vmap @firewall-ips
  }
  chain filter-input {
    type filter hook input priority -110
    ct state new jump service-endpoints-check
  }
  chain filter-forward {
    type filter hook forward priority -110
    ct state new jump service-endpoints-check
    ip daddr @load-balancer-ips drop
  }
  chain filter-output {
    type filter hook output priority -90
    ct state new jump service-endpoints-check
    ip daddr @load-balancer-ips drop
  }
  chain nat-prerouting {
    type nat hook prerouting priority dstnat
    jump services
  }
  chain nat-output {
    type nat hook output priority -100
    jump services
  }
  chain nat-postrouting {
    type nat hook postrouting priority srcnat
    meta mark & 0x4000 == 0 return
    meta mark set meta mark xor 0x4000
    masquerade fully-random
  }
";

#[cfg(test)]
mod tests {
    use super::super::port::Protocol;
    use super::*;

    fn backend(address: &str, node: &str) -> Backend {
        Backend { address: address.parse().unwrap(), port: 8080, node: Some(node.to_owned()) }
    }

    fn port(local: bool, backends: &[Backend]) -> ServicePort {
        ServicePort {
            namespace: "demo".to_owned(),
            service: "hello-lb".to_owned(),
            name: "http".to_owned(),
            protocol: Protocol::Tcp,
            cluster_ip: "10.96.1.2".parse().unwrap(),
            port: 80,
            node_port: Some(30080),
            load_balancer: vec!["192.168.10.200".parse().unwrap()],
            local,
            internal_local: false,
            source_ranges: Vec::new(),
            backends: backends.iter().cloned().collect(),
        }
    }

    fn rules(node: &str, port: &ServicePort) -> String {
        let pods = ["172.20.0.0/16", "fd00:20::/48"].map(|pods| pods.parse().unwrap());
        ruleset(Node { name: node, pods }, std::slice::from_ref(port))
    }

    fn chain<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        let (_, rest) = text.split_once(&format!("  chain {name} {{\n"))?;
        rest.split_once("\n  }").map(|(body, _)| body)
    }

    #[test]
    fn policy_cluster_hides_the_client_and_uses_every_backend() {
        let port = port(false, &[backend("172.20.1.2", "k8s-node-1"), backend("172.20.2.2", "k8s-node-2")]);
        let text = rules("k8s-node-1", &port);
        let external = chain(&text, "external-demo/hello-lb/tcp/http").unwrap();
        assert!(external.contains("jump mark-for-masquerade"), "{external}");
        assert!(external.contains("numgen random mod 2 vmap"), "{external}");
        assert!(text.contains("192.168.10.200 . tcp . 80 : goto external-demo/hello-lb/tcp/http"), "{text}");
        assert!(text.contains("tcp . 30080 : goto external-demo/hello-lb/tcp/http"), "{text}");
    }

    #[test]
    fn policy_local_keeps_the_client_and_uses_the_nodes_own_backends() {
        let port = port(true, &[backend("172.20.1.2", "k8s-node-1"), backend("172.20.2.2", "k8s-node-2")]);
        let text = rules("k8s-node-1", &port);
        let external = chain(&text, "external-demo/hello-lb/tcp/http").unwrap();
        let last = external.lines().last().unwrap();
        assert!(last.contains("mod 1") && last.contains("172.20.1.2"), "{external}");
        assert!(!external.lines().any(|line| line.trim() == "jump mark-for-masquerade"), "{external}");
    }

    #[test]
    fn policy_local_without_a_backend_on_the_node_drops() {
        let port = port(true, &[backend("172.20.2.2", "k8s-node-2")]);
        let text = rules("k8s-node-1", &port);
        assert!(text.contains("192.168.10.200 . tcp . 80 : drop"), "{text}");
        assert!(text.contains("tcp . 30080 : drop"), "{text}");
        let external = chain(&text, "external-demo/hello-lb/tcp/http").unwrap();
        assert!(!external.contains("numgen"), "only the cluster's own traffic has a way: {external}");
    }

    #[test]
    fn a_service_without_any_backend_rejects() {
        let text = rules("k8s-node-1", &port(false, &[]));
        for address in ["10.96.1.2", "192.168.10.200"] {
            assert!(text.contains(&format!("{address} . tcp . 80 : goto reject-chain")), "{text}");
        }
        assert!(!text.contains("dnat to"), "{text}");
    }

    #[test]
    fn source_ranges_refuse_everybody_else_before_the_translation() {
        let mut port = port(false, &[backend("172.20.1.2", "k8s-node-1")]);
        port.source_ranges = vec!["192.168.10.0/24".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        let text = rules("k8s-node-1", &port);
        let firewall = chain(&text, "firewall-demo/hello-lb/tcp/http").unwrap();
        assert_eq!(firewall.trim(), "ip saddr != { 192.168.10.0/24, 10.0.0.0/8 } drop");
    }

    #[test]
    fn the_table_of_ipv6_has_the_words_of_ipv6_and_its_ports_alone() {
        let mut port = port(false, &[backend("fd00:20:0:1::2", "k8s-node-1")]);
        port.cluster_ip = "fd00:96::2".parse().unwrap();
        port.load_balancer = vec!["fd00:10::200".parse().unwrap()];
        let text = rules("k8s-node-1", &port);
        let (four, six) = text.split_once("add table ip6 kube-proxy").unwrap();
        assert!(!four.contains("dnat to") && four.contains("table ip kube-proxy"), "{four}");
        assert!(six.contains("fd00:10::200 . tcp . 80 : goto external-demo/hello-lb/tcp/http"), "{six}");
        let endpoint = chain(six, "endpoint-demo/hello-lb/tcp/http__fd00.20.0.1..2/8080").unwrap();
        assert!(endpoint.contains("dnat to [fd00:20:0:1::2]:8080"), "{endpoint}");
        assert!(endpoint.contains("ip6 saddr fd00:20:0:1::2"), "{endpoint}");
        for foreign in ["ip saddr", "ip daddr", "ipv4_addr", "127.0.0.0"] {
            assert!(!six.contains(foreign), "{foreign}: {six}");
        }
    }
}
