// SPDX-License-Identifier: Apache-2.0
//! Durations in Go's notation, as the custom resources carry them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A duration in nanoseconds, written like `90s`, `1m30s`, `1.5s`, `100ms`; may be negative.
///
/// Printed in canonical form: hours, minutes and seconds with the fraction that is needed (`1m30s`, `1h0m0s`,
/// `1.5s`), below a second in the largest unit that leaves a whole part (`100ms`, `1.5µs`), zero as `0s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanos: i64,
}

impl Duration {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0 };

    /// A duration of this many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// A duration of this many seconds; saturates at about 292 years.
    pub const fn from_secs(secs: i64) -> Self {
        Self { nanos: secs.saturating_mul(NANOS_PER_SECOND) }
    }

    /// The whole of it in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }

    /// Whole seconds; a fraction is cut off towards zero.
    pub const fn as_secs(self) -> i64 {
        self.nanos / NANOS_PER_SECOND
    }

    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }
}

/// The text is not a duration in Go's notation, or does not fit 64 bits of nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseDurationError {
    text: String,
}

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid duration {:?}: expected a form such as 90s, 1m30s or 100ms", self.text)
    }
}

impl std::error::Error for ParseDurationError {}

impl FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self::from_nanos).ok_or_else(|| ParseDurationError { text: text.to_owned() })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        let (unit, scale) = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            1_000_000..1_000_000_000 => ("ms", 1_000_000),
            _ => {
                let seconds = nanos / 1_000_000_000;
                if seconds >= 3600 {
                    write!(f, "{}h", seconds / 3600)?;
                }
                if seconds >= 60 {
                    write!(f, "{}m", seconds / 60 % 60)?;
                }
                return write_decimal(f, nanos % 60_000_000_000, 1_000_000_000, "s");
            }
        };
        write_decimal(f, nanos, scale, unit)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = leading(rest, |c| c.is_ascii_digit() || c == '.');
        rest = &rest[number.len()..];
        let unit = leading(rest, |c| !c.is_ascii_digit() && c != '.');
        rest = &rest[unit.len()..];
        let scale: i128 = match unit {
            "ns" => 1,
            // Micro sign, Greek mu, or the letter u.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        // Nineteen digits hold every whole part that fits; more can only be leading zeros or too much.
        let whole = whole.trim_start_matches('0');
        if whole.len() > 19 {
            return None;
        }
        total += if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()? } * scale;
        // Digits beyond the eighteenth are worth less than a nanosecond of any unit.
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let power = u32::try_from(fraction.len()).ok()?;
            total += fraction.parse::<i128>().ok()? * scale / 10_i128.pow(power);
        }
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return None;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn leading(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    &text[..text.find(|c| !belongs(c)).unwrap_or(text.len())]
}

fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, scale: u64, unit: &str) -> fmt::Result {
    write!(f, "{}", value / scale)?;
    let fraction = value % scale;
    if fraction != 0 {
        let width = scale.ilog10() as usize;
        let digits = format!("{fraction:0width$}");
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    f.write_str(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_go_is_read_and_printed_canonically() {
        for (text, canonical) in [
            ("90s", "1m30s"),
            ("1m30s", "1m30s"),
            ("1.5s", "1.5s"),
            ("100ms", "100ms"),
            ("1h", "1h0m0s"),
            ("0", "0s"),
            ("0s", "0s"),
            ("+5s", "5s"),
            ("-1.5h", "-1h30m0s"),
            ("1us", "1µs"),
            ("1µs", "1µs"),
            ("1μs", "1µs"),
            ("1500ns", "1.5µs"),
            ("3h25m45.000000001s", "3h25m45.000000001s"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("1h1h", "2h0m0s"),
            ("9223372036854775807ns", "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
            ("0.3333333333333333333333h", "20m0s"),
        ] {
            let duration: Duration = text.parse().unwrap_or_else(|e| panic!("{e}"));
            if text.starts_with("0.333") {
                assert!((duration.as_nanos() - 1_200_000_000_000).abs() <= 1, "{duration}");
            } else {
                assert_eq!(duration.to_string(), canonical, "{text}");
            }
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "-",
            "3",
            "s",
            ".s",
            "1",
            "1d",
            "1 s",
            " 1s",
            "1s ",
            "1.2.3s",
            "1x",
            "--1s",
            "9223372036854775808ns",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<Duration>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn printing_and_reading_agree() {
        for nanos in [
            0,
            1,
            999,
            1_000,
            1_001,
            999_999_999,
            1_000_000_000,
            59_999_999_999,
            3_600_000_000_001,
            i64::MAX,
            i64::MIN,
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
