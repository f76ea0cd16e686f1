// SPDX-License-Identifier: Apache-2.0
//! Cluster IPs and node ports: taken when a Service needs them, given back when it no longer does or when
//! its write did not happen.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard};

use serde_json::{Value, json};

use crate::Error;
use crate::builtin::service::{needs_cluster_ip, needs_health_check, needs_node_ports, number};
use crate::error::{ApiError, FieldError, Result};
use crate::object::{self, at, list, object_mut, text};

/// First node port.
const FIRST_PORT: u16 = 30000;
/// Last node port.
const LAST_PORT: u16 = 32767;

/// What is free and what is taken.
#[derive(Debug)]
pub(crate) struct Allocator {
    ranges: Vec<Range>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Clone)]
struct Range {
    text: String,
    v6: bool,
    first: u128,
    size: u128,
}

#[derive(Debug, Default)]
struct Taken {
    addresses: HashSet<IpAddr>,
    ports: HashSet<u16>,
    next_port: u16,
    next_address: [u128; 2],
}

/// What one write has taken so far.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    addresses: Vec<IpAddr>,
    ports: Vec<u16>,
}

impl<'a> Reservation<'a> {
    /// Nothing is taken.
    pub(crate) const fn none(allocator: &'a Allocator) -> Self {
        Self { allocator, addresses: Vec::new(), ports: Vec::new() }
    }

    /// The write happened.
    pub(crate) fn keep(mut self) {
        self.addresses.clear();
        self.ports.clear();
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut taken = self.allocator.lock();
        for address in &self.addresses {
            taken.addresses.remove(address);
        }
        for port in &self.ports {
            taken.ports.remove(port);
        }
    }
}

impl Allocator {
    /// An allocator for these ranges, the first one's family being the default.
    pub(crate) fn new(cidrs: &[String]) -> std::result::Result<Self, Error> {
        let mut ranges: Vec<Range> = Vec::new();
        for cidr in cidrs {
            let range = Range::parse(cidr).ok_or_else(|| {
                Error::Options(format!("service range {cidr:?} is not a network with room for addresses"))
            })?;
            if ranges.iter().any(|other| other.v6 == range.v6) {
                return Err(Error::Options(format!(
                    "service range {cidr:?}: there is one of that family already"
                )));
            }
            ranges.push(range);
        }
        if ranges.is_empty() {
            return Err(Error::Options("there is no service range".into()));
        }
        let allocator = Self { ranges, taken: Mutex::default() };
        // The first address is the API's own, in every cluster.
        let own = allocator.first_addresses();
        allocator.lock().addresses.extend(own);
        Ok(allocator)
    }

    /// The first address of each range: where a cluster's API is.
    pub(crate) fn first_addresses(&self) -> Vec<IpAddr> {
        self.ranges.iter().map(|range| range.address(1)).collect()
    }

