// SPDX-License-Identifier: Apache-2.0
//! BFDProfiles: the ranges of their numbers.

use std::collections::BTreeSet;

use ferrolb_api::{BFDProfile, BFDProfileSpec};
use kube::ResourceExt;

use crate::diagnostic::Findings;

/// The kind's name in diagnostics.
pub(super) const KIND: &str = "BFDProfile";

pub(super) fn judge(profiles: &[&BFDProfile], findings: &mut Findings) {
    let mut names = BTreeSet::new();
    for (i, profile) in profiles.iter().enumerate() {
        let name = profile.name_any();
        if let Err(error) = check(&name, &profile.spec) {
            findings.refuse(KIND, &name, format!("parsing bfd profile #{}: {error}", i + 1));
        } else if !names.insert(name.clone()) {
            findings.refuse(KIND, &name, format!("found duplicate bfd profile name {name}"));
        }
    }
}

fn check(name: &str, spec: &BFDProfileSpec) -> Result<(), String> {
    if name.is_empty() {
        return Err("missing bfd profile name".to_owned());
    }
    for (value, min, max, what) in [
        (spec.detect_multiplier, 2, 255, "detect multiplier"),
        (spec.receive_interval, 10, 60000, "receive interval"),
        (spec.transmit_interval, 10, 60000, "transmit interval"),
        (spec.minimum_ttl, 1, 254, "minimum ttl"),
        (spec.echo_interval, 10, 60000, "echo interval"),
    ] {
        if let Some(value) = value.filter(|value| !(min..=max).contains(value)) {
            return Err(format!("invalid value {value}, must be in {min}-{max} range\ninvalid {what} value"));
        }
    }
    Ok(())
}
