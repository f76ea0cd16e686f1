// SPDX-License-Identifier: Apache-2.0
//! What users are told of speakers that run and cannot be reached, or of whom no list can be had: a condition and events,
//! once per change.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_net_types::Time;

use crate::peers::Unlisted;
use crate::wire::{Cause, Trouble};

/// Who cannot be reached, and what was said of it.
#[derive(Debug, Default)]
pub(crate) struct Unreachable {
    troubles: BTreeSet<Trouble>,
    unlisted: Option<String>,
    /// The peers are only guessed: whether a speaker runs on each of the nodes is not known.
    guessed: bool,
    current: Facts,
    told: Facts,
    /// When something was said last.
    last: Option<Time>,
}

/// What there is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// Why no list can be had.
    unlisted: Option<String>,
    troubles: BTreeSet<Trouble>,
}

/// What is to be said now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// The lines of the condition; none: it goes.
    pub(crate) lines: Vec<String>,
    /// What there is to complain of that is new: the reason and the message of an event each.
    pub(crate) complaints: Vec<(&'static str, String)>,
}

impl Unreachable {
    /// These cannot be reached.
    pub(crate) fn hear(&mut self, troubles: &BTreeSet<Trouble>) {
        self.troubles.clone_from(troubles);
        self.weigh();
    }

    /// Whether there is a list of speakers, or why none, and whether those that should be reached are only guessed.
    pub(crate) fn listed(&mut self, unlisted: Option<String>, guessed: bool) {
        (self.unlisted, self.guessed) = (unlisted, guessed);
        self.weigh();
    }

    /// What is to be said, if anything.
    pub(crate) fn news(&mut self, now: Time) -> Option<News> {
        if self.current == self.told || self.next_deadline().is_some_and(|due| now < due) {
            return None;
        }
        let told = std::mem::replace(&mut self.told, self.current.clone());
        self.last = Some(now);
        let Facts { unlisted, troubles } = &self.current;
        let unknown = unlisted.clone().filter(|_| told.unlisted != *unlisted);
        let unreachable = (!troubles.is_subset(&told.troubles)).then(|| {
            format!(
                "other speakers cannot be reached, so that several may announce one address: {}",
                lines(troubles, MOST_NAMED).join("; ")
            )
        });
        let complaints = [(MEMBERS_UNKNOWN, unknown), ("MembersUnreachable", unreachable)];
        Some(News {
            lines: unlisted.iter().cloned().chain(lines(troubles, MOST_LINES)).collect(),
            complaints: complaints.into_iter().filter_map(|(reason, text)| Some((reason, text?))).collect(),
        })
    }

    /// When there will be something to say.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.last.filter(|_| self.current != self.told).map(|last| last + EVERY)
    }

    fn weigh(&mut self) {
        // Of a node that may have no speaker, that it does not answer says nothing.
        let counts =
            |trouble: &&Trouble| !self.guessed || !matches!(trouble.cause, Cause::Closed | Cause::Silent);
        let troubles = self.troubles.iter().filter(counts).cloned().collect();
        self.current = Facts { unlisted: self.unlisted.clone(), troubles };
    }
}

impl Unlisted {
    /// What is wrong, in the words of whoever set it up: the label selector and the namespace as they were given, and the
    /// own Pod's name; and who stands in, the nodes (`guessed`) or those that were listed before.
    pub(crate) fn explain(&self, labels: &str, namespace: &str, own: &str, guessed: bool) -> String {
        let setting = format!("METALLB_ML_LABELS or --ml-labels: {labels:?}");
        let what = match self {
            Self::Another(number) => format!(
                "{setting} selects {number} Pods in namespace {namespace}, and not this speaker's own, {own}: these are \
                 not the labels of the speakers"
            ),
            Self::Refused(error) if error.code == 403 => format!(
                "this speaker may not list Pods in namespace {namespace}, so that it does not know the others: {error}"
            ),
            Self::Refused(error) => {
                format!("{setting} cannot be used to list the speakers in namespace {namespace}: {error}")
            }
        };
        let instead = match guessed {
            true => "every node's own address is tried for a speaker",
            false => "those that were listed last count",
        };
        format!("{what}; until that is mended, {instead}")
    }
}

fn lines(troubles: &BTreeSet<Trouble>, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = troubles.iter().take(most).map(ToString::to_string).collect();
    if troubles.len() > most {
        lines.push(format!("and {} more", troubles.len() - most));
    }
    lines
}

/// The reason of the event that says that there is no list of speakers.
pub(crate) const MEMBERS_UNKNOWN: &str = "MembersUnknown";

/// What comes and goes is not told more often than this.
const EVERY: Duration = Duration::from_secs(10);

