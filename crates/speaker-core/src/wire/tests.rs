// SPDX-License-Identifier: Apache-2.0
//! The wire side by itself: what it decides, sends and reports.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrolb_announce::{Endpoint, Inputs, Service, Settings, Standing, plan};
use ferrolb_config::{Config, L2Advertisement, Pool};
use ferrolb_l2::wire::{Frame, Operation, Packet};
use ferrolb_net_types::{InterfaceName, Interfaces, Mac, PoolName, ServiceKey};

use super::*;

const NODE: &str = "k8s-node-2";
const RIVAL: &str = "k8s-node-1";
const NOW: Time = Time::ZERO;

/// The plan of [`NODE`] for addresses 192.168.10.N, announced on these interfaces; [`RIVAL`] comes first for
/// 192.168.10.200.
fn plan_for(last_octets: &[u8], interfaces: Interfaces) -> Arc<AddressPlans> {
    plan_of(last_octets.iter().map(|last| ip(*last)), interfaces)
}

/// The plan of [`NODE`] for these addresses.
fn plan_of(addresses: impl IntoIterator<Item = IpAddr>, interfaces: Interfaces) -> Arc<AddressPlans> {
    plan_among(&[NODE, RIVAL].map(NodeName::from), addresses, interfaces)
}

/// The plan of the first of these nodes, all of which may announce these addresses.
fn plan_among(
    nodes: &[NodeName],
    addresses: impl IntoIterator<Item = IpAddr>,
    interfaces: Interfaces,
) -> Arc<AddressPlans> {
    let pool = Pool {
        name: PoolName::from("p"),
        blocks: ["192.168.10.0/24", "fd00:10::/64"].map(|block| block.parse().unwrap()).into(),
        auto_assign: true,
        avoid_buggy_ips: false,
        allocation: None,
        l2_advertisements: vec![Arc::new(L2Advertisement {
            name: "ad".into(),
            nodes: nodes.iter().cloned().collect(),
            interfaces,
            service_selectors: Vec::new(),
            preferences: BTreeMap::new(),
        })],
    };
    let service = |address: IpAddr| Service {
        load_balancer: true,
        ingress: vec![ferrolb_announce::Ingress::Ip(address)],
        endpoints: [Endpoint::default()].into_iter().collect(),
        ..Service::default()
    };
    let key = |address: IpAddr| ServiceKey::new("d", &address.to_string());
    let services = addresses.into_iter().map(|address| (key(address), service(address))).collect();
    let config = Config { pools: [(pool.name.clone(), Arc::new(pool))].into(), ..Config::default() };
    let plan = plan(&Inputs {
        node: &nodes[0],
        config: &config,
        nodes: &BTreeMap::new(),
        services: &services,
        settings: &Settings::default(),
    });
    Arc::new(plan.addresses)
}

fn alone() -> Members {
    Members::from_iter([(NODE, Standing::Ours)])
}

fn both() -> Members {
    Members::from_iter([(NODE, Standing::Ours), (RIVAL, Standing::Ours)])
}

fn ens18() -> Interface {
    Interface {
        index: IfIndex(2),
        name: "ens18".into(),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        arp: true,
        link_local: None,
    }
}

/// A wire that knows everything, alone among the members.
fn running(plan: Arc<AddressPlans>) -> Wire {
    let mut wire = Wire::new(NODE.into(), None);
    wire.handle(NOW, Input::Plan(plan));
    wire.set_members(NOW, alone(), Manner::HandOver);
    wire.handle(NOW, Input::Interfaces(&[ens18()]));
    wire
}

/// What comes out now: the addresses of frames, and the reports, without what they say of members.
fn drain(wire: &mut Wire, now: Time) -> (Vec<IpAddr>, Vec<Report>) {
    let (mut frames, mut reports) = (Vec::new(), Vec::new());
    while wire.next_deadline().is_some_and(|time| time <= now) {
        wire.handle_timeout(now);
    }
    while let Some(output) = wire.poll(now) {
        match output {
            Output::Send { address, .. } => frames.push(address),
            Output::Report(report) => reports.push(Report { membership: None, ..report }),
            Output::Join { .. } | Output::Leave { .. } => unreachable!("taken before"),
            Output::Gossip(_) | Output::Stopped => unreachable!("no member list, no stop"),
        }
    }
    reports.retain(|report| *report != Report::default());
    (frames, reports)
}

fn ip(last: u8) -> IpAddr {
    [192, 168, 10, last].into()
}

fn on(names: &[&str]) -> BTreeSet<InterfaceName> {
    names.iter().map(|name| InterfaceName::from(*name)).collect()
}

