// SPDX-License-Identifier: Apache-2.0
//! Who holds which address: the bookkeeping under every decision.
//!
//! Kept so that each question costs the logarithm of what is *held* (plus, for sharers, the addresses under
//! their key), whatever the size of the pools.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferrolb_config::Config;
use ferrolb_net_types::{IpFamily, PoolName, ServiceKey};

use crate::claim::{Claim, Keys, Port};
use crate::ranges::RangeSet;
use crate::refusal::Refusal;
use crate::space::{PoolId, Space, index};
use crate::want::{Place, Spot};

/// The pools and who holds what in them.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    pub(crate) space: Space,
    pub(crate) pools_incomplete: bool,
    /// What is taken, by pool, then family.
    taken: Vec<[Taken; 2]>,
    /// Of the pools that serve anybody, those with an address that nobody holds; by family.
    open_with_unused: [BTreeSet<PoolId>; 2],
    /// Everybody on an address.
    tenants: BTreeMap<IpAddr, Tenants>,
    /// The addresses on which a Service with these keys might join, by pool, family, ordinal.
    joinable: BTreeMap<Keys, BTreeMap<(PoolId, IpFamily, u128), IpAddr>>,
    allocations: BTreeMap<ServiceKey, Allocation>,
    /// Addresses of the pools that a Service's status lists, or may come to list, though it does not hold them; and
    /// the other way round. Where nobody holds one, one of those who list it is on it.
    leaving: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    listed_by: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// Addresses that a Service may come to list, for all anybody knows; and for whom each is reserved.
    reserved: BTreeMap<ServiceKey, Reservation>,
    reserved_for: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    changes: Changes,
}

/// What one Service holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The pool of all its addresses; `None` if that pool is not known at the moment.
    pub pool: Option<PoolName>,
    /// One address, or one of each family, in the order of the status.
    pub ips: Vec<IpAddr>,
    keys: Keys,
    ports: Vec<Port>,
}

/// What one Service may come to list, and on which terms.
#[derive(Clone, Debug, Default)]
struct Reservation {
    ips: Vec<IpAddr>,
    keys: Keys,
    ports: Vec<Port>,
}

/// What happened since the last [`Allocator::take_changes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Where something became free: an address, a port of a shared one, a sharing key. Of the unused addresses of
    /// a pool only the first is told; who waited for one, in vain, although there was one is not helped by another.
    pub freed: BTreeSet<Spot>,
    /// Services for which an address is reserved that somebody else stood in the way of, and does no more.
    pub regained: BTreeSet<ServiceKey>,
    /// Pools whose counters changed.
    pub counters: BTreeSet<PoolName>,
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// IPv4.
    pub ipv4: Usage,
    /// IPv6.
    pub ipv6: Usage,
}

/// How full a pool is in one family. Numbers never exceed 2^63-1 and are never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Addresses the pool has to give.
    pub capacity: i64,
    /// Distinct addresses in use; one that several Services share counts once.
    pub in_use: i64,
    /// Of those, the ones that the pool has to give no longer: held since before it began to avoid them.
    pub withheld: i64,
}

impl Usage {
    /// Addresses still to give.
    pub fn available(self) -> i64 {
        self.capacity.saturating_sub(self.in_use.saturating_sub(self.withheld)).max(0)
    }
}

impl Counters {
    /// Both families together.
    pub fn total(self) -> Usage {
        Usage {
            capacity: self.ipv4.capacity.saturating_add(self.ipv6.capacity),
            in_use: self.ipv4.in_use.saturating_add(self.ipv6.in_use),
            withheld: self.ipv4.withheld.saturating_add(self.ipv6.withheld),
        }
    }
}

const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

#[derive(Clone, Debug, Default)]
struct Taken {
    ordinals: RangeSet,
    /// Distinct addresses, those without an ordinal included.
    count: i64,
    /// Those without an ordinal.
    withheld: i64,
}

#[derive(Clone, Debug, Default)]
struct Tenants {
    /// Those of the Service that came last; equal for all where there are several.
    keys: Keys,
    services: BTreeSet<ServiceKey>,
    ports: BTreeMap<Port, ServiceKey>,
}

