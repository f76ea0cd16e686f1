// SPDX-License-Identifier: Apache-2.0
//! Reading UPDATEs, and bearing with what is wrong in them (RFC 7606).
//!
//! | what is wrong | what becomes of it |
//! |---|---|
//! | lengths that hide where prefixes are; prefixes; MP_REACH_NLRI, MP_UNREACH_NLRI; an unknown well-known attribute | the session ends |
//! | an attribute that routes are chosen by; a mandatory one is missing; flags; the list of attributes | its routes count as withdrawn |
//! | anything else | the attribute is ignored |

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ferrolb_net_types::{IpFamily, Prefix};
use thiserror::Error;

use super::attribute::{Attributes, Named, Origin, OtherAttribute, code, flag, flags_of};
use super::community::{Community, ExtendedCommunity, LargeCommunity};
use super::cursor::Cursor;
use super::family::family;
use super::nlri;
use super::notification::{Code, Notification};
use super::path::AsPath;
use super::update::{Announce, Context, NextHop, Prefixes, Update};

/// What an UPDATE said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its parts, withdrawals first, so that what is both withdrawn and announced is there.
    pub updates: Vec<Update>,
    /// What was wrong and is borne with.
    pub faults: Vec<Fault>,
}

/// Something wrong with an attribute, or with what stands beside them. Prints what, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The attribute's type; 0 for what is none.
    pub attribute: u8,
    /// What is wrong.
    pub kind: FaultKind,
    /// What became of it.
    pub treatment: Treatment,
}

/// What is wrong with an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Its flags are those of another kind of attribute.
    Flags(u8),
    /// Its value cannot be what it should.
    Malformed,
    /// It is there twice.
    Repeated,
    /// It has to be there, and is not.
    Missing,
    /// It is not for a peer of this kind.
    Unexpected,
    /// It is longer than the list that it is in, or cut short.
    Overrun,
    /// It is about routes of a family that was not agreed on.
    Family {
        /// The address family's number.
        afi: u16,
        /// The subsequent address family's number.
        safi: u8,
    },
}

/// What becomes of something wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The routes of the UPDATE count as withdrawn.
    Withdraw,
    /// The attribute counts as absent.
    Discard,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            // No attribute has type 0.
            FaultKind::Family { .. } if self.attribute == 0 => {
                f.write_str("what stands beside the attributes ")
            }
            _ => write!(f, "attribute {} ", Named(self.attribute)),
        }?;
        match self.kind {
            FaultKind::Flags(flags) => write!(f, "has flags {flags:#04x}"),
            FaultKind::Malformed => f.write_str("is malformed"),
            FaultKind::Repeated => f.write_str("is there twice"),
            FaultKind::Missing => f.write_str("is missing"),
            FaultKind::Unexpected => f.write_str("is not for this kind of peer"),
            FaultKind::Overrun => f.write_str("does not fit into its list"),
            FaultKind::Family { afi, safi } => write!(f, "is about family {afi}/{safi}, not agreed on"),
        }?;
        f.write_str(match self.treatment {
            Treatment::Withdraw => ": its routes count as withdrawn",
            Treatment::Discard => ": ignored",
        })
    }
}

/// Why an UPDATE ends the session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpdateError {
    /// The lengths of its parts contradict that of the message.
    #[error("the parts of an UPDATE do not fit into it")]
    Lengths,
    /// Withdrawn or announced prefixes are malformed.
    #[error("a prefix in an UPDATE is malformed")]
    Prefixes,
    /// An attribute with prefixes (MP_REACH_NLRI, MP_UNREACH_NLRI) is malformed.
    #[error("attribute {} is malformed, and with it the prefixes that it holds", Named(*.0))]
    Multiprotocol(u8),
    /// An attribute with prefixes is there twice.
    #[error("attribute {}, which holds prefixes, is there twice", Named(*.0))]
    Repeated(u8),
    /// An attribute claims to be known to everybody, and is not; its bytes.
    #[error("an unknown attribute that should be known to all")]
    Unrecognized(Vec<u8>),
}

impl UpdateError {
    /// The NOTIFICATION for it (RFC 4271, section 6.3).
    #[must_use]
    pub fn notification(&self) -> Notification {
        match self {
            Self::Lengths | Self::Repeated(_) => Code::MALFORMED_ATTRIBUTE_LIST.into(),
            Self::Prefixes => Code::INVALID_NETWORK.into(),
            Self::Multiprotocol(_) => Code::OPTIONAL_ATTRIBUTE.into(),
            Self::Unrecognized(bytes) => Notification::new(Code::UNRECOGNIZED_WELL_KNOWN, bytes),
        }
    }
}

