// SPDX-License-Identifier: Apache-2.0
//! Path attributes: what a route says of itself (RFC 4271, section 5).

use std::collections::BTreeSet;
use std::fmt;

use super::community::{Community, ExtendedCommunity, LargeCommunity};
use super::pack::AttributeBlock;
use super::path::AsPath;
use super::update::{Context, NextHop};

/// The types of attributes.
pub(crate) mod code {
    pub(crate) const ORIGIN: u8 = 1;
    pub(crate) const AS_PATH: u8 = 2;
    pub(crate) const NEXT_HOP: u8 = 3;
    pub(crate) const MULTI_EXIT_DISC: u8 = 4;
    pub(crate) const LOCAL_PREF: u8 = 5;
    pub(crate) const ATOMIC_AGGREGATE: u8 = 6;
    pub(crate) const AGGREGATOR: u8 = 7;
    pub(crate) const COMMUNITIES: u8 = 8;
    pub(crate) const ORIGINATOR_ID: u8 = 9;
    pub(crate) const CLUSTER_LIST: u8 = 10;
    pub(crate) const MP_REACH_NLRI: u8 = 14;
    pub(crate) const MP_UNREACH_NLRI: u8 = 15;
    pub(crate) const EXTENDED_COMMUNITIES: u8 = 16;
    pub(crate) const AS4_PATH: u8 = 17;
    pub(crate) const AS4_AGGREGATOR: u8 = 18;
    pub(crate) const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub(crate) const LARGE_COMMUNITIES: u8 = 32;
}

/// The flags of an attribute.
pub(crate) mod flag {
    pub(crate) const OPTIONAL: u8 = 0x80;
    pub(crate) const TRANSITIVE: u8 = 0x40;
    pub(crate) const PARTIAL: u8 = 0x20;
    pub(crate) const EXTENDED_LENGTH: u8 = 0x10;
    /// Well-known.
    pub(crate) const WELL_KNOWN: u8 = TRANSITIVE;
    /// Optional, and passed on by who does not know it.
    pub(crate) const PASSED_ON: u8 = OPTIONAL | TRANSITIVE;
}

/// The type of an attribute, printed with its name if it is known here: `4 (MULTI_EXIT_DISC)`.
pub(crate) struct Named(pub(crate) u8);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            code::ORIGIN => "ORIGIN",
            code::AS_PATH => "AS_PATH",
            code::NEXT_HOP => "NEXT_HOP",
            code::MULTI_EXIT_DISC => "MULTI_EXIT_DISC",
            code::LOCAL_PREF => "LOCAL_PREF",
            code::ATOMIC_AGGREGATE => "ATOMIC_AGGREGATE",
            code::AGGREGATOR => "AGGREGATOR",
            code::COMMUNITIES => "COMMUNITIES",
            code::ORIGINATOR_ID => "ORIGINATOR_ID",
            code::CLUSTER_LIST => "CLUSTER_LIST",
            code::MP_REACH_NLRI => "MP_REACH_NLRI",
            code::MP_UNREACH_NLRI => "MP_UNREACH_NLRI",
            code::EXTENDED_COMMUNITIES => "EXTENDED COMMUNITIES",
            code::AS4_PATH => "AS4_PATH",
            code::AS4_AGGREGATOR => "AS4_AGGREGATOR",
            code::IPV6_EXTENDED_COMMUNITIES => "IPv6 EXTENDED COMMUNITIES",
            code::LARGE_COMMUNITIES => "LARGE COMMUNITIES",
            unknown => return write!(f, "{unknown}"),
        };
        write!(f, "{} ({name})", self.0)
    }
}

