// SPDX-License-Identifier: Apache-2.0
//! Two answer for one address: the member list is parted and the segment is not, or a stranger claims it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ferrolb_net_types::Mac;
use ferrolb_speaker_core::wire::Input;

use super::network::Network;
use super::numbers::{mac, vip};
use super::{millis, seconds};

/// Until the others are held for dead.
const DETECTION: Duration = Duration::from_secs(15);

/// A cluster whose member list has been parted for a while, with a segment that is whole.
fn parted(seed: u64, nodes: usize, addresses: usize, parts: &[&[usize]]) -> Network {
    let mut network = Network::settled(seed, nodes, addresses);
    for (place, part) in parts.iter().enumerate() {
        parts[place + 1..].iter().for_each(|other| network.part(part, other));
    }
    network.run(DETECTION);
    network
}

fn gratuitous_of(network: &Network, node: usize) -> usize {
    network.gratuitous.iter().filter(|(_, whose, _)| *whose == node).count()
}

#[test]
fn where_only_the_member_list_is_parted_each_address_keeps_the_owner_that_all_would_elect() {
    for seed in 0..2 {
        for parts in [&[&[0][..], &[1]][..], &[&[0], &[1, 2]], &[&[0], &[1], &[2]], &[&[0, 1], &[2, 3, 4]]] {
            let nodes = parts.iter().map(|part| part.len()).sum();
            let mut network = parted(seed, nodes, 12, parts);
            let about = format!("seed {seed}, {parts:?}");
            if parts.len() == 2 {
                assert_eq!(network.owners(), network.rightful(), "{about}");
                // Whoever is still thought to be a member may have learnt first that it leads.
                assert!(network.longest_double() <= millis(1010), "{about}: {:?}", network.longest_double());
            }
            // One of three may first have given way to one that gives way itself.
            assert!(
                network.run_until(seconds(20), |network| network.owners() == network.rightful()),
                "{about}"
            );
            assert_eq!(network.longest_dark(), millis(0), "{about}");
            assert!((0..nodes).all(|node| network.members(node).len() < nodes), "{about}: they are apart");
            // Nobody gives up what it has, nobody takes what it gave up, and nobody shouts.
            network.run(seconds(40));
            network.forget();
            network.run(seconds(300));
            assert_eq!(network.owners(), network.rightful(), "{about}");
            assert_eq!((network.longest_double(), network.longest_dark()), (millis(0), millis(0)), "{about}");
            assert_eq!(network.gratuitous, [], "{about}");
            network.heal();
            network.run(seconds(60));
            assert_eq!(network.owners(), network.rightful(), "{about}");
            // Who was alone exchanges state before it answers, and may hear one of two before the other.
            assert!(network.longest_double() <= millis(5), "{about}: {:?}", network.longest_double());
            assert!(network.longest_dark() <= millis(5), "{about}: {:?}", network.longest_dark());
        }
    }
}

/// The first candidate is dead, but its Pod is still listed: whoever claims an address could be it.
#[test]
fn of_two_that_come_after_a_dead_one_just_one_gives_way() {
    for seed in 0..3 {
        let mut network = Network::settled(seed, 3, 12);
        network.part(&[0], &[1]);
        network.kill(2);
        network.run(DETECTION + seconds(15));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        network.forget();
        network.run(seconds(300));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert_eq!((network.longest_double(), network.longest_dark()), (millis(0), millis(0)));
    }
}

#[test]
fn who_gave_way_answers_again_once_the_other_is_silent_and_gives_way_again_when_it_is_back() {
    for seed in 0..3 {
        let mut network = parted(seed, 2, 12, &[&[0], &[1]]);
        network.forget();
        network.kill(1);
        let killed = network.now;
        network.run(seconds(60));
        assert!(network.owners().values().all(|owners| *owners == [0].into()), "seed {seed}");
        assert!(network.longest_dark() <= millis(4100), "seed {seed}: {:?}", network.longest_dark());
        assert!(network.spans().iter().all(|span| span.from <= killed + millis(4100)), "seed {seed}");
        network.start(1);
        network.forget();
        network.run(seconds(60));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert!(network.longest_double() <= seconds(1), "seed {seed}: {:?}", network.longest_double());
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
    }
}

/// The other side gave up some of it for a reason that this one does not know.
#[test]
fn one_address_that_the_other_no_longer_answers_for_comes_back_alone() {
    for seed in 0..3 {
        let mut network = parted(seed, 2, 12, &[&[0], &[1]]);
        network.run(seconds(30));
        let before = network.owners();
        network.forget();
        network.set_addresses(1, 6);
        network.run(seconds(300));
        for (ip, owners) in network.owners() {
            let gone = (6..12).any(|number| vip(number) == ip);
            assert_eq!(owners, if gone { [0].into() } else { before[&ip].clone() }, "seed {seed}: {ip}");
        }
        assert!(network.longest_dark() <= millis(4100), "seed {seed}: {:?}", network.longest_dark());
    }
}