/// Whether addresses that a pool covers but no longer hands out are fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covered {
    /// For addresses that a Service holds already.
    Anywhere,
    /// For addresses that it asks for.
    ByWhatIsHandedOut,
}

/// Who is on an address once its last user left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heirs {
    /// Somebody whose status lists it too.
    WhoeverListsIt,
    /// Nobody: its user comes back at once, with other keys or ports.
    None,
}

impl Allocator {
    /// An allocator in which nobody holds anything yet.
    pub fn new(config: &Config) -> Self {
        let space = Space::new(config);
        let taken = space.ids().map(|_| Default::default()).collect();
        let open_with_unused = FAMILIES
            .map(|family| space.open().iter().copied().filter(|id| space.size(*id, family) > 0).collect());
        Self { space, pools_incomplete: config.pools_incomplete, taken, open_with_unused, ..Self::default() }
    }

    /// What a Service holds.
    pub fn allocation(&self, service: &ServiceKey) -> Option<&Allocation> {
        self.allocations.get(service)
    }

    /// Takes everything from a Service that is gone or no longer ours. Whether there was anything.
    pub fn release(&mut self, service: &ServiceKey) -> bool {
        let held_back = self.stand_down(service);
        for &ip in &held_back {
            self.tell_unlisted(ip);
        }
        self.set_reserved(service, Reservation::default());
        self.drop_allocation(service) || !held_back.is_empty()
    }

    /// Keeps everybody else off the addresses that a Service's status lists, though it does not hold them.
    ///
    /// An address is free only when no status lists it any more: whoever reads the status acts on it. Those who hold
    /// such an address keep it, and what the Service itself holds is left out; the list replaces a former one.
    pub fn hold_back(&mut self, service: &ServiceKey, listed: &[Option<IpAddr>]) {
        let before = self.let_go(service);
        self.hold_back_after(service, listed, before);
    }

    /// Takes back from a Service what it was to get and nobody has heard of. What its status lists is held back.
    pub fn withdraw(&mut self, service: &ServiceKey, listed: &[Option<IpAddr>]) {
        let before = self.let_go(service);
        self.drop_allocation(service);
        self.hold_back_after(service, listed, before);
    }

    /// Keeps off these addresses everybody who could not share them with the Service as it is, in place of what was
    /// reserved for it before; what its status lists is held back as by [`Allocator::hold_back`].
    ///
    /// For a write whose outcome nobody knows: the Service's status may list them any moment, or never. Whoever is on
    /// them stays; the Service itself may take them.
    pub fn reserve(&mut self, claim: &Claim, addresses: Vec<IpAddr>) {
        let before = self.let_go(&claim.service);
        let reservation =
            Reservation { ips: addresses, keys: claim.keys.clone(), ports: claim.ports.clone() };
        self.set_reserved(&claim.service, reservation);
        self.hold_back_after(&claim.service, &claim.held, before);
    }

    fn set_reserved(&mut self, service: &ServiceKey, reservation: Reservation) {
        for ip in self.reserved.remove(service).unwrap_or_default().ips {
            if let Some(services) = self.reserved_for.get_mut(&ip) {
                services.remove(service);
                if services.is_empty() {
                    self.reserved_for.remove(&ip);
                }
            }
            // Where others are on it, it may have room for one more now.
            if let Some(tenants) = self.tenants.get(&ip) {
                self.changes.freed.insert(Spot(Place::Address(ip)));
                if !tenants.keys.sharing.is_empty() {
                    self.changes.freed.insert(Spot(Place::Shared(tenants.keys.clone())));
                }
            }
        }
        for &ip in &reservation.ips {
            self.reserved_for.entry(ip).or_default().insert(service.clone());
        }
        if !reservation.ips.is_empty() {
            self.reserved.insert(service.clone(), reservation);
        }
    }

    /// On which terms a Service is on an address that it does not hold: its own if it may come to hold it, nobody's if
    /// it only lists it still.
    fn terms(&self, service: &ServiceKey, ip: IpAddr) -> (Keys, Vec<Port>) {
        match self.reserved.get(service).filter(|reservation| reservation.ips.contains(&ip)) {
            Some(reservation) => (reservation.keys.clone(), reservation.ports.clone()),
            None => Default::default(),
        }
    }