/// Reads the body of an UPDATE.
pub(crate) fn read_update(body: &[u8], context: &Context) -> Result<Received, UpdateError> {
    let mut cursor = Cursor::new(body);
    let withdrawn = cursor.counted_u16().ok_or(UpdateError::Lengths)?;
    let attributes = cursor.counted_u16().ok_or(UpdateError::Lengths)?;
    let prefixes = |bytes| nlri::decode(IpFamily::V4, bytes).ok_or(UpdateError::Prefixes);
    let (mut withdrawn, mut announced) = (prefixes(withdrawn)?, prefixes(cursor.rest())?);
    if withdrawn.is_empty() && attributes.is_empty() && announced.is_empty() {
        return Ok(Received { updates: vec![Update::EndOfRib(IpFamily::V4)], faults: Vec::new() });
    }
    let mut list = List::new(context);
    list.read(attributes)?;
    let says_v4 = !withdrawn.is_empty() || !announced.is_empty();
    if says_v4 && !context.families.contains(IpFamily::V4) {
        (withdrawn, announced) = (Vec::new(), Vec::new());
        list.fault(0, FaultKind::Family { afi: 1, safi: 1 }, Treatment::Discard);
    }
    Ok(list.conclude(withdrawn, announced))
}

/// The attributes of one UPDATE.
struct List<'a> {
    context: &'a Context,
    /// Which types have been there, by bits.
    seen: [u128; 2],
    attributes: Attributes,
    as4_path: Option<AsPath>,
    next_hop: Option<Ipv4Addr>,
    reach: Option<(NextHop, Vec<Prefix>)>,
    unreach: Option<(IpFamily, Vec<Prefix>)>,
    faults: Vec<Fault>,
}

/// So many faults of one UPDATE are remembered; they come from a stranger.
const MAX_FAULTS: usize = 16;

impl<'a> List<'a> {
    fn new(context: &'a Context) -> Self {
        Self {
            context,
            seen: [0; 2],
            attributes: Attributes::default(),
            as4_path: None,
            next_hop: None,
            reach: None,
            unreach: None,
            faults: Vec::new(),
        }
    }

    fn fault(&mut self, attribute: u8, kind: FaultKind, treatment: Treatment) {
        // One that withdraws is never lost among those that do not.
        if self.faults.len() < MAX_FAULTS || treatment == Treatment::Withdraw && !self.is_withdrawn() {
            self.faults.push(Fault { attribute, kind, treatment });
        }
    }

    fn is_withdrawn(&self) -> bool {
        self.faults.iter().any(|fault| fault.treatment == Treatment::Withdraw)
    }

    fn has(&self, attribute: u8) -> bool {
        self.seen[usize::from(attribute >> 7)] & 1 << (attribute & 127) != 0
    }

    fn read(&mut self, attributes: &[u8]) -> Result<(), UpdateError> {
        let mut cursor = Cursor::new(attributes);
        while !cursor.is_empty() {
            let before = cursor.rest();
            let header: Option<[u8; 2]> = cursor.array();
            let value = match header {
                Some([flags, _]) if flags & flag::EXTENDED_LENGTH != 0 => cursor.counted_u16(),
                Some(_) => cursor.counted_u8(),
                None => None,
            };
            let (Some([flags, attribute]), Some(value)) = (header, value) else {
                // RFC 7606, section 4: the prefixes behind the list are found all the same.
                let attribute = before.get(1).copied().unwrap_or_default();
                self.fault(attribute, FaultKind::Overrun, Treatment::Withdraw);
                return Ok(());
            };
            if self.has(attribute) {
                if matches!(attribute, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI) {
                    return Err(UpdateError::Repeated(attribute));
                }
                self.fault(attribute, FaultKind::Repeated, Treatment::Discard);
                continue;
            }
            self.seen[usize::from(attribute >> 7)] |= 1 << (attribute & 127);
            let kind = flags & (flag::OPTIONAL | flag::TRANSITIVE);
            match flags_of(attribute) {
                Some(right) => {
                    if kind != right {
                        self.fault(attribute, FaultKind::Flags(flags), Treatment::Withdraw);
                    }
                    self.known(attribute, flags, value)?;
                }
                None if kind & flag::OPTIONAL == 0 => {
                    let length = before.len() - cursor.rest().len();
                    return Err(UpdateError::Unrecognized(before[..length].to_vec()));
                }
                None if kind == flag::PASSED_ON => self.keep(attribute, flags, value),
                None => {}
            }
        }
        Ok(())
    }