    /// Completes a Service's families, addresses and ports.
    pub(crate) fn allocate(&self, old: Option<&Value>, new: &mut Value) -> Result<Reservation<'_>> {
        let mut reservation = Reservation::none(self);
        let name = object::name(new).to_owned();
        let invalid = |error: FieldError| ApiError::invalid("", "Service", &name, &[error]);
        let kind = text(new, &["spec", "type"]).to_owned();
        if needs_cluster_ip(&kind) {
            self.addresses(old, new, &mut reservation).map_err(invalid)?;
        }
        let held = old.map(held_ports).unwrap_or_default();
        let spec = &mut new["spec"];
        let wants = kind == "NodePort"
            || (kind == "LoadBalancer"
                && at(spec, &["allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false)));
        if needs_node_ports(&kind) {
            let mut mine: HashSet<u16> = HashSet::new();
            for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                let asked = number(port, "nodePort");
                if asked == 0 && !wants {
                    continue;
                }
                let got = if asked == 0 {
                    self.free_port(&mut reservation).map_err(invalid)?
                } else {
                    self.this_port(asked, "spec.ports", &held, &mine, &mut reservation).map_err(invalid)?
                };
                mine.insert(got);
                object_mut(port).insert("nodePort".into(), got.into());
            }
        }
        if needs_health_check(spec) {
            let asked = number(spec, "healthCheckNodePort");
            let got = if asked == 0 {
                self.free_port(&mut reservation).map_err(invalid)?
            } else {
                self.this_port(asked, "spec.healthCheckNodePort", &held, &HashSet::new(), &mut reservation)
                    .map_err(invalid)?
            };
            object_mut(spec).insert("healthCheckNodePort".into(), got.into());
        }
        Ok(reservation)
    }

    /// Gives back what the old state of a written Service held and the new one does not.
    pub(crate) fn settle(&self, old: Option<&Value>, new: Option<&Value>) {
        let Some(old) = old else { return };
        let (addresses, ports) =
            (new.map(held_addresses).unwrap_or_default(), new.map(held_ports).unwrap_or_default());
        let mut taken = self.lock();
        for address in held_addresses(old).difference(&addresses) {
            taken.addresses.remove(address);
        }
        for port in held_ports(old).difference(&ports) {
            taken.ports.remove(port);
        }
    }

    fn addresses(
        &self,
        old: Option<&Value>,
        new: &mut Value,
        reservation: &mut Reservation<'_>,
    ) -> std::result::Result<(), FieldError> {
        let spec = &mut new["spec"];
        let one = text(spec, &["clusterIP"]).to_owned();
        let mut asked: Vec<String> =
            list(spec, &["clusterIPs"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if asked.is_empty() && !one.is_empty() {
            asked.push(one);
        } else if !one.is_empty() && asked.first() != Some(&one) {
            let detail = "first value must match `clusterIP`";
            return Err(FieldError::invalid("spec.clusterIPs", asked, detail));
        }
        let headless = asked.first().is_some_and(|first| first == "None");
        let families = self.families(old, spec, &asked, headless)?;
        object_mut(spec).insert(
            "ipFamilies".into(),
            families.iter().map(|&v6| Value::from(if v6 { "IPv6" } else { "IPv4" })).collect(),
        );
        if headless {
            object_mut(spec).insert("clusterIP".into(), "None".into());
            object_mut(spec).insert("clusterIPs".into(), json!(["None"]));
            return Ok(());
        }
        let held = old.map(held_addresses).unwrap_or_default();
        let mut got = Vec::new();
        for (i, &v6) in families.iter().enumerate() {
            let Some(text) = asked.get(i).filter(|text| !text.is_empty()) else {
                got.push(self.free_address(v6, reservation)?);
                continue;
            };
            let fail = |detail: String| FieldError::invalid("spec.clusterIPs", asked.clone(), detail);
            let address: IpAddr = text.parse().map_err(|_| {
                FieldError::invalid(
                    format!("spec.clusterIPs[{i}]"),
                    text.as_str(),
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                )
            })?;
            if !held.contains(&address) {
                if !self.ranges.iter().any(|range| range.v6 == v6 && range.contains(address)) {
                    let range =
                        self.ranges.iter().find(|range| range.v6 == v6).map(|range| range.text.clone());
                    let range = range.unwrap_or_default();
                    return Err(fail(format!(
                        "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. \
                         The range of valid IPs is {range}"
                    )));
                }
                if !self.lock().addresses.insert(address) {
                    return Err(fail(format!(
                        "failed to allocate IP {address}: provided IP is already allocated"
                    )));
                }
                reservation.addresses.push(address);
            }
            got.push(address);
        }
        let got: Vec<String> = got.iter().map(ToString::to_string).collect();
        object_mut(spec).insert("clusterIP".into(), got[0].clone().into());
        object_mut(spec).insert("clusterIPs".into(), got.into());
        Ok(())
    }

    /// The families of a Service's addresses, `true` for IPv6; its policy is filled in.
    fn families(
        &self,
        old: Option<&Value>,
        spec: &mut Value,
        asked: &[String],
        headless: bool,
    ) -> std::result::Result<Vec<bool>, FieldError> {
        let primary = self.ranges[0].v6;
        let mut families = Vec::new();
        for (i, family) in list(spec, &["ipFamilies"]).iter().enumerate() {
            let v6 = match family.as_str() {
                Some("IPv4") => false,
                Some("IPv6") => true,
                _ => {
                    let known = ["IPv4".into(), "IPv6".into()];
                    return Err(FieldError::not_supported(
                        format!("spec.ipFamilies[{i}]"),
                        family.clone(),
                        &known,
                    ));
                }
            };
            if !self.serves(v6) && !headless {
                return Err(FieldError::invalid(
                    "spec.ipFamilies",
                    family.clone(),
                    "not configured on this cluster",
                ));
            }
            families.push(v6);
        }
        for address in asked.iter().skip(families.len()).filter_map(|text| text.parse::<IpAddr>().ok()) {
            families.push(address.is_ipv6());
        }
        let selectorless =
            at(spec, &["selector"]).and_then(Value::as_object).is_none_or(|map| map.is_empty());
        let policy = text(spec, &["ipFamilyPolicy"]).to_owned();
        let policy = match policy.as_str() {
            "" if headless && selectorless && families.is_empty() => "RequireDualStack".to_owned(),
            "" if families.len() > 1 => {
                let detail = "must be set to `PreferDualStack` or `RequireDualStack` when multiple `ipFamilies` are specified";
                return Err(FieldError::required("spec.ipFamilyPolicy", detail));
            }
            "" => "SingleStack".to_owned(),
            "SingleStack" | "PreferDualStack" | "RequireDualStack" => policy,
            other => {
                let known = ["PreferDualStack".into(), "RequireDualStack".into(), "SingleStack".into()];
                return Err(FieldError::not_supported("spec.ipFamilyPolicy", other, &known));
            }
        };
        object_mut(spec).insert("ipFamilyPolicy".into(), policy.clone().into());
        if families.is_empty() {
            families.push(primary);
        }
        let dual = self.ranges.len() > 1 || (headless && selectorless);
        match policy.as_str() {
            "SingleStack" => {
                let was_dual = old.is_some_and(|old| list(old, &["spec", "ipFamilies"]).len() > 1);
                if families.len() > 1 && !was_dual {
                    let detail = "may only hold one value when `ipFamilyPolicy` is `SingleStack`";
                    return Err(FieldError::invalid("spec.ipFamilies", spec["ipFamilies"].clone(), detail));
                }
                families.truncate(1);
            }
            "RequireDualStack" if !dual => {
                let detail = "this cluster is not configured for dual-stack services";
                return Err(FieldError::invalid("spec.ipFamilyPolicy", policy, detail));
            }
            _ if dual && families.len() == 1 => families.push(!families[0]),
            _ => {}
        }
        Ok(families)
    }

    fn serves(&self, v6: bool) -> bool {
        self.ranges.iter().any(|range| range.v6 == v6)
    }

    fn free_address(
        &self,
        v6: bool,
        reservation: &mut Reservation<'_>,
    ) -> std::result::Result<IpAddr, FieldError> {
        let full = || {
            FieldError::invalid(
                "spec.clusterIPs",
                Value::Null,
                "failed to allocate a serviceIP: range is full",
            )
        };
        let range = self.ranges.iter().find(|range| range.v6 == v6).ok_or_else(full)?;
        let mut taken = self.lock();
        // The first address of a network and, of an IPv4 one, the last are no addresses of hosts.
        let usable = if v6 { range.size - 1 } else { range.size - 2 };
        let cursor = usize::from(v6);
        for i in 0..usable.min(1 << 20) {
            let offset = 1 + (taken.next_address[cursor] + i) % usable;
            let address = range.address(offset);
            if taken.addresses.insert(address) {
                taken.next_address[cursor] = offset % usable;
                reservation.addresses.push(address);
                return Ok(address);
            }
        }
        Err(full())
    }

    fn free_port(&self, reservation: &mut Reservation<'_>) -> std::result::Result<u16, FieldError> {
        let mut taken = self.lock();
        let count = LAST_PORT - FIRST_PORT + 1;
        for i in 0..count {
            let offset = (taken.next_port + i) % count;
            let port = FIRST_PORT + offset;
            if taken.ports.insert(port) {
                taken.next_port = (offset + 1) % count;
                reservation.ports.push(port);
                return Ok(port);
            }
        }
        Err(FieldError::invalid("spec.ports", Value::Null, "failed to allocate a nodePort: range is full"))
    }

    fn this_port(
        &self,
        asked: u64,
        field: &str,
        held: &HashSet<u16>,
        mine: &HashSet<u16>,
        reservation: &mut Reservation<'_>,
    ) -> std::result::Result<u16, FieldError> {
        let port = u16::try_from(asked).ok().filter(|port| (FIRST_PORT..=LAST_PORT).contains(port));
        let Some(port) = port else {
            let detail = format!(
                "provided port is not in the valid range. The range of valid ports is {FIRST_PORT}-{LAST_PORT}"
            );
            return Err(FieldError::invalid(field, asked, detail));
        };
        // One port number may stand for several protocols of one Service.
        if held.contains(&port) || mine.contains(&port) {
            return Ok(port);
        }
        if !self.lock().ports.insert(port) {
            return Err(FieldError::invalid(field, asked, "provided port is already allocated"));
        }
        reservation.ports.push(port);
        Ok(port)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Range {
    fn parse(cidr: &str) -> Option<Self> {
        let (address, length) = cidr.split_once('/')?;
        let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
        let (v6, bits, number) = match address {
            IpAddr::V4(v4) => (false, 32, u128::from(u32::from(v4))),
            IpAddr::V6(v6) => (true, 128, u128::from(v6)),
        };
        // At least four addresses; of a large IPv6 network only the first part is used.
        let host_bits = bits - u32::min(length, bits);
        if length > bits || !(2..=64).contains(&host_bits) || (number & ((1 << host_bits) - 1)) != 0 {
            return None;
        }
        Some(Self { text: cidr.to_owned(), v6, first: number, size: 1 << host_bits })
    }

    fn address(&self, offset: u128) -> IpAddr {
        let number = self.first + offset;
        if self.v6 {
            return IpAddr::V6(Ipv6Addr::from(number));
        }
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        IpAddr::V4(Ipv4Addr::from(number))
    }

    fn contains(&self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(v4) if !self.v6 => u128::from(u32::from(v4)),
            IpAddr::V6(v6) if self.v6 => u128::from(v6),
            _ => return false,
        };
        number > self.first && number - self.first < self.size
    }
}

fn held_addresses(service: &Value) -> HashSet<IpAddr> {
    let texts = list(service, &["spec", "clusterIPs"]).iter().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn held_ports(service: &Value) -> HashSet<u16> {
    let spec = &service["spec"];
    let mut ports: HashSet<u16> = list(spec, &["ports"])
        .iter()
        .filter_map(|port| u16::try_from(number(port, "nodePort")).ok())
        .collect();
    ports.extend(u16::try_from(number(spec, "healthCheckNodePort")).ok());
    ports.remove(&0);
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(extra: Value) -> Value {
        let mut spec = json!({ "type": "ClusterIP", "selector": { "a": "b" }, "ports": [{ "port": 80 }] });
        json_patch::merge(&mut spec, &extra);
        json!({ "metadata": { "name": "s" }, "spec": spec })
    }

    fn allocator(cidrs: &[&str]) -> Allocator {
        Allocator::new(&cidrs.iter().map(|&c| c.to_owned()).collect::<Vec<_>>()).expect("ranges")
    }

    #[test]
    fn a_write_that_does_not_happen_gives_everything_back() {
        let allocator = allocator(&["10.96.0.0/30"]);
        for _ in 0..5 {
            let mut new = service(json!({ "type": "NodePort" }));
            drop(allocator.allocate(None, &mut new).expect("allocates"));
            assert_eq!(new["spec"]["clusterIP"], "10.96.0.2", "the only free address");
        }
        let mut first = service(json!({}));
        allocator.allocate(None, &mut first).expect("allocates").keep();
        let error = allocator.allocate(None, &mut service(json!({}))).expect_err("full");
        assert!(error.message.contains("range is full"), "{}", error.message);
        allocator.settle(Some(&first), None);
        allocator.allocate(None, &mut service(json!({}))).expect("free again").keep();
    }

    #[test]
    fn families_follow_the_policy() {
        let dual = allocator(&["10.96.0.0/16", "fd00:10:96::/112"]);
        let of = |extra: Value| {
            let mut new = service(extra);
            dual.allocate(None, &mut new).map(|_| new["spec"]["ipFamilies"].clone()).map_err(|e| e.message)
        };
        assert_eq!(of(json!({})), Ok(json!(["IPv4"])));
        assert_eq!(of(json!({ "ipFamilyPolicy": "PreferDualStack" })), Ok(json!(["IPv4", "IPv6"])));
        assert_eq!(
            of(json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"] })),
            Ok(json!(["IPv6", "IPv4"]))
        );
        assert_eq!(of(json!({ "clusterIP": "fd00:10:96::77" })), Ok(json!(["IPv6"])));
        let single = allocator(&["10.96.0.0/16"]);
        let mut new = service(json!({ "ipFamilyPolicy": "RequireDualStack" }));
        assert!(single.allocate(None, &mut new).is_err());
    }

    #[test]
    fn a_taken_port_is_refused_and_a_held_one_kept() {
        let allocator = allocator(&["10.96.0.0/16"]);
        let mut a = service(json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30500 }] }));
        allocator.allocate(None, &mut a).expect("free").keep();
        let mut b = a.clone();
        b["spec"]["clusterIP"] = "".into();
        b["spec"]["clusterIPs"] = json!([]);
        let error = allocator.allocate(None, &mut b).expect_err("taken");
        assert!(error.message.contains("provided port is already allocated"));
        let mut again = a.clone();
        allocator.allocate(Some(&a), &mut again).expect("its own").keep();
        assert_eq!(a, again);
    }
}
