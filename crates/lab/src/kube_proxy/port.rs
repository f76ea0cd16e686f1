// SPDX-License-Identifier: Apache-2.0
//! A port of a Service as kube-proxy looks at it: Services and EndpointSlices joined, one value per port.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferrolb_net_types::Prefix;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// Transport of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// The name as nftables writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Where a connection can be sent to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Backend {
    /// Address of the Pod, or of the API server.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The node it is on, where the slice says so.
    pub node: Option<String>,
}

/// One port of one Service in one family, that of `cluster_ip`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name of the port; empty when it has none.
    pub name: String,
    /// Transport.
    pub protocol: Protocol,
    /// The Service's own address.
    pub cluster_ip: IpAddr,
    /// The port on `cluster_ip` and on the load balancer's addresses.
    pub port: u16,
    /// The port on every node's own addresses.
    pub node_port: Option<u16>,
    /// Addresses of the load balancer with `ipMode: VIP`, in order.
    pub load_balancer: Vec<IpAddr>,
    /// `externalTrafficPolicy: Local`.
    pub local: bool,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
    /// Who may use the load balancer's addresses; empty means everybody.
    pub source_ranges: Vec<Prefix>,
    /// The ready backends; when there is none, those that end but still serve.
    pub backends: BTreeSet<Backend>,
}

impl ServicePort {
    /// The ports of `service`, of IPv4 and of IPv6; none for a headless one, or one of another proxy.
    pub fn of(service: &Service, slices: &[&EndpointSlice]) -> Vec<Self> {
        let Some(spec) = &service.spec else { return Vec::new() };
        let own = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
        let own: BTreeSet<IpAddr> = own.filter_map(|ip| ip.parse().ok()).collect();
        own.into_iter().flat_map(|cluster_ip| Self::of_family(service, spec, cluster_ip, slices)).collect()
    }

    fn of_family(
        service: &Service,
        spec: &ServiceSpec,
        cluster_ip: IpAddr,
        slices: &[&EndpointSlice],
    ) -> Vec<Self> {
        let is_six = cluster_ip.is_ipv6();
        let ingress = service.status.iter().flat_map(|status| status.load_balancer.iter());
        let load_balancer: Vec<IpAddr> = ingress
            .flat_map(|balancer| balancer.ingress.iter().flatten())
            .filter(|entry| entry.ip_mode.as_deref() != Some("Proxy"))
            .filter_map(|entry| entry.ip.as_deref()?.parse().ok())
            .filter(|ip: &IpAddr| ip.is_ipv6() == is_six)
            .collect();
        let ranges = spec.load_balancer_source_ranges.iter().flatten();
        let source_ranges: Vec<Prefix> = ranges
            .filter_map(|range| range.trim().parse().ok())
            .filter(|range: &Prefix| range.first().is_ipv6() == is_six)
            .collect();
        spec.ports
            .iter()
            .flatten()
            .filter_map(|port| {
                let name = port.name.clone().unwrap_or_default();
                Some(Self {
                    namespace: service.metadata.namespace.clone().unwrap_or_default(),
                    service: service.metadata.name.clone().unwrap_or_default(),
                    protocol: match port.protocol.as_deref() {
                        None | Some("TCP") => Protocol::Tcp,
                        Some("UDP") => Protocol::Udp,
                        Some(_) => return None,
                    },
                    cluster_ip,
                    port: u16::try_from(port.port).ok()?,
                    node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|p| *p != 0),
                    load_balancer: load_balancer.clone(),
                    local: spec.external_traffic_policy.as_deref() == Some("Local"),
                    internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
                    source_ranges: source_ranges.clone(),
                    backends: backends(slices, if is_six { "IPv6" } else { "IPv4" }, &name),
                    name,
                })
            })
            .collect()
    }

    /// The backends on one node.
    pub fn backends_on(&self, node: &str) -> BTreeSet<Backend> {
        self.backends.iter().filter(|backend| backend.node.as_deref() == Some(node)).cloned().collect()
    }

    /// What the chains of this port are named after, as kube-proxy does: `demo/hello-lb/tcp/http`.
    pub fn path(&self) -> String {
        format!("{}/{}/{}/{}", self.namespace, self.service, self.protocol.name(), self.name)
    }
}

