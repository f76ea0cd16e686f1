// SPDX-License-Identifier: Apache-2.0
//! BGPPeers: identities, timers, passwords, references.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time;

use ferrolb_api::{BGPPeer, BGPPeerSpec, Duration};
use ferrolb_net_types::{Asn, parse_ip};
use kube::ResourceExt;

use super::extras::{self, Extras};
use super::{BgpDefaults, BgpPeer, Judged, Objects, PeerAs, native};
use crate::diagnostic::Findings;
use crate::{BgpType, Password, Resources, Selector, duplicates};

/// The kind's name in diagnostics.
pub(crate) const KIND: &str = "BGPPeer";

pub(super) fn judge<'a>(
    objects: &Objects<'a>,
    resources: &Resources,
    findings: &mut Findings,
) -> Vec<Judged<'a, BGPPeer, BgpPeer>> {
    let mut judged = Vec::new();
    for (i, &object) in objects.peers.iter().enumerate() {
        let name = object.name_any();
        let (mut parsed, mut expected) = (None, None);
        match check(&name, object, resources) {
            Err(Fault::Lasting(error)) => {
                findings.refuse(KIND, &name, format!("parsing peer {name} {error}"))
            }
            Err(Fault::Transient(error)) => {
                findings.refuse_for_now(KIND, &name, format!("parsing peer {name} {error}"));
            }
            Err(Fault::Awaited) => {
                // What is wrong with it is said once it is known whether that is all.
                expected = values(&name, object, None, resources, &mut Findings::default()).map(Arc::new);
            }
            Ok(password) => {
                let profile = &object.spec.bfd_profile;
                if !profile.is_empty() && !objects.profiles.iter().any(|p| p.name_any() == *profile) {
                    let text = format!("peer {name} referencing non existing bfd profile {profile}");
                    findings.refuse_for_now(KIND, &name, text);
                } else if objects.peers[..i]
                    .iter()
                    .any(|other| other.name_any() == name && other.spec == object.spec)
                {
                    findings.refuse(KIND, &name, format!("peer {name} already exists"));
                } else {
                    parsed = values(&name, object, password, resources, findings).map(Arc::new);
                }
            }
        }
        judged.push(Judged { object, parsed, expected });
    }
    judged
}

/// The fields that are set and not served by this version; MetalLB's native mode refuses them itself.
pub(crate) fn not_served(spec: &BGPPeerSpec) -> Option<&'static str> {
    [
        (!spec.bfd_profile.is_empty(), "bfdProfile"),
        (!spec.vrf.is_empty(), "vrf"),
        (!spec.interface.is_empty(), "interface"),
        (spec.enable_graceful_restart == Some(true), "enableGracefulRestart"),
    ]
    .into_iter()
    .find_map(|(set, field)| set.then_some(field))
}

