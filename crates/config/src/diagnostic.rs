// SPDX-License-Identifier: Apache-2.0
//! What is wrong with an object.

use std::fmt;

/// One fault of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The object's kind.
    pub kind: &'static str,
    /// The object's name.
    pub name: String,
    /// The field at fault and what stands there, as `spec.aggregationLength 40`, where it is known and the message alone
    /// may not tell the object that it is about.
    pub field: Option<String>,
    /// What is wrong. Where MetalLB has a text for it, exactly that; it may have several lines.
    pub message: String,
    /// The fault lies in what the object refers to, and may pass without a change of the object.
    pub transient: bool,
    /// What the object says is not taken over because of it: what was good last stays in force, if there is such a
    /// version.
    pub refused: bool,
}

impl Diagnostic {
    fn new(kind: &'static str, name: &str, message: String) -> Self {
        Self { kind, name: name.to_owned(), field: None, message, transient: false, refused: true }
    }
}

/// Prints `{kind} {name}: {message}`, or `{kind} {name}, {field}: {message}`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)?;
        self.field.iter().try_for_each(|field| write!(f, ", {field}"))?;
        write!(f, ": {}", self.message)
    }
}

/// Faults as they are found, in MetalLB's order.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What MetalLB v0.16.1 refuses, and whether that is refused here too.
    refused: Vec<(Diagnostic, bool)>,
    /// What only we notice: faults of settings it does not know, and consequences of a last good version in force.
    noticed: Vec<Diagnostic>,
}

impl Findings {
    /// Adds a fault for which MetalLB refuses the configuration.
    pub(crate) fn refuse(&mut self, kind: &'static str, name: &str, message: String) {
        self.refused.push((Diagnostic::new(kind, name, message), true));
    }

    /// As [`Findings::refuse`], with the field at fault and its value.
    pub(crate) fn refuse_field(&mut self, kind: &'static str, name: &str, field: String, message: String) {
        let diagnostic = Diagnostic { field: Some(field), ..Diagnostic::new(kind, name, message) };
        self.refused.push((diagnostic, true));
    }

    /// As [`Findings::refuse_for_now`], with the field at fault and its value.
    pub(crate) fn refuse_field_for_now(
        &mut self,
        kind: &'static str,
        name: &str,
        field: String,
        message: String,
    ) {
        let diagnostic =
            Diagnostic { transient: true, field: Some(field), ..Diagnostic::new(kind, name, message) };
        self.refused.push((diagnostic, true));
    }

    /// Adds something for which MetalLB refuses the configuration, and which is fine here.
    pub(crate) fn tolerate(&mut self, kind: &'static str, name: &str, message: String) {
        self.refused.push((Diagnostic::new(kind, name, message), false));
    }

    /// Adds a fault for which MetalLB refuses the configuration until what the object refers to is there.
    pub(crate) fn refuse_for_now(&mut self, kind: &'static str, name: &str, message: String) {
        self.refused.push((Diagnostic { transient: true, ..Diagnostic::new(kind, name, message) }, true));
    }

    /// Adds a fault that is none to MetalLB, and for which the object is not taken over here.
    pub(crate) fn hold(&mut self, kind: &'static str, name: &str, message: String) {
        self.noticed.push(Diagnostic::new(kind, name, message));
    }

    /// Adds something to be said of an object that is taken over.
    pub(crate) fn remark(&mut self, kind: &'static str, name: &str, message: String) {
        self.noticed.push(Diagnostic { refused: false, ..Diagnostic::new(kind, name, message) });
    }

    /// The first of MetalLB's errors that is one here too.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        first(self.refused.iter().filter(|(_, here)| *here))
    }

    /// What MetalLB says of the whole: its first error.
    pub(crate) fn metallb_verdict(&self) -> Result<(), String> {
        first(self.refused.iter())
    }

    /// Every fault once: first those that MetalLB refuses, in its order.
    pub(crate) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let mut all: Vec<_> =
            self.refused.into_iter().filter(|(_, here)| *here).map(|(diagnostic, _)| diagnostic).collect();
        for diagnostic in self.noticed {
            if !all.contains(&diagnostic) {
                all.push(diagnostic);
            }
        }
        all
    }
}

fn first<'a>(mut refused: impl Iterator<Item = &'a (Diagnostic, bool)>) -> Result<(), String> {
    refused.next().map_or(Ok(()), |(first, _)| Err(first.message.clone()))
}