/// The two flags that an attribute of this type has; `None` if it is not known here.
pub(crate) const fn flags_of(attribute: u8) -> Option<u8> {
    match attribute {
        code::ORIGIN | code::AS_PATH | code::NEXT_HOP | code::LOCAL_PREF | code::ATOMIC_AGGREGATE => {
            Some(flag::WELL_KNOWN)
        }
        code::MULTI_EXIT_DISC
        | code::ORIGINATOR_ID
        | code::CLUSTER_LIST
        | code::MP_REACH_NLRI
        | code::MP_UNREACH_NLRI => Some(flag::OPTIONAL),
        code::AGGREGATOR
        | code::COMMUNITIES
        | code::EXTENDED_COMMUNITIES
        | code::AS4_PATH
        | code::AS4_AGGREGATOR
        | code::IPV6_EXTENDED_COMMUNITIES
        | code::LARGE_COMMUNITIES => Some(flag::PASSED_ON),
        _ => None,
    }
}

/// Where a route comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// From within its autonomous system; what every Service's route is.
    #[default]
    Igp = 0,
    /// From EGP.
    Egp = 1,
    /// From elsewhere.
    Incomplete = 2,
}

/// What a route says of itself, its next hop excepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH.
    pub as_path: AsPath,
    /// MULTI_EXIT_DISC: among the ways into one neighbouring system, the lowest is preferred.
    pub multi_exit_disc: Option<u32>,
    /// LOCAL_PREF: within the own system the highest is preferred. Nobody takes it from another system.
    pub local_pref: Option<u32>,
    /// COMMUNITIES.
    pub communities: BTreeSet<Community>,
    /// EXTENDED COMMUNITIES.
    pub extended_communities: BTreeSet<ExtendedCommunity>,
    /// LARGE_COMMUNITIES.
    pub large_communities: BTreeSet<LargeCommunity>,
    /// Attributes that mean nothing here, by type.
    pub others: BTreeSet<OtherAttribute>,
}

/// An attribute without a meaning here. Ordered by its type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OtherAttribute {
    attribute: u8,
    flags: u8,
    value: Vec<u8>,
}

impl OtherAttribute {
    /// An attribute that whoever does not know it passes on. `None` for a type that is known here.
    #[must_use]
    pub fn new(attribute: u8, value: Vec<u8>) -> Option<Self> {
        flags_of(attribute).is_none().then_some(Self { attribute, flags: flag::PASSED_ON, value })
    }

    pub(crate) fn received(attribute: u8, flags: u8, value: &[u8]) -> Self {
        let flags = flags & (flag::OPTIONAL | flag::TRANSITIVE | flag::PARTIAL);
        Self { attribute, flags, value: value.to_vec() }
    }