/// What a peer says that MetalLB finds nothing wrong with; `None` if there is something wrong here, which is noticed.
fn values(
    name: &str,
    object: &BGPPeer,
    password: Option<Password>,
    resources: &Resources,
    findings: &mut Findings,
) -> Option<BgpPeer> {
    let spec = &object.spec;
    let defaults = match resources.bgp_type {
        BgpType::Native => BgpDefaults::Native,
        BgpType::Frr => BgpDefaults::Frr,
        BgpType::FrrK8s | BgpType::Other(_) => return None,
    };
    if not_served(spec).is_some() || (defaults == BgpDefaults::Native && native::unsupported(spec).is_some())
    {
        return None;
    }
    let mut good = true;
    let mut fault = |text: String| {
        findings.hold(KIND, name, text);
        good = false;
    };
    let router_id = match spec.router_id.as_str() {
        "" => None,
        text => match parse_ip(text) {
            Some(IpAddr::V4(id)) if id != Ipv4Addr::UNSPECIFIED => Some(id),
            _ => {
                fault(format!("invalid router ID {text:?}: it has to be an IPv4 address other than 0.0.0.0"));
                None
            }
        },
    };
    if password.as_ref().is_some_and(|password| password.bytes().len() > LONGEST_PASSWORD) {
        fault(format!("the password has more than {LONGEST_PASSWORD} bytes, which no kernel takes"));
    }
    let Extras { max_prefixes, gtsm_hops, link_bandwidth, capabilities } =
        extras::parse(object.annotations()).unwrap_or_else(|texts| {
            texts.into_iter().for_each(&mut fault);
            Extras::default()
        });
    if gtsm_hops.is_some() && spec.ebgp_multi_hop == Some(true) {
        fault(format!("{} and ebgpMultiHop exclude each other", extras::GTSM_HOPS));
    }
    if !good {
        return None;
    }
    match (spec.hold_time, spec.keepalive_time) {
        (_, Some(every)) if every.as_nanos() < 0 => {
            findings.remark(KIND, name, format!("keepaliveTime \"{every}\" is negative, and counts as not set"));
        }
        (None, Some(every)) if every.is_zero() => findings.remark(
            KIND,
            name,
            "keepaliveTime \"0s\" without holdTime makes a hold time of 0: that the peer falls silent is not noticed"
                .to_owned(),
        ),
        _ => {}
    }
    let (hold, keepalive) = timers(spec.hold_time, spec.keepalive_time);
    // MetalLB cuts the upper bits off: 65,537 s is 1 s to the peer. It cuts parts of a second off as well, and what is
    // left of less than one would mean that a dead peer is believed for ever.
    let hold_seconds = hold.map(|hold| {
        if hold.as_nanos() > 0 && hold.as_secs() == 0 {
            findings.remark(
                KIND,
                name,
                format!("a hold time of \"{hold}\" is shorter than the shortest there is, 3s, which is used"),
            );
            return SHORTEST_HOLD;
        }
        u16::try_from(hold.as_secs()).unwrap_or_else(|_| {
            findings.remark(
                KIND,
                name,
                format!("holdTime \"{hold}\" is longer than the longest there is, 65535s, which is used"),
            );
            u16::MAX
        })
    });
    Some(BgpPeer {
        defaults,
        my_asn: Asn::new(spec.my_asn)?,
        local_asn: Asn::new(spec.local_asn),
        peer_as: match (Asn::new(spec.peer_asn), spec.dynamic_asn.as_str()) {
            (Some(asn), _) => PeerAs::Exactly(asn),
            (None, "internal") => PeerAs::Internal,
            (None, _) => PeerAs::External,
        },
        address: parse_ip(&spec.peer_address)?,
        port: if spec.peer_port == 0 { 179 } else { spec.peer_port },
        // What stands for any address names none.
        source: parse_ip(&spec.source_address).filter(|source| !source.is_unspecified()),
        router_id,
        hold_seconds,
        keepalive: keepalive.map(positive).filter(|time| !time.is_zero()),
        connect_time: spec.connect_time.map(|time| positive(time).max(time::Duration::from_secs(1))),
        password,
        multihop: spec.ebgp_multi_hop == Some(true),
        gtsm_hops,
        both_families: spec.dual_stack_address_family,
        max_prefixes,
        link_bandwidth,
        capabilities,
    })
}

/// The shortest hold time but none, in seconds (RFC 4271, section 4.2).
const SHORTEST_HOLD: u16 = 3;

/// The longest password that Linux takes (`TCP_MD5SIG_MAXKEYLEN`).
const LONGEST_PASSWORD: usize = 80;

fn positive(time: Duration) -> time::Duration {
    time::Duration::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(0))
}

enum Fault {
    Lasting(String),
    Transient(String),
    /// None, as long as it is not known whether there is one.
    Awaited,
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Lasting(text)
    }
}

/// What is wrong in MetalLB's eyes; the password if nothing is.
fn check(name: &str, peer: &BGPPeer, resources: &Resources) -> Result<Option<Password>, Fault> {
    let spec = &peer.spec;
    check_session(spec)?;
    duplicates::selectors("nodeSelectors", &spec.node_selectors)?;
    for selector in &spec.node_selectors {
        Selector::parse(selector)
            .map_err(|cause| format!("{cause}\nfailed to convert peer {name} node selector"))?;
    }
    check_password(name, peer, resources)
}

