// SPDX-License-Identifier: Apache-2.0
//! The static programs: what an image with no operating system in it can run, and the same with the bench.
//!
//! They are linked against the C library's static archive, which comes with its headers (`libc6-dev`), so that no other
//! toolchain is needed. Names are then looked up in `/etc/hosts` and by DNS, without the plug-ins that a host may name in
//! `/etc/nsswitch.conf`: a container has none of these anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolb_manifests::release::{DAEMONS, NAME};

/// How to build.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Cargo's profile: `dist` is smaller and takes longer.
    #[arg(long, default_value = "release")]
    profile: String,
    /// What to build for. Another machine's needs its linker and C library.
    #[arg(long, value_name = "TRIPLE", default_value = OWN_TARGET)]
    target: String,
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The one with the bench and the simulations.
    pub(crate) whole: PathBuf,
    /// What images hold.
    pub(crate) shipped: PathBuf,
}

/// This machine's. Only these two have a C library whose static archive was tried, or will be.
const OWN_TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

impl Args {
    /// Builds both, so that neither is older than the other.
    ///
    /// # Errors
    /// Cargo fails; it says why on standard error.
    pub(crate) fn build(&self) -> Result<Programs> {
        let flags = format!("target.{}.rustflags=['-C', 'target-feature=+crt-static']", self.target);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // Cargo adds these flags to those of its configuration file, which chooses the linker.
        let status = Command::new(cargo)
            .current_dir(root())
            .args(["build", "--locked", "--package", NAME, "--bins"])
            .args(["--profile", &self.profile, "--target", &self.target, "--config", &flags])
            .status()
            .context("start cargo")?;
        ensure!(status.success(), "cargo build: {status}");
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let directory = if self.profile == "dev" { "debug" } else { &self.profile };
        let directory = target.join(&self.target).join(directory);
        Ok(Programs { whole: directory.join(NAME), shipped: directory.join(DAEMONS) })
    }
}

/// The program's bytes without symbols, which nobody reads in a container.
///
/// # Errors
/// The file cannot be read, or `strip` is missing or refuses it.
pub(crate) fn stripped(program: &Path) -> Result<Vec<u8>> {
    let file = tempfile::NamedTempFile::new().context("make a temporary file")?;
    let strip = std::env::var_os("STRIP").unwrap_or_else(|| "strip".into());
    let status = Command::new(&strip)
        .args(["--strip-all", "-o"])
        .args([file.path(), program])
        .status()
        .with_context(|| format!("start {} (Debian's package binutils has it)", strip.display()))?;
    ensure!(status.success(), "strip {}: {status}", program.display());
    std::fs::read(file.path()).with_context(|| format!("read what is left of {}", program.display()))
}

/// The workspace.
fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}
