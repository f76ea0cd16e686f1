// SPDX-License-Identifier: Apache-2.0
//! The account of a sequence that broke a rule.

use std::fmt;

/// A sequence that breaks a rule, with as few steps as could be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The sequence.
    pub seed: u64,
    /// The rule.
    pub rule: &'static str,
    /// How it was broken.
    pub what: String,
    /// How many steps are left.
    pub steps: usize,
    /// What happened, line by line.
    pub story: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} breaks the rule: {}", self.seed, self.rule)?;
        writeln!(f, "  {}", self.what)?;
        writeln!(f, "after {} steps:", self.steps)?;
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