    /// [`Allocator::hold_back`] for a Service whose former list was let go.
    pub(crate) fn hold_back_after(
        &mut self,
        service: &ServiceKey,
        listed: &[Option<IpAddr>],
        before: Vec<IpAddr>,
    ) {
        let own = self.allocations.get(service).map(|a| a.ips.clone()).unwrap_or_default();
        let reserved = self.reserved.get(service).map(|r| r.ips.clone()).unwrap_or_default();
        let leaving: BTreeSet<IpAddr> = listed
            .iter()
            .copied()
            .flatten()
            .chain(reserved)
            .filter(|ip| !own.contains(ip) && self.space.locate(*ip).is_some())
            .collect();
        for &ip in &leaving {
            self.listed_by.entry(ip).or_default().insert(service.clone());
            if !self.tenants.contains_key(&ip) {
                let (keys, ports) = self.terms(service, ip);
                let freed = before.contains(&ip).then(|| self.changes.freed.clone());
                self.enter(service, &keys, &ports, ip);
                // That it is on the address again is no news: two who wait would wake each other for ever.
                if let Some(freed) = freed {
                    self.changes.freed = freed;
                }
            }
        }
        if !leaving.is_empty() {
            self.leaving.insert(service.clone(), leaving);
        }
        for ip in before {
            if !own.contains(&ip) && !self.leaving.get(service).is_some_and(|leaving| leaving.contains(&ip)) {
                self.tell_unlisted(ip);
            }
        }
    }

    /// Notes for those who wait that there is one less who lists the address.
    fn tell_unlisted(&mut self, ip: IpAddr) {
        let reserved_for = self.reserved_for.get(&ip).into_iter().flatten();
        self.changes.regained.extend(reserved_for.cloned());
        if self.listed_by.get(&ip).into_iter().flatten().any(|service| !self.is_reserved_for(service, ip)) {
            return;
        }
        match (self.tenants.get(&ip), self.space.locate(ip)) {
            (Some(tenants), _) => {
                let keys = tenants.keys.clone();
                self.changes.freed.insert(Spot(Place::Address(ip)));
                if !keys.sharing.is_empty() {
                    self.changes.freed.insert(Spot(Place::Shared(keys)));
                }
            }
            (None, Some(place)) => self.tell_unused(place.pool, ip),
            (None, None) => {}
        }
    }

    /// Forgets what the Service lists without holding it; what that was.
    fn unlist(&mut self, service: &ServiceKey) -> BTreeSet<IpAddr> {
        let listed = self.leaving.remove(service).unwrap_or_default();
        for ip in &listed {
            if let Some(services) = self.listed_by.get_mut(ip) {
                services.remove(service);
                if services.is_empty() {
                    self.listed_by.remove(ip);
                }
            }
        }
        listed
    }

    fn is_reserved_for(&self, service: &ServiceKey, ip: IpAddr) -> bool {
        self.reserved.get(service).is_some_and(|reservation| reservation.ips.contains(&ip))
    }

    fn holds(&self, service: &ServiceKey, ip: IpAddr) -> bool {
        self.allocations.get(service).is_some_and(|allocation| allocation.ips.contains(&ip))
    }

    fn is_on(&self, service: &ServiceKey, ip: IpAddr) -> bool {
        self.tenants.get(&ip).is_some_and(|tenants| tenants.services.contains(service))
    }

    /// The pools, in order of name.
    pub fn pools(&self) -> impl Iterator<Item = &PoolName> {
        self.space.ids().map(|id| &self.space.pool(id).name)
    }

    /// How full a pool is; `None` if there is no such pool.
    pub fn counters(&self, pool: &str) -> Option<Counters> {
        let id = self.space.by_name(pool)?;
        let usage = |family| Usage {
            capacity: self.space.capacity(id, family),
            in_use: self.taken[id.0][index(family)].count,
            withheld: self.taken[id.0][index(family)].withheld,
        };
        Some(Counters { ipv4: usage(IpFamily::V4), ipv6: usage(IpFamily::V6) })
    }

    /// What changed since this was asked last.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Takes the allocation, and nothing else, from a Service. Whether it had one.
    pub(crate) fn drop_allocation(&mut self, service: &ServiceKey) -> bool {
        let Some(allocation) = self.allocations.remove(service) else { return false };
        for &ip in &allocation.ips {
            self.leave(service, &allocation.ports, ip);
        }
        true
    }

