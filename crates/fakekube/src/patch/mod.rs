// SPDX-License-Identifier: Apache-2.0
//! The patch forms that name changes: JSON patch, merge patch, strategic merge patch. (Server-side apply names
//! wishes instead: see `managed_fields`.)

mod strategic;

use serde_json::Value;

use crate::error::{ApiError, Result};
use crate::request::parse_body;
use crate::schema::Schema;

/// A patch of one of the three forms.
#[derive(Debug, Clone)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own: lists merge by key.
    Strategic(Value),
}

impl Patch {
    /// Reads a JSON patch.
    pub(crate) fn json(body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body)
            .map(Self::Json)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
    }

    /// Reads a merge patch.
    pub(crate) fn merge(body: &[u8]) -> Result<Self> {
        parse_body(body, false).map(Self::Merge)
    }

    /// Reads a strategic merge patch.
    pub(crate) fn strategic(body: &[u8]) -> Result<Self> {
        parse_body(body, false).map(Self::Strategic)
    }

    /// The object after the patch.
    pub(crate) fn apply(&self, object: &Value, schema: &Schema) -> Result<Value> {
        let mut object = object.clone();
        match self {
            Self::Json(patch) => {
                json_patch::patch(&mut object, patch).map_err(|error| {
                    tracing::debug!(%error, "a JSON patch does not fit");
                    ApiError::unprocessable("the server rejected our request due to an error in our request")
                })?;
            }
            Self::Merge(patch) => json_patch::merge(&mut object, patch),
            Self::Strategic(patch) => strategic::merge(&mut object, patch, schema)?,
        }
        if !object.is_object() {
            return Err(ApiError::bad_request("the patched object is not an object"));
        }
        Ok(object)
    }
}
