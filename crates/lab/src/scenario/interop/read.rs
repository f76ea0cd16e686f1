// SPDX-License-Identifier: Apache-2.0
//! What routers say of a route, each in its own way.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::super::cluster::text;

/// A route as a router has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) next_hop: Option<IpAddr>,
    pub(super) as_path: Vec<u32>,
    /// As far as it says one.
    pub(super) local_pref: Option<u32>,
    /// `64512:1234`, in order.
    pub(super) communities: Vec<String>,
    /// `64512:1:2`, in order.
    pub(super) large_communities: Vec<String>,
    /// In bytes per second, if it has one.
    pub(super) bandwidth: Option<u32>,
}

/// `show bgp ipv4 unicast PREFIX json` of FRR: the path of a neighbor.
pub(super) fn frr(said: &Value, neighbor: IpAddr) -> Result<Option<Route>> {
    let of = |path: &&Value| text(path, "/peer/peerId").parse() == Ok(neighbor);
    let Some(path) = list(said, "/paths").iter().find(of) else { return Ok(None) };
    let words = |pointer| list(path, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let segments = list(path, "/aspath/segments").iter().flat_map(|segment| list(segment, "/list"));
    let bandwidth = match text(path, "/extendedCommunity/string") {
        "" => None,
        // `LB:64512:250000000 (2.000 Gbps)`
        said => {
            let number = said.split([':', ' ']).nth(2).and_then(|number| number.parse().ok());
            Some(number.with_context(|| format!("a link bandwidth {said:?}"))?)
        }
    };
    Ok(Some(Route {
        next_hop: text(path, "/nexthops/0/ip").parse().ok(),
        as_path: segments.filter_map(number).collect(),
        local_pref: path.get("locPrf").and_then(number),
        communities: words("/community/list"),
        large_communities: words("/largeCommunity/list"),
        bandwidth,
    }))
}

/// `show route … all` of BIRD for one prefix and one protocol.
pub(super) fn bird(said: &str, prefix: &str) -> Result<Option<Route>> {
    if !said.lines().any(|line| line.starts_with(prefix)) {
        return Ok(None);
    }
    let value = |name: &str| {
        let mut values = said.lines().filter_map(|line| line.trim().strip_prefix("BGP.")?.strip_prefix(name));
        values.next().and_then(|rest| rest.strip_prefix(": "))
    };
    // `(64512, 1, 2) (64512, 3, 4)`
    let tuples = |name: &str| -> Vec<Vec<String>> {
        let tuples = value(name).unwrap_or_default().split(['(', ')']).map(str::trim);
        let numbers = |tuple: &str| tuple.split(',').map(|word| word.trim().to_owned()).collect();
        tuples.filter(|tuple| !tuple.is_empty()).map(numbers).collect()
    };
    let joined = |name| tuples(name).iter().map(|tuple| tuple.join(":")).collect();
    // It knows the type by its number alone, and writes the IEEE 754 number as an integer.
    let extended = tuples("ext_community").into_iter().find(|tuple| tuple[0].ends_with("0x4004"));
    let bandwidth = match extended.as_deref() {
        Some([_, _, bits]) => Some(rounded(f32::from_bits(bits.parse()?))),
        _ => None,
    };
    let as_path = value("as_path").unwrap_or_default().split_whitespace();
    Ok(Some(Route {
        // The second is a link-local one, for IPv6.
        next_hop: value("next_hop").and_then(|hops| hops.split(' ').next()?.parse().ok()),
        as_path: as_path.map(str::parse).collect::<Result<_, _>>()?,
        local_pref: value("local_pref").map(str::parse).transpose()?,
        communities: joined("community"),
        large_communities: joined("large_community"),
        bandwidth,
    }))
}

/// `gobgp -j neighbor … adj-in`.
pub(super) fn gobgp(said: &Value, prefix: &str) -> Result<Option<Route>> {
    let Some(attributes) = said.get(prefix).map(|paths| list(paths, "/0/attrs")) else { return Ok(None) };
    let mut route = Route::default();
    for attribute in attributes {
        match attribute["type"].as_u64() {
            Some(2) => {
                let segments = list(attribute, "/as_paths").iter();
                route.as_path = segments.flat_map(|one| list(one, "/asns")).filter_map(number).collect();
            }
            // NEXT_HOP, MP_REACH_NLRI
            Some(3 | 14) => route.next_hop = Some(text(attribute, "/nexthop").parse()?),
            Some(5) => route.local_pref = attribute.get("value").and_then(number),
            Some(8) => {
                let numbers = list(attribute, "/communities").iter().filter_map(number);
                route.communities =
                    numbers.map(|number| format!("{}:{}", number >> 16, number & 0xffff)).collect();
            }
            Some(16) => {
                let mut values =
                    list(attribute, "/value").iter().filter_map(|value| value["bandwidth"].as_f64());
                route.bandwidth = values.next().map(|bytes| rounded(bytes as f32));
            }
            Some(32) => {
                let of = |value: &Value| {
                    let parts = ["ASN", "LocalData1", "LocalData2"].map(|part| value[part].to_string());
                    parts.join(":")
                };
                route.large_communities = list(attribute, "/value").iter().map(of).collect();
            }
            _ => {}
        }
    }
    Ok(Some(route))
}

/// The events of ExaBGP: the last word of a neighbor about a prefix.
pub(super) fn exabgp(events: &[Value], neighbor: IpAddr, prefix: &str) -> Option<Route> {
    let mut last = None;
    for event in events.iter().filter(|event| text(event, "/neighbor/address/peer").parse() == Ok(neighbor)) {
        if text(event, "/neighbor/state") == "down" {
            last = None;
        }
        let Some(update) = event.pointer("/neighbor/message/update") else { continue };
        let families = |what: &str| update[what].as_object().into_iter().flat_map(|all| all.iter());
        let is_it = |nlri: &Value| text(nlri, "/nlri") == prefix || nlri.as_str() == Some(prefix);
        for (_, hops) in families("announce") {
            for (hop, routes) in hops.as_object().into_iter().flatten() {
                if list(routes, "").iter().any(is_it) {
                    last = Some(exabgp_route(&update["attribute"], hop));
                }
            }
        }
        if families("withdraw").any(|(_, routes)| list(routes, "").iter().any(is_it)) {
            last = None;
        }
    }
    last
}

fn exabgp_route(attributes: &Value, hop: &str) -> Route {
    let joined = |name: &str| {
        let tuples = attributes[name].as_array().into_iter().flatten();
        let parts = |tuple: &Value| list(tuple, "").iter().map(Value::to_string).collect::<Vec<_>>();
        tuples.map(|tuple| parts(tuple).join(":")).collect()
    };
    // The eight octets as one number: a type, a system, and an IEEE 754 number.
    let extended = attributes["extended-community"].as_array().into_iter().flatten();
    let values = extended.filter_map(|one| one["value"].as_u64());
    let mut bandwidths = values.filter(|value| value >> 48 == 0x4004).map(|value| {
        // Its lower half.
        rounded(f32::from_bits((value & u64::from(u32::MAX)) as u32))
    });
    Route {
        next_hop: hop.parse().ok(),
        as_path: list(&attributes["as-path"], "").iter().filter_map(number).collect(),
        local_pref: attributes.get("local-preference").and_then(number),
        communities: joined("community"),
        large_communities: joined("large-community"),
        bandwidth: bandwidths.next(),
    }
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// A bandwidth in whole bytes per second; beyond what a number holds it is the greatest.
fn rounded(bytes: f32) -> u32 {
    // What is told here are small multiples of 1 Gbit/s.
    bytes as u32
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NODE: &str = "192.168.10.20";
    const PREFIX: &str = "192.168.20.10/32";

    /// The route that all of them have.
    fn route() -> Route {
        Route {
            next_hop: NODE.parse().ok(),
            as_path: vec![64_512],
            local_pref: None,
            communities: vec!["64512:1234".into()],
            large_communities: vec!["64512:1:2".into()],
            bandwidth: Some(250_000_000),
        }
    }

    #[test]
    fn frr_tells_of_the_path_of_a_neighbor() {
        let said = json!({"paths": [{
            "aspath": {"string": "64512", "segments": [{"type": "as-sequence", "list": [64512]}]},
            "community": {"list": ["64512:1234"]},
            "largeCommunity": {"list": ["64512:1:2"]},
            "extendedCommunity": {"string": "LB:64512:250000000 (2.000 Gbps)"},
            "nexthops": [{"ip": NODE}],
            "peer": {"peerId": NODE},
        }]});
        assert_eq!(frr(&said, NODE.parse().unwrap()).unwrap(), Some(route()));
        assert_eq!(frr(&said, "192.168.10.21".parse().unwrap()).unwrap(), None);
        assert_eq!(frr(&json!({}), NODE.parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn bird_tells_in_lines() {
        let said = "BIRD 2.0.12 ready.\nTable master4:\n192.168.20.10/32     unicast [k8s_node_1 15:04:50.901] * (100) [AS64512i]\n\
            \tvia 192.168.10.20 on eth1\n\tType: BGP univ\n\tBGP.origin: IGP\n\tBGP.as_path: 64512\n\
            \tBGP.next_hop: 192.168.10.20\n\tBGP.local_pref: 150\n\tBGP.community: (64512,1234)\n\
            \tBGP.ext_community: (unknown 0x4004, 64512, 1299082024)\n\tBGP.large_community: (64512, 1, 2)\n";
        let expected = Route { local_pref: Some(150), ..route() };
        assert_eq!(bird(said, PREFIX).unwrap(), Some(expected));
        assert_eq!(bird("BIRD 2.0.12 ready.\n", PREFIX).unwrap(), None);
    }

    #[test]
    fn gobgp_tells_in_attributes_by_number() {
        let said = json!({PREFIX: [{"attrs": [
            {"type": 1, "value": 0},
            {"type": 2, "as_paths": [{"segment_type": 2, "num": 1, "asns": [64512]}]},
            {"type": 3, "nexthop": NODE},
            {"type": 8, "communities": [4_227_859_666_u32]},
            {"type": 16, "value": [{"type": 64, "subtype": 4, "asn": 64512, "bandwidth": 250_000_000}]},
            {"type": 32, "value": [{"ASN": 64512, "LocalData1": 1, "LocalData2": 2}]},
        ]}]});
        assert_eq!(gobgp(&said, PREFIX).unwrap(), Some(route()));
        assert_eq!(gobgp(&json!({}), PREFIX).unwrap(), None);
    }

    #[test]
    fn exabgp_tells_what_was_said_last() {
        let event = |of: &str, content: Value| json!({"type": "update", "neighbor": {"address": {"peer": of}, "message": {"update": content}}});
        let announced = event(
            NODE,
            json!({
                "attribute": {
                    "origin": "igp",
                    "as-path": [64512],
                    "community": [[64512, 1234]],
                    "large-community": [[64512, 1, 2]],
                    "extended-community": [{"value": 0x4004_fc00_4d6e_6b28_u64, "string": "bandwith:64512:250000000"}],
                },
                "announce": {"ipv4 unicast": {NODE: [{"nlri": PREFIX}]}},
            }),
        );
        let withdrawn = event(NODE, json!({"withdraw": {"ipv4 unicast": [{"nlri": PREFIX}]}}));
        let down = json!({"type": "state", "neighbor": {"address": {"peer": NODE}, "state": "down"}});
        let other = event("192.168.10.21", json!({"withdraw": {"ipv4 unicast": [{"nlri": PREFIX}]}}));
        let last = |events: &[Value]| exabgp(events, NODE.parse().unwrap(), PREFIX);
        assert_eq!(last(&[announced.clone(), other]), Some(route()));
        assert_eq!(last(&[announced.clone(), withdrawn.clone()]), None);
        assert_eq!(last(&[announced.clone(), down]), None);
        assert_eq!(last(&[withdrawn, announced]), Some(route()));
        assert_eq!(last(&[]), None);
    }
}
