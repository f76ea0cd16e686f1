// SPDX-License-Identifier: Apache-2.0
//! Views of the API that are stale, speakers of MetalLB, and what keeps a speaker from being a member.

use std::collections::BTreeSet;

use ferrolb_announce::{Members, Standing};
use ferrolb_net_types::NodeName;
use ferrolb_speaker_core::wire::{Cause, Input};

use super::network::{Network, SECRET};
use super::numbers::name;
use super::{millis, seconds};

fn standing(network: &Network, of: usize, at: usize) -> Option<Standing> {
    network.told.get(&at)?.members.standing(&name(of))
}

#[test]
fn metadata_tells_ours_from_metallbs() {
    let mut network = Network::settled(1, 4, 6);
    network.kill(3);
    network.run(seconds(20));
    network.start_plain(3, 0);
    network.run(seconds(5));
    for node in 0..3 {
        let kinds: Vec<_> = (0..4).map(|of| standing(&network, of, node).unwrap()).collect();
        assert_eq!(kinds, [Standing::Ours, Standing::Ours, Standing::Ours, Standing::Metallb]);
    }
}

#[test]
fn who_alone_has_lost_the_api_comes_last_and_is_back_at_once() {
    let mut network = Network::settled(2, 3, 12);
    let before = network.owners();
    network.input(0, Input::Api { working: false });
    network.run(seconds(16));
    assert_eq!(network.owners(), before, "it may be that the others have lost it as well");
    network.run(seconds(2));
    for node in 0..3 {
        assert_eq!(standing(&network, 0, node), Some(Standing::Stale), "as {node} sees it");
    }
    let others: BTreeSet<usize> = [1, 2].into();
    assert_eq!(network.owners(), network.rightful_among(&others));
    assert!(network.longest_double() <= millis(50));
    assert_eq!(network.longest_dark(), millis(0));
    // It is still there should all others die.
    network.kill(1);
    network.kill(2);
    network.run(seconds(30));
    assert!(network.owners().values().all(|owners| owners.contains(&0)));
    network.forget();
    network.start(1);
    network.run(seconds(8));
    network.start(2);
    network.run(seconds(5));
    assert_eq!(
        network.owners(),
        before,
        "it is not known whether it has only not heard yet that the API is back"
    );
    network.run(seconds(10));
    assert_eq!(network.owners(), network.rightful_among(&others), "and all take the same time for that");
    assert!(network.longest_double() <= millis(50) && network.longest_dark() <= millis(50));
    // Who comes now finds it so.
    network.kill(2);
    network.run(seconds(30));
    network.forget();
    network.start(2);
    network.run(seconds(5));
    assert_eq!(network.owners(), network.rightful_among(&others));
    assert!(network.longest_double() <= millis(50), "{:?}", network.longest_double());
    network.input(0, Input::Api { working: true });
    network.run(seconds(2));
    assert_eq!(network.owners(), before);
}

#[test]
fn when_all_have_lost_the_api_nothing_moves_and_a_failover_still_works() {
    for seed in 0..20 {
        let mut network = Network::settled(seed, 3, 12);
        // Who was silent for longer before, says so earlier.
        let mut times: Vec<(u64, usize)> = (0..3).map(|node| (network.random(12_000), node)).collect();
        // The first and the last of some are as far apart as any can be.
        if seed % 4 == 0 {
            times = vec![(0, 0), (0, 1), (12_000, 2)];
        }
        times.sort_unstable();
        let mut past = 0;
        for (at, node) in times {
            network.run(millis(at - past));
            network.input(node, Input::Api { working: false });
            past = at;
        }
        network.run(seconds(60));
        assert!(network.spans().iter().all(|span| span.owners.len() == 1), "seed {seed}");
        assert_eq!(network.gratuitous.len(), 0, "seed {seed}");
        assert_eq!(standing(&network, 1, 0), Some(Standing::Ours), "nobody comes after anybody");
        network.kill(2);
        network.run(seconds(10));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        network.run(seconds(10));
        network.forget();
        for node in 0..2 {
            network.input(node, Input::Api { working: true });
            let pause = network.random(5000);
            network.run(millis(pause));
        }
        network.run(seconds(30));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert_eq!(network.gratuitous, [], "seed {seed}: not for those that have it first");
    }
}

#[test]
fn beside_metallb_who_has_lost_the_api_leaves_and_comes_back_with_it() {
    let mut network = Network::settled(3, 3, 12);
    network.kill(2);
    network.run(seconds(20));
    network.start_plain(2, 0);
    network.run(seconds(5));
    network.forget();
    network.input(0, Input::Api { working: false });
    network.run(seconds(20));
    let seen = |network: &Network, at: usize| network.members(at).contains(&name(0));
    assert!(!seen(&network, 1), "MetalLB's speakers know no other way");
    assert!(!network.told[&0].eligible);
    assert!(network.owners().values().all(|owners| !owners.contains(&0)));
    network.run(seconds(60));
    assert!(!seen(&network, 1), "and it stays away");
    network.input(0, Input::Api { working: true });
    assert!(network.run_until(seconds(1), |network| seen(network, 1) && network.told[&0].eligible));

    // When the other of ours loses it as well, nobody knows better.
    network.input(0, Input::Api { working: false });
    network.run(seconds(20));
    assert!(!seen(&network, 1));
    network.input(1, Input::Api { working: false });
    assert!(network.run_until(seconds(10), |network| seen(network, 1) && network.told[&0].eligible));
    network.run(seconds(60));
    assert!(seen(&network, 1));
}