#[test]
fn nothing_happens_until_plan_and_interfaces_are_known() {
    let inputs = [Input::Plan(plan_for(&[200], Interfaces::All)), Input::Interfaces(&[ens18()])];
    for last in 0..2 {
        let mut wire = Wire::new(NODE.into(), None);
        wire.members = Some(alone());
        for (i, input) in inputs.iter().enumerate().filter(|(i, _)| *i != last) {
            wire.handle(NOW, input.clone());
            assert_eq!(drain(&mut wire, NOW), (vec![], vec![]), "{i} of those without {last}");
        }
        wire.handle(NOW, inputs[last].clone());
        let (frames, reports) = drain(&mut wire, NOW);
        assert_eq!(frames.len(), 2, "after {last}");
        let expected = Report {
            complete: true,
            owned: [(ip(200), Some(on(&["ens18"])))].into(),
            interfaces: Some(on(&["ens18"])),
            ..Report::default()
        };
        assert_eq!(reports, [expected]);
    }
}

/// The rival's announcement of .200.
fn claim() -> [u8; 60] {
    claim_of(200)
}

fn claim_of(last: u8) -> [u8; 60] {
    let (mac, ip) = (Mac([2, 0, 0, 0, 0, 9]), [192, 168, 10, last].into());
    let packet = Packet {
        operation: Operation::Request,
        sender_mac: mac,
        sender_ip: ip,
        target_mac: Mac([0; 6]),
        target_ip: ip,
    };
    Frame { destination: Mac::BROADCAST, source: mac, packet }.emit()
}

fn hear(wire: &mut Wire, now: Time, bytes: &[u8]) {
    wire.handle(now, Input::Frame { interface: IfIndex(2), vlan: None, bytes });
}

#[test]
fn a_member_that_comes_takes_its_addresses_and_one_that_goes_leaves_them() {
    let mut wire = running(plan_for(&[200], Interfaces::All));
    drain(&mut wire, NOW);
    wire.set_members(Time::millis(1), both(), Manner::HandOver);
    assert_eq!(drain(&mut wire, Time::millis(1)), (vec![], vec![]), "it answers until the other one does");
    assert_eq!(wire.owned().collect::<Vec<_>>(), [ip(200)]);
    hear(&mut wire, Time::millis(2), &claim());
    let (frames, reports) = drain(&mut wire, Time::millis(2));
    assert_eq!(frames, Vec::<IpAddr>::new(), "nothing is said on a loss");
    assert_eq!(reports, [Report { owned: [(ip(200), None)].into(), ..Report::default() }]);
    assert_eq!(wire.owned().count(), 0);

    wire.set_members(Time::millis(3), alone(), Manner::HandOver);
    let (frames, reports) = drain(&mut wire, Time::millis(3));
    assert_eq!(frames.len(), 2);
    assert_eq!(reports[0].owned, [(ip(200), Some(on(&["ens18"])))].into());
}

#[test]
fn an_address_is_given_up_when_the_other_announces_it_or_has_just_done_so_or_after_half_a_second() {
    for (about, claimed, manner, until) in [
        ("nobody announces it", None, Manner::HandOver, 1500),
        ("the other announces it", Some(1100), Manner::HandOver, 1100),
        ("the other knew first", Some(900), Manner::HandOver, 1000),
        ("the other has answered all along", None, Manner::AtOnce, 1000),
    ] {
        let mut wire = running(plan_for(&[200], Interfaces::All));
        drain(&mut wire, NOW);
        let mut ended = None;
        for millis in 800..2000 {
            let now = Time::millis(millis);
            if claimed == Some(millis) {
                hear(&mut wire, now, &claim());
            }
            if millis == 1000 {
                wire.set_members(now, both(), manner);
            }
            let (frames, _) = drain(&mut wire, now);
            // Its own burst, which would be due again after 1.1 s, ends with the election.
            assert!(frames.is_empty() || millis < 1000, "{about}: {millis}");
            if wire.owned().count() == 0 {
                ended.get_or_insert(millis);
            }
        }
        assert_eq!(ended, Some(until), "{about}");
    }
}

#[test]
fn who_ends_keeps_what_nobody_else_could_have_until_somebody_announces_it() {
    let mut wire = running(plan_for(&[200], Interfaces::All));
    drain(&mut wire, NOW);
    wire.hand_everything_over(NOW);
    wire.stopping = Some(NOW + STOPPING);
    assert!(wire.owned().eq([ip(200)]));
    hear(&mut wire, NOW, &claim());
    while wire.poll(NOW).is_some() {}
    assert_eq!(wire.owned().next(), None);
}

