// SPDX-License-Identifier: Apache-2.0
//! The wire thread with its member list on real sockets, each host in a namespace of its own: among ours, with
//! hashicorp/memberlist 0.5.1 itself, the version within MetalLB v0.16.1, and with serf's agents. Encrypted; joining,
//! leaving, dying, parting and meeting again, in both directions.
//!
//! Needs root; the strangers need a Go toolchain or `serf`. Each test says loudly what it is skipped for.
#![allow(clippy::unwrap_used)] // the helpers of tests

mod bench;
#[path = "../../../gossip/tests/interop/peer.rs"]
mod peer;
mod theirs;

use std::collections::BTreeSet;
use std::time::Duration;

use bench::{Bench, Ours, VIP, wait_for};
use ferrolb_announce::Standing;
use ferrolb_gossip::VERSIONS;
use theirs::{Kind, Theirs};

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn ours_find_each_other_hand_over_and_notice_a_death() {
    let Some(bench) = Bench::new("ours_find_each_other_hand_over_and_notice_a_death", 3) else { return };
    let order = "our-0,our-1,our-2";
    let zero = Ours::start(&bench, 0, order, &[], VERSIONS);
    let one = Ours::start(&bench, 1, order, &[0], VERSIONS);
    let two = Ours::start(&bench, 2, order, &[0, 1], VERSIONS);
    let all = names(&["our-0", "our-1", "our-2"]);
    wait_for("all see all", || [&zero, &one, &two].iter().all(|ours| ours.members() == all));
    assert!(one.view().members.values().all(|standing| *standing == Standing::Ours));
    assert_eq!([zero.owns(VIP), one.owns(VIP), two.owns(VIP)], [true, false, false]);

    zero.expect(&[1, 2]);
    zero.stop();
    wait_for("it has handed over and ended", || zero.has_ended());
    wait_for("its heir answers", || one.owns(VIP) && bench.answers(VIP) == [bench.mac(1)]);
    assert!(!two.owns(VIP));

    // An end without a word.
    one.kill();
    wait_for("the last one answers", || two.owns(VIP) && two.members() == names(&["our-2"]));
    let zero = Ours::start(&bench, 0, order, &[2], VERSIONS);
    two.expect(&[0, 1]);
    wait_for("the first one is back", || zero.owns(VIP) && !two.owns(VIP));
    wait_for("and only it answers", || bench.answers(VIP) == [bench.mac(0)]);
}

#[test]
fn go_14_garbage_on_the_port_loses_no_member_and_no_answer() {
    let Some(bench) = Bench::new("go_14_garbage_on_the_port_loses_no_member_and_no_answer", 2) else {
        return;
    };
    let order = "our-0,our-1";
    let zero = Ours::start(&bench, 0, order, &[], VERSIONS);
    let one = Ours::start(&bench, 1, order, &[0], VERSIONS);
    zero.expect(&[1]);
    let both = names(&["our-0", "our-1"]);
    let whole = || zero.members() == both && one.members() == both && zero.owns(VIP) && !one.owns(VIP);
    wait_for("they are one", whole);

    let port = std::net::SocketAddr::new(bench::ip(0), 7946);
    let (mut idle, mut asked) = (Vec::new(), 0);
    let began = std::time::Instant::now();
    let mut garbage = 0_u64;
    while began.elapsed() < Duration::from_secs(3) {
        bench.outside(|| {
            let datagrams = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            for length in [0, 1, 29, 200, 1400, 65_507] {
                garbage = garbage.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let bytes: Vec<u8> = (0..length).map(|n| (garbage >> (n % 57)) as u8).collect();
                // What does not fit any queue is lost.
                let _ = datagrams.send_to(&bytes, port);
            }
            // Streams that say nothing, that claim a lot, and that say nonsense.
            for bytes in
                [&b""[..], &[10, 0x01, 0x3f, 0xff, 0xff, 1], &[10, 0xff, 0xff, 0xff, 0xff], b"GET / HTTP/1.1"]
            {
                if idle.len() < 400
                    && let Ok(mut stream) =
                        std::net::TcpStream::connect_timeout(&port, Duration::from_secs(1))
                {
                    let _ = std::io::Write::write_all(&mut stream, bytes);
                    idle.push(stream);
                }
            }
        });
        assert_eq!(bench.answers(VIP), [bench.mac(0)], "after {asked} answers");
        asked += 1;
    }
    assert!(asked > 3 && idle.len() > 20, "{asked}, {}", idle.len());
    assert!(whole(), "nobody was lost over it");
}

