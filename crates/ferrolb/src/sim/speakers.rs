// SPDX-License-Identifier: Apache-2.0
//! `ferrolb sim speakers`: which clusters are played, and what it came to.

use std::num::NonZero;
use std::time::{Duration, Instant};

use ferrolb_sim::Broken;
use ferrolb_sim::speakers::{self, Group, Shape, Tally};
use serde_json::{Value, json};

use super::play::{Counts, Sequences, play};
use super::{Form, Report, broken_json};

pub(super) const EXAMPLES: &str = "\
Each sequence is drawn from a seed: the same seed is the same sequence. One that breaks a rule is told. Without --nodes
clusters of 3, 10 and 100 are played, and of both kinds of speakers; with --full also of 1,000, and all of them longer.
Exit status: 1 if a rule was broken, or if anything that is counted never happened (in 100 sequences or more).

Examples:
  ferrolb sim speakers                                   what CI does
  ferrolb sim speakers --full -o json                    everything, for a program
  ferrolb sim speakers --nodes 10 --seeds 2000           one size of cluster
  ferrolb sim speakers --nodes 4 --metallb 2             two of four speakers are MetalLB's
  ferrolb sim speakers --nodes 3 --seed 91 --seeds 1     one sequence again";

/// Which clusters, how often, and how it is reported.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes the cluster has, at least 2.
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=1000), conflicts_with = "full")]
    nodes: Option<u16>,
    /// How many of the speakers are MetalLB's.
    #[arg(long, default_value_t = 0, requires = "nodes")]
    metallb: u16,
    /// How many sequences to play.
    #[arg(long, default_value_t = 100, requires = "nodes")]
    seeds: u64,
    /// Seed of the first one; the others follow it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Play the long list of clusters.
    #[arg(long)]
    full: bool,
    /// Threads to play them on; as many as there are processors if not given.
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Form of the report.
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub(super) output: Form,
}

/// Clusters, as (nodes, speakers of MetalLB, sequences).
type Plan = [(u16, u16, u64)];

const USUAL: &Plan =
    &[(3, 0, 2000), (3, 1, 500), (3, 2, 500), (4, 2, 500), (10, 0, 2000), (10, 4, 50), (100, 0, 5)];

const FULL: &Plan = &[
    (2, 0, 500),
    (3, 0, 2000),
    (3, 1, 2000),
    (3, 2, 1000),
    (4, 2, 1000),
    (10, 0, 2000),
    (10, 4, 300),
    (100, 0, 100),
    (1000, 0, 5),
];

/// What never happens in so many sequences was forgotten, not missed by chance.
const MANY: u64 = 100;

impl Counts for Tally {
    fn add(&mut self, other: &Self) {
        self.add(other);
    }
}

/// What clusters of one kind came to.
struct Cluster {
    shape: Shape,
    tally: Tally,
    took: Duration,
}

/// What all came to.
#[derive(Default)]
struct Played {
    clusters: Vec<Cluster>,
    broken: Option<(Shape, Broken)>,
}

pub(super) fn run(args: &Args) -> Report {
    let one = [(args.nodes.unwrap_or_default(), args.metallb, args.seeds)];
    let plan: &Plan = match args.nodes {
        Some(_) => &one,
        None if args.full => FULL,
        None => USUAL,
    };
    let mut played = Played::default();
    for &(nodes, metallb, count) in plan {
        let (shape, started) = (Shape { nodes, metallb }, Instant::now());
        let sequences = Sequences { first: args.seed, count, threads: args.threads };
        let done = play(&sequences, |seed| speakers::run(seed, shape));
        played.clusters.push(Cluster { shape, tally: done.tally, took: started.elapsed() });
        if let Some(broken) = done.broken.into_iter().next() {
            played.broken = Some((shape, broken));
            break;
        }
    }
    Report { text: played.text(), json: played.json(), fine: played.is_fine() }
}

