// SPDX-License-Identifier: Apache-2.0
//! Intended differences: rules with a name and a reason, and the proof that each is still one.
//!
//! A rule says which field may differ, how the recorded value reads and how ours does. It is a rule and not a case, so
//! that it holds for cases that nobody has recorded yet; `seen_in` names recorded cases in which it must show. A rule
//! that does not, has become untrue, and that is a failure too.
//!
//! Where a rule matched that `spreads`, the two clusters are in different states from then on (another Service has the
//! address, a pool is not there): what differs later in that case is put down to it.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::compare::Difference;

/// The rules of this project; DIFFERENCES.md has the same names.
pub(crate) const DIFFERENCES: &str = include_str!("differences.json");

/// All rules, and which of them showed in which case.
#[derive(Debug)]
pub(crate) struct Intended {
    rules: Vec<Rule>,
    /// Case and rule.
    shown: BTreeSet<(String, String)>,
    played: BTreeSet<String>,
}

/// One intended difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The name it has in DIFFERENCES.md.
    pub(crate) name: String,
    /// Why it differs.
    pub(crate) reason: String,
    /// Recorded cases in which it shows.
    #[serde(default)]
    pub(crate) seen_in: Vec<String>,
    /// Holds only once the case has done one step of each of these lists.
    #[serde(default)]
    after: Vec<Vec<Condition>>,
    /// The ways in which it shows.
    changes: Vec<Change>,
    /// Whether the clusters are in different states afterwards.
    #[serde(default)]
    spreads: bool,
}

/// A step that was played: its verb has a value at a JSON pointer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    verb: String,
    at: String,
    /// Any value, if absent.
    is: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// The whole path of the field.
    #[serde(with = "pattern")]
    path: Regex,
    expected: Form,
    ours: Form,
}

/// How a value reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Form {
    /// A text that this expression matches as a whole. In `ours`, `${name}` is what the group of that name in `expected`
    /// matched.
    Text(String),
    /// A text with a part that this expression matches; what is around the part is the same on both sides.
    Part(String),
    /// Exactly this.
    Is(Value),
    /// There is none.
    Absent,
    /// Anything.
    Any,
    /// A number below 0.
    Negative,
    /// A number that is not.
    Natural,
    /// What it was before the step.
    Kept,
    /// A list with everything that it held before the step, and more.
    Extended,
    /// A number that is greater than the recorded one.
    More,
    /// The recorded list in another order.
    Reordered,
}

/// What a difference is put down to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cause {
    /// The rule's name.
    pub(crate) name: String,
    /// Whether the rule itself does not cover it: it follows from what the rule covered earlier in the case.
    pub(crate) follows: bool,
}

/// What the rules need to know of the case besides the difference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) case: &'a str,
    /// The steps up to this one, as written.
    pub(crate) steps: &'a [&'a Value],
    /// What was seen of ours before the step.
    pub(crate) before: Option<&'a Value>,
    /// A rule that spread earlier in the case.
    pub(crate) spread: Option<&'a str>,
}

