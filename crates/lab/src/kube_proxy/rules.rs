// SPDX-License-Identifier: Apache-2.0
//! The nftables rules of a node: a pure function of the Services' ports, the node, and the cluster's Pod network.
//!
//! Table, map and chain names are those of kube-proxy's nftables mode, so that what a reader knows of the real one
//! holds here. The text replaces the whole table in one transaction: a packet sees the old rules or the new ones.
//!
//! ```text
//!  prerouting, output (nat) ─► services ─► service-ips ─► service-… ─► endpoint-… ─► dnat
//!                                     └──► service-nodeports ─► external-… ─┘
//!  input, forward, output (filter) ─► no-endpoint-services: reject or drop
//!                               └───► a load balancer's address on a port that no Service has: drop
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ferrolb_net_types::Prefix;

use super::port::{Backend, ServicePort};

/// What the rules of one node are made from.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Its name, as slices give it.
    pub name: &'a str,
    /// The network of all Pods of the cluster: traffic from there is not hidden.
    pub pods: Prefix,
}

/// The complete text for `nft -f -`.
pub fn ruleset(node: Node<'_>, ports: &[ServicePort]) -> String {
    let mut chains = String::new();
    let mut tables = Verdicts::default();
    let mut endpoints = BTreeSet::new();
    for port in ports {
        service(node, port, &mut chains, &mut tables, &mut endpoints);
    }
    // Writing to a String cannot fail.
    let mut text =
        String::from("add table ip kube-proxy\ndelete table ip kube-proxy\ntable ip kube-proxy {\n");
    let _ = write!(text, "{}", tables.sets());
    text.push_str(BASE);
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
    fn sets(&self) -> String {
        const BY_ADDRESS: &str = "ipv4_addr . inet_proto . inet_service : verdict";
        const BY_PORT: &str = "inet_proto . inet_service : verdict";
        let mut text = String::new();
        let all = [
            ("map", "service-ips", BY_ADDRESS, &self.service_ips),
            ("map", "service-nodeports", BY_PORT, &self.node_ports),
            ("map", "no-endpoint-services", BY_ADDRESS, &self.no_endpoints),
            ("map", "no-endpoint-nodeports", BY_PORT, &self.no_endpoint_node_ports),
            ("map", "firewall-ips", BY_ADDRESS, &self.firewall),
            ("set", "load-balancer-ips", "ipv4_addr", &self.load_balancer_ips),
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
    node: Node<'_>,
    port: &ServicePort,
    chains: &mut String,
    tables: &mut Verdicts,
    endpoints: &mut BTreeSet<String>,
) {
    let path = port.path();
    let protocol = port.protocol.name();
    let here = port.backends_on(node.name);
    let cluster = if port.internal_local { &here } else { &port.backends };
    let key = |address: std::net::Ipv4Addr| format!("{address} . {protocol} . {}", port.port);
    tables.load_balancer_ips.extend(port.load_balancer.iter().map(ToString::to_string));

    for backend in &port.backends {
        let chain = endpoint_chain(&path, backend);
        if endpoints.insert(chain.clone()) {
            let Backend { address, port: number, .. } = backend;
            // A Pod that reaches itself through its Service must see another source than itself.
            let _ = write!(
                chains,
                "  chain {chain} {{\n    ip saddr {address} jump mark-for-masquerade\n    \
                 meta l4proto {protocol} dnat to {address}:{number}\n  }}\n"
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
            "  chain service-{path} {{\n    ip daddr {} {protocol} dport {} ip saddr != {} jump mark-for-masquerade\n    {}\n  }}\n",
            port.cluster_ip,
            port.port,
            node.pods,
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
        let _ = writeln!(chains, "    ip saddr {} goto internal-{path}", node.pods);
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
            "  chain firewall-{path} {{\n    ip saddr != {{ {} }} drop\n  }}\n",
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
    format!("endpoint-{path}__{}/{}", backend.address, backend.port)
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
        ruleset(Node { name: node, pods: "172.20.0.0/16".parse().unwrap() }, std::slice::from_ref(port))
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
}