    fn known(&mut self, attribute: u8, flags: u8, value: &[u8]) -> Result<(), UpdateError> {
        use Treatment::{Discard, Withdraw};
        if matches!(attribute, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI) {
            return self.multiprotocol(attribute, value).ok_or(UpdateError::Multiprotocol(attribute));
        }
        // RFC 7606, section 7: what only an internal peer may say is nothing from another.
        let internal_only = matches!(attribute, code::LOCAL_PREF | code::ORIGINATOR_ID | code::CLUSTER_LIST);
        // RFC 6793, section 6: nor is what only a peer of two octets has to say.
        let narrow_only = matches!(attribute, code::AS4_PATH | code::AS4_AGGREGATOR);
        if internal_only && !self.context.internal || narrow_only && self.context.four_octet_as {
            self.fault(attribute, FaultKind::Unexpected, Discard);
            return Ok(());
        }
        if !self.value(attribute, flags, value) {
            let harmless = matches!(
                attribute,
                code::ATOMIC_AGGREGATE | code::AGGREGATOR | code::AS4_PATH | code::AS4_AGGREGATOR
            );
            self.fault(attribute, FaultKind::Malformed, if harmless { Discard } else { Withdraw });
        }
        Ok(())
    }

    /// Takes the value of an attribute; `false` if it is malformed (RFC 7606, section 7).
    fn value(&mut self, attribute: u8, flags: u8, value: &[u8]) -> bool {
        let number = || value.try_into().ok().map(u32::from_be_bytes);
        let aggregator = if self.context.four_octet_as { 8 } else { 6 };
        let well_formed = match attribute {
            code::ORIGIN => match value {
                [0] => Some(Origin::Igp),
                [1] => Some(Origin::Egp),
                [2] => Some(Origin::Incomplete),
                _ => None,
            }
            .map(|origin| self.attributes.origin = origin),
            code::AS_PATH => {
                AsPath::decode(value, self.context.four_octet_as).map(|path| self.attributes.as_path = path)
            }
            code::AS4_PATH => AsPath::decode(value, true).map(|path| self.as4_path = Some(path)),
            code::NEXT_HOP => number().map(|bits| self.next_hop = Some(Ipv4Addr::from_bits(bits))),
            code::MULTI_EXIT_DISC => number().map(|metric| self.attributes.multi_exit_disc = Some(metric)),
            code::LOCAL_PREF => number().map(|preference| self.attributes.local_pref = Some(preference)),
            code::COMMUNITIES => each(value, |octets| Community(u32::from_be_bytes(octets)))
                .map(|all| self.attributes.communities = all.collect()),
            code::EXTENDED_COMMUNITIES => {
                each(value, ExtendedCommunity).map(|all| self.attributes.extended_communities = all.collect())
            }
            code::LARGE_COMMUNITIES => {
                each(value, large).map(|all| self.attributes.large_communities = all.collect())
            }
            code::ATOMIC_AGGREGATE => value.is_empty().then(|| self.keep(attribute, flags, value)),
            code::AGGREGATOR => (value.len() == aggregator).then(|| self.keep(attribute, flags, value)),
            code::AS4_AGGREGATOR => (value.len() == 8).then(|| self.keep(attribute, flags, value)),
            code::ORIGINATOR_ID => (value.len() == 4).then(|| self.keep(attribute, flags, value)),
            code::CLUSTER_LIST => {
                each::<4, _>(value, |_| ()).map(|_| ()).map(|()| self.keep(attribute, flags, value))
            }
            code::IPV6_EXTENDED_COMMUNITIES => {
                each::<20, _>(value, |_| ()).map(|_| ()).map(|()| self.keep(attribute, flags, value))
            }
            _ => Some(()),
        };
        well_formed.is_some()
    }

    fn keep(&mut self, attribute: u8, flags: u8, value: &[u8]) {
        self.attributes.others.insert(OtherAttribute::received(attribute, flags, value));
    }

