// SPDX-License-Identifier: Apache-2.0
//! The cases of MetalLB's own layer-2 tests, by name, with their exact outcomes. Each is decided by our rule and by
//! MetalLB's to the letter, without membership and with it; where the two differ on purpose (L38), the row says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferrolb_announce::{Endpoint, Endpoints, Members};
use ferrolb_config::L2Advertisement;
use ferrolb_net_types::{Interfaces, NodeName};

use crate::cluster::{
    Cluster, DOWN1, DOWN2, IRIS1, IRIS2, On, UP1, UP2, ad, both, labelled, local, members, named, on, only,
    service,
};

const NO: &str = "notOwner";
const NONE: &str = "noMatchingAdvertisement";
const YES: &str = "";

/// A case: its name, the cluster, and per Service the words of iris1 and iris2.
type Row = (&'static str, Cluster, Vec<(&'static str, [&'static str; 2])>);

fn rows() -> Vec<Row> {
    let one = |service| both().with("s", service);
    let two =
        |first, second| both().with("a", local("10.20.30.1", first)).with("b", local("10.20.30.2", second));
    let under = |ads: Vec<L2Advertisement>, service| Cluster::new(ads).with("s", service);
    let each = vec![("a", [NO, YES]), ("b", [YES, NO])];
    let only_s = |words| vec![("s", words)];
    let ad1 = || ad("one", &[IRIS1]);
    let ad2 = || ad("two", &[IRIS2]);
    let all = || ad("all", &[IRIS1, IRIS2]);
    let three = |endpoints: &[On; 3]| one(local("10.20.30.1", endpoints));
    let nginx = || labelled("nginx", service("10.20.30.1", &[UP1]));
    let excluded = |local_one: bool| {
        let s = if local_one { local("10.20.30.1", &[UP1]) } else { service("10.20.30.1", &[UP1, UP2]) };
        one(s)
    };
    let mut ignoring = excluded(true).exclude(IRIS1).exclude(IRIS2);
    ignoring.settings.ignore_exclude_lb = true;
    vec![
        ("L01", one(local("10.20.30.1", &[UP1, UP1])), only_s([YES, NO])),
        ("L08", one(local("10.20.30.1", &[UP1, UP1])), only_s([YES, NO])),
        ("L09", one(local("10.20.30.1", &[DOWN1, DOWN1])), only_s([NO, NO])),
        ("L10", one(local("10.20.30.1", &[UP1, UP2])), only_s([NO, YES])),
        ("L11", one(local("10.20.30.1", &[DOWN1, DOWN2])), only_s([NO, NO])),
        ("L12", one(local("10.20.30.1", &[UP1, DOWN2])), only_s([YES, NO])),
        ("L13", two(&[UP1, UP2], &[UP1, UP2]), each.clone()),
        ("L14", two(&[UP1, UP2], &[UP1, DOWN2]), each.clone()),
        ("L15", two(&[DOWN1, UP2], &[UP1, DOWN2]), each),
        ("L16", three(&[UP1, UP2, UP2]), only_s([NO, YES])),
        ("L17 the number of endpoints has no weight", three(&[UP1, UP1, UP2]), only_s([NO, YES])),
        ("L18", three(&[UP1, UP2, DOWN2]), only_s([NO, YES])),
        ("L19", three(&[UP1, DOWN1, UP2]), only_s([NO, YES])),
        ("L20", three(&[UP1, DOWN2, DOWN2]), only_s([YES, NO])),
        ("L21", under(vec![ad1()], service("10.20.30.1", &[UP1])), only_s([YES, NONE])),
        ("L22", under(vec![ad1(), ad2()], local("10.20.30.1", &[UP1])), only_s([YES, NO])),
        ("L23 Cluster: the leader needs no endpoint", one(service("10.20.30.1", &[UP1])), only_s([NO, YES])),
        ("L24", under(vec![ad1()], service("10.20.30.1", &[UP1, UP2])), only_s([YES, NONE])),
        ("L25", under(vec![ad2()], local("10.20.30.1", &[UP1])), only_s([NONE, NO])),
        ("L26", excluded(false).exclude(IRIS2), only_s([YES, NO])),
        ("L27", excluded(false).exclude(IRIS1), only_s([NO, YES])),
        ("L28", excluded(false).exclude(IRIS1).exclude(IRIS2), only_s([NO, NO])),
        ("L29", ignoring, only_s([YES, NO])),
        ("L31", under(vec![all()], nginx()), only_s([NO, YES])),
        ("L32", under(vec![only(&["nginx"], all())], nginx()), only_s([NO, YES])),
        ("L33", under(vec![only(&["nginx"], all())], labelled("apache", nginx())), only_s([NONE, NONE])),
        (
            "L34 selectors are ORed",
            under(vec![only(&["nginx", "apache"], all())], labelled("apache", nginx())),
            only_s([NO, YES]),
        ),
        (
            "L35 of two advertisements only the one for the Service counts",
            under(vec![only(&["nginx"], ad1()), only(&["apache"], ad2())], nginx()),
            only_s([YES, NONE]),
        ),
        (
            "L36 an interface per node",
            under(vec![on(&["eth0"], ad1()), on(&["eth1"], ad2())], service("10.20.30.1", &[UP1, UP2])),
            only_s([NO, YES]),
        ),
        (
            "L37 an advertisement for another Service, and one for a node that is none",
            under(vec![only(&["other"], all()), ad("ghost", &["ghost"])], nginx()),
            only_s([NONE, NONE]),
        ),
    ]
}

#[test]
fn each_case_of_the_decision_has_its_outcome_by_our_rule_and_by_metallbs() {
    let theirs = Members::Known(members("iris1=M iris2=M"));
    let ours = Members::Known(members("iris1=O iris2=O"));
    for (case, cluster, expected) in rows() {
        for (service, words) in expected {
            for (node, word) in [IRIS1, IRIS2].into_iter().zip(words) {
                let about = format!("{case}: {service} on {node}");
                for members in [&Members::EveryNode, &ours] {
                    assert_eq!(cluster.word(node, service, members), word, "{about}");
                }
                for members in [&Members::EveryNode, &ours, &theirs] {
                    assert_eq!(cluster.metallb_word(node, service, members), word, "{about} (MetalLB)");
                }
            }
        }
    }
}

#[test]
fn l02_to_l07_the_nodes_with_endpoints_are_those_where_one_serves() {
    let up = |node, ready, serving| Endpoint { ready, serving, node: Some(node) };
    let (one, both) = (&[IRIS1][..], &[IRIS1, IRIS2][..]);
    let rows = [
        // A Service's slices come as one list, so separate slices are the same.
        ("L02", [up(IRIS1, Some(true), None), up(IRIS2, Some(true), None)], both),
        ("L03", [up(IRIS2, Some(true), None), up(IRIS1, Some(true), None)], both),
        ("L04", [up(IRIS1, Some(true), None), up(IRIS1, Some(true), None)], one),
        ("L05", [up(IRIS1, Some(true), None), up(IRIS1, Some(false), None)], one),
        ("L06", [up(IRIS1, Some(false), Some(true)), up(IRIS2, Some(false), Some(true))], both),
        ("L07", [up(IRIS1, Some(true), Some(false)), up(IRIS2, Some(true), Some(false))], both),
    ];
    for (case, endpoints, expected) in rows {
        let all: Endpoints = endpoints.into_iter().collect();
        let expected: BTreeSet<NodeName> = expected.iter().map(|node| NodeName::from(*node)).collect();
        assert_eq!((all.any, all.nodes), (true, expected), "{case}");
    }
}

#[test]
fn l30_services_with_one_address_and_equal_candidates_have_one_leader() {
    let mut led = [0, 0];
    for n in 1..=255 {
        let address = format!("10.20.30.{n}");
        let cluster = both().with("a", service(&address, &[UP1])).with("b", service(&address, &[UP2]));
        let words = cluster.words("a");
        for service in ["a", "b"] {
            assert_eq!(words, cluster.words(service), "{address}");
            let theirs = [IRIS1, IRIS2].map(|node| cluster.metallb_word(node, service, &Members::EveryNode));
            assert_eq!(words, theirs, "{address}");
        }
        let leaders: Vec<_> = (0..2).filter(|i| words[*i].is_empty()).collect();
        assert_eq!(leaders.len(), 1, "{address}");
        led[leaders[0]] += 1;
        assert_eq!(cluster.address(&address).finding, None);
    }
    assert_eq!(led, [134, 121]);
}

#[test]
fn l38_sharers_with_different_advertisements_have_two_leaders_by_metallbs_rule_and_one_by_ours() {
    let cluster = Cluster::new([only(&["foo"], ad("a", &[IRIS1])), only(&["bar"], ad("b", &[IRIS2]))])
        .with("foo", labelled("foo", service("10.20.30.1", &[UP1])))
        .with("bar", labelled("bar", service("10.20.30.1", &[UP1])));
    let theirs =
        |service| [IRIS1, IRIS2].map(|node| cluster.metallb_word(node, service, &Members::EveryNode));
    assert_eq!(theirs("foo"), [YES, NONE]);
    assert_eq!(theirs("bar"), [NONE, YES]);
    // Of equal age, the first by name decides.
    assert_eq!(cluster.words("foo"), [NO, NONE]);
    assert_eq!(cluster.words("bar"), [NONE, YES]);
}

#[test]
fn l36_and_l39_to_l42_interfaces_are_those_of_all_advertisements_of_the_node() {
    let all = [IRIS1, IRIS2];
    let rows: Vec<(&str, Vec<L2Advertisement>, Interfaces, Interfaces)> = vec![
        (
            "L36",
            vec![on(&["eth0"], ad("a", &[IRIS1])), on(&["eth1"], ad("b", &[IRIS2]))],
            named(&["eth0"]),
            named(&["eth1"]),
        ),
        ("L39", vec![ad("a", &all)], Interfaces::All, Interfaces::All),
        (
            "L40",
            vec![on(&["eth0", "eth1"], ad("a", &all))],
            named(&["eth0", "eth1"]),
            named(&["eth0", "eth1"]),
        ),
        (
            "L41",
            vec![on(&["eth0"], ad("a", &all)), on(&["eth1"], ad("b", &all))],
            named(&["eth0", "eth1"]),
            named(&["eth0", "eth1"]),
        ),
        ("L42", vec![on(&["eth0"], ad("a", &all)), ad("b", &all)], Interfaces::All, Interfaces::All),
        (
            "one that is for other Services does not count",
            vec![on(&["eth0"], ad("a", &all)), only(&["other"], on(&["eth1"], ad("b", &all)))],
            named(&["eth0"]),
            named(&["eth0"]),
        ),
    ];
    for (case, ads, first, second) in rows {
        let cluster = Cluster::new(ads).with("s", service("10.20.30.1", &[UP1, UP2]));
        assert_eq!(cluster.words("s").iter().filter(|word| word.is_empty()).count(), 1, "{case}");
        for (node, expected) in [(IRIS1, first), (IRIS2, second)] {
            assert_eq!(cluster.offer(node, "s").interfaces, expected, "{case} on {node}");
            let address: Arc<_> = cluster.plan(node).addresses.values().next().unwrap().clone();
            assert_eq!(address.interfaces, expected, "{case} on {node}");
        }
    }
}