impl Played {
    fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.clusters.iter().for_each(|cluster| total.add(&cluster.tally));
        total
    }

    /// What never happened, if there were enough sequences to say so.
    fn missing(&self) -> Vec<&'static str> {
        let total = self.total();
        let mixed = self.clusters.iter().any(|cluster| cluster.shape.metallb > 0);
        if total.sequences < MANY { vec![] } else { total.missing(mixed).collect() }
    }

    fn is_fine(&self) -> bool {
        self.broken.is_none() && self.missing().is_empty()
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.total());
        for Cluster { shape, tally, took } in &self.clusters {
            text.push_str(&format!(
                "{:>5} nodes, {:>2} of MetalLB's: {:>5} sequences, {:>6} faults, {:>8} simulated seconds in {:.1} s\n",
                shape.nodes,
                shape.metallb,
                tally.sequences,
                tally.steps,
                tally.seconds,
                took.as_secs_f64()
            ));
        }
        if let Some((shape, broken)) = &self.broken {
            text.push_str(&format!("\n{} nodes, {} of MetalLB's: {broken}", shape.nodes, shape.metallb));
        }
        let missing = self.missing();
        if !missing.is_empty() {
            text.push_str(&format!("\nnever happened: {}\n", missing.join("; ")));
        }
        text.push_str(if self.is_fine() { "\nno rule was broken\n" } else { "\nFAILED\n" });
        text
    }

    fn json(&self) -> Value {
        let clusters = self.clusters.iter().map(|cluster| {
            let counts = |group: &Group| {
                let counts = cluster.tally.counts(*group).map(|(text, n)| (text.to_owned(), json!(n)));
                (group.title().to_owned(), Value::Object(counts.collect()))
            };
            let worst = cluster.tally.worst.iter().map(|(cause, worst)| {
                let worst = json!({ "twoOwnersMs": worst.twice, "noOwnerMs": worst.nobody });
                (cause.text().to_owned(), worst)
            });
            json!({
                "nodes": cluster.shape.nodes,
                "metallb": cluster.shape.metallb,
                "sequences": cluster.tally.sequences,
                "faults": cluster.tally.steps,
                "datagrams": cluster.tally.datagrams,
                "simulatedSeconds": cluster.tally.seconds,
                "seconds": cluster.took.as_secs_f64(),
                "counts": Group::ALL.iter().map(counts).collect::<serde_json::Map<_, _>>(),
                "worst": worst.collect::<serde_json::Map<_, _>>(),
            })
        });
        let broken = self.broken.iter().map(|(shape, broken)| {
            let mut told = broken_json(broken);
            told["nodes"] = json!(shape.nodes);
            told["metallb"] = json!(shape.metallb);
            told
        });
        json!({
            "clusters": clusters.collect::<Vec<_>>(),
            "missing": self.missing(),
            "broken": broken.collect::<Vec<_>>(),
            "ok": self.is_fine(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(sequences: u64) -> Played {
        let mut tally = Tally::default();
        tally.sequences += sequences;
        let shape = Shape { nodes: 3, metallb: 0 };
        Played { clusters: vec![Cluster { shape, tally, took: Duration::ZERO }], broken: None }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let tally = |threads| {
            let sequences = Sequences { first: 0, count: 12, threads: NonZero::new(threads) };
            play(&sequences, |seed| speakers::run(seed, Shape { nodes: 3, metallb: 0 })).tally
        };
        assert_eq!(tally(1), tally(2));
    }

    #[test]
    fn what_never_happened_fails_a_long_run() {
        assert!(played(MANY - 1).is_fine(), "few sequences need not meet everything");
        let long = played(MANY);
        assert!(!long.is_fine());
        assert!(long.text().contains("never happened: "));
        assert!(!long.missing().iter().any(|text| text.contains("MetalLB")), "there are none");
        assert_eq!(long.json()["ok"], json!(false));
    }

    #[test]
    fn a_broken_rule_is_told_in_both_forms_with_the_cluster_that_it_takes() {
        let broken =
            Broken { seed: 7, rule: "the rule", what: "x".into(), steps: 1, story: vec!["it began".into()] };
        let played = Played { broken: Some((Shape { nodes: 4, metallb: 2 }, broken)), ..played(1) };
        assert!(!played.is_fine());
        for part in ["4 nodes, 2 of MetalLB's: seed 7 breaks the rule: the rule", "it began", "FAILED"] {
            assert!(played.text().contains(part), "{part}: {}", played.text());
        }
        assert_eq!(played.json()["broken"][0]["nodes"], json!(4));
    }
}
