// SPDX-License-Identifier: Apache-2.0
//! `ferrolb lab run STORY`: builds a bench, plays the story, takes the bench down.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use super::{Report, STORIES, Show, picture};
use crate::api_server::ApiSource;
use crate::cli::Output;
use crate::host::LabName;
use crate::progress::{Line, Progress};
use crate::seed::Manifests;
use crate::stage::{self, Options};
use crate::supervisor::ApiKind;
use crate::tools;

/// What `lab run` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The story to play.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(STORIES))]
    story: String,
    /// How to show the run: every step as it happens, or a report at the end.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Write what the run printed, without times, to this file: two good runs write the same.
    #[arg(long)]
    transcript: Option<PathBuf>,
    /// Draw the run into this file.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// `fakekube` (in memory) or `kapi` (what the script named by FERROLB_KAPI brings up).
    #[arg(long, default_value = "fakekube")]
    api: ApiKind,
    /// Play on the API server of this kubeconfig instead of one of the bench's own.
    #[arg(long, conflicts_with = "api")]
    kubeconfig: Option<PathBuf>,
    /// Whose manifests the daemons run by: MetalLB's with the images changed, or ferrolb's own.
    #[arg(long, value_enum, default_value_t)]
    manifests: Manifests,
    /// Name of the lab.
    #[arg(long, default_value_t)]
    name: LabName,
}

/// Plays the story and reports. Exit code 1 when a step was not as expected.
///
/// # Errors
/// A tool is missing, the bench could not be built, or a file not be written.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    tools::require_root()?;
    // Now, and not one by one in the steps that call them.
    tools::require(&tools::OF_STORIES)?;
    if args.story.starts_with("bgp") {
        tools::require(&tools::OF_ROUTERS)?;
    }
    let (api, api_name) = match (&args.kubeconfig, args.api) {
        (Some(path), _) => (ApiSource::Kubeconfig(path.clone()), path.display().to_string()),
        (None, kind) => (kind.source(), kind.name().to_owned()),
    };
    // The story begins with an empty cluster.
    let installs = args.story == "install";
    let options = Options {
        name: args.name.clone(),
        api,
        // Most stories apply them; until then the daemons wait for them.
        crds: ["announcing", "bgp", "bgp-more", "interop", "members", "mixed"].contains(&args.story.as_str()),
        daemons: !installs,
        manifests: match args.story.as_str() {
            "install" => Manifests::None,
            // A cluster that is about to change its speakers.
            "mixed" => Manifests::Strangers,
            // Two controllers, and BGPSessions, come with no others.
            "replicas" | "bgp-more" | "interop" => Manifests::Ferrolb,
            _ => args.manifests,
        },
        traffic: true,
        progress: progress(),
    };
    let show = match args.output {
        Output::Text => Show::Text,
        Output::Json => Show::Json,
    };
    let report = stage::play(&options, async |bench| super::play(&args.story, bench, &api_name, show).await)?;
    tell(args, &report)?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(args: &RunArgs, report: &Report) -> Result<()> {
    if let Some(path) = &args.transcript {
        write(path, &report.transcript())?;
    }
    if let Some(path) = &args.svg {
        write(path, &picture::svg(report))?;
    }
    let mut stdout = anstream::stdout().lock();
    if let (Output::Text, Some(table)) = (args.output, &report.table) {
        write!(stdout, "\n{}", table.text(true))?;
    }
    match args.output {
        Output::Text => writeln!(stdout, "\n{}", report.summary())?,
        Output::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(report)?)?,
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Building and taking down, on standard error. Commands are the story's to show.
fn progress() -> Progress {
    Progress::new(|line| {
        if let Line::Step(text) = line {
            anstream::eprintln!("{text}");
        }
    })
}