impl Intended {
    /// Reads rules.
    ///
    /// # Errors
    /// The text is not of this form.
    pub(crate) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self { rules: serde_json::from_str(text)?, shown: BTreeSet::new(), played: BTreeSet::new() })
    }

    /// The causes of the differences of a step; `None` for what is not intended. What follows from a rule that spreads
    /// does so within the step as well.
    pub(crate) fn causes(&mut self, differences: &[Difference], context: Context<'_>) -> Vec<Option<Cause>> {
        let rules: Vec<_> = differences
            .iter()
            .map(|difference| self.rules.iter().find(|rule| rule.covers(difference, context)))
            .collect();
        let spread = rules.iter().flatten().find(|rule| rule.spreads).map(|rule| rule.name.as_str());
        let spread = context.spread.or(spread);
        let causes = differences.iter().zip(&rules).map(|(difference, rule)| match (rule, spread) {
            (Some(rule), _) => Some(Cause { name: rule.name.clone(), follows: false }),
            (None, Some(name)) if follows(difference) => Some(Cause { name: name.to_owned(), follows: true }),
            (None, _) => None,
        });
        let causes = causes.collect();
        self.shown
            .extend(rules.into_iter().flatten().map(|rule| (context.case.to_owned(), rule.name.clone())));
        causes
    }

    /// Whether the clusters differ in state once the rule of this name matched.
    pub(crate) fn spreads(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| rule.name == name && rule.spreads)
    }

    /// A case was played to its end and compared.
    pub(crate) fn played(&mut self, case: &str) {
        self.played.insert(case.to_owned());
    }

    /// Rules that did not show in a case in which they have to, with those cases.
    pub(crate) fn untrue(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut untrue: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for rule in &self.rules {
            for case in rule.seen_in.iter().filter(|case| self.played.contains(*case)) {
                if !self.shown.contains(&(case.clone(), rule.name.clone())) {
                    untrue.entry(&rule.name).or_default().push(case);
                }
            }
        }
        untrue
    }

    /// The rules that showed, in order, with the number of cases in which each did.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&Rule, usize)> {
        let cases = |rule: &Rule| self.shown.iter().filter(|(_, name)| *name == rule.name).count();
        self.rules.iter().map(move |rule| (rule, cases(rule))).filter(|(_, cases)| *cases > 0)
    }
}

/// Whether a difference can follow from another state of the cluster: what an API server says of a request's own form does
/// not.
fn follows(difference: &Difference) -> bool {
    !difference.path.starts_with("answer.warnings") && difference.path != "never_quiet"
}

impl Rule {
    fn covers(&self, difference: &Difference, context: Context<'_>) -> bool {
        let met = |condition: &Condition| context.steps.iter().any(|step| condition.is_met_by(step));
        self.after.iter().all(|any| any.iter().any(met))
            && self.changes.iter().any(|change| change.covers(difference, context))
    }
}

impl Condition {
    fn is_met_by(&self, step: &Value) -> bool {
        let value = step.get(&self.verb).and_then(|argument| argument.pointer(&self.at));
        value.is_some_and(|value| self.is.as_ref().is_none_or(|wanted| wanted == value))
    }
}

impl Change {
    fn covers(&self, difference: &Difference, context: Context<'_>) -> bool {
        let (expected, got) = (difference.expected.as_ref(), difference.got.as_ref());
        if !self.path.is_match(&difference.path) {
            return false;
        }
        match (&self.expected, &self.ours) {
            (Form::Text(theirs), Form::Text(ours)) => texts(expected, got)
                .is_some_and(|(expected, got)| is_rewritten(theirs, ours, expected, got, true)),
            (Form::Part(theirs), Form::Part(ours)) => texts(expected, got)
                .is_some_and(|(expected, got)| is_rewritten(theirs, ours, expected, got, false)),
            (Form::Any, Form::Reordered) => is_reordered(expected, got),
            (Form::Any, Form::More) => {
                number(got).zip(number(expected)).is_some_and(|(got, expected)| got > expected)
            }
            (theirs, ours) => {
                let before = context.before.and_then(|before| at(before, &difference.path));
                theirs.reads(expected, None) && ours.reads(got, before)
            }
        }
    }
}

impl Form {
    fn reads(&self, value: Option<&Value>, before: Option<&Value>) -> bool {
        match self {
            Self::Text(expression) => value
                .and_then(Value::as_str)
                .is_some_and(|text| whole(expression).is_ok_and(|expression| expression.is_match(text))),
            Self::Is(wanted) => value == Some(wanted),
            Self::Absent => value.is_none(),
            Self::Any => true,
            Self::Negative => number(value).is_some_and(|number| number < 0.0),
            Self::Natural => number(value).is_some_and(|number| number >= 0.0),
            Self::Kept => value == before,
            Self::Extended => {
                let lists = [before, value].map(|list| list.and_then(Value::as_array));
                let [Some(before), Some(now)] = lists else { return false };
                !before.is_empty() && now.len() > before.len() && before.iter().all(|item| now.contains(item))
            }
            Self::Part(_) | Self::Reordered | Self::More => false,
        }
    }
}

