// SPDX-License-Identifier: Apache-2.0
//! BGPPeer v1beta1: the deprecated form, served by conversion.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, schema};

/// A BGP session, in the deprecated form.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BGPPeer",
    doc = "A router that the nodes speak BGP with, in the deprecated form.",
    plural = "bgppeers",
    singular = "bgppeer",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "BGPPeerStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
    printcolumn(name = "Address", json_path = ".spec.peerAddress", type_ = "string"),
    printcolumn(name = "ASN", json_path = ".spec.peerASN", type_ = "string"),
    printcolumn(name = "BFD Profile", json_path = ".spec.bfdProfile", type_ = "string"),
    printcolumn(name = "Multi Hops", json_path = ".spec.ebgpMultiHop", type_ = "string"),
    storage = false,
    deprecated = "v1beta1 is deprecated, please use v1beta2",
)]
#[serde(rename_all = "camelCase")]
pub struct BGPPeerSpec {
    /// The nodes' autonomous system in this session.
    #[serde(rename = "myASN")]
    #[schemars(schema_with = "schema::int64", range(min = 0, max = 4_294_967_295_u32))]
    pub my_asn: u32,

    /// The autonomous system the peer must have.
    #[serde(rename = "peerASN")]
    #[schemars(schema_with = "schema::int64", range(min = 0, max = 4_294_967_295_u32))]
    pub peer_asn: u32,

    /// The address to connect to.
    pub peer_address: String,

    /// The local address to connect from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_address: String,

    /// The TCP port to connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer", range(min = 0, max = 16384))]
    pub peer_port: Option<u16>,

    /// How long the session survives without a message from the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub hold_time: Option<Duration>,

    /// How often a message is sent to keep the session alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub keepalive_time: Option<Duration>,

    /// The BGP identifier to present, in the form of an IPv4 address.
    #[serde(rename = "routerID", default, skip_serializing_if = "String::is_empty")]
    pub router_id: String,

    /// The nodes that open this session: those that one of these selects. None means every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_selectors: Vec<NodeSelector>,

    /// The TCP-MD5 password, in clear.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub password: String,

    /// Name of the BFDProfile to watch the peer with. None means no BFD.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bfd_profile: String,

    /// The peer is more than one hop away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebgp_multi_hop: Option<bool>,
}

/// Selects nodes by their labels. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// Labels a node must have, with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,

    /// Further conditions on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<MatchExpression>,
}

/// One condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct MatchExpression {
    /// The label's key.
    pub key: String,
    /// `In` or `NotIn`.
    pub operator: String,
    /// The values, at least one.
    #[schemars(length(min = 1))]
    pub values: Vec<String>,
}

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct BGPPeerStatus {}