#[test]
fn an_address_that_comes_back_while_it_is_handed_over_was_never_away() {
    let mut wire = running(plan_for(&[200], Interfaces::All));
    while let Some(time) = wire.next_deadline() {
        drain(&mut wire, time);
    }
    let (lost, back) = (Time::millis(60_000), Time::millis(60_200));
    wire.set_members(lost, both(), Manner::HandOver);
    wire.set_members(back, alone(), Manner::HandOver);
    assert_eq!(drain(&mut wire, Time::millis(70_000)), (vec![], vec![]));
    assert_eq!(wire.owned().collect::<Vec<_>>(), [ip(200)]);
}

/// The other had taken over by then, and waits for this one to announce the address; neighbours look for it there.
#[test]
fn an_address_that_comes_back_after_another_announced_it_is_announced_again() {
    let mut wire = running(plan_for(&[200], Interfaces::All));
    while let Some(time) = wire.next_deadline() {
        drain(&mut wire, time);
    }
    let at = |millis: u64| Time::millis(60_000 + millis);
    wire.set_members(at(0), both(), Manner::HandOver);
    wire.set_members(at(3), alone(), Manner::HandOver);
    assert_eq!(drain(&mut wire, at(5)), (vec![], vec![]));
    let mut sent_after = |now: Time| {
        hear(&mut wire, now, &claim());
        // What is heard is noticed by polling.
        [drain(&mut wire, now).0, drain(&mut wire, now).0].concat()
    };
    assert_eq!(sent_after(at(6)), [ip(200), ip(200)]);
    // Once: two that disagree do not shout each other down.
    assert_eq!(sent_after(at(7)), Vec::<IpAddr>::new());
    assert_eq!(wire.owned().collect::<Vec<_>>(), [ip(200)]);
}

/// Two take the address of a third one at the same moment, one for want of the other. That one hears the other's frame
/// before it knows who that is, so it waits for the next, which would be due in 1.1 s.
#[test]
fn an_address_gained_a_moment_ago_is_announced_again_when_another_announces_it() {
    for (millis, expected) in [(2, vec![ip(200), ip(200)]), (2_999, vec![ip(200), ip(200)]), (3_000, vec![])]
    {
        let mut wire = running(plan_for(&[200], Interfaces::All));
        let now = NOW + Duration::from_millis(millis);
        drain(&mut wire, now);
        hear(&mut wire, now, &claim());
        let said = [drain(&mut wire, now).0, drain(&mut wire, now).0].concat();
        assert_eq!(said, expected, "after {millis} ms");
        hear(&mut wire, now, &claim());
        assert_eq!(drain(&mut wire, now).0, Vec::<IpAddr>::new(), "once, after {millis} ms");
    }
}

/// The last frame of who led before may be on its way while the next one begins: that is no dispute that would have to
/// be spoken of again ten seconds later.
#[test]
fn a_claim_that_was_answered_at_once_is_not_answered_again_later_and_another_one_is() {
    for (claims, expected) in [(vec![2], false), (vec![2, 3, 500], false), (vec![2, 4_000], true)] {
        let mut wire = running(plan_for(&[200], Interfaces::All));
        drain(&mut wire, NOW);
        for millis in &claims {
            let now = NOW + Duration::from_millis(*millis);
            hear(&mut wire, now, &claim());
            drain(&mut wire, now);
        }
        let mut said = false;
        while let Some(now) = wire.next_deadline() {
            let frames = drain(&mut wire, now).0;
            // The burst with which the address was gained is over by then.
            said |= now > NOW + Duration::from_secs(6) && !frames.is_empty();
        }
        assert_eq!(said, expected, "claimed at {claims:?}");
    }
}

