// SPDX-License-Identifier: Apache-2.0
//! MetalLB's rule by itself: the order of its checks, and whom it elects.

use ferrolb_announce::{Ingress, Members, Reason, Service, metallb};

use crate::cluster::{Cluster, UP1, UP2, ad, both, ip, key, local, members, on, preferring, service};
use crate::cluster::{IRIS1, IRIS2};

/// What the speaker on iris1 does about Service s.
fn verdict(cluster: &Cluster, text: &str) -> Result<(), Reason> {
    let members = Members::Known(members(text));
    metallb::verdict(&cluster.inputs(&IRIS1.into()), &cluster.services[&key("s")], &members)
}

#[test]
fn the_first_of_its_checks_that_fails_is_its_reason() {
    let good = || service("10.20.30.2", &[UP1]);
    let with = |entry| {
        let mut service = good();
        service.ingress.push(entry);
        service
    };
    let pool = || "default".into();
    let rows: Vec<(&str, Cluster, Result<(), Reason>)> = vec![
        ("announced", both().with("s", good()), Ok(())),
        (
            "another class, before anything else",
            both().with("s", Service { class: Some("x".into()), load_balancer: false, ..good() }),
            Err(Reason::ForeignClass { service: Some("x".into()), ours: None }),
        ),
        (
            "another type",
            both().with("s", Service { load_balancer: false, ingress: vec![], ..good() }),
            Err(Reason::NotLoadBalancer),
        ),
        ("no address", both().with("s", Service { ingress: vec![], ..good() }), Err(Reason::NoIpAllocated)),
        (
            "a host name beside the address",
            both().with("s", with(Ingress::Hostname("lb.example".into()))),
            Err(Reason::InvalidIp(String::new())),
        ),
        (
            "a text that is no address",
            both().with("s", with(Ingress::Invalid("10.20.30".into()))),
            Err(Reason::InvalidIp("10.20.30".into())),
        ),
        (
            "no pool holds all",
            both().with("s", with(Ingress::Ip(ip("2.2.2.2")))),
            Err(Reason::IpNotAllowed { ips: vec![ip("10.20.30.2"), ip("2.2.2.2")], pools_incomplete: false }),
        ),
        (
            "no endpoint, before no advertisement",
            Cluster::new([]).with("s", service("10.20.30.2", &[])),
            Err(Reason::NoServingEndpoint),
        ),
        (
            "no advertisement for the node, before it is excluded",
            Cluster::new([ad("two", &[IRIS2])]).with("s", good()).exclude(IRIS1),
            Err(Reason::NoMatchingAdvertisement { pool: pool(), node: IRIS1.into() }),
        ),
        (
            "excluded: the other leads",
            both().with("s", good()).exclude(IRIS1),
            Err(Reason::Outranked(IRIS2.into())),
        ),
        (
            "all excluded: none leads",
            both().with("s", good()).exclude(IRIS1).exclude(IRIS2),
            Err(Reason::NodeExcluded(IRIS1.into())),
        ),
        (
            "no network anywhere, and excluded too",
            both().with("s", good()).cut_off(IRIS1).cut_off(IRIS2).exclude(IRIS1),
            Err(Reason::NodeNetworkUnavailable(IRIS1.into())),
        ),
        (
            "Local without an endpoint here",
            both().with("s", local("10.20.30.2", &[UP2])),
            Err(Reason::Outranked(IRIS2.into())),
        ),
        (
            "no interface is looked at",
            Cluster::new([on(&["ghost0"], ad("any", &[IRIS1, IRIS2]))]).with("s", good()),
            Ok(()),
        ),
        (
            "no preference is looked at",
            Cluster::new([preferring(&[(IRIS2, 100)], ad("any", &[IRIS1, IRIS2]))]).with("s", good()),
            Ok(()),
        ),
        (
            "the first address decides",
            both().with("s", service("10.20.30.1,10.20.30.2", &[UP1])),
            Err(Reason::Outranked(IRIS2.into())),
        ),
    ];
    for (case, cluster, expected) in rows {
        assert_eq!(verdict(&cluster, "iris1=M iris2=M"), expected, "{case}");
    }
}

#[test]
fn members_of_every_kind_count_and_nobody_else() {
    let cluster = both().with("s", service("10.20.30.1", &[UP1]));
    for (text, leader) in [
        ("iris1=M iris2=M", Some(IRIS2)),
        ("iris1=M iris2=O", Some(IRIS2)),
        ("iris1=M iris2=S", Some(IRIS2)),
        ("iris1=M", Some(IRIS1)),
        ("ghost=M iris1=M", Some(IRIS1)),
        ("", None),
    ] {
        let members = Members::Known(members(text));
        let node = IRIS1.into();
        let named = metallb::leader(&cluster.inputs(&node), &cluster.services[&key("s")], &members);
        assert_eq!(named.map(|node| node.as_str()), leader, "{text}");
    }
    assert_eq!(verdict(&cluster, "ghost=M"), Err(Reason::NotEligible));
}