/// So many are named in the condition, and in an event.
const MOST_LINES: usize = 100;
const MOST_NAMED: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Cause;

    fn trouble(node: u8, cause: Cause) -> Trouble {
        Trouble { node: format!("n{node}").as_str().into(), address: ([10, 0, 0, node], 7946).into(), cause }
    }

    fn at(seconds: u64) -> Time {
        Time::millis(seconds * 1000)
    }

    #[test]
    fn a_trouble_is_told_at_once_and_once_and_so_is_its_end() {
        let mut unreachable = Unreachable::default();
        assert_eq!(unreachable.news(at(0)), None);
        let troubles = BTreeSet::from([trouble(2, Cause::Closed), trouble(3, Cause::Key)]);
        unreachable.hear(&troubles);
        let news = unreachable.news(at(1)).unwrap();
        assert_eq!(news.lines, troubles.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(news.lines[0].starts_with("n2 (10.0.0.2:7946): "), "{:?}", news.lines);
        let [("MembersUnreachable", complaint)] = &news.complaints[..] else { panic!("{news:?}") };
        assert!(complaint.ends_with(&news.lines.join("; ")));
        unreachable.hear(&troubles);
        assert_eq!((unreachable.news(at(60)), unreachable.next_deadline()), (None, None));

        unreachable.hear(&[trouble(3, Cause::Key)].into());
        let news = unreachable.news(at(61)).unwrap();
        assert_eq!((news.lines.len(), news.complaints), (1, vec![]), "who is well again is no complaint");
        unreachable.hear(&BTreeSet::new());
        assert_eq!(unreachable.news(at(80)), Some(News { lines: vec![], complaints: vec![] }));
    }

    #[test]
    fn what_comes_and_goes_is_told_now_and_then() {
        let mut unreachable = Unreachable::default();
        let mut told = Vec::new();
        for second in 0..60 {
            let some = if second % 2 == 0 { [trouble(2, Cause::Silent)].into() } else { BTreeSet::new() };
            unreachable.hear(&some);
            if unreachable.news(at(second)).is_some() {
                told.push(second);
            }
        }
        assert!(told.len() <= 6, "{told:?}");
    }

    #[test]
    fn many_are_counted() {
        let mut unreachable = Unreachable::default();
        unreachable.hear(&(1..=200).map(|n| trouble(n, Cause::Silent)).collect());
        let news = unreachable.news(at(0)).unwrap();
        assert_eq!(news.lines.len(), MOST_LINES + 1);
        assert_eq!(news.lines[MOST_LINES], "and 100 more");
        let complaint = &news.complaints[0].1;
        assert!(complaint.ends_with("; and 195 more") && complaint.len() < 1024, "{complaint}");
    }

    #[test]
    fn that_no_list_can_be_had_is_told_once_and_silence_of_those_that_are_only_guessed_is_not() {
        let mut unreachable = Unreachable::default();
        let text = "the labels are wrong".to_owned();
        unreachable.listed(Some(text.clone()), true);
        let complaints = vec![("MembersUnknown", text.clone())];
        assert_eq!(unreachable.news(at(0)), Some(News { lines: vec![text.clone()], complaints }));
        unreachable.hear(&[trouble(2, Cause::Closed), trouble(3, Cause::Silent)].into());
        assert_eq!((unreachable.news(at(60)), unreachable.next_deadline()), (None, None));

        let key = trouble(4, Cause::Key);
        unreachable.hear(&[trouble(2, Cause::Closed), key.clone()].into());
        let news = unreachable.news(at(61)).unwrap();
        assert_eq!(news.lines, [text, key.to_string()]);
        let reasons: Vec<_> = news.complaints.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, ["MembersUnreachable"]);
        // With a list it is known who runs.
        unreachable.listed(None, false);
        assert_eq!(unreachable.news(at(100)).unwrap().lines.len(), 2);
    }

    #[test]
    fn what_is_wrong_names_the_setting_or_the_right() {
        let refused = |code, message: &str| {
            Unlisted::Refused(ferrolb_api::request::WriteError::refused(code, "", message))
        };
        for (unlisted, parts) in [
            (
                Unlisted::Another(0),
                &[
                    "METALLB_ML_LABELS or --ml-labels: \"app=metalb\" selects 0 Pods in namespace ns",
                    "speaker-x",
                ][..],
            ),
            (refused(403, "pods is forbidden"), &["may not list Pods in namespace ns", "pods is forbidden"]),
            (refused(400, "unable to parse"), &["METALLB_ML_LABELS", "app=metalb", "unable to parse"]),
        ] {
            let text = unlisted.explain("app=metalb", "ns", "speaker-x", true);
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(text.ends_with("every node's own address is tried for a speaker"), "{text}");
            let text = unlisted.explain("app=metalb", "ns", "speaker-x", false);
            assert!(text.ends_with("those that were listed last count"), "{text}");
        }
    }
}
