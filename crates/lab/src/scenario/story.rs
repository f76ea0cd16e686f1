// SPDX-License-Identifier: Apache-2.0
//! A story as it is played: steps that say what a person would type, what is expected and what was seen.
//!
//! A step never stops the story unless the story cannot go on without it; the report says at the end which failed. What is
//! observed is worded so that two good runs word it alike: times stand beside it, never in it.

use std::fmt::Write as _;
use std::time::Instant;

use serde::Serialize;

use super::matrix::Matrix;

/// One step, as the JSON report has it.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The part of the story it belongs to.
    pub chapter: String,
    /// What the step shows.
    pub name: String,
    /// The commands that a person would type for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// What should be seen.
    pub expected: String,
    /// What was seen.
    pub observed: String,
    /// Figures of this very run, such as gaps between frames. They differ from run to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Whether it was as expected.
    pub ok: bool,
}

/// The report of a whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The story's name.
    pub story: String,
    /// Which API server it ran against: `fakekube`, `kapi` or the address of another.
    pub api: String,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// What it comes to as a table, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Matrix>,
    /// How long the run took, in milliseconds.
    pub ms: u64,
    /// Whether every step was as expected.
    pub ok: bool,
}

/// How a run is shown while it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Every step on stdout as it ends.
    Text,
    /// Nothing on stdout; the report is printed as JSON at the end. Progress goes to stderr.
    Json,
}

/// What a step saw, or that it did not see what it should.
pub type Seen = Result<String, anyhow::Error>;

/// A story under way.
#[derive(Debug)]
pub struct Story {
    name: String,
    api: String,
    show: Show,
    started: Instant,
    chapter: String,
    pending: Vec<String>,
    measured: Option<String>,
    steps: Vec<Step>,
    table: Option<Matrix>,
}

impl Story {
    /// A story that begins now.
    pub fn new(name: &str, api: &str, show: Show) -> Self {
        Self {
            name: name.into(),
            api: api.into(),
            show,
            started: Instant::now(),
            chapter: String::new(),
            pending: Vec::new(),
            measured: None,
            steps: Vec::new(),
            table: None,
        }
    }

    /// Begins a part of the story.
    pub fn chapter(&mut self, title: &str) {
        title.clone_into(&mut self.chapter);
        if self.show == Show::Text {
            let bold = anstyle::Style::new().bold();
            anstream::println!("\n{bold}{title}{bold:#}");
        }
    }

    /// Notes a command that a person would type; it belongs to the step that ends next.
    pub fn command(&mut self, command: impl Into<String>) {
        let command = command.into();
        if self.show == Show::Text {
            let dim = anstyle::Style::new().dimmed();
            for line in prompted(&command) {
                anstream::println!("    {dim}{line}{dim:#}");
            }
        }
        self.pending.push(command);
    }

    /// Notes what was measured; it belongs to the step that ends next and stays out of the transcript.
    pub fn measured(&mut self, figures: impl Into<String>) {
        self.measured = Some(figures.into());
    }

    /// What the story comes to.
    pub fn table(&mut self, table: Matrix) {
        self.table = Some(table);
    }

    /// Ends a step that was begun at `began`. Returns whether it was as expected.
    pub fn step(&mut self, name: &str, expected: &str, began: Instant, seen: Seen) -> bool {
        let ok = seen.is_ok();
        let observed = seen.unwrap_or_else(|error| format!("{error:#}"));
        let step = Step {
            chapter: self.chapter.clone(),
            name: name.into(),
            commands: std::mem::take(&mut self.pending),
            expected: expected.into(),
            observed,
            measured: self.measured.take(),
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            ok,
        };
        match self.show {
            Show::Text => anstream::println!("{}", line(self.steps.len() + 1, &step, true)),
            Show::Json => anstream::eprintln!("{}", line(self.steps.len() + 1, &step, true)),
        }
        self.steps.push(step);
        ok
    }

