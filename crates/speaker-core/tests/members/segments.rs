// SPDX-License-Identifier: Apache-2.0
//! Two answer for one address, where that is IPv6, where the other is MetalLB's, and where there are two segments.

use std::collections::BTreeSet;
use std::time::Duration;

use super::network::Network;
use super::numbers::mac;
use super::{millis, seconds};

/// Until the others are held for dead.
const DETECTION: Duration = Duration::from_secs(15);

/// Parted for a while, with segments that are whole: one owner each, the one that all would elect, and calm.
fn settle_it(mut network: Network, about: &str) -> Network {
    let nodes: Vec<usize> =
        network.rightful().into_values().flatten().collect::<BTreeSet<_>>().into_iter().collect();
    for (place, node) in nodes.iter().enumerate() {
        network.part(&[*node], &nodes[place + 1..]);
    }
    network.run(DETECTION);
    assert!(network.run_until(seconds(20), |network| network.owners() == network.rightful()), "{about}");
    assert_eq!(network.longest_dark(), millis(0), "{about}");
    network.run(seconds(40));
    network.forget();
    network.run(seconds(300));
    assert_eq!(network.owners(), network.rightful(), "{about}");
    assert_eq!((network.longest_double(), network.longest_dark()), (millis(0), millis(0)), "{about}");
    assert_eq!(network.gratuitous, [], "{about}");
    network
}

#[test]
fn over_ipv6_each_address_keeps_the_owner_that_all_would_elect() {
    for seed in 0..3 {
        for nodes in [2, 3] {
            for hosts6 in [false, true] {
                let about = format!("seed {seed}, {nodes} nodes, hosts over IPv6: {hosts6}");
                let mut network = Network::new6(seed, nodes, 12, hosts6);
                network.start_all();
                let mut network = settle_it(network, &about);
                // Its host is up and its speaker gone.
                network.forget();
                network.kill(1);
                network.run(seconds(60));
                assert_eq!(network.owners(), network.rightful(), "{about}");
                assert!(network.longest_dark() <= millis(4100), "{about}: {:?}", network.longest_dark());
                network.start(1);
                network.heal();
                network.run(seconds(60));
                assert_eq!(network.owners(), network.rightful(), "{about}");
            }
        }
    }
}

#[test]
fn a_stranger_that_claims_an_ipv6_address_does_not_get_it() {
    let mut network = Network::new6(1, 2, 12, true);
    network.start_all();
    network.part(&[0], &[1]);
    network.run(DETECTION + seconds(30));
    let owners = network.owners();
    network.forget();
    for _ in 0..10 {
        network.claim(network.vip(0), mac(9));
        network.run(millis(50));
    }
    network.run(seconds(8));
    assert_eq!(network.owners(), owners);
    // Five rounds of one frame each; the next defence is due after ten seconds.
    assert_eq!(network.gratuitous.len(), 5);
    assert_eq!(network.longest_dark(), millis(0));
}

/// One of ours on node 0, and one of MetalLB's on node 1, out of each other's reach. That one leads and announces everything
/// then, and gives way to nobody.
fn beside_metallb(network: &mut Network, was_member: bool) {
    network.start(0);
    if !was_member {
        network.part(&[0], &[1]);
    }
    network.start_plain(1, 0);
    let members = if was_member { 2 } else { 1 };
    assert!(network.run_until(DETECTION, |network| network.members(0).len() == members));
    network.run(DETECTION);
    network.part(&[0], &[1]);
    network.run(DETECTION);
    assert!(network.owns_everything(0));
    network.lingering.insert(1);
    for number in 0..12 {
        network.claim(network.vip(number), mac(1));
    }
    network.run(seconds(3));
}

#[test]
fn a_speaker_of_metallb_that_is_missed_is_given_way_to_whatever_comes_first() {
    for seed in 0..3 {
        for v6 in [false, true] {
            let about = format!("seed {seed}, IPv6: {v6}");
            let mut network = if v6 { Network::new6(seed, 2, 12, false) } else { Network::new(seed, 2, 12) };
            beside_metallb(&mut network, true);
            assert!(network.owners().values().all(BTreeSet::is_empty), "{about}: all of them are its");
            network.forget();
            network.run(seconds(600));
            assert!(network.owners().values().all(BTreeSet::is_empty), "{about}");
            assert_eq!(network.gratuitous, [], "{about}");
            // It dies, or drops them.
            network.lingering.clear();
            assert!(network.run_until(millis(4100), |network| network.owns_everything(0)), "{about}");
        }
    }
}

/// Who was never a member may be one of ours, which gives way in its turn: the two have to agree on one order.
#[test]
fn of_one_that_was_never_a_member_only_what_it_comes_first_for_is_given_up() {
    for seed in 0..3 {
        let mut network = Network::new(seed, 2, 12);
        beside_metallb(&mut network, false);
        let rightful = network.rightful_among(&[0, 1].into());
        for (ip, owners) in network.owners() {
            let expected: BTreeSet<usize> = rightful[&ip].iter().copied().filter(|node| *node == 0).collect();
            assert_eq!(owners, expected, "seed {seed}: {ip}");
        }
    }
}

#[test]
fn with_two_segments_there_is_one_owner_on_both() {
    for seed in 0..3 {
        for nodes in [2, 3] {
            let mut network = Network::new(seed, nodes, 12);
            network.segments = 2;
            network.start_all();
            let about = format!("seed {seed}, {nodes} nodes");
            let mut network = settle_it(network, &about);
            network.heal();
            network.run(seconds(60));
            assert_eq!(network.owners(), network.rightful(), "{about}");
        }
    }
}

/// Where they do not see each other one of them has to answer; where they do there may be two meanwhile.
#[test]
fn a_segment_that_is_torn_is_not_dark_for_long_though_the_other_is_whole() {
    for seed in 0..3 {
        for torn in [0, 1] {
            let about = format!("seed {seed}, segment {torn} is torn");
            let mut network = Network::new(seed, 2, 12);
            network.segments = 2;
            network.start_all();
            let mut network = settle_it(network, &about);
            network.torn_on.extend([(torn, 0, 1), (torn, 1, 0)]);
            network.forget();
            network.run(seconds(120));
            assert!(network.longest_dark() <= millis(4100), "{about}: {:?}", network.longest_dark());
            network.heal();
            network.run(seconds(60));
            assert_eq!(network.owners(), network.rightful(), "{about}");
        }
    }
}