/// Whether `got` is `expected` with the part (or all of it) that `theirs` matches replaced by what `ours` matches.
fn is_rewritten(theirs: &str, ours: &str, expected: &str, got: &str, all: bool) -> bool {
    let theirs = if all { whole(theirs) } else { Regex::new(theirs) };
    let Ok(theirs) = theirs else { return false };
    let Some(captures) = theirs.captures(expected) else { return false };
    let Some(part) = captures.get(0) else { return false };
    let mut ours = ours.to_owned();
    for name in theirs.capture_names().flatten() {
        let value = captures.name(name).map_or("", |found| found.as_str());
        ours = ours.replace(&format!("${{{name}}}"), &regex::escape(value));
    }
    let around = [expected.get(..part.start()), expected.get(part.end()..)];
    let [before, after] = around.map(|text| regex::escape(text.unwrap_or_default()));
    whole(&format!("{before}(?:{ours}){after}")).is_ok_and(|ours| ours.is_match(got))
}

/// An expression for whole texts, of several lines too.
fn whole(expression: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("(?s)^(?:{expression})$"))
}

fn is_reordered(one: Option<&Value>, other: Option<&Value>) -> bool {
    let sorted = |value: Option<&Value>| {
        let mut items: Vec<String> = value?.as_array()?.iter().map(Value::to_string).collect();
        items.sort();
        Some(items)
    };
    one != other && sorted(one).is_some() && sorted(one) == sorted(other)
}

fn number(value: Option<&Value>) -> Option<f64> {
    value?.as_f64()
}

fn texts<'a>(expected: Option<&'a Value>, got: Option<&'a Value>) -> Option<(&'a str, &'a str)> {
    expected?.as_str().zip(got?.as_str())
}

/// The value at a path of names between points, of which some have points themselves.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    let map = value.as_object()?;
    map.iter().find_map(|(key, inner)| {
        let rest = path.strip_prefix(key.as_str())?;
        if rest.is_empty() { Some(inner) } else { at(inner, rest.strip_prefix('.')?) }
    })
}