    /// Undoes [`Allocator::hold_back`] while the Service itself is decided anew; what was held back. Nobody is told
    /// that something became free.
    pub(crate) fn let_go(&mut self, service: &ServiceKey) -> Vec<IpAddr> {
        let (freed, regained) = (self.changes.freed.clone(), self.changes.regained.clone());
        let before = self.stand_down(service);
        (self.changes.freed, self.changes.regained) = (freed, regained);
        before
    }

    /// Forgets what a Service lists without holding it, and takes it from there; what that was.
    fn stand_down(&mut self, service: &ServiceKey) -> Vec<IpAddr> {
        let listed: Vec<IpAddr> = self.unlist(service).into_iter().collect();
        for &ip in &listed {
            if self.is_on(service, ip) {
                let (_, ports) = self.terms(service, ip);
                self.leave(service, &ports, ip);
            }
        }
        listed
    }

    /// Whether the pool has an address of the family that nobody holds.
    pub(crate) fn has_unused(&self, id: PoolId, family: IpFamily) -> bool {
        self.taken[id.0][index(family)]
            .ordinals
            .lowest_missing()
            .is_some_and(|lowest| lowest < self.space.size(id, family))
    }

    /// The first pool, from this one on, that serves anybody and has an address of the family that nobody holds.
    pub(crate) fn first_open_with_unused(&self, family: IpFamily, from: PoolId) -> Option<PoolId> {
        self.open_with_unused[index(family)].range(from..).next().copied()
    }

    /// The first pool, from this one on, that has an address which a Service with these keys might join.
    pub(crate) fn first_joinable(&self, keys: &Keys, from: PoolId) -> Option<PoolId> {
        let addresses = self.joinable.get(keys)?;
        addresses.range((from, IpFamily::V4, 0)..).next().map(|((id, ..), _)| *id)
    }

    /// The address of a pool and family that the Service would get: the first that is unused or that it may share.
    pub(crate) fn first_for(&self, claim: &Claim, id: PoolId, family: IpFamily) -> Option<IpAddr> {
        let unused = self.lowest_unused(id, family);
        let before = unused.map_or(u128::MAX, |(ordinal, _)| ordinal);
        let shared = self.joinable.get(&claim.keys).and_then(|addresses| {
            addresses
                .range((id, family, 0)..=(id, family, before))
                .find(|(_, ip)| self.check(claim, **ip).is_ok())
        });
        shared.map(|(_, ip)| *ip).or(unused.map(|(_, ip)| ip))
    }

    /// The pool that holds all of these addresses and admits the Service. `None` if they lie outside all
    /// known pools while not every pool is known.
    pub(crate) fn owner(
        &self,
        claim: &Claim,
        ips: &[Option<IpAddr>],
        covered: Covered,
    ) -> Result<Option<PoolId>, Refusal> {
        let outside = || Refusal::NotInOnePool(ips.to_vec());
        let mut owner: Option<PoolId> = None;
        let mut unknown = false;
        for ip in ips {
            let ip = ip.ok_or_else(outside)?;
            match self.space.locate(ip) {
                Some(place) if covered == Covered::Anywhere || place.ordinal.is_some() => {
                    if owner.is_some_and(|owner| owner != place.pool) {
                        return Err(outside());
                    }
                    owner = Some(place.pool);
                }
                None if covered == Covered::Anywhere && self.pools_incomplete => unknown = true,
                _ => return Err(outside()),
            }
        }
        if let Some(pool) = owner.map(|id| self.space.pool(id))
            && !pool.admits(&claim.service.namespace, &claim.labels)
        {
            return Err(Refusal::PoolNotCompatible(pool.name.clone()));
        }
        Ok(owner.filter(|_| !unknown))
    }

