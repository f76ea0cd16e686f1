// SPDX-License-Identifier: Apache-2.0
//! L2Advertisement: which pools are announced by ARP and NDP, where, and by whom.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Which addresses are announced on the local network segment, on which interfaces and nodes.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "L2Advertisement",
    doc = "Announces addresses of pools by ARP and NDP.",
    plural = "l2advertisements",
    singular = "l2advertisement",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "L2AdvertisementStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
    printcolumn(name = "IPAddressPools", json_path = ".spec.ipAddressPools", type_ = "string"),
    printcolumn(name = "IPAddressPool Selectors", json_path = ".spec.ipAddressPoolSelectors", type_ = "string"),
    printcolumn(name = "Interfaces", json_path = ".spec.interfaces", type_ = "string"),
    printcolumn(name = "Node Selectors", json_path = ".spec.nodeSelectors", type_ = "string", priority = 10),
)]
#[serde(rename_all = "camelCase")]
pub struct L2AdvertisementSpec {
    /// The pools, by name. With neither this nor `ipAddressPoolSelectors`: all pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_address_pools: Vec<String>,

    /// The pools, by their labels, together with those of `ipAddressPools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub ip_address_pool_selectors: Vec<LabelSelector>,

    /// The nodes that may announce: those that one of these selects. None means every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub node_selectors: Vec<LabelSelector>,

    /// Preferences among the nodes that may announce. The weights of all entries that select a node add up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred_node_selectors: Vec<PreferredNodeSelector>,

    /// The host's interfaces to answer on. None means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,

    /// Only Services that one of these selects by their labels. None means every Service of the pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub service_selectors: Vec<LabelSelector>,
}

/// A soft preference for nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct PreferredNodeSelector {
    /// How much the nodes are preferred, 1 to 100.
    #[schemars(schema_with = "schema::int32", range(min = 1, max = 100))]
    pub weight: i32,
    /// The nodes that are preferred.
    #[schemars(schema_with = "schema::label_selector")]
    pub preference: LabelSelector,
}

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct L2AdvertisementStatus {}