fn check_session(spec: &BGPPeerSpec) -> Result<(), String> {
    let fault = |text: &str| Err(text.to_owned());
    if spec.my_asn == 0 {
        return fault("missing local ASN");
    }
    match (spec.peer_asn, spec.dynamic_asn.as_str()) {
        (0, "") => return fault("missing peer ASN and dynamicASN"),
        (0, "internal" | "external") => {}
        (0, other) => return Err(format!("invalid dynamicASN {other}")),
        (_, "") => {}
        _ => return fault("both peer ASN and dynamicASN specified"),
    }
    if spec.peer_asn == spec.my_asn && spec.ebgp_multi_hop == Some(true) {
        return fault("invalid ebgp-multihop parameter set for an ibgp peer");
    }
    match (spec.peer_address.is_empty(), spec.interface.is_empty()) {
        (true, true) => return fault("peer has no Address or Interface specified"),
        (false, false) => return fault("peer has both Address and Interface specified"),
        _ => {}
    }
    check_timers(spec.hold_time, spec.keepalive_time).map_err(|e| format!("invalid BGPPeer timers: {e}"))?;
    for (text, what) in [
        (&spec.peer_address, "invalid BGPPeer address"),
        (&spec.router_id, "invalid router ID"),
        (&spec.source_address, "invalid source IP"),
    ] {
        if !text.is_empty() && parse_ip(text).is_none() {
            return Err(format!("{what} {text:?}"));
        }
    }
    Ok(())
}

/// Hold time and the time between KEEPALIVEs: one gives the other, which is a third of it, or three times as much.
fn timers(hold: Option<Duration>, keepalive: Option<Duration>) -> (Option<Duration>, Option<Duration>) {
    match (hold, keepalive) {
        (Some(hold), None) => (Some(hold), Some(Duration::from_nanos(hold.as_nanos() / 3))),
        (None, Some(keepalive)) => {
            (Some(Duration::from_nanos(keepalive.as_nanos().saturating_mul(3))), Some(keepalive))
        }
        both => both,
    }
}

fn check_timers(hold: Option<Duration>, keepalive: Option<Duration>) -> Result<(), String> {
    let (Some(hold), Some(keepalive)) = timers(hold, keepalive) else { return Ok(()) };
    let seconds = hold.as_secs();
    if seconds != 0 && seconds < 3 {
        return Err(format!("invalid hold time \"{hold}\": must be 0 or >=3s"));
    }
    if keepalive > hold {
        return Err(format!("invalid keepaliveTime \"{keepalive}\", must be lower than holdTime \"{hold}\""));
    }
    Ok(())
}

fn check_password(name: &str, peer: &BGPPeer, resources: &Resources) -> Result<Option<Password>, Fault> {
    let Some(reference) = peer.spec.password_secret.as_ref().filter(|reference| !reference.name.is_empty())
    else {
        return Ok(Password::new(peer.spec.password.as_bytes()));
    };
    let namespace = peer.namespace().unwrap_or_default();
    if !peer.spec.password.is_empty() {
        let text =
            format!("can not have both password and secret ref set in peer config {namespace:?}/{name:?}");
        return Err(Fault::Lasting(text));
    }
    let with_context = |text: String| format!("{text}\nfailed to parse peer {name} password secret");
    // The reference's own namespace is not used.
    if resources.awaited_secrets.contains(&reference.name) {
        return Err(Fault::Awaited);
    }
    let Some(secret) = resources.secrets.iter().find(|secret| secret.name_any() == reference.name) else {
        let text = format!("secret ref not found for peer config {namespace:?}/{name:?}");
        return Err(Fault::Transient(with_context(text)));
    };
    let secret_name = &reference.name;
    if secret.type_.as_deref() != Some(BASIC_AUTH) {
        // The blank at the end is MetalLB's.
        let text = format!(
            "secret type mismatch on {namespace:?}/{secret_name:?}, type {BASIC_AUTH:?} is expected "
        );
        return Err(Fault::Lasting(with_context(text)));
    }
    match secret.data.as_ref().and_then(|data| data.get("password")) {
        Some(password) => Ok(Password::new(&password.0)),
        None => {
            let text = format!("password not specified in the secret {namespace:?}/{secret_name:?}");
            Err(Fault::Lasting(with_context(text)))
        }
    }
}

const BASIC_AUTH: &str = "kubernetes.io/basic-auth";