    /// Whether a Service may have exactly these addresses; the pool they lie in, if it is known.
    pub(crate) fn admit(
        &self,
        claim: &Claim,
        ips: &[Option<IpAddr>],
        covered: Covered,
    ) -> Result<Option<PoolId>, Refusal> {
        let owner = self.owner(claim, ips, covered)?;
        let ips: Vec<IpAddr> = ips.iter().copied().flatten().collect();
        match ips[..] {
            [a, b] if IpFamily::of(a) == IpFamily::of(b) => return Err(Refusal::SameFamily(a, b)),
            [_, _, _, ..] => return Err(Refusal::MoreThanTwo(ips)),
            _ => {}
        }
        for &ip in &ips {
            self.check(claim, ip)?;
        }
        Ok(owner)
    }

    /// Gives a Service exactly these addresses in place of what it holds. On refusal nothing changes.
    pub(crate) fn assign(
        &mut self,
        claim: &Claim,
        ips: &[Option<IpAddr>],
        covered: Covered,
    ) -> Result<(), Refusal> {
        let pool = self.admit(claim, ips, covered)?.map(|id| self.space.pool(id).name.clone());
        let ips: Vec<IpAddr> = ips.iter().copied().flatten().collect();
        let allocation = Allocation { pool, ips, keys: claim.keys.clone(), ports: claim.ports.clone() };
        if self.allocations.get(&claim.service).is_some_and(|held| *held == allocation) {
            return Ok(());
        }
        if let Some(old) = self.allocations.insert(claim.service.clone(), allocation.clone()) {
            for ip in old.ips {
                let heirs = if allocation.ips.contains(&ip) { Heirs::None } else { Heirs::WhoeverListsIt };
                self.leave_to(heirs, &claim.service, &old.ports, ip);
            }
        }
        for ip in allocation.ips {
            self.enter(&claim.service, &claim.keys, &claim.ports, ip);
        }
        Ok(())
    }

    /// Whether the Service may be on the address, given who else is.
    fn check(&self, claim: &Claim, ip: IpAddr) -> Result<(), Refusal> {
        let Some(tenants) = self.tenants.get(&ip) else { return Ok(()) };
        // Who lists it has only those before it who hold it, not those who list it too and have to go.
        let listed = claim.held.contains(&Some(ip));
        let counts = |service: &ServiceKey| *service != claim.service && (!listed || self.holds(service, ip));
        let mut users = tenants.services.iter().filter(|service| counts(service)).peekable();
        if users.peek().is_none() {
            return Ok(());
        }
        if let Some(services) = self.reserved_for.get(&ip).filter(|_| !listed) {
            let others = || services.iter().filter(|service| **service != claim.service);
            for reservation in others().filter_map(|service| self.reserved.get(service)) {
                if !claim.keys.share_with(&reservation.keys) {
                    let users = others().cloned().collect();
                    return Err(Refusal::InUse { service: claim.service.clone(), users });
                }
                if let Some(&port) = claim.ports.iter().find(|port| reservation.ports.contains(port)) {
                    return Err(Refusal::PortInUse { port, ip });
                }
            }
        }
        if let Some(services) = self.listed_by.get(&ip).filter(|_| !listed) {
            // Whoever is about to go has other keys or ports by now than it shared the address with.
            let goes = |service: &&ServiceKey| {
                **service != claim.service
                    && !self.reserved.get(*service).is_some_and(|r| r.ips.contains(&ip))
            };
            let users: Vec<ServiceKey> = services.iter().filter(goes).cloned().collect();
            if !users.is_empty() {
                return Err(Refusal::InUse { service: claim.service.clone(), users });
            }
        }
        if !claim.keys.share_with(&tenants.keys) {
            return Err(Refusal::InUse { service: claim.service.clone(), users: users.cloned().collect() });
        }
        match claim.ports.iter().find(|port| tenants.ports.get(port).is_some_and(counts)) {
            Some(&port) => Err(Refusal::PortInUse { port, ip }),
            None => Ok(()),
        }
    }

    fn lowest_unused(&self, id: PoolId, family: IpFamily) -> Option<(u128, IpAddr)> {
        let ordinal = self.taken[id.0][index(family)].ordinals.lowest_missing()?;
        Some((ordinal, self.space.address(id, family, ordinal)?))
    }

