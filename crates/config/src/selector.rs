// SPDX-License-Identifier: Apache-2.0
//! Kubernetes label selectors, parsed once and matched often.

use std::collections::{BTreeMap, BTreeSet};

/// An object's labels.
pub type Labels = BTreeMap<String, String>;

/// A parsed `LabelSelector`: all requirements must hold. Without requirements it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// In canonical order, so that equal selectors compare equal.
    pub(crate) requirements: BTreeSet<Requirement>,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// The selector that matches everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Whether an object with these labels is selected. A missing label satisfies `NotIn`, as in Kubernetes.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|r| {
            let value = labels.get(&r.key);
            match &r.operator {
                Operator::In(values) => value.is_some_and(|v| values.contains(v)),
                Operator::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}
