// SPDX-License-Identifier: Apache-2.0
//! The order of the nodes that could announce a Service: most preferred first, then by a hash that every
//! speaker of the cluster, MetalLB's included, computes alike.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrolb_net_types::{NodeName, canonical};
use sha2::{Digest as _, Sha256};

/// A SHA-256, compared as unsigned bytes.
pub type Digest = [u8; 32];

/// The hash of a node for an address: SHA-256 of `node#address`, the address in its canonical text.
pub fn digest(node: &NodeName, address: IpAddr) -> Digest {
    Sha256::new()
        .chain_update(node.as_str())
        .chain_update("#")
        .chain_update(canonical(address).to_string())
        .finalize()
        .into()
}

/// The eligible nodes with their weights, in order: the leader first.
pub(crate) fn order(eligible: BTreeMap<&NodeName, u32>, address: IpAddr) -> Vec<NodeName> {
    let mut nodes: Vec<_> = eligible.into_iter().collect();
    nodes.sort_by_cached_key(|(node, weight)| (Reverse(*weight), digest(node, address)));
    nodes.into_iter().map(|(node, _)| node.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(nodes: &[&str], address: &str) -> Vec<String> {
        let nodes: Vec<NodeName> = nodes.iter().map(|n| NodeName::from(*n)).collect();
        order(nodes.iter().map(|n| (n, 0)).collect(), address.parse().unwrap())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_order_is_that_of_every_other_speaker() {
        let kind = ["kind-control-plane", "kind-worker", "kind-worker2"];
        let (control, worker, worker2) = (kind[0], kind[1], kind[2]);
        let (a, b, c) = ("node-a", "node-b", "node-c");
        let abc = [a, b, c];
        let iris = ["iris1", "iris2"];
        for (nodes, address, expected) in [
            (&iris[..], "10.20.30.1", &[("iris2", "af6cb4e7"), ("iris1", "e42ad61a")][..]),
            (&iris, "10.20.30.2", &[("iris1", "610c5b6d"), ("iris2", "6429fb4c")]),
            (&iris, "10.20.30.3", &[("iris1", "3c5da360"), ("iris2", "b3b09ba2")]),
            (&abc, "192.0.2.1", &[(c, "22e614dd"), (a, "9028b03e"), (b, "fbbfaaba")]),
            (&abc, "192.0.2.2", &[(b, "0cf8f894"), (c, "382c5ba3"), (a, "423da835")]),
            (&abc, "192.0.2.3", &[(c, "6b08f370"), (a, "80c08ea8"), (b, "a530bac9")]),
            (&abc, "192.0.2.4", &[(b, "688895cc"), (a, "7c17ebba"), (c, "87584003")]),
            (&abc, "2001:db8::1", &[(b, "1aee61dd"), (a, "3c9f88a7"), (c, "bb833059")]),
            (&abc, "2001:db8::2", &[(b, "32db0a6c"), (a, "6e774164"), (c, "a22bb76c")]),
            (&abc, "fc00:f853:ccd:e799::1", &[(b, "288f7893"), (a, "7ad384bf"), (c, "cdf5c8f8")]),
            (&kind, "172.18.0.200", &[(control, "0cc03617"), (worker2, "462fb86c"), (worker, "848bf64d")]),
            (&kind, "172.18.0.201", &[(worker, "59f3231d"), (worker2, "7b0dc967"), (control, "98271ca2")]),
            (&kind, "172.18.0.202", &[(worker2, "0c4081ed"), (control, "13709162"), (worker, "fb64908b")]),
            (
                &kind,
                "fc00:f853:ccd:e793::200",
                &[(worker, "2d48e960"), (control, "4fbf75f9"), (worker2, "8160c7b9")],
            ),
            (
                &["k8s-node-2", "k8s-node-1"],
                "192.168.10.200",
                &[("k8s-node-1", "54ded3"), ("k8s-node-2", "d2aaf3")],
            ),
        ] {
            let order = names(nodes, address);
            assert_eq!(order, expected.iter().map(|(node, _)| *node).collect::<Vec<_>>(), "{address}");
            for (node, start) in expected {
                let full = hex(&digest(&NodeName::from(*node), address.parse().unwrap()));
                assert!(full.starts_with(start), "{node}#{address} is {full}");
            }
        }
    }

    #[test]
    fn the_digest_covers_name_separator_and_canonical_text() {
        let full = |node: &str, ip: &str| hex(&digest(&NodeName::from(node), ip.parse().unwrap()));
        assert_eq!(
            full("iris1", "10.20.30.1"),
            "e42ad61a4159fa2d143f5233840565a80f498b6a1e7998d68190d2a357882e2b"
        );
        assert_eq!(
            full("iris2", "::ffff:10.20.30.1"),
            "af6cb4e7605814d2f0ccb427ae44f1981dca8e59f928a994747b78ef36224c1a"
        );
    }

    #[test]
    fn both_nodes_lead_their_share() {
        let leads =
            (1..=255).filter(|n| names(&["iris1", "iris2"], &format!("10.20.30.{n}"))[0] == "iris1").count();
        assert_eq!(leads, 134);
    }

    #[test]
    fn a_heavier_node_comes_first_and_the_hash_breaks_ties() {
        let nodes: Vec<NodeName> = ["node-a", "node-b", "node-c"].map(NodeName::from).into();
        let weighted = |weights: [u32; 3]| {
            order(nodes.iter().zip(weights).collect(), "192.0.2.1".parse().unwrap())
                .iter()
                .map(|n| n.as_str().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(weighted([0, 1, 0]), ["node-b", "node-c", "node-a"]);
        assert_eq!(weighted([5, 5, 4]), ["node-a", "node-b", "node-c"]);
    }
}