#[test]
fn ours_and_memberlists_members_share_one_cluster_across_namespaces() {
    share("ours_and_memberlists_members_share_one_cluster_across_namespaces", Kind::Memberlist);
}

#[test]
fn ours_and_serfs_agents_share_one_cluster_across_namespaces() {
    share("ours_and_serfs_agents_share_one_cluster_across_namespaces", Kind::Serf);
}

fn share(test: &str, kind: Kind) {
    let Some(kind) = kind.available(test) else { return };
    let Some(bench) = Bench::new(test, 3) else { return };
    // Joining, in both directions.
    let zero = Theirs::start(&bench, &kind, 0);
    let one = Ours::start(&bench, 1, "their-0,our-1", &[0], kind.versions());
    let pair = names(&["their-0", "our-1"]);
    wait_for("ours joins theirs", || one.members() == pair && zero.members() == pair);
    assert_eq!(one.view().members["their-0"], Standing::Metallb);
    assert_eq!(one.view().members["our-1"], Standing::Ours);
    let two = Theirs::start(&bench, &kind, 2);
    two.join(&bench, 1);
    let all = names(&["their-0", "our-1", "their-2"]);
    wait_for("theirs joins ours", || one.members() == all && zero.members() == all && two.members() == all);
    one.expect(&[0, 2]);
    std::thread::sleep(Duration::from_millis(200));
    assert!(!one.owns(VIP), "it is theirs");

    // Parting and meeting again, first ours alone, then one of theirs.
    bench.cut(1, true);
    wait_for("ours and theirs give each other up", || {
        one.members() == names(&["our-1"])
            && zero.members() == names(&["their-0", "their-2"])
            && one.owns(VIP)
    });
    bench.cut(1, false);
    wait_for("they are one again", || {
        one.members() == all && zero.members() == all && two.members() == all && !one.owns(VIP)
    });
    bench.cut(0, true);
    wait_for("one of theirs is given up", || {
        zero.members() == names(&["their-0"])
            && one.members() == names(&["our-1", "their-2"])
            && one.owns(VIP)
    });
    bench.cut(0, false);
    wait_for("it is one of them again", || {
        one.members() == all && zero.members() == all && two.members() == all && !one.owns(VIP)
    });

    // A death and a return under the same name.
    drop(zero);
    let without = names(&["our-1", "their-2"]);
    wait_for("one of theirs that died is missed", || one.members() == without && two.members() == without);
    let zero = Theirs::start(&bench, &kind, 0);
    zero.join(&bench, 1);
    wait_for("it is back", || one.members() == all && zero.members() == all && two.members() == all);

    one.kill();
    let theirs = names(&["their-0", "their-2"]);
    wait_for("ours that was killed is missed", || zero.members() == theirs && two.members() == theirs);
    assert!(zero.calls_dead("our-1") && two.calls_dead("our-1"), "it did not leave: it died");
    let one = Ours::start(&bench, 1, "their-0,our-1", &[0, 2], kind.versions());
    wait_for("ours is back", || one.members() == all && zero.members() == all && two.members() == all);
    assert!(!zero.calls_dead("our-1") && !one.owns(VIP), "it is theirs again");

    // Leaving, in both directions.
    two.leave();
    wait_for("theirs leaves", || one.members() == pair);
    one.stop();
    wait_for("ours leaves", || zero.members() == names(&["their-0"]) && one.has_ended());
}