    fn enter(&mut self, service: &ServiceKey, keys: &Keys, ports: &[Port], ip: IpAddr) {
        let tenants = self.tenants.entry(ip).or_default();
        let first = tenants.services.is_empty();
        tenants.services.insert(service.clone());
        let former = std::mem::replace(&mut tenants.keys, keys.clone());
        for &port in ports {
            tenants.ports.insert(port, service.clone());
        }
        let Some(place) = self.space.locate(ip) else { return };
        let family = IpFamily::of(ip);
        if let Some(ordinal) = place.ordinal
            && !first
            && former != *keys
            && let Some(addresses) = self.joinable.get_mut(&former)
        {
            addresses.remove(&(place.pool, family, ordinal));
            if addresses.is_empty() {
                self.joinable.remove(&former);
            }
        }
        if let Some(ordinal) = place.ordinal
            && (first || former != *keys)
            && !keys.sharing.is_empty()
        {
            self.joinable.entry(keys.clone()).or_default().insert((place.pool, family, ordinal), ip);
            self.changes.freed.insert(Spot(Place::Shared(keys.clone())));
        }
        if first {
            let taken = &mut self.taken[place.pool.0][index(family)];
            taken.count += 1;
            if let Some(ordinal) = place.ordinal {
                taken.ordinals.insert(ordinal);
                if !self.has_unused(place.pool, family) {
                    self.open_with_unused[index(family)].remove(&place.pool);
                }
            } else {
                taken.withheld += 1;
            }
            self.changes.counters.insert(self.space.pool(place.pool).name.clone());
        }
    }

    fn leave(&mut self, service: &ServiceKey, ports: &[Port], ip: IpAddr) {
        self.leave_to(Heirs::WhoeverListsIt, service, ports, ip);
    }

    fn leave_to(&mut self, heirs: Heirs, service: &ServiceKey, ports: &[Port], ip: IpAddr) {
        let Some(tenants) = self.tenants.get_mut(&ip) else { return };
        tenants.services.remove(service);
        for port in ports {
            if tenants.ports.get(port) == Some(service) {
                tenants.ports.remove(port);
            }
        }
        let Some(place) = self.space.locate(ip) else {
            if tenants.services.is_empty() {
                self.tenants.remove(&ip);
            }
            return;
        };
        if !tenants.services.is_empty() {
            self.changes.freed.insert(Spot(Place::Address(ip)));
            if !tenants.keys.sharing.is_empty() {
                self.changes.freed.insert(Spot(Place::Shared(tenants.keys.clone())));
            }
            return;
        }
        let keys = self.tenants.remove(&ip).map(|tenants| tenants.keys).unwrap_or_default();
        let family = IpFamily::of(ip);
        let had_unused = self.has_unused(place.pool, family);
        let taken = &mut self.taken[place.pool.0][index(family)];
        taken.count -= 1;
        self.changes.counters.insert(self.space.pool(place.pool).name.clone());
        if let Some(ordinal) = place.ordinal {
            taken.ordinals.remove(ordinal);
            if let Some(addresses) = self.joinable.get_mut(&keys) {
                addresses.remove(&(place.pool, family, ordinal));
                if addresses.is_empty() {
                    self.joinable.remove(&keys);
                }
            }
            if self.space.open().contains(&place.pool) {
                self.open_with_unused[index(family)].insert(place.pool);
            }
        } else {
            taken.withheld -= 1;
        }
        let heir = match heirs {
            Heirs::WhoeverListsIt => {
                self.listed_by.get(&ip).into_iter().flatten().find(|heir| *heir != service).cloned()
            }
            Heirs::None => None,
        };
        if let Some(heir) = heir {
            let (keys, ports) = self.terms(&heir, ip);
            self.enter(&heir, &keys, &ports, ip);
            if self.is_reserved_for(&heir, ip) {
                self.changes.regained.insert(heir);
            }
        } else if had_unused {
            self.changes.freed.insert(Spot(Place::Address(ip)));
        } else {
            self.tell_unused(place.pool, ip);
        }
    }

    /// Notes for those who wait that nobody holds the address any more.
    fn tell_unused(&mut self, pool: PoolId, ip: IpAddr) {
        let family = IpFamily::of(ip);
        self.changes.freed.insert(Spot(Place::Address(ip)));
        self.changes.freed.insert(Spot(Place::Pool(pool, family)));
        if self.space.open().contains(&pool) {
            self.changes.freed.insert(Spot(Place::Open(family)));
        }
    }
}
