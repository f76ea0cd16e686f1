// SPDX-License-Identifier: Apache-2.0
//! Who announces which Service, as the speakers' status objects tell it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ferrolb_api::{Change, ServiceBGPStatus, ServiceL2Status};
use ferrolb_net_types::ServiceKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::conditions::{Fact, Want};

/// Announcements that a message names; it counts the rest.
const NAMED: usize = 8;

/// All announcements that are known.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    l2: Objects,
    bgp: Objects,
}

/// The status objects of one kind.
#[derive(Debug, Default)]
struct Objects {
    listed: bool,
    /// The Service that each object is about.
    about: BTreeMap<Name, ServiceKey>,
    /// What the objects about a Service say.
    of: BTreeMap<ServiceKey, BTreeMap<Name, Place>>,
}

/// Namespace and name of an object.
type Name = (String, String);

/// Where a Service is announced: the node, and there the interfaces or peers.
type Place = (String, String);

impl Announced {
    /// Takes note of ServiceL2Statuses; the Services that this concerns.
    pub(crate) fn l2_changed(&mut self, change: Change<ServiceL2Status>) -> BTreeSet<ServiceKey> {
        self.l2.change(
            change,
            |object| &object.metadata,
            |object| {
                let status = object.status.as_ref()?;
                let interfaces: Vec<&str> = status.interfaces.iter().map(|i| i.name.as_str()).collect();
                announcement(&status.service_namespace, &status.service_name, &status.node, &interfaces)
            },
        )
    }

    /// Takes note of ServiceBGPStatuses; the Services that this concerns.
    pub(crate) fn bgp_changed(&mut self, change: Change<ServiceBGPStatus>) -> BTreeSet<ServiceKey> {
        self.bgp.change(
            change,
            |object| &object.metadata,
            |object| {
                let status = object.status.as_ref()?;
                let peers: Vec<&str> = status.peers.iter().map(String::as_str).collect();
                announcement(&status.service_namespace, &status.service_name, &status.node, &peers)
            },
        )
    }

    /// Whether all announcements are known.
    pub(crate) const fn is_complete(&self) -> bool {
        self.l2.listed && self.bgp.listed
    }

    /// What the condition `Announced` of a Service that has addresses should be.
    pub(crate) fn want(&self, service: &ServiceKey, insists: bool) -> Want {
        if !self.is_complete() {
            return Want::Unchanged;
        }
        let mut message = String::new();
        for (objects, what) in [(&self.l2, "layer 2"), (&self.bgp, "BGP")] {
            let Some(places) = objects.of.get(service) else { continue };
            let places: BTreeSet<&Place> = places.values().collect();
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(what);
            for (n, (node, details)) in places.iter().take(NAMED).enumerate() {
                message.push_str(if n == 0 { " on " } else { ", " });
                message.push_str(node);
                if !details.is_empty() {
                    // Writing to a String cannot fail.
                    let _ = write!(message, " ({details})");
                }
            }
            if let Some(more) = places.len().checked_sub(NAMED).filter(|more| *more > 0) {
                let _ = write!(message, " and {more} more");
            }
        }
        let holds = !message.is_empty();
        let reason = if holds { "Announced" } else { "NotAnnounced" };
        if !holds {
            message.push_str("no node announces it");
        }
        Want::Is(Fact { holds, reason, message, insists })
    }
}

impl Objects {
    fn change<K>(
        &mut self,
        change: Change<K>,
        metadata: impl Fn(&K) -> &ObjectMeta,
        read: impl Fn(&K) -> Option<(ServiceKey, Place)>,
    ) -> BTreeSet<ServiceKey> {
        let name = |object: &K| {
            let metadata = metadata(object);
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
        };
        let mut touched = BTreeSet::new();
        match change {
            Change::Applied(object) => self.set(name(&object), read(&object), &mut touched),
            Change::Deleted { namespace, name } => self.set((namespace, name), None, &mut touched),
            Change::Reset(objects) => {
                self.listed = true;
                let mut gone: BTreeSet<Name> = self.about.keys().cloned().collect();
                for object in &objects {
                    let name = name(object);
                    gone.remove(&name);
                    self.set(name, read(object), &mut touched);
                }
                for name in gone {
                    self.set(name, None, &mut touched);
                }
            }
        }
        touched
    }

