// SPDX-License-Identifier: Apache-2.0
//! What users are told of speakers that run and cannot be reached: a condition and an event, once per change.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolb_net_types::Time;

use crate::wire::Trouble;

/// Who cannot be reached, and what was said of it.
#[derive(Debug, Default)]
pub(crate) struct Unreachable {
    current: BTreeSet<Trouble>,
    told: BTreeSet<Trouble>,
    /// When something was said last.
    last: Option<Time>,
}

/// What is to be said now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// The lines of the condition; none: it goes.
    pub(crate) lines: Vec<String>,
    /// The message of an event, if there is anything new to complain of.
    pub(crate) complaint: Option<String>,
}

impl Unreachable {
    /// These cannot be reached.
    pub(crate) fn hear(&mut self, troubles: &BTreeSet<Trouble>) {
        self.current.clone_from(troubles);
    }

    /// What is to be said, if anything.
    pub(crate) fn news(&mut self, now: Time) -> Option<News> {
        if self.current == self.told || self.next_deadline().is_some_and(|due| now < due) {
            return None;
        }
        let worse = !self.current.is_subset(&self.told);
        self.told.clone_from(&self.current);
        self.last = Some(now);
        let lines = lines(&self.current, MOST_LINES);
        let complaint = worse.then(|| {
            format!(
                "other speakers cannot be reached, so that several may announce one address: {}",
                self::lines(&self.current, MOST_NAMED).join("; ")
            )
        });
        Some(News { lines, complaint })
    }

    /// When there will be something to say.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.last.filter(|_| self.current != self.told).map(|last| last + EVERY)
    }
}

fn lines(troubles: &BTreeSet<Trouble>, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = troubles.iter().take(most).map(ToString::to_string).collect();
    if troubles.len() > most {
        lines.push(format!("and {} more", troubles.len() - most));
    }
    lines
}

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
        assert!(news.complaint.unwrap().ends_with(&news.lines.join("; ")));
        unreachable.hear(&troubles);
        assert_eq!((unreachable.news(at(60)), unreachable.next_deadline()), (None, None));

        unreachable.hear(&[trouble(3, Cause::Key)].into());
        let news = unreachable.news(at(61)).unwrap();
        assert_eq!((news.lines.len(), news.complaint), (1, None), "who is well again is no complaint");
        unreachable.hear(&BTreeSet::new());
        assert_eq!(unreachable.news(at(80)), Some(News { lines: vec![], complaint: None }));
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
        let complaint = news.complaint.unwrap();
        assert!(complaint.ends_with("; and 195 more") && complaint.len() < 1024, "{complaint}");
    }
}
