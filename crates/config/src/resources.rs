// SPDX-License-Identifier: Apache-2.0
//! The input of an evaluation: the objects as they stand in the API.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::str::FromStr;

use ferrolb_api::annotations::OWN_PREFIX;
use ferrolb_api::{BFDProfile, BGPAdvertisement, BGPPeer, Change, Community, IPAddressPool, L2Advertisement};
use ferrolb_net_types::NodeName;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};

use crate::{Labels, Selector};

/// Everything an evaluation looks at. The order within the lists does not matter.
///
/// The controller fills in pools, communities and namespaces; a speaker everything; a webhook what it judges.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// Which implementation of BGP the rules are those of.
    pub bgp_type: BgpType,
    /// The node a speaker runs on; `None` anywhere else. BGPPeers and BGPAdvertisements of other nodes are ignored.
    pub own_node: Option<NodeName>,
    /// IPAddressPools of the namespace.
    pub pools: Vec<IPAddressPool>,
    /// L2Advertisements of the namespace.
    pub l2_advertisements: Vec<L2Advertisement>,
    /// BGPAdvertisements of the namespace.
    pub bgp_advertisements: Vec<BGPAdvertisement>,
    /// BGPPeers of the namespace, in version v1beta2.
    pub bgp_peers: Vec<BGPPeer>,
    /// BFDProfiles of the namespace.
    pub bfd_profiles: Vec<BFDProfile>,
    /// Communities of the namespace.
    pub communities: Vec<Community>,
    /// Secrets of the namespace that BGPPeers name.
    pub secrets: Vec<Secret>,
    /// Names of Secrets of which it is not known yet whether they exist: whoever names one stays as it was.
    pub awaited_secrets: BTreeSet<String>,
    /// The labels of every Node.
    pub nodes: BTreeMap<NodeName, Labels>,
    /// The labels of every Namespace.
    pub namespaces: BTreeMap<String, Labels>,
    /// Objects that exist but could not be decoded.
    pub undecodable: Vec<Undecodable>,
}

/// An object that exists and whose content does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undecodable {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What did not fit.
    pub message: String,
}

/// The value of `METALLB_BGP_TYPE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BgpType {
    /// `native`, or unset.
    #[default]
    Native,
    /// `frr`.
    Frr,
    /// `frr-k8s`.
    FrrK8s,
    /// Anything else: a controller applies no rules of a type, a speaker those of FRR.
    Other(String),
}

impl FromStr for BgpType {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" | "native" => Self::Native,
            "frr" => Self::Frr,
            "frr-k8s" => Self::FrrK8s,
            other => Self::Other(other.to_owned()),
        })
    }
}

/// Applies what a watch delivers to a list of [`Resources`], and says whether an evaluation can come out otherwise.
///
/// It cannot if only the status changed, or other metadata than labels and annotations of our own.
pub fn apply<K>(list: &mut Vec<K>, change: Change<K>) -> bool
where
    K: Resource + HasSpec,
    K::Spec: PartialEq,
{
    match change {
        Change::Applied(object) => {
            let place = list.iter_mut().find(|o| o.meta().name == object.meta().name);
            match place {
                Some(old) => {
                    let changed = !same(old, &object);
                    *old = *object;
                    changed
                }
                None => {
                    list.push(*object);
                    true
                }
            }
        }
        Change::Deleted { name, .. } => {
            let before = list.len();
            list.retain(|o| o.meta().name.as_deref() != Some(&name));
            list.len() != before
        }
        Change::Reset(mut new) => {
            new.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
            list.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
            let changed = new.len() != list.len() || new.iter().zip(&*list).any(|(a, b)| !same(a, b));
            *list = new;
            changed
        }
    }
}

/// The objects in order of their names; those of one name in order of creation.
pub(crate) fn by_name<K: Resource>(objects: &[K]) -> Vec<&K> {
    let mut sorted: Vec<&K> = objects.iter().collect();
    let key = |o: &K| {
        (o.meta().name.clone(), o.meta().creation_timestamp.as_ref().map(|t| t.0), o.meta().uid.clone())
    };
    sorted.sort_by_cached_key(|o| key(o));
    sorted
}