    fn set(&mut self, name: Name, new: Option<(ServiceKey, Place)>, touched: &mut BTreeSet<ServiceKey>) {
        let before = self.about.remove(&name).and_then(|service| {
            let places = self.of.get_mut(&service)?;
            let place = places.remove(&name)?;
            if places.is_empty() {
                self.of.remove(&service);
            }
            Some((service, place))
        });
        if before != new {
            touched.extend([&before, &new].into_iter().flatten().map(|(service, _)| service.clone()));
        }
        if let Some((service, place)) = new {
            self.about.insert(name.clone(), service.clone());
            self.of.entry(service).or_default().insert(name, place);
        }
    }
}

fn announcement(namespace: &str, name: &str, node: &str, details: &[&str]) -> Option<(ServiceKey, Place)> {
    // An object is created without its status, which follows.
    (!name.is_empty() && !node.is_empty())
        .then(|| (ServiceKey::new(namespace, name), (node.to_owned(), details.join(", "))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn l2(object: &str, service: &str, node: &str, interfaces: &[&str]) -> ServiceL2Status {
        let interfaces: Vec<_> = interfaces.iter().map(|name| json!({ "name": name })).collect();
        serde_json::from_value(json!({
            "metadata": { "namespace": "metallb-system", "name": object },
            "status": {
                "node": node, "serviceName": service, "serviceNamespace": "demo", "interfaces": interfaces,
            },
        }))
        .unwrap()
    }

    fn bgp(object: &str, service: &str, node: &str) -> ServiceBGPStatus {
        serde_json::from_value(json!({
            "metadata": { "namespace": "metallb-system", "name": object },
            "status": { "node": node, "serviceName": service, "serviceNamespace": "demo", "peers": ["tor"] },
        }))
        .unwrap()
    }

    fn applied<K>(object: K) -> Change<K> {
        Change::Applied(Box::new(object))
    }

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("demo", name)
    }

    fn said(announced: &Announced, name: &str) -> (bool, String) {
        match announced.want(&key(name), false) {
            Want::Is(fact) => (fact.holds, fact.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_said_before_both_kinds_are_listed() {
        let mut announced = Announced::default();
        announced.l2_changed(Change::Reset(vec![]));
        assert_eq!(announced.want(&key("s"), true), Want::Unchanged);
        announced.bgp_changed(Change::Reset(vec![]));
        assert_eq!(said(&announced, "s"), (false, "no node announces it".to_owned()));
    }

    #[test]
    fn nodes_interfaces_and_peers_are_named_and_many_are_counted() {
        let mut announced = Announced::default();
        announced.bgp_changed(Change::Reset(
            (0..10).map(|n| bgp(&n.to_string(), "s", &format!("n{n}"))).collect(),
        ));
        let list =
            vec![l2("a", "s", "n1", &["ens18", "ens19"]), l2("b", "t", "n2", &[]), l2("c", "", "", &[])];
        announced.l2_changed(Change::Reset(list));
        let peers = (0..8).map(|n| format!("n{n} (tor)")).collect::<Vec<_>>().join(", ");
        let message = format!("layer 2 on n1 (ens18, ens19); BGP on {peers} and 2 more");
        assert_eq!(said(&announced, "s"), (true, message));
        assert_eq!(said(&announced, "t"), (true, "layer 2 on n2".to_owned()));
    }

    #[test]
    fn a_change_concerns_the_services_that_it_is_about_and_no_others() {
        let mut announced = Announced::default();
        announced.bgp_changed(Change::Reset(vec![]));
        let both = BTreeSet::from([key("s"), key("t")]);
        let table = [
            (Change::Reset(vec![l2("a", "s", "n1", &[]), l2("b", "t", "n1", &[])]), both.clone()),
            (Change::Reset(vec![l2("a", "s", "n1", &[]), l2("b", "t", "n1", &[])]), BTreeSet::new()),
            (applied(l2("a", "s", "n2", &[])), BTreeSet::from([key("s")])),
            (applied(l2("a", "t", "n2", &[])), both),
            (
                Change::Deleted { namespace: "metallb-system".to_owned(), name: "b".to_owned() },
                BTreeSet::from([key("t")]),
            ),
            (Change::Reset(vec![]), BTreeSet::from([key("t")])),
        ];
        for (change, expected) in table {
            let what = format!("{change:?}");
            assert_eq!(announced.l2_changed(change), expected, "{what}");
        }
        assert!(!said(&announced, "t").0);
    }
}
