// SPDX-License-Identifier: Apache-2.0
//! `ferrolb lab bench SUBJECT`: builds a bench, measures, takes it down.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::Subject;
use crate::cli::Output;
use crate::host::LabName;
use crate::progress::Progress;
use crate::seed::Manifests;
use crate::stage::{self, Options};
use crate::supervisor::ApiKind;

/// What `lab bench` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// What to measure.
    subject: Subject,
    /// Fewer requests, a shorter look: enough to see that it works.
    #[arg(long)]
    quick: bool,
    /// `fakekube` (in memory) or `kapi` (what the script named by FERROLB_KAPI brings up).
    #[arg(long, default_value = "fakekube")]
    api: ApiKind,
    /// Whose manifests the daemons run by: MetalLB's with the images changed, or ferrolb's own.
    #[arg(long, value_enum, default_value_t)]
    manifests: Manifests,
    /// For `address`: how many connections create Services at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=100))]
    connections: u8,
    /// How to show the figures.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Name of the lab.
    #[arg(long, default_value_t)]
    name: LabName,
}

/// Measures and prints. Exit code 1 when a figure is more than ten times off its aim.
///
/// # Errors
/// The bench could not be built, or nothing could be measured.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let options = Options {
        name: args.name.clone(),
        api: args.api.source(),
        crds: true,
        daemons: true,
        manifests: args.manifests,
        traffic: !matches!(args.subject, Subject::Address | Subject::Arp | Subject::Bgp),
        progress: Progress::stderr(),
    };
    let quick = args.quick;
    match args.subject {
        Subject::Address => {
            let api = args.api.name();
            let (level, connections) = (args.manifests.level(), usize::from(args.connections));
            let figures = stage::play(&options, async move |bench| {
                super::address(bench, api, level, quick, connections).await
            })?;
            show(&figures, figures.ok, args.output)
        }
        Subject::Arp => {
            let figures = stage::play(&options, async move |bench| super::arp(bench, quick).await)?;
            show(&figures, figures.ok, args.output)
        }
        Subject::Bgp => {
            let figures = stage::play(&options, async move |bench| super::bgp(bench, quick).await)?;
            show(&figures, figures.ok, args.output)
        }
        Subject::Gossip => {
            let figures = stage::play(&options, async move |bench| super::gossip(bench, quick).await)?;
            show(&figures, figures.ok, args.output)
        }
        Subject::Memory => {
            let figures = stage::play(&options, async move |bench| super::memory(bench, quick).await)?;
            show(&figures, figures.ok, args.output)
        }
    }
}

fn show(figures: &(impl Serialize + Display), ok: bool, output: Output) -> Result<ExitCode> {
    let mut stdout = anstream::stdout().lock();
    match output {
        Output::Text => writeln!(stdout, "{figures}")?,
        Output::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(figures)?)?,
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
