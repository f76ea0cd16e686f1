// SPDX-License-Identifier: Apache-2.0
//! A password that nothing prints.

use std::fmt;
use std::sync::Arc;

/// What two ends of a connection both know (RFC 2385). Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<[u8]>);

impl Password {
    /// A password of these bytes; `None` if there are none.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.into()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_printed() {
        let password = Password::new(b"secret").unwrap();
        assert_eq!(password.bytes(), b"secret");
        assert_eq!(format!("{password:?}"), "Password(…)");
        assert_eq!(Password::new(b""), None);
    }
}