#[test]
fn whose_host_cannot_be_told_is_not_given_way_to_and_the_two_do_not_shout_each_other_down() {
    let mut network = Network::settled(1, 2, 4);
    network.mute.extend([0, 1]);
    network.part(&[0], &[1]);
    network.run(DETECTION);
    network.forget();
    network.run(seconds(3600));
    assert!(network.owners().values().all(|owners| *owners == [0, 1].into()));
    // Five rounds of two frames for each of four addresses, after 10, 20, 40 … 640 s.
    for node in [0, 1] {
        let sent = gratuitous_of(&network, node);
        assert!((1..=4 * 10 * 12).contains(&sent), "{sent}");
    }
    network.heal();
    network.run(seconds(2));
    assert_eq!(network.owners(), network.rightful());
}

#[test]
fn an_27_a_stranger_that_claims_an_address_gets_it_neither_whole_nor_parted() {
    let stranger = Mac([2, 9, 9, 9, 9, 9]);
    let whole = Network::settled(3, 3, 12);
    let apart = parted(3, 3, 12, &[&[0], &[1, 2]]);
    let defends = |mut network: Network, within: Duration| {
        network.run(seconds(60));
        network.forget();
        let owners = network.owners();
        for _ in 0..10 {
            network.claim(vip(0), stranger);
            network.run(millis(50));
        }
        assert!(network.run_until(within, |network| !network.gratuitous.is_empty()));
        network.run(seconds(8));
        assert_eq!(network.owners(), owners);
        let owner: BTreeSet<(usize, IpAddr)> =
            network.gratuitous.iter().map(|(_, node, ip)| (*node, *ip)).collect();
        assert_eq!(owner, [(*owners[&vip(0)].first().unwrap(), vip(0))].into());
        assert_eq!(network.gratuitous.len(), 10, "five rounds, however often it claimed");
        assert_eq!(network.longest_dark(), millis(0));
    };
    // A member may just have learnt first that it leads.
    defends(whole, millis(1010));
    defends(apart, millis(1010));
}

/// A host whose speaker is missed claims an address that another one, which comes first, would have.
#[test]
fn a_host_that_claims_and_does_not_answer_is_not_given_way_to() {
    for seed in 0..3 {
        let mut network = Network::settled(seed, 2, 12);
        network.tear(&[0], &[1]);
        network.run(DETECTION);
        network.torn.clear();
        network.kill(1);
        network.forget();
        for number in 0..12 {
            network.claim(vip(number), mac(1));
        }
        network.run(seconds(30));
        assert!(network.owners().values().all(|owners| *owners == [0].into()), "seed {seed}");
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
    }
}

/// MetalLB's speaker says that it leaves, and answers on for a while: its heir is not to leave it an address that it drops.
#[test]
fn who_has_left_and_still_answers_is_not_given_way_to() {
    for seed in 0..3 {
        let mut network = Network::settled(seed, 2, 12);
        network.kill(1);
        network.start_plain(1, 0);
        assert!(network.run_until(DETECTION, |network| network.members(0).len() == 2), "seed {seed}");
        network.run(seconds(5));
        network.lingering.insert(1);
        network.gossip(1, ferrolb_gossip::Input::Leave { within: seconds(1) });
        assert!(network.run_until(seconds(5), |network| network.members(0).len() == 1), "seed {seed}");
        network.run(millis(600));
        network.forget();
        for number in 0..12 {
            network.claim(vip(number), mac(1));
        }
        network.run(seconds(3));
        assert!(network.owners().values().all(|owners| *owners == [0].into()), "seed {seed}");
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
    }
}

/// A changed Secret: whoever is restarted with it says goodbye with the old key, and is no member with the new one.
#[test]
fn who_has_left_and_starts_again_with_another_key_gets_back_what_it_comes_first_for() {
    for seed in 0..3 {
        let mut network = Network::settled(seed, 2, 12);
        network.input(1, Input::Stop);
        assert!(network.run_until(seconds(1), |network| network.stopped.contains_key(&1)), "seed {seed}");
        network.start_as(1, b"another");
        let peers = network.peers(1);
        network.input(1, Input::Peers(&peers));
        network.forget();
        network.run(seconds(60));
        assert!([0, 1].iter().all(|node| network.members(*node).len() == 1), "seed {seed}: they are apart");
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert!(network.longest_double() <= millis(1500), "seed {seed}: {:?}", network.longest_double());
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
    }
}

