// SPDX-License-Identifier: Apache-2.0
//! What MetalLB's native BGP does not do, and therefore refuses. IPv6 and large communities it refuses alone.

use ferrolb_api::{BGPAdvertisementSpec, BGPPeerSpec, IPAddressPool};
use ferrolb_net_types::IpFamily;
use kube::ResourceExt;

use super::{Objects, advertisement, peer, profile};
use crate::diagnostic::Findings;
use crate::selector::written;
use crate::{BgpCommunity, Selector, community, pool};

pub(super) fn judge(objects: &Objects<'_>, findings: &mut Findings) {
    for peer in &objects.peers {
        if let Some((what, name)) = unsupported(&peer.spec) {
            let text = format!("peer {} has {what} set on native bgp mode", peer.spec.peer_address);
            let field = format!("spec.{name} {}", value(&peer.spec, name));
            findings.refuse_field(peer::KIND, &peer.name_any(), field, text);
        }
    }
    if let Some(profile) = objects.profiles.first() {
        // No field of it is at fault but that it is there.
        let field = "METALLB_BGP_TYPE native".to_owned();
        findings.refuse_field(
            profile::KIND,
            &profile.name_any(),
            field,
            "bfd profiles section set".to_owned(),
        );
    }
    for advertisement in &objects.advertisements {
        match check_pools(&advertisement.spec, &objects.pools) {
            Err(text) => findings.refuse(advertisement::KIND, &advertisement.name_any(), text),
            Ok(Some(text)) => findings.tolerate(advertisement::KIND, &advertisement.name_any(), text),
            Ok(None) => {}
        }
    }
    for advertisement in &objects.advertisements {
        let is_large = |text: &&String| matches!(text.parse(), Ok(BgpCommunity::Large(..)));
        if let Some(large) = advertisement.spec.communities.iter().find(is_large) {
            let name = advertisement.name_any();
            let text = format!(
                "native BGP mode only supports legacy communities, BGP advertisement {name:?} has non legacy community {large:?}"
            );
            findings.tolerate(advertisement::KIND, &name, text);
        }
    }
    community::judge_native(&objects.communities, findings);
}

/// What is set that native BGP does not do: in MetalLB's words, and as the field is called.
pub(super) fn unsupported(spec: &BGPPeerSpec) -> Option<(&'static str, &'static str)> {
    [
        (!spec.bfd_profile.is_empty(), "bfd-profile", "bfdProfile"),
        (spec.keepalive_time.is_some_and(|time| !time.is_zero()), "keepalive-time", "keepaliveTime"),
        (!spec.vrf.is_empty(), "vrf", "vrf"),
        (spec.connect_time.is_some(), "connect time", "connectTime"),
        (spec.enable_graceful_restart == Some(true), "EnableGracefulRestart flag", "enableGracefulRestart"),
        (spec.disable_mp, "disable MP flag", "disableMP"),
        (spec.dual_stack_address_family, "dualstackaddressfamily flag", "dualStackAddressFamily"),
        (!spec.dynamic_asn.is_empty(), "dynamicASN", "dynamicASN"),
        (!spec.interface.is_empty(), "interface", "interface"),
        (spec.local_asn != 0, "localASN", "localASN"),
    ]
    .into_iter()
    .find_map(|(set, what, field)| set.then_some((what, field)))
}

/// What stands in a field, as the object has it.
fn value(spec: &BGPPeerSpec, field: &str) -> String {
    match serde_json::to_value(spec).unwrap_or_default().get(field) {
        Some(serde_json::Value::String(text)) => text.clone(),
        other => other.map(ToString::to_string).unwrap_or_default(),
    }
}

/// What MetalLB says of IPv6 in the pools that an advertisement reaches, unless it stumbles before.
fn check_pools(spec: &BGPAdvertisementSpec, pools: &[&IPAddressPool]) -> Result<Option<String>, String> {
    let mut selectors = Vec::new();
    for selector in &spec.ip_address_pool_selectors {
        // The cause is left out here.
        selectors.push(
            Selector::parse(selector).map_err(|_| format!("invalid label selector {}", written(selector)))?,
        );
    }
    for pool in pools.iter().filter(|pool| advertisement::reaches(spec, &selectors, pool)) {
        let name = pool.name_any();
        for entry in &pool.spec.addresses {
            let blocks = pool::parse_entry(&name, entry)?;
            if let Some(block) = blocks.iter().find(|block| block.family() == IpFamily::V6) {
                return Ok(Some(format!(
                    "pool {name:?} has ipv6 CIDR {block}, native bgp mode does not support ipv6"
                )));
            }
        }
    }
    Ok(None)
}