    /// Its type.
    #[must_use]
    pub const fn attribute(&self) -> u8 {
        self.attribute
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

impl Attributes {
    /// The attributes in bytes, ascending by type, as all messages with routes of this next hop have them.
    ///
    /// The context decides the width of the path. An IPv6 next hop stands in front of all, with the prefixes.
    #[must_use]
    pub fn block(&self, next_hop: NextHop, context: &Context) -> AttributeBlock {
        let mut bytes = Vec::with_capacity(64);
        let well_known = |bytes: &mut Vec<u8>, attribute, value: &[u8]| {
            write(bytes, flag::WELL_KNOWN, attribute, value);
        };
        well_known(&mut bytes, code::ORIGIN, &[self.origin as u8]);
        well_known(&mut bytes, code::AS_PATH, &self.as_path.encode(context.four_octet_as));
        if let NextHop::V4(address) = next_hop {
            well_known(&mut bytes, code::NEXT_HOP, &address.octets());
        }
        if let Some(metric) = self.multi_exit_disc {
            write(&mut bytes, flag::OPTIONAL, code::MULTI_EXIT_DISC, &metric.to_be_bytes());
        }
        if let Some(preference) = self.local_pref {
            well_known(&mut bytes, code::LOCAL_PREF, &preference.to_be_bytes());
        }
        let mut others = self.others.iter().peekable();
        let passed_on = [
            (code::COMMUNITIES, octets(&self.communities, |community| community.0.to_be_bytes())),
            (code::EXTENDED_COMMUNITIES, octets(&self.extended_communities, |community| community.0)),
            (code::AS4_PATH, self.as4_path(context)),
            (code::LARGE_COMMUNITIES, octets(&self.large_communities, |community| community.octets())),
        ];
        for (attribute, value) in passed_on {
            while let Some(other) = others.next_if(|other| other.attribute < attribute) {
                write(&mut bytes, other.flags, other.attribute, &other.value);
            }
            if !value.is_empty() {
                write(&mut bytes, flag::PASSED_ON, attribute, &value);
            }
        }
        for other in others {
            write(&mut bytes, other.flags, other.attribute, &other.value);
        }
        AttributeBlock { next_hop, bytes }
    }

    /// What tells a peer of two octets the path all the same (RFC 6793, section 4.2.2); nothing where it is not needed.
    fn as4_path(&self, context: &Context) -> Vec<u8> {
        if context.four_octet_as || !self.as_path.needs_four_octets() {
            return Vec::new();
        }
        self.as_path.encode(true)
    }
}

fn octets<T: Copy, const N: usize>(all: &BTreeSet<T>, of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    all.iter().flat_map(|one| of(*one)).collect()
}

/// Writes an attribute. A value of more than 255 bytes has a length of two octets (RFC 4271, section 4.3); what is
/// beyond 65,535 would not fit into a message either way.
pub(crate) fn write(out: &mut Vec<u8>, flags: u8, attribute: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(length) => out.extend([flags, attribute, length]),
        Err(_) => {
            out.extend([flags | flag::EXTENDED_LENGTH, attribute]);
            out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ferrolb_net_types::Asn;

    use super::*;

    const HERE: NextHop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 11));

    fn all() -> Attributes {
        Attributes {
            origin: Origin::Incomplete,
            as_path: AsPath::own(Asn::new(65_536).unwrap(), false),
            multi_exit_disc: Some(1),
            local_pref: Some(150),
            communities: [Community::new(64_512, 2), Community::new(64_512, 1)].into(),
            extended_communities: [ExtendedCommunity([7; 8])].into(),
            large_communities: [LargeCommunity { global: 1, local1: 2, local2: 3 }].into(),
            others: [20, 200].into_iter().filter_map(|code| OtherAttribute::new(code, vec![9])).collect(),
        }
    }

    fn types(mut bytes: &[u8]) -> Vec<u8> {
        let mut types = Vec::new();
        while let [_, attribute, length, rest @ ..] = bytes {
            types.push(*attribute);
            bytes = &rest[usize::from(*length)..];
        }
        types
    }

    #[test]
    fn attributes_ascend_by_their_types() {
        let narrow = Context { four_octet_as: false, ..Context::default() };
        assert_eq!(types(&all().block(HERE, &narrow).bytes), [1, 2, 3, 4, 5, 8, 16, 17, 20, 32, 200]);
        // Four octets need no second path; IPv6 has its next hop elsewhere.
        let v6 = NextHop::V6 { global: Ipv6Addr::LOCALHOST, link_local: None };
        assert_eq!(types(&all().block(v6, &Context::default()).bytes), [1, 2, 4, 5, 8, 16, 20, 32, 200]);
        assert_eq!(types(&Attributes::default().block(HERE, &narrow).bytes), [1, 2, 3]);
    }

    #[test]
    fn communities_ascend_and_are_no_more_than_said() {
        let bytes = Attributes { communities: all().communities, ..Attributes::default() }
            .block(HERE, &Context::default())
            .bytes;
        assert!(bytes.ends_with(&[0xc0, 8, 8, 0xfc, 0, 0, 1, 0xfc, 0, 0, 2]));
    }

    #[test]
    fn bg_35_64_communities_take_a_length_of_two_octets() {
        let communities = |count| (0..count).map(|n| Community::new(64_512, n)).collect();
        let head = |count| {
            let attributes = Attributes { communities: communities(count), ..Attributes::default() };
            attributes.block(HERE, &Context::default()).bytes[14..18].to_vec()
        };
        assert_eq!(head(63), [0xc0, 8, 252, 0xfc]);
        assert_eq!(head(64), [0xd0, 8, 1, 0]);
    }

    #[test]
    fn a_type_that_is_known_is_no_other_attribute() {
        let known = |code: &u8| OtherAttribute::new(*code, vec![]).is_none();
        let all: Vec<u8> = (0..=255).filter(known).collect();
        assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 25, 32]);
    }
}
