// SPDX-License-Identifier: Apache-2.0
//! What is stored already, as far as it could be read.

use std::collections::BTreeMap;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::List;
use crate::{Labels, Resources, Undecodable};

/// The outcome of the reads that an answer needs.
///
/// A list that was not read counts as one whose read failed.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    resources: Resources,
    outcomes: BTreeMap<List, Result<(), String>>,
}

impl Stored {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the `items` of a list. One that does not fit its type is remembered as such.
    pub fn insert(&mut self, list: List, items: Vec<Value>) {
        let undecodable = &mut self.resources.undecodable;
        undecodable.retain(|object| object.kind != list.kind());
        match list {
            List::BGPPeers => self.resources.bgp_peers = decoded(list, items, undecodable),
            List::IPAddressPools => self.resources.pools = decoded(list, items, undecodable),
            List::BGPAdvertisements => self.resources.bgp_advertisements = decoded(list, items, undecodable),
            List::L2Advertisements => self.resources.l2_advertisements = decoded(list, items, undecodable),
            List::Communities => self.resources.communities = decoded(list, items, undecodable),
            List::BFDProfiles => self.resources.bfd_profiles = decoded(list, items, undecodable),
            List::Nodes => {
                self.resources.nodes =
                    items.iter().map(|item| (name(item).as_str().into(), labels(item))).collect();
            }
            List::Namespaces => {
                self.resources.namespaces = items.iter().map(|item| (name(item), labels(item))).collect();
            }
        }
        self.outcomes.insert(list, Ok(()));
    }

    /// Takes note of a list that could not be read, and why.
    pub fn fail(&mut self, list: List, cause: impl Into<String>) {
        self.outcomes.insert(list, Err(cause.into()));
    }

    /// Whether a list is there, or why not.
    pub(super) fn outcome(&self, list: List) -> Result<(), &str> {
        match self.outcomes.get(&list) {
            Some(Ok(())) => Ok(()),
            Some(Err(cause)) => Err(cause),
            None => Err("not read"),
        }
    }

    /// Whether a list is there.
    pub(super) fn has(&self, list: List) -> bool {
        self.outcome(list).is_ok()
    }

    /// Whether a list has an object of this name, readable or not.
    pub(super) fn holds(&self, list: List, name: &str) -> bool {
        fn any<K: Resource>(objects: &[K], name: &str) -> bool {
            objects.iter().any(|object| object.meta().name.as_deref() == Some(name))
        }
        let all = &self.resources;
        let readable = match list {
            List::BGPPeers => any(&all.bgp_peers, name),
            List::IPAddressPools => any(&all.pools, name),
            List::BGPAdvertisements => any(&all.bgp_advertisements, name),
            List::L2Advertisements => any(&all.l2_advertisements, name),
            List::Communities => any(&all.communities, name),
            List::BFDProfiles => any(&all.bfd_profiles, name),
            List::Nodes => all.nodes.contains_key(name),
            List::Namespaces => all.namespaces.contains_key(name),
        };
        readable || all.undecodable.iter().any(|object| object.kind == list.kind() && object.name == name)
    }

    /// Everything that was read.
    pub(super) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Of everything that was read, these lists.
    pub(super) fn of(&self, lists: impl IntoIterator<Item = List>) -> Resources {
        let (all, mut some) = (&self.resources, Resources::default());
        for list in lists {
            match list {
                List::BGPPeers => some.bgp_peers.clone_from(&all.bgp_peers),
                List::IPAddressPools => some.pools.clone_from(&all.pools),
                List::BGPAdvertisements => some.bgp_advertisements.clone_from(&all.bgp_advertisements),
                List::L2Advertisements => some.l2_advertisements.clone_from(&all.l2_advertisements),
                List::Communities => some.communities.clone_from(&all.communities),
                List::BFDProfiles => some.bfd_profiles.clone_from(&all.bfd_profiles),
                List::Nodes => some.nodes.clone_from(&all.nodes),
                List::Namespaces => some.namespaces.clone_from(&all.namespaces),
            }
            let undecodable = all.undecodable.iter().filter(|object| object.kind == list.kind());
            some.undecodable.extend(undecodable.cloned());
        }
        some
    }
}

/// Resources of which every list is known.
impl From<Resources> for Stored {
    fn from(resources: Resources) -> Self {
        Self { resources, outcomes: List::ALL.map(|list| (list, Ok(()))).into() }
    }
}

fn decoded<K>(list: List, items: Vec<Value>, undecodable: &mut Vec<Undecodable>) -> Vec<K>
where
    K: Resource + DeserializeOwned,
{
    let mut objects = Vec::with_capacity(items.len());
    for item in items {
        let name = name(&item);
        match serde_json::from_value(item) {
            Ok(object) => objects.push(object),
            Err(error) => {
                undecodable.push(Undecodable { kind: list.kind(), name, message: error.to_string() });
            }
        }
    }
    objects
}

fn name(item: &Value) -> String {
    item["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn labels(item: &Value) -> Labels {
    let labels = item["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_does_not_fit_its_type_is_kept_apart() {
        let mut stored = Stored::new();
        let good = json!({ "metadata": { "name": "p" }, "spec": { "addresses": ["10.0.0.0/24"] } });
        let bad = json!({ "metadata": { "name": "q" }, "spec": { "addresses": "10.0.0.0/24" } });
        stored.insert(List::IPAddressPools, vec![bad.clone(), good.clone()]);
        stored.insert(List::IPAddressPools, vec![bad, good, json!(7)]);
        assert_eq!(stored.resources().pools.len(), 1);
        let apart: Vec<&str> = stored.resources().undecodable.iter().map(|o| o.name.as_str()).collect();
        assert_eq!(apart, ["q", ""]);
        assert_eq!(stored.of([List::Communities]).undecodable, []);
    }

    #[test]
    fn a_list_that_was_not_read_is_not_there() {
        let mut stored = Stored::new();
        assert_eq!(stored.outcome(List::Nodes), Err("not read"));
        stored.fail(List::Nodes, "timeout");
        assert_eq!(stored.outcome(List::Nodes), Err("timeout"));
        stored.insert(
            List::Nodes,
            vec![json!({ "metadata": { "name": "n", "labels": { "a": "b", "c": 1 } } })],
        );
        assert_eq!(stored.outcome(List::Nodes), Ok(()));
        assert_eq!(stored.resources().nodes["n"], [("a".to_owned(), "b".to_owned())].into());
    }
}