/// Regular expressions in JSON.
mod pattern {
    use regex::Regex;
    use serde::{Deserialize as _, Deserializer};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Regex, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::whole(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(value: Value) -> Intended {
        Intended::parse(&value.to_string()).unwrap()
    }

    fn difference(path: &str, expected: Value, got: Value) -> Difference {
        let some = |value: Value| (!value.is_null()).then_some(value);
        Difference { path: path.to_owned(), expected: some(expected), got: some(got) }
    }

    fn cause(intended: &mut Intended, difference: &Difference, context: Context<'_>) -> Option<Cause> {
        intended.causes(std::slice::from_ref(difference), context).remove(0)
    }

    const NOWHERE: Context<'_> = Context { case: "c", steps: &[], before: None, spread: None };

    #[test]
    fn every_form_reads_what_it_says() {
        for (expected, ours, theirs, got, covered) in [
            (json!({"text": "a\\d"}), json!({"text": "b"}), json!("a1"), json!("b"), true),
            (json!({"text": "a\\d"}), json!({"text": "b"}), json!("a12"), json!("b"), false),
            (json!({"text": "(?<x>.)1"}), json!({"text": "1${x}"}), json!("a1"), json!("1a"), true),
            (json!({"text": "(?<x>.)1"}), json!({"text": "1${x}"}), json!("a1"), json!("1b"), false),
            (
                json!({"part": "'.'"}),
                json!({"part": "\\d+"}),
                json!("length '\"' of p"),
                json!("length 34 of p"),
                true,
            ),
            (
                json!({"part": "'.'"}),
                json!({"part": "\\d+"}),
                json!("length '\"' of p"),
                json!("length 34 of q"),
                false,
            ),
            (json!("absent"), json!({"text": ".*"}), json!(null), json!("x"), true),
            (json!("absent"), json!({"text": ".*"}), json!("x"), json!("x"), false),
            (json!({"is": 201}), json!({"is": 403}), json!(201), json!(403), true),
            (json!({"is": 201}), json!({"is": 403}), json!(201), json!(422), false),
            (json!("negative"), json!({"is": 0}), json!(-1), json!(0), true),
            (json!("negative"), json!({"is": 0}), json!(1), json!(0), false),
            (json!("any"), json!("reordered"), json!(["a", "b"]), json!(["b", "a"]), true),
            (json!("any"), json!("reordered"), json!(["a", "b"]), json!(["b", "c"]), false),
            (json!("negative"), json!("natural"), json!(-1), json!(7), true),
            (json!("negative"), json!("natural"), json!(-1), json!(-7), false),
            (json!("any"), json!("more"), json!(3), json!(4), true),
            (json!("any"), json!("more"), json!(3), json!(2), false),
        ] {
            let mut intended = rules(json!([{
                "name": "r", "reason": "", "changes": [{"path": "p\\..*", "expected": expected, "ours": ours}],
            }]));
            let difference = difference("p.q", theirs, got);
            assert_eq!(cause(&mut intended, &difference, NOWHERE).is_some(), covered, "{difference:?}");
            assert_eq!(
                cause(&mut intended, &Difference { path: "q.p.q".to_owned(), ..difference }, NOWHERE),
                None
            );
        }
    }

    #[test]
    fn kept_is_what_it_was_before_the_step() {
        let mut intended = rules(json!([{
            "name": "r", "reason": "", "changes": [{"path": "services\\..*", "expected": "any", "ours": "kept"}],
        }]));
        let before = json!({"services": {"a": {"ingress": ["1"], "annotations": {"m.io/x": "p"}}}});
        let context = Context { before: Some(&before), ..NOWHERE };
        for (path, got, kept) in [
            ("services.a.ingress", json!(["1"]), true),
            ("services.a.ingress", json!(["2"]), false),
            ("services.a.annotations.m.io/x", json!("p"), true),
            ("services.b.ingress", json!(["1"]), false),
        ] {
            let cause = cause(&mut intended, &difference(path, json!([]), got), context);
            assert_eq!(cause.is_some(), kept, "{path}");
        }
    }

    #[test]
    fn extended_is_everything_that_was_there_and_more() {
        let mut intended = rules(json!([{
            "name": "r", "reason": "", "changes": [{"path": "services\\..*", "expected": "any", "ours": "extended"}],
        }]));
        let before = json!({"services": {"a": {"ingress": ["1"]}, "b": {"ingress": []}}});
        let context = Context { before: Some(&before), ..NOWHERE };
        for (path, got, extended) in [
            ("services.a.ingress", json!(["1", "2"]), true),
            ("services.a.ingress", json!(["1"]), false),
            ("services.a.ingress", json!(["2", "3"]), false),
            ("services.b.ingress", json!(["1", "2"]), false),
        ] {
            let cause = cause(&mut intended, &difference(path, json!(["8", "9"]), got), context);
            assert_eq!(cause.is_some(), extended, "{path}");
        }
    }

    #[test]
    fn a_rule_may_hold_only_after_a_step() {
        let mut intended = rules(json!([{
            "name": "r", "reason": "", "after": [[{"verb": "pool", "at": "/avoidBuggyIPs", "is": true}]],
            "changes": [{"path": ".*", "expected": "any", "ours": "any"}],
        }]));
        let found = difference("p", json!(1), json!(2));
        let (before, after) =
            (json!({"pool": {"avoidBuggyIPs": false}}), json!({"pool": {"avoidBuggyIPs": true}}));
        assert_eq!(cause(&mut intended, &found, Context { steps: &[&before], ..NOWHERE }), None);
        assert!(cause(&mut intended, &found, Context { steps: &[&before, &after], ..NOWHERE }).is_some());
    }

    #[test]
    fn a_rule_that_does_not_show_where_it_must_is_untrue() {
        let mut intended = rules(json!([{
            "name": "r", "reason": "", "seen_in": ["c", "d"],
            "changes": [{"path": "p", "expected": "any", "ours": "any"}],
        }]));
        assert!(intended.untrue().is_empty(), "nothing was played");
        intended.played("c");
        assert_eq!(intended.untrue(), BTreeMap::from([("r", vec!["c"])]));
        cause(&mut intended, &difference("p", json!(1), json!(2)), NOWHERE);
        assert!(intended.untrue().is_empty());
        intended.played("d");
        assert_eq!(intended.untrue(), BTreeMap::from([("r", vec!["d"])]));
    }

    #[test]
    fn what_follows_from_a_rule_is_told_apart_from_what_it_covers() {
        let mut intended = rules(json!([{
            "name": "r", "reason": "", "spreads": true,
            "changes": [{"path": "services\\..*", "expected": "any", "ours": "any"}],
        }]));
        let covered = difference("services.a", json!(1), json!(2));
        let other = difference("pools.p", json!(1), json!(2));
        let follows = |follows| Some(Cause { name: "r".to_owned(), follows });
        assert_eq!(cause(&mut intended, &other, NOWHERE), None);
        assert_eq!(intended.causes(&[other.clone(), covered], NOWHERE), [follows(true), follows(false)]);
        let spread = Context { spread: Some("r"), ..NOWHERE };
        let warned = difference("answer.warnings", json!(null), json!("w"));
        assert_eq!(intended.causes(&[other, warned], spread), [follows(true), None]);
    }

    /// Names in DIFFERENCES.md: "conformance `name`".
    fn names_in_the_document() -> BTreeSet<String> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../DIFFERENCES.md");
        let text = std::fs::read_to_string(path).unwrap();
        let named = Regex::new("conformance `([a-z0-9-]+)`").unwrap();
        named.captures_iter(&text).map(|found| found[1].to_owned()).collect()
    }