/// Each of two that were apart has led it; neighbours follow whoever announced it last.
#[test]
fn who_goes_on_leading_what_another_announced_says_so_when_they_are_one_again() {
    let plan = plan_for(&(100..200).collect::<Vec<u8>>(), Interfaces::All);
    let leads = |last: &u8| ferrolb_announce::owner(&plan[&ip(*last)], &both()) == Some(&NODE.into());
    let (mine, other) = ((100..200).find(leads).unwrap(), (100..200).rfind(leads).unwrap());
    assert!(mine != other);
    let mut wire = running(plan_for(&[mine, other], Interfaces::All));
    while let Some(time) = wire.next_deadline() {
        drain(&mut wire, time);
    }
    hear(&mut wire, Time::millis(60_000), &claim_of(mine));
    assert_eq!(
        drain(&mut wire, Time::millis(60_000)).0,
        Vec::<IpAddr>::new(),
        "they do not know of each other"
    );
    wire.set_members(Time::millis(60_500), both(), Manner::AtOnce);
    assert_eq!(drain(&mut wire, Time::millis(60_500)).0, [ip(mine), ip(mine)]);
    while let Some(time) = wire.next_deadline() {
        drain(&mut wire, time);
    }
    wire.set_members(Time::millis(120_000), alone(), Manner::AtOnce);
    hear(&mut wire, Time::millis(130_000), &claim_of(mine));
    let mut defended = drain(&mut wire, Time::millis(130_000)).0;
    while let Some(time) = wire.next_deadline() {
        defended.append(&mut drain(&mut wire, time).0);
    }
    assert!(defended.contains(&ip(mine)), "{defended:?}");
    for (millis, members) in [(200_000, both()), (300_000, alone()), (400_000, both())] {
        wire.set_members(Time::millis(millis), members, Manner::AtOnce);
        assert_eq!(
            drain(&mut wire, Time::millis(millis)).0,
            Vec::<IpAddr>::new(),
            "nobody announced it since"
        );
    }
}

#[test]
fn without_a_member_list_it_is_eligible_and_stops_at_once() {
    let mut wire = Wire::new(NODE.into(), None);
    let Some(Output::Report(report)) = wire.poll(NOW) else { panic!("no report") };
    let membership = report.membership.unwrap();
    assert!(membership.eligible && !report.complete);
    assert_eq!(membership.members, Members::EveryNode);
    wire.handle(NOW, Input::Peers(&[]));
    wire.handle(NOW, Input::Api { working: false });
    assert_eq!((wire.poll(NOW), wire.next_deadline()), (None, None));
    wire.handle(NOW, Input::Stop);
    assert_eq!((wire.poll(NOW), wire.poll(NOW)), (Some(Output::Stopped), None));
}

#[test]
fn a_new_plan_concerns_only_what_it_changes() {
    let mut wire = running(plan_for(&[200], Interfaces::All));
    while let Some(time) = wire.next_deadline() {
        drain(&mut wire, time);
    }
    let later = Time::millis(60_000);
    // The plan is a new value throughout, but says the same of .200.
    wire.handle(later, Input::Plan(plan_for(&[200, 201], Interfaces::All)));
    let (frames, reports) = drain(&mut wire, later);
    assert!(!frames.is_empty() && frames.iter().all(|address| *address == ip(201)), "{frames:?}");
    assert_eq!(reports[0].owned, [(ip(201), Some(on(&["ens18"])))].into());
    wire.handle(later, Input::Plan(plan_for(&[201], Interfaces::All)));
    assert_eq!(drain(&mut wire, later).1[0].owned, [(ip(200), None)].into());
}

#[test]
fn an_owned_address_without_its_interface_is_reported_so() {
    let named = Interfaces::Named(on(&["ens19"]));
    let mut wire = running(plan_for(&[200], named));
    let (frames, reports) = drain(&mut wire, NOW);
    assert!(frames.is_empty());
    assert_eq!(reports[0].owned, [(ip(200), Some(on(&[])))].into());
    let ens19 = Interface { index: IfIndex(3), name: "ens19".into(), ..ens18() };
    wire.handle(NOW, Input::Interfaces(&[ens18(), ens19]));
    let (frames, reports) = drain(&mut wire, NOW);
    assert_eq!(frames.len(), 2);
    assert_eq!(reports[0].owned, [(ip(200), Some(on(&["ens19"])))].into());
    assert_eq!(reports[0].interfaces, Some(on(&["ens18", "ens19"])));
}

#[test]
fn a_lost_report_is_made_good_by_a_complete_one() {
    let mut wire = running(plan_for(&[200, 201], Interfaces::All));
    let lost = drain(&mut wire, NOW).1;
    wire.handle(NOW, Input::Resync);
    let (_, reports) = drain(&mut wire, NOW);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].complete);
    assert_eq!(reports[0].owned, lost[0].owned);
    assert_eq!(reports[0].counters.len(), 2);
    assert_eq!(drain(&mut wire, NOW).1, []);
}

#[test]
fn counters_are_reported_once_a_second_while_they_move_and_end_with_the_address() {
    let mut wire = running(plan_for(&[200], Interfaces::All));
    let mut reports = Vec::new();
    let mut times = 0;
    while let Some(time) = wire.next_deadline() {
        reports.extend(drain(&mut wire, time).1);
        times += 1;
    }
    let sent: Vec<_> = reports
        .iter()
        .filter_map(|r| r.counters.get(&ip(200)).copied().flatten())
        .map(|c| c.gratuitous)
        .collect();
    assert_eq!(sent, [2, 4, 6, 8, 10]);
    assert!(times < 20, "then there is nothing to wake up for");

    wire.handle(NOW, Input::Plan(plan_for(&[], Interfaces::All)));
    let mut ended = Vec::new();
    while let Some(time) = wire.next_deadline() {
        ended.extend(drain(&mut wire, time).1);
    }
    assert_eq!(ended.last().unwrap().counters, [(ip(200), None)].into());
}

