// SPDX-License-Identifier: Apache-2.0
//! BGP communities as users write them, and the names that Community objects give them.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use ferrolb_api::Community;
use kube::ResourceExt;

use crate::diagnostic::Findings;

/// A BGP community: `number:number` (RFC 1997), or large: three numbers (RFC 8092).
///
/// Ordered as triples, a standard one counting as its 32-bit value, 0, 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BgpCommunity {
    /// RFC 1997, the 16-bit halves in order.
    Standard(u16, u16),
    /// RFC 8092: global administrator and two local parts.
    Large(u32, u32, u32),
}

/// Why a text is not a community.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseCommunityError {
    /// Neither two nor four parts. It may still be a name that nobody has defined yet.
    #[error("invalid community format: {0}")]
    Format(String),
    /// The right number of parts, with something wrong in them.
    #[error("invalid community value: {0}")]
    Value(String),
}

impl BgpCommunity {
    const fn triple(self) -> (u32, u32, u32) {
        match self {
            Self::Standard(high, low) => ((high as u32) << 16 | low as u32, 0, 0),
            Self::Large(global, first, second) => (global, first, second),
        }
    }
}

impl Ord for BgpCommunity {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_large = |c: &Self| matches!(c, Self::Large(..));
        self.triple().cmp(&other.triple()).then(is_large(self).cmp(&is_large(other)))
    }
}

impl PartialOrd for BgpCommunity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Prints the numbers with colons between; the marker of a large one is left out.
impl fmt::Display for BgpCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(high, low) => write!(f, "{high}:{low}"),
            Self::Large(global, first, second) => write!(f, "{global}:{first}:{second}"),
        }
    }
}

impl FromStr for BgpCommunity {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            [high, low] => Ok(Self::Standard(number(text, high)?, number(text, low)?)),
            ["large", global, first, second] => {
                Ok(Self::Large(number(text, global)?, number(text, first)?, number(text, second)?))
            }
            [_, _, _, _] => Err(ParseCommunityError::Value(format!(
                "invalid marker for large community, expected community to be of format \
                 large:<uint32>:<uint32>:<uint32> but got {text:?} instead"
            ))),
            _ => Err(ParseCommunityError::Format(text.to_owned())),
        }
    }
}

/// Judges all Community objects, in order of their names.
pub(crate) fn judge(communities: &[&Community], findings: &mut Findings) {
    let mut names = BTreeSet::new();
    for object in communities {
        for alias in &object.spec.communities {
            if let Err(error) = alias.value.parse::<BgpCommunity>() {
                let message = format!("parsing community {:?}: {error}", alias.name);
                findings.refuse(KIND, &object.name_any(), message);
            } else if !names.insert(alias.name.as_str()) {
                let message = format!("duplicate definition of community {:?}", alias.name);
                findings.refuse(KIND, &object.name_any(), message);
            }
        }
    }
}

/// Judges what MetalLB's native BGP cannot do: large communities.
pub(crate) fn judge_native(communities: &[&Community], findings: &mut Findings) {
    for object in communities {
        for alias in &object.spec.communities {
            if let Ok(BgpCommunity::Large(..)) = alias.value.parse() {
                let message = format!(
                    "native BGP mode only supports legacy communities, BGP community CR {:?} has non legacy \
                     community {{{:?} {:?}}}",
                    object.name_any(),
                    alias.name,
                    alias.value
                );
                findings.tolerate(KIND, &object.name_any(), message);
            }
        }
    }
}

/// A decimal number without sign; what is wrong with it is said as Go says it.
fn number<T: FromStr>(community: &str, part: &str) -> Result<T, ParseCommunityError> {
    let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let fault = match part.parse() {
        Ok(value) if digits => return Ok(value),
        _ if digits => "value out of range",
        _ => "invalid syntax",
    };
    let go = format!("strconv.ParseUint: parsing {part:?}: {fault}");
    Err(ParseCommunityError::Value(format!(
        "invalid section {part:?} of community {community:?}, err: {go:?}"
    )))
}

const KIND: &str = "Community";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_printed() {
        let standard: BgpCommunity = "12345:12345".parse().unwrap();
        assert_eq!(standard, BgpCommunity::Standard(12345, 12345));
        assert_eq!(standard.to_string(), "12345:12345");
        let large: BgpCommunity = "large:1:2:4294967295".parse().unwrap();
        assert_eq!(large, BgpCommunity::Large(1, 2, u32::MAX));
        assert_eq!(large.to_string(), "1:2:4294967295");
    }

    #[test]
    fn other_texts_are_refused_in_metallbs_words() {
        for (text, message) in [
            ("12345", "invalid community format: 12345"),
            ("", "invalid community format: "),
            ("1:2:3", "invalid community format: 1:2:3"),
            ("large:1:2:3:4", "invalid community format: large:1:2:3:4"),
            (
                "1:99999999",
                r#"invalid community value: invalid section "99999999" of community "1:99999999", err: "strconv.ParseUint: parsing \"99999999\": value out of range""#,
            ),
            (
                "11111:11aaaa",
                r#"invalid community value: invalid section "11aaaa" of community "11111:11aaaa", err: "strconv.ParseUint: parsing \"11aaaa\": invalid syntax""#,
            ),
            (
                "+1:1",
                r#"invalid community value: invalid section "+1" of community "+1:1", err: "strconv.ParseUint: parsing \"+1\": invalid syntax""#,
            ),
            (
                "large:1::3",
                r#"invalid community value: invalid section "" of community "large:1::3", err: "strconv.ParseUint: parsing \"\": invalid syntax""#,
            ),
            (
                "lar:123:9999:123",
                r#"invalid community value: invalid marker for large community, expected community to be of format large:<uint32>:<uint32>:<uint32> but got "lar:123:9999:123" instead"#,
            ),
        ] {
            assert_eq!(text.parse::<BgpCommunity>().unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_standard_community_is_ordered_by_its_value() {
        let of = |text: &str| text.parse::<BgpCommunity>().unwrap();
        assert!(of("0:1234") > of("large:123:456:789"));
        assert!(of("0:1234") < of("large:1235:0:0"));
        assert!(of("0:1") < of("large:1:0:0"), "a total order, though the triples are equal");
        assert!(of("1:0") > of("0:65535"));
    }
}
