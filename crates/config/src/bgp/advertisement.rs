// SPDX-License-Identifier: Apache-2.0
//! BGPAdvertisements: lengths, communities, and what they bring together on a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_api::{BGPAdvertisement, BGPAdvertisementSpec, IPAddressPool};
use ferrolb_net_types::{IpFamily, NodeName, PeerName};
use kube::ResourceExt;

use super::{BgpAdvertisement, Judged, Objects, peer};
use crate::diagnostic::Findings;
use crate::{BgpCommunity, Labels, ParseCommunityError, Resources, Selector, duplicates, l2, pool};

/// The kind's name in diagnostics.
pub(crate) const KIND: &str = "BGPAdvertisement";

/// Whether an advertisement is attached to a pool.
pub(super) fn reaches(spec: &BGPAdvertisementSpec, selectors: &[Selector], pool: &IPAddressPool) -> bool {
    (spec.ip_address_pools.is_empty() && selectors.is_empty())
        || spec.ip_address_pools.contains(&pool.name_any())
        || selectors.iter().any(|s| s.matches(pool.labels()))
}

/// What a BGPAdvertisement says, before it meets pools and nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedBgp {
    pools: BTreeSet<String>,
    pool_selectors: Vec<Selector>,
    node_selectors: Vec<Selector>,
    service_selectors: Vec<Selector>,
    aggregation_v4: u8,
    aggregation_v6: u8,
    local_pref: Option<u32>,
    communities: BTreeSet<BgpCommunity>,
    peers: Option<BTreeSet<PeerName>>,
}

impl ParsedBgp {
    /// Whether a pool of this name with these labels is announced. Without names and selectors, every one is.
    pub(crate) fn attaches_to(&self, pool: &str, labels: &Labels) -> bool {
        (self.pools.is_empty() && self.pool_selectors.is_empty())
            || self.pools.contains(pool)
            || self.pool_selectors.iter().any(|s| s.matches(labels))
    }

    /// The advertisement with the nodes that exist now.
    pub(crate) fn resolve(&self, name: &str, nodes: &BTreeMap<NodeName, Labels>) -> BgpAdvertisement {
        let selected = |labels: &Labels| {
            self.node_selectors.is_empty() || self.node_selectors.iter().any(|s| s.matches(labels))
        };
        BgpAdvertisement {
            name: Arc::from(name),
            nodes: nodes
                .iter()
                .filter(|(_, labels)| selected(labels))
                .map(|(node, _)| node.clone())
                .collect(),
            aggregation_v4: self.aggregation_v4,
            aggregation_v6: self.aggregation_v6,
            local_pref: self.local_pref,
            communities: self.communities.clone(),
            peers: self.peers.clone(),
            service_selectors: self.service_selectors.clone(),
        }
    }
}

pub(super) fn judge<'a>(
    objects: &Objects<'a>,
    resources: &Resources,
    findings: &mut Findings,
) -> Vec<Judged<'a, BGPAdvertisement, ParsedBgp>> {
    let aliases: BTreeMap<&str, BgpCommunity> = objects
        .communities
        .iter()
        .flat_map(|object| &object.spec.communities)
        .filter_map(|alias| Some((alias.name.as_str(), alias.value.parse().ok()?)))
        .collect();
    let mut judged = Vec::new();
    let mut parsed: Vec<Parsed<'_>> = Vec::new();
    for &object in &objects.advertisements {
        let name = object.name_any();
        let advertisement = match parse(&name, object, resources) {
            Ok(advertisement) => advertisement,
            Err(Fault { field, text }) => {
                findings.refuse_field(KIND, &name, field, text);
                judged.push(Judged { object, parsed: None, expected: None });
                continue;
            }
        };
        let good = match check_communities(advertisement.spec, &aliases) {
            // The name may be defined later.
            Err((Fault { field, text }, ParseCommunityError::Format(_))) => {
                findings.refuse_field_for_now(KIND, &name, field, text);
                None
            }
            Err((Fault { field, text }, ParseCommunityError::Value(_))) => {
                findings.refuse_field(KIND, &name, field, text);
                None
            }
            Ok(communities) => match conflict(&advertisement, &parsed, objects) {
                Some(Fault { field, text }) => {
                    findings.refuse_field(KIND, &name, field, text);
                    None
                }
                None => Some(Arc::new(advertisement.said(communities))),
            },
        };
        judged.push(Judged { object, parsed: good, expected: None });
        parsed.push(advertisement);
    }
    judge_echo(&parsed, objects, findings);
    judged
}

