// SPDX-License-Identifier: Apache-2.0
//! What was told about a Service already, so that each fact is told once.

use std::collections::BTreeSet;

use ferrolb_ipam::Notice;

/// The notices of one Service that have become events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// Facts that still hold.
    lasting: Vec<Notice>,
    /// Steps of a decision that is not stored yet: a repeated write does not repeat them.
    steps: Vec<Notice>,
    /// Annotations that were objected to, while they are there.
    annotations: BTreeSet<String>,
}

impl Story {
    /// The notices of a new decision that were not told yet, in order.
    pub(crate) fn news(&mut self, notices: Vec<Notice>) -> Vec<Notice> {
        let mut news = Vec::new();
        let mut lasting = Vec::new();
        for notice in notices {
            let told = if notice.lasts() { &self.lasting } else { &self.steps };
            if !told.contains(&notice) {
                news.push(notice.clone());
            }
            if notice.lasts() {
                lasting.push(notice);
            } else if !self.steps.contains(&notice) {
                self.steps.push(notice);
            }
        }
        self.lasting = lasting;
        news
    }

    /// The decision is stored: the same steps, taken again, are news.
    pub(crate) fn stored(&mut self) {
        self.steps.clear();
    }

    /// Whether nobody was told about this annotation yet; now somebody is.
    pub(crate) fn is_new_annotation(&mut self, key: &str) -> bool {
        self.annotations.insert(key.to_owned())
    }

    /// Forgets annotations that are gone.
    pub(crate) fn retain_annotations(&mut self, exists: impl Fn(&str) -> bool) {
        self.annotations.retain(|key| exists(key));
    }
}

#[cfg(test)]
mod tests {
    use ferrolb_ipam::Refusal;
    use ferrolb_net_types::ServiceKey;

    use super::*;

    #[test]
    fn facts_are_told_when_they_change_and_steps_when_they_are_taken_again() {
        let pending = Notice::NotAllocated { service: ServiceKey::new("n", "s"), why: Refusal::NoAddress };
        let assigned = Notice::Assigned(vec![[10, 0, 0, 1].into()]);
        let mut story = Story::default();
        let mut is_news = |notice: &Notice, stored: bool| {
            let news = story.news(vec![notice.clone()]);
            if stored {
                story.stored();
            }
            news.first() == Some(notice)
        };
        assert!(is_news(&pending, true));
        assert!(!is_news(&pending, true));
        assert!(is_news(&assigned, false));
        assert!(!is_news(&assigned, true), "the write was repeated");
        assert!(is_news(&assigned, true));
        assert!(is_news(&pending, true), "it did not hold in between");
    }
}
