// SPDX-License-Identifier: Apache-2.0
//! What a watch delivers.

/// A change in the set of objects of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// The object exists, in this form.
    Applied(Box<T>),
    /// The object is gone.
    Deleted {
        /// Its namespace; empty for a cluster-scoped kind.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The complete set: the initial list, or a new one after the watch was broken. What is not in it is gone.
    Reset(Vec<T>),
}
