// SPDX-License-Identifier: Apache-2.0
//! What a run came to: for people as it goes, for programs at the end.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::compare::Difference;
use super::intended::{Cause, Intended};

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Where the cases were played.
    api: String,
    files: Vec<FileReport>,
    /// Intended differences that showed.
    intended: Vec<Shown>,
    /// Rules of intended differences that did not show where they have to.
    untrue: Vec<Untrue>,
    counts: Counts,
    /// Whether every case was equal, or differed as intended, and every rule showed.
    ok: bool,
}

/// The cases of one file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FileReport {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) cases: Vec<CaseReport>,
}

/// One case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseReport {
    pub(crate) id: String,
    pub(crate) about: String,
    pub(crate) verdict: Verdict,
    /// Why it is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) varies: Option<String>,
    pub(crate) steps: usize,
    pub(crate) differences: Vec<Found>,
    pub(crate) milliseconds: u64,
}

/// What a case came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Every field is as recorded.
    Equal,
    /// What is not has a rule.
    Intended,
    /// Something is not, and has none.
    Unexpected,
    /// The outcome was left to chance: played, not compared.
    Varies,
}

/// A difference, and what it is put down to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Found {
    /// The number of the step, the first is 0.
    pub(crate) step: usize,
    #[serde(rename = "do")]
    pub(crate) action: Value,
    #[serde(flatten)]
    pub(crate) difference: Difference,
    #[serde(flatten, serialize_with = "cause")]
    pub(crate) cause: Option<Cause>,
}

/// A rule that showed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) rule: String,
    pub(crate) reason: String,
    /// In how many cases.
    pub(crate) cases: usize,
}

/// A rule that did not show where it has to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Untrue {
    pub(crate) rule: String,
    pub(crate) cases: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
struct Counts {
    cases: usize,
    equal: usize,
    intended: usize,
    /// Of these, the cases in which nothing but a warning was added.
    by_warnings_alone: usize,
    unexpected: usize,
    varies: usize,
}

impl Report {
    pub(crate) fn new(api: &str, files: Vec<FileReport>, intended: &Intended) -> Self {
        let shown = intended.shown().map(|(rule, cases)| Shown {
            rule: rule.name.clone(),
            reason: rule.reason.clone(),
            cases,
        });
        let untrue = intended.untrue().into_iter().map(|(rule, cases)| Untrue {
            rule: rule.to_owned(),
            cases: cases.into_iter().map(str::to_owned).collect(),
        });
        let (shown, untrue) = (shown.collect(), untrue.collect::<Vec<_>>());
        let mut counts = Counts::default();
        for case in files.iter().flat_map(|file| &file.cases) {
            counts.cases += 1;
            *match case.verdict {
                Verdict::Equal => &mut counts.equal,
                Verdict::Intended => &mut counts.intended,
                Verdict::Unexpected => &mut counts.unexpected,
                Verdict::Varies => &mut counts.varies,
            } += 1;
            if case.verdict == Verdict::Intended && case.differences.iter().all(Found::is_a_further_warning) {
                counts.by_warnings_alone += 1;
            }
        }
        let ok = counts.unexpected == 0 && untrue.is_empty();
        Self { api: api.to_owned(), files, intended: shown, untrue, counts, ok }
    }

    /// Whether nothing was unexpected.
    pub(crate) fn is_ok(&self) -> bool {
        self.ok
    }

    /// The end of a run in text.
    pub(crate) fn summary(&self) -> String {
        let Counts { cases, equal, intended, by_warnings_alone, unexpected, varies } = self.counts;
        let mut text = String::new();
        for Shown { rule, reason, cases } in &self.intended {
            let _ = writeln!(text, "{rule} (in {cases} cases): {reason}");
        }
        for Untrue { rule, cases } in &self.untrue {
            let _ = writeln!(
                text,
                "the intended difference {rule} did not show in {}: remove it from the rules and from DIFFERENCES.md, or mend what hides it",
                cases.join(", ")
            );
        }
        let _ = write!(text, "{cases} cases, {equal} equal, {intended} differ as intended");
        if by_warnings_alone > 0 {
            let _ = write!(text, " ({by_warnings_alone} by a warning more alone)");
        }
        let _ = write!(text, ", {unexpected} unexpected");
        if varies > 0 {
            let _ = write!(text, ", {varies} left to chance and not compared");
        }
        text
    }
}

impl Found {
    fn is_a_further_warning(&self) -> bool {
        self.difference.path == "answer.warnings" && self.difference.expected.is_none()
    }
}