    /// MP_REACH_NLRI and MP_UNREACH_NLRI (RFC 4760); `None` if malformed, so that its prefixes cannot be found.
    fn multiprotocol(&mut self, attribute: u8, value: &[u8]) -> Option<()> {
        let mut cursor = Cursor::new(value);
        let (afi, safi) = (cursor.u16()?, cursor.u8()?);
        let next_hop = if attribute == code::MP_REACH_NLRI { Some(cursor.counted_u8()?) } else { None };
        if next_hop.is_some() {
            // Once a count of SNPAs, now reserved and ignored.
            cursor.u8()?;
        }
        let agreed = family(afi, safi).filter(|family| self.context.families.contains(*family));
        let Some(family) = agreed else {
            // What a family that was not agreed on looks like is unknown: it is skipped by its length alone.
            self.fault(attribute, FaultKind::Family { afi, safi }, Treatment::Discard);
            return Some(());
        };
        let prefixes = nlri::decode(family, cursor.rest())?;
        match next_hop {
            Some(bytes) => self.reach = Some((next_hop_of(family, bytes)?, prefixes)),
            None => self.unreach = Some((family, prefixes)),
        }
        Some(())
    }

    /// Puts together what was said.
    fn conclude(mut self, withdrawn: Vec<Prefix>, announced: Vec<Prefix>) -> Received {
        if let Some((family, prefixes)) = &self.unreach {
            let alone = withdrawn.is_empty() && announced.is_empty() && self.reach.is_none();
            let only = self.seen == [1 << code::MP_UNREACH_NLRI, 0] && self.faults.is_empty();
            if alone && only && prefixes.is_empty() {
                return Received { updates: vec![Update::EndOfRib(*family)], faults: self.faults };
            }
        }
        let reaches = self.reach.as_ref().is_some_and(|(_, prefixes)| !prefixes.is_empty());
        if !announced.is_empty() || reaches {
            for attribute in [code::ORIGIN, code::AS_PATH] {
                self.mandatory(attribute);
            }
        }
        if !announced.is_empty() {
            self.mandatory(code::NEXT_HOP);
        }
        if let Some(four) = self.as4_path.take() {
            self.attributes.as_path = std::mem::take(&mut self.attributes.as_path).reconstruct(four);
        }
        let classic = self.next_hop.map(NextHop::V4).map(|next_hop| (next_hop, announced.clone()));
        let withdrawing = self.is_withdrawn();
        let (mut gone, mut here) = (vec![withdrawn], Vec::new());
        gone.extend(self.unreach.take().map(|(_, prefixes)| prefixes));
        if withdrawing {
            gone.push(announced);
            gone.extend(self.reach.take().map(|(_, prefixes)| prefixes));
        } else {
            here.extend(classic);
            here.extend(self.reach.take());
        }
        let gone = gone.into_iter().filter_map(Prefixes::new).map(Update::Withdraw);
        let here = here.into_iter().filter_map(|(next_hop, prefixes)| {
            let announce = Announce::new(Prefixes::new(prefixes)?, next_hop, self.attributes.clone());
            announce.map(|announce| Update::Announce(Box::new(announce)))
        });
        Received { updates: gone.chain(here).collect(), faults: self.faults }
    }

    fn mandatory(&mut self, attribute: u8) {
        if !self.has(attribute) {
            self.fault(attribute, FaultKind::Missing, Treatment::Withdraw);
        }
    }
}

/// RFC 4760 and RFC 2545, section 3: 4 bytes, or 16 with or without 16 more for the link.
fn next_hop_of(family: IpFamily, bytes: &[u8]) -> Option<NextHop> {
    let mut cursor = Cursor::new(bytes);
    let next_hop = match family {
        IpFamily::V4 => NextHop::V4(Ipv4Addr::from_octets(cursor.array()?)),
        IpFamily::V6 => {
            let global = Ipv6Addr::from_octets(cursor.array()?);
            let link_local = if cursor.is_empty() { None } else { Some(cursor.array()?) };
            NextHop::V6 { global, link_local: link_local.map(Ipv6Addr::from_octets) }
        }
    };
    cursor.is_empty().then_some(next_hop)
}

/// The values of a list of equal parts: at least one, and nothing behind; else `None`.
fn each<const N: usize, T>(value: &[u8], of: impl Fn([u8; N]) -> T) -> Option<impl Iterator<Item = T>> {
    let (parts, rest) = value.as_chunks();
    (!parts.is_empty() && rest.is_empty()).then(|| parts.iter().map(move |part| of(*part)))
}

fn large(octets: [u8; 12]) -> LargeCommunity {
    let [global, local1, local2] =
        std::array::from_fn(|part| u32::from_be_bytes(std::array::from_fn(|octet| octets[part * 4 + octet])));
    LargeCommunity { global, local1, local2 }
}