/// The names of the Secrets that the BGPPeers of the own node refer to; those of all where there is no own node.
pub fn secrets_named(resources: &Resources) -> BTreeSet<String> {
    let peers = resources.bgp_peers.iter();
    peers
        .filter(|peer| selects_own_node(&peer.spec.node_selectors, resources))
        .filter_map(|peer| peer.spec.password_secret.as_ref())
        .map(|reference| reference.name.clone())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Whether one of the selectors, or their absence, selects the own node, if there is one.
///
/// A selector that means nothing may select it: the object is to be judged, not passed over.
pub(crate) fn selects_own_node(selectors: &[LabelSelector], resources: &Resources) -> bool {
    let Some(node) = &resources.own_node else { return true };
    let none = Labels::new();
    let labels = resources.nodes.get(node).unwrap_or(&none);
    selectors.is_empty() || selectors.iter().any(|s| Selector::parse(s).map_or(true, |s| s.matches(labels)))
}

fn same<K>(a: &K, b: &K) -> bool
where
    K: Resource + HasSpec,
    K::Spec: PartialEq,
{
    a.meta().name == b.meta().name
        && a.meta().uid == b.meta().uid
        && a.meta().creation_timestamp == b.meta().creation_timestamp
        && a.labels() == b.labels()
        && own_annotations(a).eq(own_annotations(b))
        && a.spec() == b.spec()
}

/// The annotations that ask for something.
fn own_annotations<K: Resource>(object: &K) -> impl Iterator<Item = (&String, &String)> {
    object.annotations().iter().filter(|(key, _)| key.starts_with(OWN_PREFIX))
}

#[cfg(test)]
mod tests {
    use ferrolb_api::IPAddressPoolStatus;

    use super::*;

    fn pool(name: &str, address: &str) -> IPAddressPool {
        let mut pool = IPAddressPool::new(name, ferrolb_api::IPAddressPoolSpec::default());
        pool.spec.addresses.push(address.to_owned());
        pool
    }

    #[test]
    fn only_what_an_evaluation_reads_counts_as_a_change() {
        let mut list = Vec::new();
        assert!(apply(&mut list, Change::Reset(vec![pool("b", "1.0.0.0/24"), pool("a", "2.0.0.0/24")])));
        assert!(!apply(&mut list, Change::Reset(vec![pool("a", "2.0.0.0/24"), pool("b", "1.0.0.0/24")])));

        let mut counted = pool("a", "2.0.0.0/24");
        counted.status = Some(IPAddressPoolStatus { assigned_ipv4: 1, ..IPAddressPoolStatus::default() });
        counted.metadata.resource_version = Some("7".to_owned());
        assert!(!apply(&mut list, Change::Applied(Box::new(counted.clone()))));
        assert!(list.contains(&counted), "the newest form is kept all the same");

        assert!(apply(&mut list, Change::Applied(Box::new(pool("a", "3.0.0.0/24")))));
        let mut labelled = pool("a", "3.0.0.0/24");
        labelled.labels_mut().insert("k".to_owned(), "v".to_owned());
        assert!(apply(&mut list, Change::Applied(Box::new(labelled))));

        let gone = || Change::Deleted { namespace: "ns".to_owned(), name: "a".to_owned() };
        assert!(apply(&mut list, gone()));
        assert!(!apply(&mut list, gone()));
    }

    #[test]
    fn types_of_bgp_are_read_as_metallb_reads_them() {
        for (text, expected) in [
            ("", BgpType::Native),
            ("native", BgpType::Native),
            ("frr", BgpType::Frr),
            ("frr-k8s", BgpType::FrrK8s),
            ("FRR", BgpType::Other("FRR".to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(expected));
        }
    }
}
