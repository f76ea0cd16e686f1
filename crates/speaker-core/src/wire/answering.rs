// SPDX-License-Identifier: Apache-2.0
//! Makes the layer-2 engine agree with the plan and the members: what this node leads, it answers for.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::{AddressPlan, NodePlan, owner};
use ferrolb_net_types::Time;

use super::Wire;

impl Wire {
    /// Takes a new plan; only what it changes is decided anew.
    pub(super) fn set_plan(&mut self, now: Time, new: Arc<NodePlan>) {
        let former = self.plan.replace(new.clone());
        match former.filter(|_| self.ready()) {
            Some(former) => differing(&former, &new).iter().for_each(|ip| self.decide(now, *ip)),
            None => self.decide_all(now),
        }
    }

    /// Decides about every address, once everything is known that decides.
    pub(super) fn decide_all(&mut self, now: Time) {
        let Some(plan) = self.plan.clone().filter(|_| self.ready()) else { return };
        let all: BTreeSet<_> = plan.addresses.keys().chain(&self.owned).copied().collect();
        all.into_iter().for_each(|ip| self.decide(now, ip));
    }

    /// Makes the engine agree with the plan and the members about one address.
    fn decide(&mut self, now: Time, ip: IpAddr) {
        let (Some(plan), Some(members)) = (&self.plan, &self.members) else { return };
        let ours = plan
            .addresses
            .get(&ip)
            .filter(|address| owner(address, members).is_some_and(|owner| *owner == self.node));
        match ours {
            Some(address) => {
                let interfaces = &address.interfaces;
                self.engine.handle(now, ferrolb_l2::Input::Announce { address: ip, interfaces });
                self.owned.insert(ip);
            }
            None if self.owned.remove(&ip) => {
                self.engine.handle(now, ferrolb_l2::Input::Withdraw { address: ip });
            }
            None => return,
        }
        self.report.addresses.insert(ip);
    }
}

/// The addresses whose plans are not the same.
fn differing(former: &NodePlan, new: &NodePlan) -> BTreeSet<IpAddr> {
    let same = |ip: &IpAddr, plan: &Arc<AddressPlan>| {
        new.addresses.get(ip).is_some_and(|other| Arc::ptr_eq(other, plan))
    };
    let changed = former.addresses.iter().filter(|(ip, plan)| !same(ip, plan)).map(|(ip, _)| ip);
    let added = new.addresses.keys().filter(|ip| !former.addresses.contains_key(*ip));
    changed.chain(added).copied().collect()
}
