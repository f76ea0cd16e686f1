// SPDX-License-Identifier: Apache-2.0
//! Community: names for BGP communities.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names for BGP communities, known to all BGPAdvertisements of the namespace.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "Community",
    doc = "Names for BGP communities.",
    plural = "communities",
    singular = "community",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "CommunityStatus",
    attr = "cfg_attr(all(), serde(default))", // an object may come without `spec`
)]
pub struct CommunitySpec {
    /// The names and what they stand for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<CommunityAlias>,
}

/// A name for a community.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct CommunityAlias {
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,

    /// The community: `number:number`, or `large:number:number:number`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// Unused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct CommunityStatus {}
