// SPDX-License-Identifier: Apache-2.0
//! ServiceBGPStatus: the BGP peers a node announces a Service to. Written by speakers.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "ServiceBGPStatus",
    doc = "The BGP peers that a node announces a Service to.",
    plural = "servicebgpstatuses",
    singular = "servicebgpstatus",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "ServiceBGPStatusStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
    printcolumn(name = "Node", json_path = ".status.node", type_ = "string"),
    printcolumn(name = "Service Name", json_path = ".status.serviceName", type_ = "string"),
    printcolumn(name = "Service Namespace", json_path = ".status.serviceNamespace", type_ = "string"),
)]
pub struct ServiceBGPStatusSpec {}

/// Who announces what, and to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceBGPStatusStatus {
    /// The announcing node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = [{ "message": "Value is immutable", "rule": "self == oldSelf" }]))]
    pub node: String,

    /// The Service's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = [{ "message": "Value is immutable", "rule": "self == oldSelf" }]))]
    pub service_name: String,

    /// The Service's namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = [{ "message": "Value is immutable", "rule": "self == oldSelf" }]))]
    pub service_namespace: String,

    /// Names of the BGPPeers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
}