    #[test]
    fn every_rule_stands_in_the_document_of_differences_and_the_other_way_round() {
        let intended = Intended::parse(DIFFERENCES).unwrap();
        let names: BTreeSet<String> = intended.rules.iter().map(|rule| rule.name.clone()).collect();
        assert_eq!(names.len(), intended.rules.len(), "two rules of one name");
        assert_eq!(names, names_in_the_document());
        for rule in &intended.rules {
            assert!(!rule.reason.is_empty() && !rule.changes.is_empty(), "{}", rule.name);
        }
    }

    #[test]
    fn every_expression_of_a_rule_can_be_read() {
        let group = Regex::new(r"\$\{[a-z0-9_]+\}").unwrap();
        for rule in &Intended::parse(DIFFERENCES).unwrap().rules {
            for form in rule.changes.iter().flat_map(|change| [&change.expected, &change.ours]) {
                if let Form::Text(text) | Form::Part(text) = form {
                    let plain = group.replace_all(text, "x");
                    assert!(whole(&plain).is_ok(), "{}: {text}", rule.name);
                }
            }
        }
    }

    #[test]
    fn every_rule_has_a_case_in_which_it_must_show() {
        let recorded = [
            include_str!("../../tests/data/metallb/allocation.json"),
            include_str!("../../tests/data/metallb/webhook.json"),
            include_str!("../../tests/data/metallb/webhook_frr.json"),
            include_str!("../../tests/data/documented/native.json"),
            include_str!("../../tests/data/documented/frr.json"),
        ];
        let known: Vec<String> = recorded
            .into_iter()
            .flat_map(|text| super::super::case::Corpus::parse("recorded", text).unwrap().cases)
            .map(|case| case.id)
            .collect();
        for rule in &Intended::parse(DIFFERENCES).unwrap().rules {
            assert!(
                rule.seen_in.iter().all(|case| known.contains(case)),
                "{}: {:?}",
                rule.name,
                rule.seen_in
            );
        }
    }
}
