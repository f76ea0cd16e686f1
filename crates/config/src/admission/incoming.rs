// SPDX-License-Identifier: Apache-2.0
//! The object that somebody wants to store.

use ferrolb_api::{BFDProfile, BGPAdvertisement, BGPPeer, Community, IPAddressPool, L2Advertisement};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::Value;

use super::Target;
use crate::Resources;

/// An object of one of the kinds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Incoming {
    Peer(Box<BGPPeer>),
    Pool(Box<IPAddressPool>),
    BgpAdvertisement(Box<BGPAdvertisement>),
    L2Advertisement(Box<L2Advertisement>),
    Community(Box<Community>),
    Profile(Box<BFDProfile>),
}

impl Incoming {
    /// Decodes an object; the error says what does not fit.
    pub(super) fn decode(target: Target, object: &Value) -> Result<Self, String> {
        if !object.is_object() {
            return Err("there is no object to judge".to_owned());
        }
        let kind = object["kind"].as_str().unwrap_or_default();
        if !kind.is_empty() && kind != target.kind() {
            return Err(format!("expected an object of kind {target}, found {kind}"));
        }
        let object = object.clone();
        match target {
            Target::BGPPeer => serde_json::from_value(object).map(Self::Peer),
            Target::IPAddressPool => serde_json::from_value(object).map(Self::Pool),
            Target::BGPAdvertisement => serde_json::from_value(object).map(Self::BgpAdvertisement),
            Target::L2Advertisement => serde_json::from_value(object).map(Self::L2Advertisement),
            Target::Community => serde_json::from_value(object).map(Self::Community),
            Target::BFDProfile => serde_json::from_value(object).map(Self::Profile),
        }
        .map_err(|error| error.to_string())
        .and_then(|incoming| match incoming.preference() {
            // The type is wider than the field, so that one bad object does not spoil a list.
            Some(preference) if u32::try_from(preference).is_err() => {
                Err(format!("spec.localPref: expected 0 to 4294967295, found {preference}"))
            }
            _ => Ok(incoming),
        })
    }

    pub(super) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Peer(object) => object.meta(),
            Self::Pool(object) => object.meta(),
            Self::BgpAdvertisement(object) => object.meta(),
            Self::L2Advertisement(object) => object.meta(),
            Self::Community(object) => object.meta(),
            Self::Profile(object) => object.meta(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// Puts the object in the place of its namesake, or beside the others.
    pub(super) fn place(&self, resources: &mut Resources) {
        self.take_out(resources);
        match self {
            Self::Peer(object) => resources.bgp_peers.push((**object).clone()),
            Self::Pool(object) => resources.pools.push((**object).clone()),
            Self::BgpAdvertisement(object) => resources.bgp_advertisements.push((**object).clone()),
            Self::L2Advertisement(object) => resources.l2_advertisements.push((**object).clone()),
            Self::Community(object) => resources.communities.push((**object).clone()),
            Self::Profile(object) => resources.bfd_profiles.push((**object).clone()),
        }
    }

    /// Removes the object's namesake, also one that could not be decoded.
    pub(super) fn take_out(&self, resources: &mut Resources) {
        fn without<K: Resource>(list: &mut Vec<K>, name: &str) {
            list.retain(|object| object.meta().name.as_deref().unwrap_or_default() != name);
        }
        let name = self.name();
        match self {
            Self::Peer(_) => without(&mut resources.bgp_peers, name),
            Self::Pool(_) => without(&mut resources.pools, name),
            Self::BgpAdvertisement(_) => without(&mut resources.bgp_advertisements, name),
            Self::L2Advertisement(_) => without(&mut resources.l2_advertisements, name),
            Self::Community(_) => without(&mut resources.communities, name),
            Self::Profile(_) => without(&mut resources.bfd_profiles, name),
        }
        let kind = self.target().kind();
        resources.undecodable.retain(|object| object.kind != kind || object.name != name);
    }

    pub(super) const fn target(&self) -> Target {
        match self {
            Self::Peer(_) => Target::BGPPeer,
            Self::Pool(_) => Target::IPAddressPool,
            Self::BgpAdvertisement(_) => Target::BGPAdvertisement,
            Self::L2Advertisement(_) => Target::L2Advertisement,
            Self::Community(_) => Target::Community,
            Self::Profile(_) => Target::BFDProfile,
        }
    }

    /// Whether the two want the same, whatever their metadata and status.
    pub(super) fn same_spec(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Peer(a), Self::Peer(b)) => a.spec == b.spec,
            (Self::Pool(a), Self::Pool(b)) => a.spec == b.spec,
            (Self::BgpAdvertisement(a), Self::BgpAdvertisement(b)) => a.spec == b.spec,
            (Self::L2Advertisement(a), Self::L2Advertisement(b)) => a.spec == b.spec,
            (Self::Community(a), Self::Community(b)) => a.spec == b.spec,
            (Self::Profile(a), Self::Profile(b)) => a.spec == b.spec,
            _ => false,
        }
    }

    fn preference(&self) -> Option<i64> {
        match self {
            Self::BgpAdvertisement(object) => object.spec.local_pref,
            _ => None,
        }
    }
}
