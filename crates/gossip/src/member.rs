// SPDX-License-Identifier: Apache-2.0
//! What is known of a member, and the list of them all.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ferrolb_net_types::Time;

use crate::name::Name;
use crate::random::Random;
use crate::wire::{NodeState, State};

/// The highest protocol version of a member from which on it answers probes on streams.
pub(crate) const ANSWERS_STREAMS: u8 = 3;
/// … from which on it says so when it has no answer for whom it helps.
pub(crate) const SENDS_NACKS: u8 = 4;
/// … from which on it reads checksums.
pub(crate) const READS_CHECKSUMS: u8 = 5;

/// What is known of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Name,
    /// Its address as it told it: 4 bytes, or 16. Addresses are equal if their bytes are.
    pub address: Vec<u8>,
    /// Its port.
    pub port: u16,
    /// Its metadata; a MetalLB speaker has none.
    pub meta: Option<Vec<u8>>,
    /// Protocol least, most, current; then the application's.
    pub versions: [u8; 6],
    /// The incarnation that its state is of.
    pub incarnation: u32,
    /// How it is.
    pub state: State,
    /// Since when.
    pub changed: Time,
}

impl Member {
    /// Whether it counts as a member: also while it is suspected.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        matches!(self.state, State::Alive | State::Suspect)
    }

    /// Where it is reached.
    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        socket(&self.address, self.port)
    }

    pub(crate) fn reads_checksums(&self) -> bool {
        self.versions[1] >= READS_CHECKSUMS
    }

    pub(crate) fn told(&self) -> NodeState {
        NodeState {
            name: self.name.clone(),
            address: self.address.clone(),
            port: self.port,
            meta: self.meta.clone(),
            incarnation: self.incarnation,
            state: self.state,
            versions: Some(self.versions.to_vec()),
        }
    }
}

/// The bytes that stand for an address: 4 for IPv4.
pub(crate) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Where bytes and a port lead, if anywhere. The IPv6 form of an IPv4 address leads to the latter.
pub(crate) fn socket(address: &[u8], port: u16) -> Option<SocketAddr> {
    let address = match address.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(address).ok()?).to_canonical(),
        _ => return None,
    };
    (port != 0).then(|| SocketAddr::new(address, port))
}

/// All members that are remembered, in the order in which they are probed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    list: Vec<Member>,
    places: BTreeMap<Name, usize>,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&Member> {
        self.list.get(*self.places.get(name)?)
    }

    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut Member> {
        self.list.get_mut(*self.places.get(name)?)
    }

    pub(crate) fn at(&self, place: usize) -> Option<&Member> {
        self.list.get(place)
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.list.iter()
    }

    /// Adds one whose name is new, at a random place.
    pub(crate) fn insert(&mut self, member: Member, random: &mut Random) {
        let last = self.list.len();
        let place = random.index(last + 1);
        self.list.push(member);
        self.list.swap(place, last);
        for place in [place, last] {
            self.places.insert(self.list[place].name.clone(), place);
        }
    }

    /// Forgets those of which `keep` says so, and shuffles the rest.
    pub(crate) fn renew(&mut self, random: &mut Random, keep: impl Fn(&Member) -> bool) {
        self.list.retain(keep);
        random.shuffle(&mut self.list);
        self.places =
            self.list.iter().enumerate().map(|(place, member)| (member.name.clone(), place)).collect();
    }

    /// Up to `count` random members that `eligible` agrees to, each at most once; fewer if chance wants it, which among
    /// few eligible ones of many it may.
    pub(crate) fn pick(
        &self,
        random: &mut Random,
        count: usize,
        eligible: impl Fn(&Member) -> bool,
    ) -> Vec<Member> {
        let mut picked: Vec<usize> = Vec::new();
        for _ in 0..3 * self.list.len() {
            if picked.len() >= count {
                break;
            }
            let place = random.index(self.list.len());
            if !picked.contains(&place) && eligible(&self.list[place]) {
                picked.push(place);
            }
        }
        picked.into_iter().map(|place| self.list[place].clone()).collect()
    }
}
