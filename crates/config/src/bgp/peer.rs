// SPDX-License-Identifier: Apache-2.0
//! BGPPeers: identities, timers, passwords, references.

use ferrolb_api::{BGPPeer, BGPPeerSpec, Duration};
use ferrolb_net_types::parse_ip;
use kube::ResourceExt;

use super::Objects;
use crate::diagnostic::Findings;
use crate::{Resources, Selector, duplicates};

/// The kind's name in diagnostics.
pub(super) const KIND: &str = "BGPPeer";

pub(super) fn judge(objects: &Objects<'_>, resources: &Resources, findings: &mut Findings) {
    for (i, peer) in objects.peers.iter().enumerate() {
        let name = peer.name_any();
        match check(&name, peer, resources) {
            Err(Fault::Lasting(error)) => {
                findings.refuse(KIND, &name, format!("parsing peer {name} {error}"))
            }
            Err(Fault::Transient(error)) => {
                findings.refuse_for_now(KIND, &name, format!("parsing peer {name} {error}"));
            }
            Ok(()) => {
                let profile = &peer.spec.bfd_profile;
                if !profile.is_empty() && !objects.profiles.iter().any(|p| p.name_any() == *profile) {
                    let text = format!("peer {name} referencing non existing bfd profile {profile}");
                    findings.refuse_for_now(KIND, &name, text);
                } else if objects.peers[..i]
                    .iter()
                    .any(|other| other.name_any() == name && other.spec == peer.spec)
                {
                    findings.refuse(KIND, &name, format!("peer {name} already exists"));
                }
            }
        }
    }
}

enum Fault {
    Lasting(String),
    Transient(String),
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Lasting(text)
    }
}

fn check(name: &str, peer: &BGPPeer, resources: &Resources) -> Result<(), Fault> {
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

/// One timer gives the other: keepalive is a third of hold.
fn check_timers(hold: Option<Duration>, keepalive: Option<Duration>) -> Result<(), String> {
    let (hold, keepalive) = match (hold, keepalive) {
        (None, None) => return Ok(()),
        (Some(hold), None) => (hold, Duration::from_nanos(hold.as_nanos() / 3)),
        (None, Some(keepalive)) => (Duration::from_nanos(keepalive.as_nanos().saturating_mul(3)), keepalive),
        (Some(hold), Some(keepalive)) => (hold, keepalive),
    };
    let seconds = hold.as_secs();
    if seconds != 0 && seconds < 3 {
        return Err(format!("invalid hold time \"{hold}\": must be 0 or >=3s"));
    }
    if keepalive > hold {
        return Err(format!("invalid keepaliveTime \"{keepalive}\", must be lower than holdTime \"{hold}\""));
    }
    Ok(())
}

fn check_password(name: &str, peer: &BGPPeer, resources: &Resources) -> Result<(), Fault> {
    let Some(reference) = peer.spec.password_secret.as_ref().filter(|reference| !reference.name.is_empty())
    else {
        return Ok(());
    };
    let namespace = peer.namespace().unwrap_or_default();
    if !peer.spec.password.is_empty() {
        let text =
            format!("can not have both password and secret ref set in peer config {namespace:?}/{name:?}");
        return Err(Fault::Lasting(text));
    }
    let with_context = |text: String| format!("{text}\nfailed to parse peer {name} password secret");
    // The reference's own namespace is not used.
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
    if !secret.data.as_ref().is_some_and(|data| data.contains_key("password")) {
        let text = format!("password not specified in the secret {namespace:?}/{secret_name:?}");
        return Err(Fault::Lasting(with_context(text)));
    }
    Ok(())
}

const BASIC_AUTH: &str = "kubernetes.io/basic-auth";
