// SPDX-License-Identifier: Apache-2.0
//! What BGPPeers and BGPAdvertisements come to, and what stays in force when they go bad.

use std::time::Duration;

use ferrolb_api::BGPPeer;
use ferrolb_config::{
    BgpCapability, BgpDefaults, BgpPeer, BgpType, Config, Evaluation, LinkBandwidth, PeerAs, Resources,
    evaluate, secrets_named,
};
use ferrolb_net_types::{Asn, NodeName, PeerName};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::build::{addresses, community, fresh, labels, object};

pub(crate) const OWN: &str = "n1";

/// A speaker on n1, one of two nodes.
pub(crate) fn speaker(bgp_type: BgpType) -> Resources {
    let node = |name: &str| (NodeName::from(name), labels(&[("name", name)]));
    Resources {
        bgp_type,
        own_node: Some(OWN.into()),
        nodes: [node(OWN), node("n2")].into(),
        ..Resources::default()
    }
}

pub(crate) fn peer_created(name: &str, age: u32, more: &Value) -> BGPPeer {
    let mut spec = json!({ "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object(name, age, &json!({}), &spec)
}

fn peer(more: &Value) -> BGPPeer {
    peer_created("q", 0, more)
}

fn annotated(key: &str, value: &str) -> BGPPeer {
    let mut peer = peer(&json!({}));
    peer.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
    peer
}

pub(crate) fn then(before: &Evaluation, resources: &Resources) -> Evaluation {
    evaluate(resources, &before.last_good)
}

pub(crate) fn with(bgp_type: BgpType, peers: &[BGPPeer]) -> Evaluation {
    fresh(&Resources { bgp_peers: peers.to_vec(), ..speaker(bgp_type) })
}

/// The session with q, which there must be.
fn session(bgp_type: BgpType, more: &Value) -> BgpPeer {
    let evaluation = with(bgp_type, &[peer(more)]);
    evaluation
        .config
        .bgp
        .peers
        .get("q")
        .map(|peer| (**peer).clone())
        .unwrap_or_else(|| panic!("{evaluation:?}"))
}

pub(crate) fn sessions(config: &Config) -> Vec<&str> {
    config.bgp.peers.keys().map(PeerName::as_str).collect()
}

fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

#[test]
fn what_is_not_said_is_left_to_the_type() {
    for (bgp_type, defaults) in [(BgpType::Native, BgpDefaults::Native), (BgpType::Frr, BgpDefaults::Frr)] {
        let expected = BgpPeer {
            defaults,
            my_asn: asn(64512),
            local_asn: None,
            peer_as: PeerAs::Exactly(asn(64513)),
            address: "192.168.10.1".parse().unwrap(),
            port: 179,
            source: None,
            router_id: None,
            hold_seconds: None,
            keepalive: None,
            connect_time: None,
            password: None,
            multihop: false,
            gtsm_hops: None,
            both_families: false,
            max_prefixes: None,
            link_bandwidth: None,
            capabilities: Default::default(),
        };
        assert_eq!(session(bgp_type, &json!({})), expected);
    }
}

#[test]
fn every_field_that_is_served_has_its_value() {
    let seconds = Duration::from_secs;
    let of = |more: Value| session(BgpType::Frr, &more);
    assert_eq!(of(json!({ "localASN": 64999 })).local_asn, Some(asn(64999)));
    assert_eq!(of(json!({ "peerASN": null, "dynamicASN": "internal" })).peer_as, PeerAs::Internal);
    assert_eq!(of(json!({ "peerASN": null, "dynamicASN": "external" })).peer_as, PeerAs::External);
    assert_eq!(of(json!({ "peerPort": 1179 })).port, 1179);
    assert_eq!(
        of(json!({ "sourceAddress": "192.168.10.20" })).source,
        Some("192.168.10.20".parse().unwrap())
    );
    for any in ["0.0.0.0", "::"] {
        assert_eq!(of(json!({ "sourceAddress": any })), of(json!({})), "{any}");
    }
    assert_eq!(of(json!({ "routerID": "10.10.10.1" })).router_id, Some("10.10.10.1".parse().unwrap()));
    assert_eq!(of(json!({ "connectTime": "5s" })).connect_time, Some(seconds(5)));
    assert_eq!(of(json!({ "password": "x" })).password.unwrap().bytes(), b"x");
    assert!(of(json!({ "ebgpMultiHop": true })).multihop);
    assert!(of(json!({ "dualStackAddressFamily": true })).both_families);
    // S61
    let six = of(json!({ "peerAddress": "fd00:10::1" }));
    assert_eq!(six.address.to_string(), "fd00:10::1");
}

#[test]
fn one_timer_gives_the_other_and_nothing_is_longer_than_the_field_v09() {
    let seconds = |s| Some(Duration::from_secs(s));
    for (more, hold, keepalive) in [
        (json!({ "holdTime": "30s" }), Some(30), seconds(10)),
        (json!({ "keepaliveTime": "20s" }), Some(60), seconds(20)),
        (json!({ "holdTime": "30s", "keepaliveTime": "5s" }), Some(30), seconds(5)),
        (json!({ "holdTime": "0s", "keepaliveTime": "0s" }), Some(0), None),
        (json!({ "holdTime": "3900ms" }), Some(3), Some(Duration::from_millis(1300))),
        (json!({ "holdTime": "65537s" }), Some(65_535), Some(Duration::from_nanos(65_537_000_000_000 / 3))),
    ] {
        let peer = session(BgpType::Frr, &more);
        assert_eq!((peer.hold_seconds, peer.keepalive), (hold, keepalive), "{more}");
    }
    // MetalLB makes none at all of them.
    for (more, hold) in [
        (json!({ "keepaliveTime": "300ms" }), "900ms"),
        (json!({ "holdTime": "999ms" }), "999ms"),
        (json!({ "holdTime": "500ms", "keepaliveTime": "1ms" }), "500ms"),
    ] {
        let short = with(BgpType::Frr, &[peer(&more)]);
        assert_eq!(short.verdict, Ok(()), "{more}");
        assert_eq!(
            short.diagnostics[0].message,
            format!("a hold time of \"{hold}\" is shorter than the shortest there is, 3s, which is used")
        );
        assert_eq!(session(BgpType::Frr, &more).hold_seconds, Some(3), "{more}");
    }
    for (more, text) in [
        (
            json!({ "holdTime": "90s", "keepaliveTime": "-1s" }),
            r#"keepaliveTime "-1s" is negative, and counts as not set"#,
        ),
        (
            json!({ "keepaliveTime": "0s" }),
            r#"keepaliveTime "0s" without holdTime makes a hold time of 0: that the peer falls silent is not noticed"#,
        ),
    ] {
        let told = with(BgpType::Frr, &[peer(&more)]);
        assert_eq!((&told.verdict, told.diagnostics.len()), (&Ok(()), 1), "{more}");
        assert_eq!((told.diagnostics[0].message.as_str(), told.diagnostics[0].refused), (text, false));
    }
    assert!(
        with(BgpType::Frr, &[peer(&json!({ "holdTime": "0s", "keepaliveTime": "0s" }))])
            .diagnostics
            .is_empty()
    );
    let long = with(BgpType::Native, &[peer(&json!({ "holdTime": "65537s" }))]);
    assert_eq!(long.verdict, Ok(()));
    assert_eq!(
        long.diagnostics[0].message,
        r#"holdTime "18h12m17s" is longer than the longest there is, 65535s, which is used"#
    );
}

#[test]
fn what_metallb_takes_and_stumbles_over_later_is_a_fault_of_its_object_alone() {
    for (about, bad, text) in [
        ("S60, X14", peer(&json!({ "routerID": "fd00::1" })), "invalid router ID \"fd00::1\""),
        ("0.0.0.0", peer(&json!({ "routerID": "0.0.0.0" })), "invalid router ID \"0.0.0.0\""),
        (
            "a long password",
            peer(&json!({ "password": "x".repeat(81) })),
            "the password has more than 80 bytes",
        ),
        (
            "an annotation",
            annotated("ferrolb.io/max-prefixes", "some"),
            "metadata.annotations[ferrolb.io/max-prefixes]: expected a number",
        ),
    ] {
        let good = peer_created("good", 0, &json!({ "peerAddress": "192.168.10.2" }));
        let evaluation = with(BgpType::Native, &[bad.clone(), good]);
        assert_eq!(evaluation.verdict, Ok(()), "{about}");
        assert_eq!(sessions(&evaluation.config), ["good"], "{about}");
        assert_eq!(evaluation.diagnostics.len(), 1, "{about}");
        assert!(evaluation.diagnostics[0].message.starts_with(text), "{:?}", evaluation.diagnostics);
        // What was good before stays.
        let before = with(BgpType::Native, &[peer(&json!({}))]);
        let after = then(&before, &Resources { bgp_peers: vec![bad], ..speaker(BgpType::Native) });
        assert_eq!(after.config.bgp.peers, before.config.bgp.peers, "{about}");
    }
}

#[test]
fn annotations_ask_for_more() {
    let of = |key: &str, value: &str| {
        let evaluation = with(BgpType::Native, &[annotated(key, value)]);
        (*evaluation.config.bgp.peers["q"]).clone()
    };
    assert_eq!(of("ferrolb.io/max-prefixes", "100").max_prefixes, Some(100));
    assert_eq!(of("ferrolb.io/gtsm-hops", "1").gtsm_hops, Some(1));
    assert_eq!(of("ferrolb.io/link-bandwidth", "transitive").link_bandwidth, Some(LinkBandwidth::Transitive));
    let offered = [BgpCapability::RouteRefresh, BgpCapability::Fqdn];
    assert_eq!(of("ferrolb.io/capabilities", "route-refresh,fqdn").capabilities, offered.into());
}

#[test]
fn a_field_that_is_not_served_keeps_its_peer_closed_or_as_it_was_and_is_named() {
    for (field, more) in [
        ("vrf", json!({ "vrf": "red" })),
        ("interface", json!({ "interface": "ens18", "peerAddress": null })),
        ("enableGracefulRestart", json!({ "enableGracefulRestart": true })),
        ("bfdProfile", json!({ "bfdProfile": "f" })),
    ] {
        let resources = || Resources {
            bfd_profiles: vec![object("f", 0, &json!({}), &json!({}))],
            bgp_peers: vec![peer(&more), peer_created("other", 1, &json!({ "peerAddress": "192.168.10.2" }))],
            ..speaker(BgpType::Frr)
        };
        let evaluation = fresh(&resources());
        assert_eq!(sessions(&evaluation.config), ["other"], "{field}");
        let [named] = evaluation.unsupported.as_slice() else { panic!("{:?}", evaluation.unsupported) };
        assert!(named.to_string().starts_with(&format!("BGPPeer q: spec.{field} is not served")), "{named}");
        let before = with(BgpType::Frr, &[peer(&json!({}))]);
        let after = then(&before, &resources());
        assert_eq!(sessions(&after.config), ["other", "q"], "{field}");
    }
    // MetalLB's native mode refuses them itself.
    let native = with(BgpType::Native, &[peer(&json!({ "vrf": "red" }))]);
    assert_eq!(native.verdict, Err("peer 192.168.10.1 has vrf set on native bgp mode".to_owned()));
    assert_eq!((native.unsupported.len(), sessions(&native.config)), (0, vec![]));
}

#[test]
fn a_password_comes_from_its_secret_and_stays_when_that_goes_s99() {
    let by_secret = peer(&json!({ "passwordSecret": { "name": "s" } }));
    let other = peer_created("other", 1, &json!({ "peerAddress": "192.168.10.2" }));
    let secret = |value: &str| {
        let mut secret = Secret { type_: Some("kubernetes.io/basic-auth".to_owned()), ..Secret::default() };
        secret.metadata.name = Some("s".to_owned());
        secret.data = Some([("password".to_owned(), ByteString(value.as_bytes().to_vec()))].into());
        secret
    };
    let resources = |secrets: Vec<Secret>| Resources {
        bgp_peers: vec![by_secret.clone(), other.clone()],
        secrets,
        ..speaker(BgpType::Native)
    };
    assert_eq!(secrets_named(&resources(vec![])), ["s".to_owned()].into());
    let without = fresh(&resources(vec![]));
    assert!(without.verdict.as_ref().unwrap_err().contains("secret ref not found"), "{:?}", without.verdict);
    assert_eq!(sessions(&without.config), ["other"]);

    let password = |evaluation: &Evaluation| {
        evaluation.config.bgp.peers["q"].password.as_ref().map(|p| p.bytes().to_vec())
    };
    let one = then(&without, &resources(vec![secret("one")]));
    assert_eq!((one.verdict.clone(), password(&one)), (Ok(()), Some(b"one".to_vec())));
    let two = then(&one, &resources(vec![secret("two")]));
    assert_eq!(password(&two), Some(b"two".to_vec()));
    let gone = then(&two, &resources(vec![]));
    assert!(gone.verdict.is_err());
    assert_eq!(password(&gone), Some(b"two".to_vec()));
    assert!(!format!("{gone:?}").contains("two"), "no password is ever printed");
}

#[test]
fn advertisements_come_with_their_attributes_to_their_pools() {
    let spec = json!({
        "aggregationLength": 24, "localPref": 7, "communities": ["64512:1", "big"], "peers": ["q"],
        "ipAddressPools": ["p"], "nodeSelectors": [{ "matchLabels": { "name": OWN } }],
    });
    let mut resources = Resources {
        pools: vec![addresses("p", &["10.20.0.0/16"]), addresses("other", &["10.30.0.0/16"])],
        communities: vec![community("c", &[("big", "large:1:2:3")])],
        bgp_advertisements: vec![
            object("adv", 0, &json!({}), &spec),
            object(
                "there",
                0,
                &json!({}),
                &json!({ "nodeSelectors": [{ "matchLabels": { "name": "n2" } }] }),
            ),
        ],
        ..speaker(BgpType::Native)
    };
    let good = fresh(&resources);
    assert_eq!(good.verdict, Ok(()));
    assert!(good.metallb.is_err(), "MetalLB's native mode has no large communities");
    let advertisements = &good.config.bgp.advertisements;
    assert_eq!(advertisements.len(), 1, "{advertisements:?}");
    let [adv] = advertisements["p"].as_slice() else { panic!("{advertisements:?}") };
    assert_eq!(
        (&*adv.name, adv.aggregation_v4, adv.aggregation_v6, adv.local_pref),
        ("adv", 24, 128, Some(7))
    );
    assert_eq!(adv.communities.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1:2:3", "64512:1"]);
    assert!(adv.is_for(&"q".into()) && !adv.is_for(&"r".into()));
    assert_eq!(adv.prefix("10.20.30.40".parse().unwrap()).to_string(), "10.20.30.0/24");
    assert_eq!(adv.nodes, [NodeName::from(OWN)].into());

    // What goes bad stays as it was: a name of nothing, a length that does not fit the pool.
    for (key, value) in [("communities", json!(["nothing"])), ("aggregationLength", json!(8))] {
        let mut spec = spec.clone();
        spec[key] = value;
        resources.bgp_advertisements = vec![object("adv", 0, &json!({}), &spec)];
        let bad = then(&good, &resources);
        assert!(bad.verdict.is_err(), "{key}");
        assert_eq!(bad.config.bgp, good.config.bgp, "{key}");
    }
}
