// SPDX-License-Identifier: Apache-2.0
//! BGPPeer v1beta2: a router to speak BGP with. The stored version, and the hub of conversions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, schema};

/// A BGP session: from whom, to whom, and how.
#[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta2",
    kind = "BGPPeer",
    doc = "A router that the nodes speak BGP with.",
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
)]
#[serde(rename_all = "camelCase")]
pub struct BGPPeerSpec {
    /// The nodes' autonomous system in this session.
    #[serde(rename = "myASN")]
    #[schemars(schema_with = "schema::int64", range(min = 0, max = 4_294_967_295_u32))]
    pub my_asn: u32,

    /// The autonomous system the peer must have. Exactly one of this and `dynamicASN` is set.
    #[serde(rename = "peerASN", default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::int64", range(min = 0, max = 4_294_967_295_u32))]
    pub peer_asn: u32,

    /// The autonomous system shown to this peer in place of `myASN`.
    #[serde(rename = "localASN", default, skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::int64", range(min = 1, max = 4_294_967_295_u32))]
    pub local_asn: u32,

    /// Accept any autonomous system of the peer that equals (`internal`) or differs from (`external`) `myASN`.
    #[serde(rename = "dynamicASN", default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["internal", "external"]))]
    pub dynamic_asn: String,

    /// The address to connect to. Exactly one of this and `interface` is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer_address: String,

    /// The host's interface on which the peer is found without an address (unnumbered).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub interface: String,

    /// The local address to connect from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_address: String,

    /// The TCP port to connect to.
    #[serde(default = "bgp_port")]
    #[schemars(schema_with = "schema::integer", range(min = 1, max = 16384))]
    pub peer_port: u16,

    /// How long the session survives without a message from the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub hold_time: Option<Duration>,

    /// How often a message is sent to keep the session alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string")]
    pub keepalive_time: Option<Duration>,

    /// How long to wait between attempts to connect. Whole seconds, 1 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::string", extend("x-kubernetes-validations" = [
        {
            "message": "connect time should be between 1 seconds to 65535",
            "rule": "duration(self).getSeconds() >= 1 && duration(self).getSeconds() <= 65535",
        },
        {
            "message": "connect time should contain a whole number of seconds",
            "rule": "duration(self).getMilliseconds() % 1000 == 0",
        },
    ]))]
    pub connect_time: Option<Duration>,

    /// The BGP identifier to present, in the form of an IPv4 address.
    #[serde(rename = "routerID", default, skip_serializing_if = "String::is_empty")]
    pub router_id: String,

    /// The nodes that open this session: those that one of these selects. None means every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub node_selectors: Vec<LabelSelector>,

    /// The TCP-MD5 password, in clear.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub password: String,

    /// The Secret that holds the TCP-MD5 password: type `kubernetes.io/basic-auth`, key `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret: Option<SecretReference>,

    /// Name of the BFDProfile to watch the peer with. None means no BFD.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bfd_profile: String,

    /// Ask the peer to keep routes while the session restarts. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "EnableGracefulRestart cannot be changed after creation",
        "rule": "self == oldSelf",
    }]))]
    pub enable_graceful_restart: Option<bool>,

    /// The peer is more than one hop away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebgp_multi_hop: Option<bool>,

    /// The host's VRF to connect from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vrf: String,

    /// Deprecated, without effect.
    #[serde(rename = "disableMP", default)]
    pub disable_mp: bool,

    /// Carry routes of the other address family on this session too.
    #[serde(default)]
    pub dual_stack_address_family: bool,
}

/// Names a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretReference {
    /// The Secret's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,

    /// Not used: the Secret is looked for beside the BGPPeer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct BGPPeerStatus {}

/// What an object gets that says nothing.
impl Default for BGPPeerSpec {
    fn default() -> Self {
        Self {
            my_asn: 0,
            peer_asn: 0,
            local_asn: 0,
            dynamic_asn: String::new(),
            peer_address: String::new(),
            interface: String::new(),
            source_address: String::new(),
            peer_port: bgp_port(),
            hold_time: None,
            keepalive_time: None,
            connect_time: None,
            router_id: String::new(),
            node_selectors: Vec::new(),
            password: String::new(),
            password_secret: None,
            bfd_profile: String::new(),
            enable_graceful_restart: None,
            ebgp_multi_hop: None,
            vrf: String::new(),
            disable_mp: false,
            dual_stack_address_family: false,
        }
    }
}

fn bgp_port() -> u16 {
    179
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