/// What is wrong with a field.
struct Fault {
    /// The field, what stands there, and where that matters.
    field: String,
    /// In MetalLB's words, if it has any.
    text: String,
}

impl Fault {
    fn new(field: impl Into<String>) -> impl FnOnce(String) -> Self {
        |text| Self { field: field.into(), text }
    }
}

/// What of an advertisement matters when it meets pools and others.
struct Parsed<'a> {
    name: String,
    spec: &'a BGPAdvertisementSpec,
    pool_selectors: Vec<Selector>,
    node_selectors: Vec<Selector>,
    service_selectors: Vec<Selector>,
    nodes: BTreeSet<&'a NodeName>,
}

impl Parsed<'_> {
    /// What it says, given its communities.
    fn said(&self, communities: BTreeSet<BgpCommunity>) -> ParsedBgp {
        let spec = self.spec;
        // A negative length is none; whatever lies in a pool is longer, and so refused.
        let length = |length: i32| u8::try_from(length).unwrap_or(0);
        ParsedBgp {
            pools: spec.ip_address_pools.iter().cloned().collect(),
            pool_selectors: self.pool_selectors.clone(),
            node_selectors: self.node_selectors.clone(),
            service_selectors: self.service_selectors.clone(),
            aggregation_v4: length(spec.aggregation_length),
            aggregation_v6: length(spec.aggregation_length_v6),
            // 0 is MetalLB's word for nothing.
            local_pref: spec
                .local_pref
                .and_then(|value| u32::try_from(value).ok())
                .filter(|value| *value != 0),
            communities,
            peers: (!spec.peers.is_empty())
                .then(|| spec.peers.iter().map(|peer| PeerName::from(peer.as_str())).collect()),
        }
    }
}

fn parse<'a>(
    name: &str,
    object: &'a BGPAdvertisement,
    resources: &'a Resources,
) -> Result<Parsed<'a>, Fault> {
    let spec = &object.spec;
    let texts = |kind, field, list: &[String]| duplicates::texts(kind, list).map_err(Fault::new(field));
    texts("ipAddressPools", IP_ADDRESS_POOLS, &spec.ip_address_pools)?;
    texts("peers", PEERS, &spec.peers)?;
    texts("community", COMMUNITIES, &spec.communities)?;
    let selectors = |kind, field, list| duplicates::selectors(kind, list).map_err(Fault::new(field));
    selectors("nodeSelectors", NODE_SELECTORS, &spec.node_selectors)?;
    selectors("ipAddressPoolSelectors", IP_ADDRESS_POOL_SELECTORS, &spec.ip_address_pool_selectors)?;
    selectors("serviceSelectors", SERVICE_SELECTORS, &spec.service_selectors)?;
    if !spec.service_selectors.is_empty() {
        for (field, length, host) in [
            ("aggregationLength", spec.aggregation_length, 32),
            ("aggregationLengthV6", spec.aggregation_length_v6, 128),
        ] {
            if length != host {
                return Err(Fault {
                    text: format!(
                        "serviceSelectors and {field} are mutually exclusive, both cannot be set in {name}"
                    ),
                    field: format!("spec.{field} {length}"),
                });
            }
        }
    }
    if spec.aggregation_length > 32 {
        let text = format!("invalid aggregation length {} for IPv4", spec.aggregation_length);
        return Err(Fault { field: aggregation_length(spec, IpFamily::V4), text });
    }
    if spec.aggregation_length_v6 > 128 {
        let text = format!("invalid aggregation length {} for IPv6", spec.aggregation_length_v6);
        return Err(Fault { field: aggregation_length(spec, IpFamily::V6), text });
    }
    if let Some(preference) = spec.local_pref.filter(|preference| u32::try_from(*preference).is_err()) {
        // MetalLB could not even read such an object.
        return Err(Fault {
            field: format!("spec.localPref {preference}"),
            text: format!("invalid local preference {preference} in {name}, must be in 0-4294967295 range"),
        });
    }
    let pool_selectors = l2::parse_selectors(&spec.ip_address_pool_selectors)
        .map_err(Fault::new(IP_ADDRESS_POOL_SELECTORS))?;
    let node_selectors = l2::parse_selectors(&spec.node_selectors)
        .map_err(|e| format!("{e}\nfailed to parse node selector for {name}"))
        .map_err(Fault::new(NODE_SELECTORS))?;
    let service_selectors =
        l2::parse_service_selectors(name, &spec.service_selectors).map_err(Fault::new(SERVICE_SELECTORS))?;
    let nodes = resources
        .nodes
        .iter()
        .filter(|(_, labels)| node_selectors.is_empty() || node_selectors.iter().any(|s| s.matches(labels)))
        .map(|(node, _)| node)
        .collect();
    Ok(Parsed { name: name.to_owned(), spec, pool_selectors, node_selectors, service_selectors, nodes })
}