impl CaseReport {
    /// A line, and every difference.
    pub(crate) fn text(&self) -> String {
        let word = match self.verdict {
            Verdict::Equal => "equal",
            Verdict::Intended => "intended",
            Verdict::Unexpected => "UNEXPECTED",
            Verdict::Varies => "varies",
        };
        let mut text = format!("{word:<11} {}: {}", self.id, self.about);
        let mut step = None;
        for found in &self.differences {
            if step.replace(found.step) != Some(found.step) {
                let _ = write!(text, "\n    step {}: {}", found.step, found.action);
            }
            let why = match &found.cause {
                None => "unexpected".to_owned(),
                Some(cause) if cause.follows => format!("follows from {}", cause.name),
                Some(cause) => cause.name.clone(),
            };
            let Difference { path, expected, got } = &found.difference;
            let _ = write!(text, "\n      {path} ({why})");
            for (label, value) in [("recorded", expected), ("here", got)] {
                let value = value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
                let _ = write!(text, "\n        {label:<9} {value}");
            }
        }
        text
    }
}

#[expect(clippy::ref_option, reason = "the form serde calls it in")]
fn cause<S: serde::Serializer>(cause: &Option<Cause>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Written<'a> {
        cause: Option<&'a str>,
        follows: bool,
    }
    let written = Written {
        cause: cause.as_ref().map(|cause| cause.name.as_str()),
        follows: cause.as_ref().is_some_and(|cause| cause.follows),
    };
    written.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::intended::Context;
    use super::*;

    fn case(verdict: Verdict, cause: Option<Cause>) -> CaseReport {
        let difference = Difference { path: "answer.code".to_owned(), expected: Some(json!(201)), got: None };
        let differences = match verdict {
            Verdict::Equal | Verdict::Varies => Vec::new(),
            _ => vec![Found { step: 1, action: json!({"wait": 1}), difference, cause }],
        };
        CaseReport {
            id: "c".to_owned(),
            about: "a".to_owned(),
            verdict,
            varies: None,
            steps: 2,
            differences,
            milliseconds: 3,
        }
    }

    fn report(cases: Vec<CaseReport>, intended: &Intended) -> Report {
        let file = FileReport { file: "f".to_owned(), title: "t".to_owned(), cases };
        Report::new("fakekube", vec![file], intended)
    }

    /// A rule `r` that has to show in the case `c`.
    fn rule() -> Intended {
        let change = json!({"path": "answer", "expected": "any", "ours": "any"});
        Intended::parse(
            &json!([{"name": "r", "reason": "why", "seen_in": ["c"], "changes": [change]}]).to_string(),
        )
        .unwrap()
    }

    #[test]
    fn one_unexpected_case_or_one_untrue_rule_is_a_failure() {
        let cases =
            || vec![case(Verdict::Equal, None), case(Verdict::Intended, None), case(Verdict::Varies, None)];
        let mut intended = rule();
        let good = report(cases(), &intended);
        assert!(good.is_ok());
        assert_eq!(
            good.summary(),
            "3 cases, 1 equal, 1 differ as intended, 0 unexpected, 1 left to chance and not compared"
        );
        assert!(!report(vec![case(Verdict::Unexpected, None)], &intended).is_ok());
        intended.played("c");
        let bad = report(cases(), &intended);
        assert!(!bad.is_ok() && bad.summary().contains("r did not show in c"), "{}", bad.summary());
        let difference = Difference { path: "answer".to_owned(), expected: None, got: None };
        let context = Context { case: "c", steps: &[], before: None, spread: None };
        intended.causes(&[difference], context);
        let good = report(cases(), &intended);
        assert!(good.is_ok() && good.summary().starts_with("r (in 1 cases): why\n"), "{}", good.summary());
    }

    #[test]
    fn a_difference_is_shown_with_step_path_and_both_values() {
        let text = case(Verdict::Unexpected, None).text();
        assert_eq!(
            text,
            "UNEXPECTED  c: a\n    step 1: {\"wait\":1}\n      answer.code (unexpected)\n        recorded  201\n        here      nothing"
        );
        let cause = Cause { name: "r".to_owned(), follows: true };
        assert!(case(Verdict::Intended, Some(cause)).text().contains("answer.code (follows from r)"));
    }

    #[test]
    fn cases_with_nothing_but_further_warnings_are_counted() {
        let mut warned = case(Verdict::Intended, None);
        let difference = &mut warned.differences[0].difference;
        *difference =
            Difference { path: "answer.warnings".to_owned(), expected: None, got: Some(json!("w")) };
        let report = report(vec![warned, case(Verdict::Intended, None)], &rule());
        assert_eq!(
            report.summary(),
            "2 cases, 0 equal, 2 differ as intended (1 by a warning more alone), 0 unexpected"
        );
    }

    #[test]
    fn programs_get_every_case_with_its_verdict() {
        let cause = Cause { name: "r".to_owned(), follows: false };
        let value =
            serde_json::to_value(report(vec![case(Verdict::Intended, Some(cause))], &rule())).unwrap();
        let found = &value["files"][0]["cases"][0];
        assert_eq!((&found["verdict"], &found["differences"][0]["cause"]), (&json!("intended"), &json!("r")));
        assert_eq!((&value["ok"], &value["counts"]["cases"]), (&json!(true), &json!(1)));
    }
}
