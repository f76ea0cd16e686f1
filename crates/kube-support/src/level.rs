// SPDX-License-Identifier: Apache-2.0
//! Whose manifests a daemon runs under, which is what decides the rights and mounts that it can count on.

use std::str::FromStr;

use crate::common::SettingError;

/// Whose manifests a daemon runs under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// MetalLB's, with other images. The default.
    #[default]
    A,
    /// Our own, with the rights that our own features need.
    B,
}

/// The environment variable that says so.
pub const VARIABLE: &str = "FERROLB_LEVEL";

impl FromStr for Level {
    type Err = SettingError;

    /// Nothing is A.
    ///
    /// # Errors
    ///
    /// [`SettingError::Other`] names the variable and what it holds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "A" => Ok(Self::A),
            "B" => Ok(Self::B),
            other => Err(SettingError::Other(format!(
                "unknown level: {other} (environment variable {VARIABLE}); use A under MetalLB's manifests, B under \
                 those of `ferrolb manifests`"
            ))),
        }
    }
}
