// SPDX-License-Identifier: Apache-2.0
//! What users of layer 2 met, case by case: nodes n1 to n3 (n4 comes later), whose digests give 192.0.2.100 to n3, n2,
//! n1 in this order, and 192.0.2.101 to n4, n1, n3, n2.

use ferrolb_announce::{Members, Reason, metallb};
use ferrolb_config::L2Advertisement;

use crate::cluster::{Cluster, On, ad, ip, key, labelled, local, members, only, preferring, service};

const N: [&str; 3] = ["n1", "n2", "n3"];
const UP: [On; 3] = [("n1", Some(true), None), ("n2", Some(true), None), ("n3", Some(true), None)];
const VIP: &str = "192.0.2.100";

/// A case: its name, the cluster with Service a, the members, and who announces.
type Row = (&'static str, Cluster, &'static str, Option<&'static str>);

#[test]
fn each_case_has_its_announcer() {
    let under = |ads: Vec<L2Advertisement>, service| Cluster::of(&N, ads).with("a", service);
    let any = |service| under(vec![ad("any", &N)], service);
    let all = "n1=O n2=O n3=O";
    let tier = || {
        let (x, y) = (only(&["a"], ad("x", &["n1"])), only(&["b"], ad("y", &["n3"])));
        under(vec![x, y], labelled("a", service(VIP, &UP)))
    };
    let preferring = || under(vec![preferring(&[("n1", 50), ("n2", 30)], ad("x", &N))], service(VIP, &UP));
    let twice = || {
        let x = only(&["a", "a"], super::cluster::preferring(&[("n1", 50)], ad("x", &N)));
        let y = super::cluster::preferring(&[("n2", 60)], ad("y", &N));
        under(vec![x, y], labelled("a", service(VIP, &UP)))
    };
    let excluded = || any(service(VIP, &UP)).exclude("n1").exclude("n2").exclude("n3");
    let mut ignoring = excluded();
    ignoring.settings.ignore_exclude_lb = true;
    let four = ["n1", "n2", "n3", "n4"];
    let grown = Cluster::of(&four, [ad("any", &four)]).with("a", service("192.0.2.101", &UP));
    let elsewhere = any(service(VIP, &[("n3", Some(true), None)]));
    let rows: [Row; 28] = [
        ("L2-1 endpoints only where no speaker is", elsewhere, "n1=O n2=O", Some("n2")),
        (
            "L2-2 a ready and an unready endpoint on one node",
            any(local(VIP, &[("n1", Some(true), None), ("n1", Some(false), None)])),
            all,
            Some("n1"),
        ),
        (
            "L2-3 serving and readiness unset count, neither does not",
            any(local(
                VIP,
                &[("n1", Some(false), Some(true)), ("n2", None, None), ("n3", Some(false), Some(false))],
            )),
            all,
            Some("n2"),
        ),
        (
            "L2-3 a serving one alone",
            any(local(VIP, &[("n1", Some(false), Some(true)), ("n3", Some(false), Some(false))])),
            all,
            Some("n1"),
        ),
        (
            "L2-4 one that ends but serves is as good as a ready one",
            any(local(VIP, &[("n3", Some(false), Some(true)), ("n1", Some(true), None)])),
            all,
            Some("n3"),
        ),
        (
            "L2-5 the nodes of several advertisements are united",
            under(vec![ad("x", &["n1"]), ad("y", &["n2"])], service(VIP, &UP)),
            all,
            Some("n2"),
        ),
        ("L2-6 candidates come from advertisements for the Service only", tier(), all, Some("n1")),
        ("L2-7 the preferred", preferring(), all, Some("n1")),
        ("L2-7 the preferred is gone", preferring(), "n2=O n3=O", Some("n2")),
        ("L2-7 all preferred are gone", preferring(), "n3=O", Some("n3")),
        ("L2-7 a preference is no claim", preferring().exclude("n1"), all, Some("n2")),
        // Reached twice, the weight of n1 would be greater.
        ("L2-7 an advertisement that is reached twice counts once", twice(), all, Some("n2")),
        ("L2-8 before a node joins", grown.clone(), all, Some("n1")),
        ("L2-8 it joins and leads", grown.clone(), "n1=O n2=O n3=O n4=O", Some("n4")),
        ("L2-8 it leaves again", grown, all, Some("n1")),
        ("L2-9 the owner's speaker is gone", any(service(VIP, &UP)), "n1=O n2=O", Some("n2")),
        ("L2-10 every node is excluded", excluded(), all, None),
        ("L2-10 the flag", ignoring, all, Some("n3")),
        ("L2-11 no network on n3", any(service(VIP, &UP)).cut_off("n3"), all, Some("n2")),
        ("L2-11 it is back", any(service(VIP, &UP)), all, Some("n3")),
        (
            "L2-15 endpoints on no node, Cluster",
            any(service(VIP, &[("", Some(true), None)])),
            all,
            Some("n3"),
        ),
        ("L2-15 endpoints on no node, Local", any(local(VIP, &[("", Some(true), None)])), all, None),
        (
            "L2-16 an endpoint listed twice, once unready",
            any(service(VIP, &[("n1", Some(false), None), ("n2", Some(true), None)])),
            all,
            Some("n3"),
        ),
        // MetalLB's speakers ask neither, so ours may not (S32); what the leader lacks it says by announceFailed.
        (
            "L2-12, L2-13, L2-14 whatever taints or interfaces a node has",
            any(service(VIP, &UP)),
            all,
            Some("n3"),
        ),
        ("L2-18 nobody has the API", any(service(VIP, &UP)), "n1=S n2=S n3=S", Some("n3")),
        ("L2-18 and the owner is gone", any(service(VIP, &UP)), "n1=S n2=S", Some("n2")),
        ("L2-19 only the owner lost the API", any(service(VIP, &UP)), "n1=O n2=O n3=S", Some("n2")),
        ("L2-19 the heir lost it too", any(service(VIP, &UP)), "n1=O n2=S n3=S", Some("n1")),
    ];
    for (case, cluster, text, expected) in rows {
        let address = if case.starts_with("L2-8") { "192.0.2.101" } else { VIP };
        let answering = cluster.answering(ip(address), &members(text));
        let answering: Vec<_> = answering.iter().map(|node| node.as_str()).collect();
        assert_eq!(answering, expected.into_iter().collect::<Vec<_>>(), "{case}");
    }
}

#[test]
fn l2_10_and_l2_15_silence_has_a_reason_with_a_name() {
    let all = Members::Known(members("n1=O n2=O n3=O"));
    let excluded = Cluster::of(&N, [ad("any", &N)]).with("a", service(VIP, &UP)).exclude("n3");
    assert_eq!(excluded.why("n3", "a", &all), Some(Reason::NodeExcluded("n3".into())));
    let nowhere = Cluster::of(&N, [ad("any", &N)]).with("a", local(VIP, &[("", Some(true), None)]));
    assert_eq!(nowhere.why("n3", "a", &all), Some(Reason::NoLocalEndpoint("n3".into())));
}

#[test]
fn l2_17_each_address_is_led_by_its_own_hash() {
    let addresses: Vec<String> = (100..112).map(|last| format!("192.0.2.{last}")).collect();
    let cluster = addresses.iter().fold(Cluster::of(&N, [ad("any", &N)]), |cluster, address| {
        cluster.with(address, service(address, &UP))
    });
    for address in addresses {
        let theirs = metallb::leader(
            &cluster.inputs(&"n1".into()),
            &cluster.services[&key(&address)],
            &Members::EveryNode,
        )
        .map(ToString::to_string);
        assert_eq!(cluster.owner(&address), theirs, "{address}");
    }
}

#[test]
fn l2_20_s57_without_membership_a_node_without_a_speaker_may_be_the_leader() {
    let cluster = Cluster::of(&N, [ad("any", &N)]).with("a", service(VIP, &UP));
    assert_eq!(cluster.owner(VIP).as_deref(), Some("n3"));
    // With it, that node does not count.
    let plan = cluster.plan("n1");
    let known = Members::Known(members("n1=O n2=O"));
    let owner = ferrolb_announce::owner(&plan.addresses[&ip(VIP)], &known);
    assert_eq!(owner, Some(&"n2".into()));
}
