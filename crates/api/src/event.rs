// SPDX-License-Identifier: Apache-2.0
//! Events: what the daemons tell the users of an object.

/// An Event to be sent. The daemon adds its component's name, counts and times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The object it is about.
    pub regarding: ObjectRef,
    /// Severity.
    pub kind: EventKind,
    /// A word in CamelCase, the same for all events of one cause.
    pub reason: &'static str,
    /// A sentence for the user.
    pub message: String,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// Nothing is wrong.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventKind {
    /// The `type` of the Event object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A reference to an object, as an Event carries it. Unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The version the event speaks of.
    pub resource_version: String,
}