/// In an election the stale come last; so they do where the two part after both have known it.
#[test]
fn who_was_known_to_be_stale_gives_way_to_one_that_was_not() {
    for seed in 0..3 {
        let mut network = Network::settled(seed, 2, 12);
        network.input(1, Input::Api { working: false });
        network.run(seconds(30));
        let fresh = network.rightful_among(&[0].into());
        assert_eq!(network.owners(), fresh, "seed {seed}");
        network.forget();
        network.part(&[0], &[1]);
        network.run(DETECTION + seconds(20));
        assert_eq!(network.owners(), fresh, "seed {seed}");
        assert!(network.longest_double() <= millis(1010), "seed {seed}: {:?}", network.longest_double());
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
        network.forget();
        network.run(seconds(600));
        assert_eq!(network.owners(), fresh, "seed {seed}");
        assert_eq!((network.longest_double(), network.longest_dark()), (millis(0), millis(0)), "seed {seed}");
        // What comes so much later both decide as if they had been as fresh: neither leaves it to the other.
        network.set_addresses(0, 24);
        network.set_addresses(1, 24);
        network.forget();
        network.run(seconds(60));
        assert!(
            network.owners().values().all(|owners| owners.len() == 1),
            "seed {seed}: {:?}",
            network.owners()
        );
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
        assert!(network.longest_double() <= millis(1010), "seed {seed}: {:?}", network.longest_double());
        // Who is restarted knows nothing of it; the two still agree in the end.
        network.kill(1);
        network.start(1);
        network.run(seconds(60));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
    }
}

/// Its frames were lost for a while, and then it defends what the other has taken.
#[test]
fn who_was_silent_for_a_moment_is_given_way_to_again() {
    for seed in 0..3 {
        let mut network = parted(seed, 2, 12, &[&[0], &[1]]);
        network.run(seconds(20));
        network.tear(&[0], &[1]);
        network.run(seconds(6));
        assert!(network.owners().values().all(|owners| owners.contains(&0)), "seed {seed}");
        network.torn.clear();
        network.forget();
        network.run(seconds(3));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        network.run(seconds(100));
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert!(network.longest_double() <= seconds(3), "seed {seed}: {:?}", network.longest_double());
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
    }
}

/// Two that do not know the same: each is given way to by the other, time and again, but ever less often.
#[test]
fn who_falls_silent_whenever_it_is_given_way_to_is_so_ever_more_seldom() {
    let mut network = parted(1, 2, 1, &[&[0], &[1]]);
    assert_eq!(network.rightful()[&vip(0)], [1].into());
    network.kill(1);
    network.run(seconds(30));
    network.forget();
    let mut given_way = 0;
    for _ in 0..3600 {
        let answering = network.owners()[&vip(0)].contains(&0);
        if answering {
            network.lingering.insert(1);
        } else {
            given_way += usize::from(network.lingering.remove(&1));
        }
        network.claim(vip(0), mac(1));
        network.run(seconds(1));
    }
    assert!((2..=10).contains(&given_way), "{given_way}");
    assert!(network.longest_dark() <= millis(4100), "{:?}", network.longest_dark());
}

/// A stranger claims without end; among its frames the claims of one that comes first are not lost.
#[test]
fn who_is_asked_about_an_address_does_not_keep_others_that_claim_it_from_being_asked() {
    for seed in 0..3 {
        let mut network = Network::settled(seed, 2, 12);
        network.part(&[0], &[1]);
        for _ in 0..300 {
            for number in 0..12 {
                network.claim(vip(number), Mac([2, 9, 9, 9, 9, 9]));
            }
            network.run(millis(100));
        }
        assert_eq!(network.owners(), network.rightful(), "seed {seed}");
        assert_eq!(network.longest_dark(), millis(0), "seed {seed}");
    }
}

/// Among many addresses each is asked about less often, but not all at the same moment, and who is found silent about one
/// is asked about the others at once.
#[test]
fn two_thousand_addresses_are_not_dark_for_longer_than_one() {
    let mut network = Network::new(1, 2, 2000);
    network.start(0);
    // The other one's host answers; its speaker is not simulated.
    network.lingering.insert(1);
    network.run(seconds(12));
    let both = network.rightful_among(&[0, 1].into());
    let theirs: Vec<usize> = (0..2000).filter(|number| both[&vip(*number)] == [1].into()).collect();
    assert!(theirs.len() > 800);
    theirs.iter().for_each(|number| network.claim(vip(*number), mac(1)));
    let dark = |network: &Network| network.owners().values().filter(|owners| owners.is_empty()).count();
    network.run(millis(13_300));
    assert_eq!(dark(&network), theirs.len(), "it has given way");
    network.lingering.clear();
    assert!(network.run_until(millis(4300), |network| network.owns_everything(0)), "{}", dark(&network));
}
