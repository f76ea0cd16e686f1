// SPDX-License-Identifier: Apache-2.0
//! Quotation as MetalLB's messages have it: users and tests search for these very texts.

use std::fmt::{self, Display, Write};
use std::net::IpAddr;

/// A text in double quotes, with `"`, `\` and control characters escaped.
pub(crate) struct Quoted<T>(pub(crate) T);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.to_string().chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// `["a" "b"]`.
pub(crate) struct QuotedList<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for QuotedList<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bracketed(f, self.0.iter().map(Quoted))
    }
}

/// `[a b]`.
pub(crate) struct List<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bracketed(f, self.0.iter())
    }
}

/// A list of addresses of which some could not be parsed: those print as `"<nil>"`.
pub(crate) struct Addresses<'a>(pub(crate) &'a [Option<IpAddr>]);

impl Display for Addresses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bracketed(f, self.0.iter().map(|ip| Quoted(ip.map_or("<nil>".to_owned(), |ip| ip.to_string()))))
    }
}

fn bracketed<T: Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    f.write_char('[')?;
    for (n, item) in items.enumerate() {
        if n > 0 {
            f.write_char(' ')?;
        }
        write!(f, "{item}")?;
    }
    f.write_char(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes() {
        assert_eq!(Quoted("a\"b\\c\nd\u{1}").to_string(), r#""a\"b\\c\nd\x01""#);
        assert_eq!(QuotedList(&["a", "b"]).to_string(), r#"["a" "b"]"#);
        assert_eq!(List::<&str>(&[]).to_string(), "[]");
        assert_eq!(Addresses(&[Some([10, 0, 0, 1].into()), None]).to_string(), r#"["10.0.0.1" "<nil>"]"#);
    }
}
