// SPDX-License-Identifier: Apache-2.0
//! BFDProfile: how fast the loss of a BGP peer is noticed.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parameters of BFD sessions.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BFDProfile",
    doc = "Parameters of the BFD sessions that watch BGP peers.",
    plural = "bfdprofiles",
    singular = "bfdprofile",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "BFDProfileStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
    printcolumn(name = "Passive Mode", json_path = ".spec.passiveMode", type_ = "boolean"),
    printcolumn(name = "Transmit Interval", json_path = ".spec.transmitInterval", type_ = "integer"),
    printcolumn(name = "Receive Interval", json_path = ".spec.receiveInterval", type_ = "integer"),
    printcolumn(name = "Multiplier", json_path = ".spec.detectMultiplier", type_ = "integer"),
)]
#[serde(rename_all = "camelCase")]
pub struct BFDProfileSpec {
    /// The shortest interval between received packets that is supported, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60000))]
    pub receive_interval: Option<i32>,

    /// The shortest interval between sent packets that is wanted, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60000))]
    pub transmit_interval: Option<i32>,

    /// How many packets in a row must be lost for the peer to count as down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 255))]
    pub detect_multiplier: Option<i32>,

    /// The shortest interval between received echo packets that is supported, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60000))]
    pub echo_interval: Option<i32>,

    /// Send echo packets as well. Not for IPv6, nor for peers more than one hop away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo_mode: Option<bool>,

    /// Wait for the peer to speak first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive_mode: Option<bool>,

    /// The lowest TTL of a received packet that is accepted, for peers more than one hop away.
    #[serde(rename = "minimumTtl", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub minimum_ttl: Option<i32>,
}

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct BFDProfileStatus {}