const IP_ADDRESS_POOLS: &str = "spec.ipAddressPools";
const IP_ADDRESS_POOL_SELECTORS: &str = "spec.ipAddressPoolSelectors";
const NODE_SELECTORS: &str = "spec.nodeSelectors";
const SERVICE_SELECTORS: &str = "spec.serviceSelectors";
const PEERS: &str = "spec.peers";
const COMMUNITIES: &str = "spec.communities";

/// The field with the length for a family, and what stands there.
fn aggregation_length(spec: &BGPAdvertisementSpec, family: IpFamily) -> String {
    match family {
        IpFamily::V4 => format!("spec.aggregationLength {}", spec.aggregation_length),
        IpFamily::V6 => format!("spec.aggregationLengthV6 {}", spec.aggregation_length_v6),
    }
}

fn check_communities(
    spec: &BGPAdvertisementSpec,
    aliases: &BTreeMap<&str, BgpCommunity>,
) -> Result<BTreeSet<BgpCommunity>, (Fault, ParseCommunityError)> {
    let parse = |community: &String| match aliases.get(community.as_str()) {
        Some(known) => Ok(*known),
        None => community.parse().map_err(|error: ParseCommunityError| {
            let text = format!("{error}\ninvalid community {community:?} in BGP advertisement");
            (Fault { field: format!("{COMMUNITIES} {community:?}"), text }, error)
        }),
    };
    spec.communities.iter().map(parse).collect()
}

fn reached<'a>(advertisement: &Parsed<'_>, objects: &Objects<'a>) -> Vec<&'a IPAddressPool> {
    let is_reached = |pool: &&IPAddressPool| reaches(advertisement.spec, &advertisement.pool_selectors, pool);
    objects.pools.iter().copied().filter(is_reached).collect()
}

/// What is wrong with an advertisement on one of its pools, by itself or beside the earlier ones.
fn conflict(new: &Parsed<'_>, earlier: &[Parsed<'_>], objects: &Objects<'_>) -> Option<Fault> {
    reached(new, objects).into_iter().find_map(|pool| {
        too_specific(new.spec, pool).or_else(|| {
            let mut others = earlier.iter().filter(|old| reaches(old.spec, &old.pool_selectors, pool));
            others.find_map(|old| preference_conflict(old, new, pool))
        })
    })
}

