// SPDX-License-Identifier: Apache-2.0
//! ServiceL2Status: which node announces a Service by ARP and NDP. Written by speakers.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "ServiceL2Status",
    doc = "Which node announces a Service on the local network segment.",
    plural = "servicel2statuses",
    singular = "servicel2status",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "ServiceL2StatusStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
    printcolumn(name = "Allocated Node", json_path = ".status.node", type_ = "string"),
    printcolumn(name = "Service Name", json_path = ".status.serviceName", type_ = "string"),
    printcolumn(name = "Service Namespace", json_path = ".status.serviceNamespace", type_ = "string"),
)]
pub struct ServiceL2StatusSpec {}

/// Who announces what, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceL2StatusStatus {
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

    /// The interfaces it is announced on; absent if on all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceRef>,
}

/// Names a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
pub struct InterfaceRef {
    /// The interface's name on its host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}