    /// The report, once nothing more follows.
    pub fn finish(self) -> Report {
        let ok = !self.steps.is_empty() && self.steps.iter().all(|s| s.ok);
        Report {
            story: self.name,
            api: self.api,
            ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            ok,
            steps: self.steps,
            table: self.table,
        }
    }
}

impl Report {
    /// The summary line for people.
    pub fn summary(&self) -> String {
        let good = self.steps.iter().filter(|s| s.ok).count();
        let seconds = self.ms / 1000;
        format!(
            "{}: {good} of {} steps as expected in {seconds} s, API server: {}",
            self.story,
            self.steps.len(),
            self.api
        )
    }

    /// The run as plain text without times: two good runs give the same text.
    pub fn transcript(&self) -> String {
        let mut text = String::new();
        let mut chapter = "";
        for (index, step) in self.steps.iter().enumerate() {
            if chapter != step.chapter {
                chapter = &step.chapter;
                let _ = writeln!(text, "{}{chapter}", if index > 0 { "\n" } else { "" });
            }
            for command in step.commands.iter().flat_map(|command| prompted(command)) {
                let _ = writeln!(text, "    {command}");
            }
            let _ = writeln!(text, "{}", line(index + 1, step, false));
        }
        if let Some(table) = &self.table {
            let _ = write!(text, "\n{}", table.text(false));
        }
        text
    }
}

/// A command as a shell shows it being typed.
fn prompted(command: &str) -> impl Iterator<Item = String> {
    command
        .lines()
        .zip(std::iter::once("$").chain(std::iter::repeat(">")))
        .map(|(line, mark)| format!("{mark} {line}"))
}

fn line(number: usize, step: &Step, live: bool) -> String {
    let mark = if step.ok { "✓" } else { "✗" };
    let observed =
        format!("{}: {}", step.name, step.observed.replace('\n', "\n      ")).replace(": \n", ":\n");
    if !live {
        let mut text = format!("{mark} {number:>2} {observed}");
        if !step.ok {
            let _ = write!(text, " (expected: {})", step.expected);
        }
        return text;
    }
    let colour = if step.ok { anstyle::AnsiColor::Green } else { anstyle::AnsiColor::Red };
    let style = anstyle::Style::new().fg_color(Some(colour.into()));
    let dim = anstyle::Style::new().dimmed();
    let mut text = format!("{style}{mark}{style:#} {number:>2} {observed} {dim}{} ms{dim:#}", step.ms);
    if let Some(figures) = &step.measured {
        let _ = write!(text, "\n      {dim}{figures}{dim:#}");
    }
    if !step.ok {
        let _ = write!(text, "\n      expected: {}", step.expected);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story() -> Story {
        Story::new("l2", "fakekube", Show::Json)
    }

    #[test]
    fn a_failed_step_fails_the_story_and_shows_what_was_expected() {
        let mut story = story();
        story.chapter("First");
        story.command("kubectl get svc \\\n-o wide");
        story.measured("0.3 ms");
        assert!(story.step("address", "192.0.2.1", Instant::now(), Ok("192.0.2.1".into())));
        story.chapter("Second");
        assert!(!story.step("silence", "no answer", Instant::now(), Err(anyhow::anyhow!("an answer"))));
        let report = story.finish();
        assert!(!report.ok);
        assert_eq!(
            report.transcript(),
            "First\n    $ kubectl get svc \\\n    > -o wide\n✓  1 address: 192.0.2.1\n\nSecond\n✗  2 silence: an answer (expected: no answer)\n"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["steps"][0]["commands"][0], "kubectl get svc \\\n-o wide");
        assert_eq!(json["steps"][0]["measured"], "0.3 ms");
        assert_eq!(json["steps"][1].get("measured"), None);
        assert_eq!(json["steps"][1]["ok"], false);
    }

    #[test]
    fn a_story_without_steps_is_not_a_success() {
        assert!(!story().finish().ok);
    }
}