/// Ready backends behind the port of this name, or, when nothing is ready, those that end but still serve.
fn backends(slices: &[&EndpointSlice], family: &str, port_name: &str) -> BTreeSet<Backend> {
    let collect = |wanted: fn(&k8s_openapi::api::discovery::v1::EndpointConditions) -> bool| {
        let mut found = BTreeSet::new();
        for slice in slices.iter().filter(|slice| slice.address_type == family) {
            let ports = slice.ports.iter().flatten();
            let numbers = ports
                .filter(|port| port.name.as_deref().unwrap_or_default() == port_name)
                .filter_map(|port| u16::try_from(port.port?).ok());
            for number in numbers {
                for endpoint in &slice.endpoints {
                    if !wanted(&endpoint.conditions.clone().unwrap_or_default()) {
                        continue;
                    }
                    let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
                    found.extend(addresses.map(|address| Backend {
                        address,
                        port: number,
                        node: endpoint.node_name.clone(),
                    }));
                }
            }
        }
        found
    };
    // An absent condition means ready.
    let ready = collect(|conditions| conditions.ready.unwrap_or(true));
    if ready.is_empty() {
        collect(|conditions| conditions.serving.unwrap_or(false) && conditions.terminating.unwrap_or(false))
    } else {
        ready
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(spec: serde_json::Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"namespace": "demo", "name": "hello-lb"},
            "spec": spec,
            "status": {"loadBalancer": {"ingress": [
                {"ip": "192.168.10.200", "ipMode": "VIP"}, {"ip": "192.168.10.201", "ipMode": "Proxy"}]}},
        }))
        .unwrap()
    }

    fn slice(endpoints: serde_json::Value) -> EndpointSlice {
        serde_json::from_value(json!({
            "addressType": "IPv4", "metadata": {"name": "hello-lb-1"},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
        }))
        .unwrap()
    }

    fn addresses(endpoints: serde_json::Value) -> Vec<String> {
        let slice = slice(endpoints);
        backends(&[&slice], "IPv4", "http").into_iter().map(|backend| backend.address.to_string()).collect()
    }

    #[test]
    fn a_port_joins_its_service_with_the_backends_of_its_name() {
        let service = service(json!({
            "clusterIP": "10.96.1.2", "externalTrafficPolicy": "Local",
            "ports": [{"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"},
                      {"name": "echo", "port": 81, "protocol": "UDP"}],
        }));
        let slice = slice(json!([{"addresses": ["172.20.1.2"], "nodeName": "k8s-node-1"}]));
        let ports = ServicePort::of(&service, &[&slice]);
        let [http, echo] = ports.as_slice() else { panic!("{ports:?}") };
        assert_eq!(
            (http.path().as_str(), echo.path().as_str()),
            ("demo/hello-lb/tcp/http", "demo/hello-lb/udp/echo")
        );
        assert_eq!(http.load_balancer, ["192.168.10.200".parse::<IpAddr>().unwrap()]);
        assert!(http.local && !http.internal_local);
        assert_eq!((http.node_port, echo.node_port), (Some(30080), None));
        assert_eq!((http.backends.len(), echo.backends.len()), (1, 0));
        assert_eq!((http.backends_on("k8s-node-1").len(), http.backends_on("k8s-node-2").len()), (1, 0));
    }

    #[test]
    fn a_service_of_both_families_has_its_port_in_each() {
        let mut service = service(json!({
            "clusterIP": "fd00:96::2", "clusterIPs": ["fd00:96::2", "10.96.1.2"],
            "loadBalancerSourceRanges": ["192.168.10.0/24", "fd00:10::/64"], "ports": [{"name": "http", "port": 80}],
        }));
        let ingress = json!([{"ip": "fd00:10::200"}, {"ip": "192.168.10.200"}]);
        service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": ingress}})).unwrap();
        let four = slice(json!([{"addresses": ["172.20.1.2"]}]));
        let mut six = slice(json!([{"addresses": ["fd00:20:0:1::2"]}]));
        six.address_type = "IPv6".to_owned();
        let ports = ServicePort::of(&service, &[&four, &six]);
        let told = |port: &ServicePort| {
            let backends: Vec<_> = port.backends.iter().map(|backend| backend.address.to_string()).collect();
            (
                port.cluster_ip.to_string(),
                port.load_balancer.clone(),
                port.source_ranges.len(),
                backends.join(","),
            )
        };
        let address = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        assert_eq!(
            ports.iter().map(told).collect::<Vec<_>>(),
            [
                ("10.96.1.2".to_owned(), address("192.168.10.200"), 1, "172.20.1.2".to_owned()),
                ("fd00:96::2".to_owned(), address("fd00:10::200"), 1, "fd00:20:0:1::2".to_owned()),
            ]
        );
    }

    #[test]
    fn a_headless_service_has_no_port_here() {
        let service = service(json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        assert_eq!(ServicePort::of(&service, &[]), []);
    }

    #[test]
    fn terminating_backends_serve_only_while_nothing_is_ready() {
        let ending = json!({"addresses": ["172.20.1.2"],
            "conditions": {"ready": false, "serving": true, "terminating": true}});
        let broken = json!({"addresses": ["172.20.1.3"],
            "conditions": {"ready": false, "serving": false, "terminating": false}});
        let ready = json!({"addresses": ["172.20.1.4"], "conditions": {"ready": true}});
        let unsaid = json!({"addresses": ["172.20.1.5"]});
        assert_eq!(addresses(json!([ending, broken])), ["172.20.1.2"]);
        assert_eq!(addresses(json!([ending, ready])), ["172.20.1.4"]);
        assert_eq!(addresses(json!([unsaid])), ["172.20.1.5"]);
        assert_eq!(addresses(json!([broken])), Vec::<String>::new());
    }
}
