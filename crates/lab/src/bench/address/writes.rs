// SPDX-License-Identifier: Apache-2.0
//! How often the daemons wrote, by kind of object.

use serde::Serialize;

/// What was written in one part of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Writes {
    /// What happened meanwhile.
    pub name: String,
}

impl Writes {
    /// All of them as a table.
    pub(super) fn table(_all: &[Self]) -> String {
        String::new()
    }
}
