// SPDX-License-Identifier: Apache-2.0
//! The label keys that objects carry or are selected by.

/// On ConfigurationState: `controller` or `speaker`.
pub const COMPONENT_TYPE: &str = "metallb.io/component-type";
/// On a speaker's ConfigurationState: the node's name.
pub const NODE_NAME: &str = "metallb.io/node-name";
/// On ServiceL2Status and ServiceBGPStatus: the announcing node's name.
pub const NODE: &str = "metallb.io/node";
/// On ServiceL2Status and ServiceBGPStatus: the Service's name.
pub const SERVICE_NAME: &str = "metallb.io/service-name";
/// On ServiceL2Status and ServiceBGPStatus: the Service's namespace.
pub const SERVICE_NAMESPACE: &str = "metallb.io/service-namespace";
/// On a Node, by presence: it must not announce.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// On an EndpointSlice: the Service it belongs to.
pub const ENDPOINT_SLICE_SERVICE: &str = "kubernetes.io/service-name";
