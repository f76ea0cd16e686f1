// SPDX-License-Identifier: Apache-2.0
//! IPAddressPool: the addresses that Services may get.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The addresses of a pool and who may have them.
#[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "IPAddressPool",
    doc = "A pool of addresses for Services of type LoadBalancer.",
    plural = "ipaddresspools",
    singular = "ipaddresspool",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "IPAddressPoolStatus",
    printcolumn(name = "Auto Assign", json_path = ".spec.autoAssign", type_ = "boolean"),
    printcolumn(name = "Avoid Buggy IPs", json_path = ".spec.avoidBuggyIPs", type_ = "boolean"),
    printcolumn(name = "Addresses", json_path = ".spec.addresses", type_ = "string")
)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressPoolSpec {
    /// What the pool owns, in order of preference: CIDRs, or ranges of the form `first-last`.
    pub addresses: Vec<String>,

    /// Whether Services that ask for nothing in particular are served. If false the pool must be asked for.
    #[serde(default = "yes")]
    pub auto_assign: bool,

    /// Never hand out an IPv4 address that ends in .0 or .255, for the sake of old equipment.
    #[serde(rename = "avoidBuggyIPs", default)]
    pub avoid_buggy_ips: bool,

    /// Restricts and ranks the pool. Its mere presence ranks the pool before those without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_allocation: Option<ServiceAllocation>,
}

/// Which Services a pool is for, and its rank among the pools a Service may have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAllocation {
    /// The lower number is preferred; 0, or none, ranks last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer")]
    pub priority: Option<i64>,

    /// Only Services in these namespaces, or in those that `namespaceSelectors` select.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,

    /// Only Services in namespaces that one of these selects by their labels, or that `namespaces` names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub namespace_selectors: Vec<LabelSelector>,

    /// Only Services that one of these selects by their labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub service_selectors: Vec<LabelSelector>,
}

/// How much of a pool is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct IPAddressPoolStatus {
    /// Distinct IPv4 addresses in use.
    #[serde(rename = "assignedIPv4")]
    pub assigned_ipv4: i64,
    /// Distinct IPv6 addresses in use.
    #[serde(rename = "assignedIPv6")]
    pub assigned_ipv6: i64,
    /// IPv4 addresses that are still free.
    #[serde(rename = "availableIPv4")]
    pub available_ipv4: i64,
    /// IPv6 addresses that are still free.
    #[serde(rename = "availableIPv6")]
    pub available_ipv6: i64,
}

/// What an object gets that says nothing.
impl Default for IPAddressPoolSpec {
    fn default() -> Self {
        Self { addresses: Vec::new(), auto_assign: true, avoid_buggy_ips: false, service_allocation: None }
    }
}

fn yes() -> bool {
    true
}
