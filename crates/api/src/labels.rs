// SPDX-License-Identifier: Apache-2.0
//! The label keys that objects carry or are selected by.

use std::borrow::Cow;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// On ConfigurationState: `controller` or `speaker`.
pub const COMPONENT_TYPE: &str = "metallb.io/component-type";
/// On a speaker's ConfigurationState: the node's name.
pub const NODE_NAME: &str = "metallb.io/node-name";
/// On ServiceL2Status and ServiceBGPStatus: the announcing node's name.
pub const NODE: &str = "metallb.io/node";
/// On ServiceL2Status and ServiceBGPStatus: the Service's name.
pub const SERVICE_NAME: &str = "metallb.io/service-name";
/// On ServiceL2Status and ServiceBGPStatus: the Service's namespace.
pub const SERVICE_NAMESPACE: &str = "metallb.io/service-namespace";
/// On a Node, by presence: it must not announce.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// On an EndpointSlice: the Service it belongs to.
pub const ENDPOINT_SLICE_SERVICE: &str = "kubernetes.io/service-name";

/// A name as the value of a label.
///
/// A value may have 63 characters, the name of a node 253: a longer one is cut and marked with a hash of the whole.
pub fn value(name: &str) -> Cow<'_, str> {
    bounded(name, 63)
}

/// A name with at most `limit` bytes (more than 9): a longer one is cut, and ends in a hash of the whole.
pub fn bounded(name: &str, limit: usize) -> Cow<'_, str> {
    if name.len() <= limit {
        return Cow::Borrowed(name);
    }
    let mut end = limit - HASH_DIGITS - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mut short = format!("{}-", &name[..end]);
    for byte in &Sha256::digest(name.as_bytes())[..HASH_DIGITS / 2] {
        // Writing to a String cannot fail.
        let _ = write!(short, "{byte:02x}");
    }
    Cow::Owned(short)
}

const HASH_DIGITS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_becomes_a_short_one_that_still_tells_apart() {
        assert_eq!(value("k8s-node-1"), "k8s-node-1");
        let (a, b) = (format!("{}a", "x".repeat(100)), format!("{}b", "x".repeat(100)));
        assert_eq!(value(&a).len(), 63);
        assert_ne!(value(&a), value(&b));
        assert!(value(&a).starts_with(&"x".repeat(54)));
        assert_eq!(value(&"y".repeat(63)), "y".repeat(63));
    }
}
