// SPDX-License-Identifier: Apache-2.0
//! ConfigurationState: whether a daemon accepts the configuration, and why not. Written by the daemons.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Nothing: the kind has no `spec`.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "ConfigurationState",
    doc = "Whether a daemon accepts the configuration.",
    plural = "configurationstates",
    singular = "configurationstate",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "ConfigurationStateStatus",
    printcolumn(name = "Result", json_path = ".status.result", type_ = "string"),
    printcolumn(name = "ErrorSummary", json_path = ".status.errorSummary", type_ = "string"),
    printcolumn(name = "Age", json_path = ".metadata.creationTimestamp", type_ = "date"),
    no_spec
)]
pub struct ConfigurationStateSpec {}

/// What a daemon says of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStateStatus {
    /// The conclusion from the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::configuration_result")]
    pub result: Option<ConfigurationResult>,

    /// The messages of the conditions that make the result invalid; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_summary: Option<String>,

    /// The verdict of each reader of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The conclusion from a daemon's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum ConfigurationResult {
    /// The configuration is accepted.
    Valid,
    /// Something in it is refused.
    Invalid,
    /// It was not looked at yet.
    Unknown,
}

impl ConfigurationResult {
    /// The value in the object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "Valid",
            Self::Invalid => "Invalid",
            Self::Unknown => "Unknown",
        }
    }
}
