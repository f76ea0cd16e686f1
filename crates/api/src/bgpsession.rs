// SPDX-License-Identifier: Apache-2.0
//! BGPSession, of ferrolb's own group: how the session of a node with a BGPPeer is. Written by speakers.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "ferrolb.io",
    version = "v1",
    kind = "BGPSession",
    doc = "How a node's session with a BGPPeer is.",
    plural = "bgpsessions",
    singular = "bgpsession",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "BGPSessionStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
    printcolumn(name = "Node", json_path = ".status.node", type_ = "string"),
    printcolumn(name = "Peer", json_path = ".status.peer", type_ = "string"),
    printcolumn(name = "State", json_path = ".status.state", type_ = "string"),
    printcolumn(name = "Since", json_path = ".status.since", type_ = "date"),
    printcolumn(name = "Prefixes", json_path = ".status.prefixesTold", type_ = "integer"),
    printcolumn(name = "Address", json_path = ".status.address", type_ = "string", priority = 10),
    printcolumn(name = "Last Failure", json_path = ".status.lastFailure.reason", type_ = "string", priority = 10),
)]
pub struct BGPSessionSpec {}

/// How a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BGPSessionStatus {
    /// The node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,

    /// The BGPPeer's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer: String,

    /// The peer's address and port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,

    /// The state of RFC 4271: Idle, Connect, Active, OpenSent, OpenConfirm, Established.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,

    /// Since when it is in that state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("format" = "date-time"))]
    pub since: String,

    /// The peer's autonomous system, while there is a session.
    #[serde(rename = "peerASN", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::int64")]
    pub peer_asn: Option<u32>,

    /// The peer's BGP Identifier, while there is a session.
    #[serde(rename = "peerRouterID", default, skip_serializing_if = "String::is_empty")]
    pub peer_router_id: String,

    /// How many prefixes the peer is to be told.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::int64")]
    pub prefixes_wanted: u32,

    /// How many it has been told.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::int64")]
    pub prefixes_told: u32,

    /// How many sessions have ended since the speaker started.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::int64")]
    pub drops: u32,

    /// When and why the last session ended, or the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<BGPSessionFailure>,

    /// Something about the session that goes on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finding: String,
}

/// Why a session ended, or could not begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct BGPSessionFailure {
    /// When.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("format" = "date-time"))]
    pub time: String,

    /// Why, as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
