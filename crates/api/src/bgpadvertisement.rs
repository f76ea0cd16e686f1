// SPDX-License-Identifier: Apache-2.0
//! BGPAdvertisement: which pools are announced by BGP, to whom, and with which attributes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Which addresses are announced to which BGP peers, and how.
#[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BGPAdvertisement",
    doc = "Announces addresses of pools by BGP.",
    plural = "bgpadvertisements",
    singular = "bgpadvertisement",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "BGPAdvertisementStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
    printcolumn(name = "IPAddressPools", json_path = ".spec.ipAddressPools", type_ = "string"),
    printcolumn(name = "IPAddressPool Selectors", json_path = ".spec.ipAddressPoolSelectors", type_ = "string"),
    printcolumn(name = "Peers", json_path = ".spec.peers", type_ = "string"),
    printcolumn(name = "Node Selectors", json_path = ".spec.nodeSelectors", type_ = "string", priority = 10),
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.serviceSelectors) || self.serviceSelectors.size() == 0 || ((!has(self.aggregationLength) || self.aggregationLength == 32) && (!has(self.aggregationLengthV6) || self.aggregationLengthV6 == 128))",
    "message": "serviceSelectors and aggregationLength are mutually exclusive, can only be used together with default aggregationLength (32) and aggregationLengthV6 (128)",
}]))]
pub struct BGPAdvertisementSpec {
    /// Length of the IPv4 prefix that is announced for an address.
    #[serde(default = "host_length_v4")]
    #[schemars(range(min = 1))]
    pub aggregation_length: i32,

    /// Length of the IPv6 prefix that is announced for an address.
    #[serde(rename = "aggregationLengthV6", default = "host_length_v6")]
    pub aggregation_length_v6: i32,

    /// LOCAL_PREF of the route, on sessions inside one autonomous system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub local_pref: Option<i64>,

    /// Communities of the route: `number:number`, `large:number:number:number`, or names that Community objects define.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,

    /// The pools, by name. With neither this nor `ipAddressPoolSelectors`: all pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_address_pools: Vec<String>,

    /// The pools, by their labels, together with those of `ipAddressPools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub ip_address_pool_selectors: Vec<LabelSelector>,

    /// The nodes that announce themselves as next hop: those that one of these selects. None means every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub node_selectors: Vec<LabelSelector>,

    /// The BGPPeers to announce to, by name. None means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,

    /// Only Services that one of these selects by their labels. None means every Service of the pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub service_selectors: Vec<LabelSelector>,
}

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct BGPAdvertisementStatus {}

/// What an object gets that says nothing.
impl Default for BGPAdvertisementSpec {
    fn default() -> Self {
        Self {
            aggregation_length: host_length_v4(),
            aggregation_length_v6: host_length_v6(),
            local_pref: None,
            communities: Vec::new(),
            ip_address_pools: Vec::new(),
            ip_address_pool_selectors: Vec::new(),
            node_selectors: Vec::new(),
            peers: Vec::new(),
            service_selectors: Vec::new(),
        }
    }
}

fn host_length_v4() -> i32 {
    32
}

fn host_length_v6() -> i32 {
    128
}
