// SPDX-License-Identifier: Apache-2.0
//! Builds the peer under `tests/peers/memberlist`, hashicorp/memberlist itself with MetalLB's settings.

use std::path::PathBuf;
use std::process::Command;

/// The program; none if it cannot be built here.
pub(crate) fn build() -> Option<PathBuf> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/memberlist");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("memberlist-peer");
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok())?;
    let built = Command::new(go)
        .current_dir(source)
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(".")
        .status();
    built.is_ok_and(|status| status.success()).then_some(program)
}
