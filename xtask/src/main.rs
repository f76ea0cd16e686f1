// SPDX-License-Identifier: Apache-2.0
//! Chores of a release. `cargo xtask image` builds the static program and an archive with the images of both daemons;
//! no container engine is needed.

mod archive;
mod elf;
mod layer;
mod program;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use ferrolb_manifests::Images;
use ferrolb_manifests::release::{IMAGE_PREFIX, NAME, VERSION};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Chores of a release")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the static program.
    #[command(after_help = "Example:\n  cargo xtask program")]
    Program(program::Args),
    /// Build the static program and an OCI archive with the images of both daemons, and check it.
    #[command(
        after_help = "Examples:\n  cargo xtask image\n  cargo xtask image --image-prefix registry.example/ferrolb\n  cargo xtask image --program target/x86_64-unknown-linux-gnu/release/ferrolb-daemons"
    )]
    Image(ImageArgs),
    /// Check an archive: digests, sizes, contents, and that its programs run in it alone.
    #[command(after_help = "Example:\n  cargo xtask verify target/image/ferrolb.tar")]
    Verify {
        /// The archive.
        archive: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct ImageArgs {
    /// Directory for the archive.
    #[arg(long, default_value = "target/image")]
    out: PathBuf,
    /// What stands before the images' names, as for `ferrolb manifests`.
    #[arg(long, value_name = "PREFIX", default_value = IMAGE_PREFIX)]
    image_prefix: String,
    /// Their tag.
    #[arg(long, default_value = VERSION)]
    tag: String,
    /// Take this program instead of building one.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profile", "target"])]
    program: Option<PathBuf>,
    #[command(flatten)]
    build: program::Args,
}

/// What an archive may weigh: both images are pulled by every node.
const LIMIT: u64 = 15_000_000;

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Program(args) => println!("{}", args.build()?.whole.display()),
        Command::Image(args) => image(args)?,
        Command::Verify { archive } => println!("{}", verify::archive(archive)?),
    }
    Ok(())
}

fn image(args: &ImageArgs) -> Result<()> {
    let images = Images::new(&args.image_prefix, &args.tag)?;
    let program = match &args.program {
        Some(path) => path.clone(),
        None => args.build.build()?.shipped,
    };
    let program = program::stripped(&program)?;
    let platform = elf::platform(&program).context("the program cannot stand alone in an image")?;
    let bytes = archive::write(&program, platform, &images)?;
    let path = args.out.join(format!("{NAME}-{}-{}.tar", images.tag(), platform.architecture));
    write(&path, &bytes)?;
    println!("{}", verify::archive(&path)?);
    let size = u64::try_from(bytes.len())?;
    ensure!(size <= LIMIT, "{} has {size} bytes; more than {LIMIT} are too many", path.display());
    println!("{}: {:.1} MB", path.display(), megabytes(size));
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    std::fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

fn megabytes(bytes: u64) -> f64 {
    // Exact far beyond the size of any image.
    f64::from(u32::try_from(bytes / 1000).unwrap_or(u32::MAX)) / 1000.0
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