/// Refuses echo mode of BFD, which is for IPv4, towards peers that get IPv6 addresses announced.
fn judge_echo(advertisements: &[Parsed<'_>], objects: &Objects<'_>, findings: &mut Findings) {
    for advertisement in advertisements {
        let Some(pool) =
            reached(advertisement, objects).into_iter().find(|pool| families(pool).contains(&IpFamily::V6))
        else {
            continue;
        };
        if let Some(peer) = echoing_peer(advertisement.spec, objects) {
            let text = format!(
                "pool {} has bgpadvertisement {} which references peer {peer} which has bfd echo enabled, which is not possible",
                pool.name_any(),
                advertisement.name
            );
            findings.refuse(peer::KIND, &peer, text);
        }
    }
}

/// An entry of the pool whose largest block is smaller than the block to be announced.
fn too_specific(spec: &BGPAdvertisementSpec, pool: &IPAddressPool) -> Option<Fault> {
    pool.spec.addresses.iter().find_map(|entry| {
        let blocks = pool::parse_entry(&pool.name_any(), entry).ok()?;
        let largest = blocks.iter().min_by_key(|block| block.length())?;
        let length = match largest.family() {
            IpFamily::V4 => spec.aggregation_length,
            IpFamily::V6 => spec.aggregation_length_v6,
        };
        let block = largest.length();
        (i32::from(block) > length).then(|| Fault {
            field: format!("{} on IPAddressPool {}", aggregation_length(spec, largest.family()), pool.name_any()),
            text: format!(
                "invalid aggregation length {length}: prefix {block} in this pool is more specific than the aggregation length for addresses {entry}"
            ),
        })
    })
}

/// Two routes for the same prefix, to the same peer, of the same node, with different preferences.
fn preference_conflict(old: &Parsed<'_>, new: &Parsed<'_>, pool: &IPAddressPool) -> Option<Fault> {
    let (a, b) = (old.spec, new.spec);
    let preference = |spec: &BGPAdvertisementSpec| spec.local_pref.unwrap_or(0);
    let same_peers =
        a.peers.is_empty() || b.peers.is_empty() || a.peers.iter().any(|peer| b.peers.contains(peer));
    let same_route = families(pool).iter().any(|family| match family {
        IpFamily::V4 => a.aggregation_length == b.aggregation_length,
        IpFamily::V6 => a.aggregation_length_v6 == b.aggregation_length_v6,
    });
    let conflict = preference(a) != preference(b)
        && a.service_selectors.is_empty()
        && b.service_selectors.is_empty()
        && same_route
        && same_peers
        && !old.nodes.is_disjoint(&new.nodes);
    conflict.then(|| Fault {
        field: format!(
            "spec.localPref {} beside {} of {KIND} {} on IPAddressPool {}",
            preference(b),
            preference(a),
            old.name,
            pool.name_any()
        ),
        text: format!(
            "invalid local preference {}: local preferernce {} was already set for the same type of BGP update. \
             Check existing BGP advertisements with common pools and aggregation lengths",
            preference(b),
            preference(a)
        ),
    })
}

/// A peer that the advertisement goes to and whose BFD sends echo packets.
fn echoing_peer(spec: &BGPAdvertisementSpec, objects: &Objects<'_>) -> Option<String> {
    let echoes = |profile: &str| {
        objects.profiles.iter().any(|p| p.name_any() == profile && p.spec.echo_mode == Some(true))
    };
    objects
        .peers
        .iter()
        .filter(|peer| spec.peers.is_empty() || spec.peers.contains(&peer.name_any()))
        .find(|peer| !peer.spec.bfd_profile.is_empty() && echoes(&peer.spec.bfd_profile))
        .map(|peer| peer.name_any())
}

fn families(pool: &IPAddressPool) -> BTreeSet<IpFamily> {
    let name = pool.name_any();
    let blocks =
        pool.spec.addresses.iter().filter_map(|entry| pool::parse_entry(&name, entry).ok()).flatten();
    blocks.map(|block| block.family()).collect()
}