#[test]
fn beside_metallb_nobody_leaves_if_all_have_lost_the_api() {
    let mut network = Network::settled(4, 3, 12);
    network.kill(2);
    network.run(seconds(20));
    network.start_plain(2, 0);
    network.run(seconds(5));
    network.forget();
    network.input(0, Input::Api { working: false });
    for _ in 0..120 {
        network.run(millis(100));
        assert!(network.told[&0].eligible);
    }
    network.input(1, Input::Api { working: false });
    network.run(seconds(60));
    assert_eq!(network.gratuitous, [], "nobody left and came back");
    let both: BTreeSet<NodeName> = [name(0), name(1), name(2)].into();
    assert_eq!((network.members(0), network.members(1)), (both.clone(), both));
}

#[test]
fn badges_change_at_most_once_a_second() {
    let mut network = Network::settled(5, 2, 3);
    for round in 0..20 {
        network.input(0, Input::Api { working: round % 2 == 1 });
        network.run(millis(100));
    }
    network.input(0, Input::Api { working: false });
    network.run(seconds(20));
    assert_eq!(standing(&network, 0, 1), Some(Standing::Stale));
    assert_eq!(standing(&network, 0, 0), Some(Standing::Stale));
}

#[test]
fn x02_a_wrong_key_is_named_once_by_both_sides_and_no_longer_when_it_is_right() {
    for wrong in [b"another".as_slice(), b"", b"Zm9vYmFyYmF6cXV4Zm9vYg\n"] {
        let mut network = Network::settled(6, 3, 6);
        network.kill(2);
        network.run(seconds(20));
        network.start_as(2, wrong);
        let peers = network.peers(2);
        network.input(2, Input::Peers(&peers));
        let causes = |network: &Network, at: usize| -> Vec<(NodeName, Cause)> {
            let troubles = &network.told[&at].troubles;
            troubles.iter().map(|trouble| (trouble.node.clone(), trouble.cause)).collect()
        };
        assert!(network.run_until(seconds(30), |network| !causes(network, 2).is_empty()), "{wrong:?}");
        assert_eq!(causes(&network, 2).len(), 2, "{wrong:?}: both at once, so that one event names them");
        network.run(seconds(30));
        assert_eq!(causes(&network, 0), [(name(2), Cause::Key)], "{wrong:?}");
        assert_eq!(causes(&network, 2), [(name(0), Cause::Key), (name(1), Cause::Key)], "{wrong:?}");
        network.forget();
        network.run(seconds(300));
        assert_eq!(network.tellings, 0, "{wrong:?}: said once");
        network.kill(2);
        network.start_as(2, SECRET);
        network.input(2, Input::Peers(&peers));
        network.run(seconds(15));
        for node in 0..3 {
            assert_eq!(causes(&network, node), [], "{wrong:?}");
            assert_eq!(network.members(node).len(), 3, "{wrong:?}");
        }
    }
}

#[test]
fn go_5_what_keeps_a_speaker_that_runs_from_being_a_member_is_said() {
    // What is wrong between 0 and 2, and what 0 says of 2.
    type Case = (&'static str, fn(&mut Network), Option<Cause>);
    let cases: [Case; 4] = [
        ("its process is away", |network| network.kill(2), Some(Cause::Closed)),
        ("nothing passes", |network| network.part(&[0, 1], &[2]), Some(Cause::Silent)),
        (
            "no datagrams pass",
            |network| network.no_datagrams.extend([(0, 2), (2, 0), (1, 2), (2, 1)]),
            Some(Cause::Datagrams),
        ),
        ("nothing", |_| {}, None),
    ];
    for (about, trouble, cause) in cases {
        let mut network = Network::settled(7, 3, 6);
        trouble(&mut network);
        network.run(seconds(40));
        let found: Vec<_> =
            network.told[&0].troubles.iter().map(|trouble| (trouble.node.clone(), trouble.cause)).collect();
        assert_eq!(found, cause.map(|cause| (name(2), cause)).into_iter().collect::<Vec<_>>(), "{about}");
        network.cut.clear();
        network.no_datagrams.clear();
        if !network.told.contains_key(&2) {
            network.start(2);
        }
        let over = |network: &Network| network.told[&0].troubles.is_empty();
        assert!(network.run_until(seconds(15), over), "{about}: {:?}", network.told[&0].troubles);
    }
}

#[test]
fn nobody_is_missed_whose_node_is_not_ready() {
    let mut network = Network::settled(8, 3, 6);
    network.kill(2);
    let mut peers = network.peers(0);
    peers.iter_mut().for_each(|peer| peer.awaited = peer.node != name(2));
    network.input(0, Input::Peers(&peers));
    network.run(seconds(60));
    assert!(network.told[&0].troubles.is_empty());
    assert!(matches!(&network.told[&0].members, Members::Known(members) if members.len() == 2));
}
