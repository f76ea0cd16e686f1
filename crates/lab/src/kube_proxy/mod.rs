// SPDX-License-Identifier: Apache-2.0
//! The kube-proxy stand-in: Services and EndpointSlices in, nftables rules and health check ports on every node out.
//!
//! One loop serves all nodes. A node's rules are written when they differ from what was written last, as one
//! transaction. Endpoints stay until their slice changes: a node that died keeps its share until somebody says so, as
//! in a real cluster.

mod health;
mod port;
mod rules;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

pub use port::{Backend, Protocol, ServicePort};
pub use rules::{Node, ruleset};

use crate::api_server;
use crate::host::Host;
use crate::launch;
use crate::topology::{self, Topology};
use crate::view::View;

/// Keeps every node's rules, for ever.
pub(crate) async fn run(view: View, topology: Topology) {
    let mut written: BTreeMap<Host, String> = BTreeMap::new();
    let mut checks = health::Checks::default();
    view.clone()
        .on_every_change("kube-proxy", async || {
            let slices = view.slices.state();
            let mut ports = vec![api_port()];
            let mut wanted_checks = Vec::new();
            for service in view.services.state().into_iter().filter(|service| !is_api(service)) {
                let own: Vec<&EndpointSlice> = slices
                    .iter()
                    .map(AsRef::as_ref)
                    .filter(|slice| {
                        slice.namespace() == service.namespace()
                            && slice.labels().get("kubernetes.io/service-name") == Some(&service.name_any())
                    })
                    .collect();
                let of_service = ServicePort::of(&service, &own);
                wanted_checks.extend(health::Check::of(&service, &of_service));
                ports.extend(of_service);
            }
            ports.sort_by_key(ServicePort::path);
            for host in Host::NODES {
                let text = ruleset(
                    Node { name: host.name(), pods: topology::ALL_PODS.map(topology::prefix) },
                    &ports,
                );
                if written.get(&host) != Some(&text) {
                    apply(&topology, host, &text).await?;
                    written.insert(host, text);
                }
            }
            checks.serve(&topology, wanted_checks)
        })
        .await;
}

/// What the Pod network of a node needs besides: who leaves the Pods' networks does so under the node's address.
pub(crate) async fn prepare(topology: &Topology) -> Result<()> {
    for host in Host::NODES {
        let Some(network) = host.pod_network() else { continue };
        let mut text = String::new();
        for (ip, (own, all)) in
            ["ip", "ip6"].into_iter().zip(topology::pods_of(network).into_iter().zip(topology::ALL_PODS))
        {
            text.push_str(&format!(
                "add table {ip} pod-network\ndelete table {ip} pod-network\ntable {ip} pod-network {{\n  chain leaving \
                 {{\n    type nat hook postrouting priority srcnat + 1\n    {ip} saddr {own} {ip} daddr != {} \
                 masquerade\n  }}\n}}\n",
                topology::prefix(all),
            ));
        }
        apply(topology, host, &text).await?;
    }
    Ok(())
}

/// Whether it is the API's own Service.
fn is_api(service: &Service) -> bool {
    (service.namespace().as_deref(), service.metadata.name.as_deref())
        == (Some("default"), Some("kubernetes"))
}

/// The API's own Service. Whatever its server says of itself, on the bench it is at this address.
fn api_port() -> ServicePort {
    let backend = Backend {
        address: Host::Master1.address().into(),
        port: api_server::ADDRESS.port(),
        node: Some(Host::Master1.name().to_owned()),
    };
    ServicePort {
        namespace: "default".to_owned(),
        service: "kubernetes".to_owned(),
        name: "https".to_owned(),
        protocol: Protocol::Tcp,
        cluster_ip: Ipv4Addr::new(10, 96, 0, 1).into(),
        port: 443,
        node_port: None,
        load_balancer: Vec::new(),
        local: false,
        internal_local: false,
        source_ranges: Vec::new(),
        backends: [backend].into(),
    }
}

async fn apply(topology: &Topology, host: Host, text: &str) -> Result<()> {
    launch::run(Some(topology.namespace(host)), &["nft", "-f", "-"], &[], Some(text), NFT_LIMIT)
        .await?
        .success()
        .with_context(|| format!("write the rules of {host}"))?;
    Ok(())
}

const NFT_LIMIT: Duration = Duration::from_secs(10);