/// A dual-stack Service is whole: both of its addresses are owned, announced, reported and counted.
#[test]
fn ipv6_addresses_are_answered_for_as_ipv4_addresses_are() {
    let v6: IpAddr = "fd00:10::201".parse().unwrap();
    let group: Ipv6Addr = "ff02::1:ff00:201".parse().unwrap();
    let speaks = Interface { link_local: Some("fe80::1".parse().unwrap()), ..ens18() };
    let ens19 = Interface { index: IfIndex(3), name: "ens19".into(), ..ens18() };
    let mut wire = Wire::new(NODE.into(), None);
    wire.handle(NOW, Input::Plan(plan_of([ip(201), v6], Interfaces::All)));
    wire.set_members(NOW, alone(), Manner::HandOver);
    wire.handle(NOW, Input::Interfaces(&[speaks.clone(), ens19]));
    assert_eq!(wire.poll(NOW), Some(Output::Join { interface: speaks.index, group }));
    let (frames, reports) = drain(&mut wire, NOW);
    assert_eq!(
        frames,
        [ip(201), ip(201), ip(201), ip(201), v6],
        "a pair on each interface, one advertisement"
    );
    let owned = &reports[0].owned;
    assert_eq!((&owned[&ip(201)], &owned[&v6]), (&Some(on(&["ens18", "ens19"])), &Some(on(&["ens18"]))));

    let (_, reports) = drain(&mut wire, Time::millis(60_000));
    assert_eq!(reports.last().unwrap().counters[&v6].unwrap().gratuitous, 2);
    wire.handle(Time::millis(60_000), Input::Plan(plan_for(&[201], Interfaces::All)));
    assert_eq!(wire.poll(NOW), Some(Output::Leave { interface: speaks.index, group }));
    let (_, reports) = drain(&mut wire, Time::millis(60_000));
    assert_eq!(reports[0].owned, [(v6, None)].into());
}

#[test]
fn go_9_go_10_a_member_that_flaps_among_many_disturbs_only_what_it_leads() {
    let nodes: Vec<NodeName> = (0..200).map(|n| NodeName::from(format!("node-{n}"))).collect();
    let addresses = (0..2000_u16).map(|n| IpAddr::from([10, 0, (n / 250) as u8, (n % 250) as u8]));
    let pool = |plan: &Arc<AddressPlans>| plan.clone();
    let plan = plan_among(&nodes, addresses, Interfaces::All);
    let all: Members = nodes.iter().map(|node| (node.clone(), Standing::Ours)).collect();
    let flapping = &nodes[7];
    let without: Members =
        nodes.iter().filter(|node| *node != flapping).map(|node| (node.clone(), Standing::Ours)).collect();
    let leads = |members: &Members| -> BTreeSet<IpAddr> {
        let owns = |address: &&ferrolb_announce::AddressPlan| {
            ferrolb_announce::owner(address, members) == Some(&nodes[0])
        };
        pool(&plan).iter().filter(|(_, address)| owns(&&***address)).map(|(ip, _)| *ip).collect()
    };
    let gained: BTreeSet<IpAddr> = leads(&without).difference(&leads(&all)).copied().collect();

    let mut wire = Wire::new(nodes[0].clone(), None);
    wire.members = Some(all.clone());
    wire.handle(NOW, Input::Plan(plan.clone()));
    wire.handle(NOW, Input::Interfaces(&[ens18()]));
    while let Some(time) = wire.next_deadline() {
        drain(&mut wire, time);
    }
    let owned: BTreeSet<IpAddr> = wire.owned().collect();
    assert_eq!(owned, leads(&all));
    for round in 0..100 {
        let now = Time::millis(60_000 + round * 1000);
        let members = if round % 2 == 0 { &without } else { &all };
        wire.set_members(now, members.clone(), Manner::AtOnce);
        let (frames, reports) = drain(&mut wire, now);
        assert!(frames.iter().all(|address| gained.contains(address)), "round {round}");
        let told: BTreeSet<IpAddr> = reports.iter().flat_map(|report| report.owned.keys()).copied().collect();
        assert_eq!(told, gained, "round {round}");
    }
}
