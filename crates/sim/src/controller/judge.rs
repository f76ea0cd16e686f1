// SPDX-License-Identifier: Apache-2.0
//! The rules that hold at every moment: judged at each write that is stored, and at each event that is told.
//!
//! A controller is held to what it could know. Of another Service it may have an old version in mind, as far as users
//! and strangers changed it meanwhile; never as far as a controller did.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

use ferrolb_api::event::Event;
use ferrolb_api::{ALLOCATED_CONDITION, ANNOUNCED_CONDITION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use ferrolb_config::Config;

use super::api::{Author, Version};
use super::facts::{Facts, Fault, Requested};
use super::process::{Wrote, shown};
use super::shape::{SERVICES, service_slot};
use super::tally::Mark;
use super::world::{Mind, Mode, Sent, World};
use super::{Verdict, Violation};

/// A controller's write of a Service was stored.
pub(crate) fn commit(world: &mut World, sent: &Sent, before: &Rc<Version>, after: &Rc<Version>) -> Verdict {
    if before.number == after.number {
        return Ok(());
    }
    let Some(mind) = &sent.mind else { return Ok(()) };
    if !before.facts.is_ours() {
        let what = format!("{} is of another class and was written", shown(before.slot));
        return Err(Violation::of(Mark::OtherClass, what));
    }
    let others = |version: &Version| -> Vec<Condition> {
        let conditions = version.object.status.as_ref().and_then(|status| status.conditions.clone());
        let ours = [ALLOCATED_CONDITION, ANNOUNCED_CONDITION];
        conditions.unwrap_or_default().into_iter().filter(|c| !ours.contains(&c.type_.as_str())).collect()
    };
    let kept = others(before);
    world.tally.count_if(!kept.is_empty(), Mark::OthersConditions);
    if kept != others(after) {
        let what = format!("{} had conditions {kept:?}, which are others now", shown(before.slot));
        return Err(Violation::of(Mark::OthersConditions, what));
    }
    let had: BTreeSet<IpAddr> = before.facts.ips().collect();
    let has: BTreeSet<IpAddr> = after.facts.ips().collect();
    let lost: Vec<IpAddr> = had.difference(&has).copied().collect();
    let new: Vec<IpAddr> = has.difference(&had).copied().collect();
    if !had.is_empty() {
        survives(world, mind, before, &lost, !has.is_empty())?;
    }
    if !new.is_empty() {
        fits(world, mind, before, after, &new, had.len() == lost.len())?;
        for ip in &new {
            world.tally.count(Mark::OneHolder);
            one_holder(world, mind, after, *ip)?;
        }
    }
    count_form(world, before, after, &lost, &new);
    Ok(())
}

/// What was there and is not there any more was not legal any more.
fn survives(world: &mut World, mind: &Mind, before: &Version, lost: &[IpAddr], has_some: bool) -> Verdict {
    world.tally.count(Mark::Survives);
    if lost.is_empty() {
        return Ok(());
    }
    let facts = &before.facts;
    let former = mind.before.as_ref().and_then(|config| facts.fault(&facts.listed, config));
    let fault = match facts.fault(&facts.listed, &mind.config).or(former) {
        Some(fault) if fault != Fault::Half => Some(fault),
        half => contended(world, mind, before).then_some(Fault::Contended).or(half),
    };
    let Some(fault) = fault else {
        let what = format!(
            "{} may keep {:?}, which was taken away ({})",
            shown(before.slot),
            facts.listed,
            if has_some { "it was given others" } else { "it has none now" }
        );
        return Err(Violation::of(Mark::Survives, what));
    };
    world.tally.count(match fault {
        Fault::NotLoadBalancer => Mark::LostNotLoadBalancer,
        Fault::NoPools => Mark::LostNoPools,
        Fault::NoClusterIps => Mark::LostNoClusterIps,
        Fault::NotEnoughClusterIps => Mark::LostNotEnoughClusterIps,
        Fault::BadClusterIps => Mark::LostBadClusterIps,
        Fault::BadHeld => Mark::LostBadHeld,
        Fault::OtherFamilies => Mark::LostOtherFamilies,
        Fault::NotInOnePool => Mark::LostNotInOnePool,
        Fault::NotAdmitted => Mark::LostNotAdmitted,
        Fault::Contended => Mark::LostContended,
        Fault::OtherPool => Mark::LostOtherPool,
        Fault::OtherAddresses => Mark::LostOtherAddresses,
        Fault::Half => Mark::LostHalf,
    });
    Ok(())
}

/// Whether another Service lists, or is being given, an address that this one lists, and the two may not share it.
fn contended(world: &World, mind: &Mind, own: &Version) -> bool {
    let apart = |version: &Rc<Version>| !own.facts.may_share(&version.facts);
    let lists = |version: &Rc<Version>| {
        version.facts.is_ours() && own.facts.ips().any(|ip| version.facts.lists(ip)) && apart(version)
    };
    (0..SERVICES).filter(|slot| *slot != own.slot).any(|slot| {
        let seen = mind.knows.seen[slot].as_ref().filter(|version| version.facts.is_ours());
        let gives = |wrote: &Rc<Wrote>| {
            own.facts.ips().any(|ip| wrote.ips.contains(&ip))
                && (apart(&wrote.upon) || seen.is_none_or(apart))
        };
        let waits = world.mode == Mode::Lease;
        let given = mind.knows.wrote[slot].as_ref().is_some_and(gives)
            || waits && mind.knows.wrote_before[slot].iter().any(gives);
        // Where decisions wait for the Lease, this one was made at any time since its version was learnt.
        let since = mind.knows.learnt[own.slot][slot];
        let mut lately = world.api.history[slot].iter().rev().take_while(|version| version.number >= since);
        seen.is_some_and(lists) || given || waits && lately.any(lists)
    })
}

/// What was given out is what the Service may have.
fn fits(
    world: &mut World,
    mind: &Mind,
    before: &Version,
    after: &Version,
    new: &[IpAddr],
    afresh: bool,
) -> Verdict {
    world.tally.count(Mark::NewIsLegal);
    let facts = &before.facts;
    let unfit = |config: &Config| {
        if let Some(fault) = facts.fault(&after.facts.listed, config) {
            return Some(format!("was given {:?}: {fault:?}", after.facts.listed));
        }
        new.iter().find_map(|ip| {
            let pool = config.pool_of(*ip);
            let may = pool.is_some_and(|pool| facts.may_be_given(*ip, pool) || !afresh);
            let marked = after.facts.marked.as_deref();
            let rightly = marked == pool.map(|pool| pool.name.as_str());
            (!may || !rightly)
                .then(|| format!("was given {ip} and says that it is of {marked:?}; it is of {pool:?}"))
        })
    };
    if let Some(what) = unfit(&mind.config)
        && mind.before.as_ref().is_none_or(|config| unfit(config).is_some())
    {
        return Err(Violation::of(Mark::NewIsLegal, format!("{} {what}", shown(after.slot))));
    }
    let pinned = mind.config.pool_of(new[0]).is_some_and(|pool| pool.allocation.is_some());
    world.tally.count(match &facts.requested {
        _ if !afresh => Mark::Extended,
        Requested::These(_) => Mark::Asked,
        _ if !facts.requested_pool.is_empty() => Mark::FromAskedPool,
        _ if pinned => Mark::FromPinned,
        _ => Mark::FromOpen,
    });
    Ok(())
}

/// Nobody else lists the new address, unless the two may share it.
fn one_holder(world: &mut World, mind: &Mind, after: &Version, ip: IpAddr) -> Verdict {
    for slot in (0..SERVICES).filter(|slot| *slot != after.slot) {
        let Some(other) = world.api.services[slot].clone() else { continue };
        if !other.facts.is_ours() || !other.facts.lists(ip) {
            continue;
        }
        // What the sender knew of the other one when it decided. Where decisions wait for the Lease, that may have been
        // at any time since it learnt this version.
        let since = mind.knows.wrote[after.slot].as_ref().and_then(|wrote| wrote.since.get(&ip));
        let known = since.map_or(0, |known| known[slot]);
        let seen = match world.mode {
            Mode::Alone => known,
            Mode::Lease => known.min(mind.knows.learnt[after.slot][slot]),
        };
        // Who put it there, and when?
        let listing: Vec<&Rc<Version>> = world.api.history[slot]
            .iter()
            .rev()
            .take_while(|version| version.is_of(&other) && version.facts.lists(ip))
            .collect();
        let unseen_stranger =
            listing.last().is_some_and(|first| first.author == Author::Stranger && first.number > seen);
        let imaginable = world.api.history[slot].iter().rev().take_while(|version| version.number >= seen);
        let in_mind = mind.knows.wrote[slot].iter().map(|wrote| &wrote.upon);
        let compatible = |other: &Rc<Version>| !other.facts.is_ours() || after.facts.may_share(&other.facts);
        if unseen_stranger || imaginable.chain(in_mind).any(compatible) {
            if after.facts.may_share(&other.facts) {
                world.tally.count(Mark::Shared);
            }
            continue;
        }
        let what = format!("{} was given {ip}, which {} lists", shown(after.slot), shown(slot));
        return Err(Violation::of(Mark::OneHolder, what));
    }
    Ok(())
}

fn count_form(world: &mut World, before: &Version, after: &Version, lost: &[IpAddr], new: &[IpAddr]) {
    let ingress =
        |version: &Version| version.object.status.as_ref().and_then(|status| status.load_balancer.clone());
    let same_form = ingress(before) == ingress(after);
    let has = after.facts.listed.len();
    world.tally.count(match (lost.is_empty(), new.is_empty()) {
        (true, true) if same_form && before.facts.marked == after.facts.marked => Mark::Conditioned,
        (true, true) if same_form => Mark::Renamed,
        (true, true) => Mark::Reformed,
        (false, false) => Mark::Moved,
        (false, true) => Mark::Cleared,
        (true, false) => return world.tally.count_if(has == 2 && new.len() == 2, Mark::Both),
    });
}

/// An event was told.
pub(crate) fn event(world: &mut World, which: usize, event: &Event) -> Verdict {
    // Of another Service of that name the same may be true.
    let text = format!("{} {} ({})", event.reason, event.message, event.regarding.uid);
    for mark in marks_of(event.reason, &event.message) {
        world.tally.count(mark);
    }
    let Some(slot) = service_slot(&event.regarding.name) else { return Ok(()) };
    world.tally.count(Mark::ToldOnce);
    let told = &mut world.processes[which].told[slot];
    if told.last() == Some(&text) {
        let what = format!("{} was told {text:?} twice", shown(slot));
        return Err(Violation::of(Mark::ToldOnce, what));
    }
    told.push(text);
    Ok(())
}

/// What an event is made of.
fn marks_of(reason: &str, message: &str) -> Vec<Mark> {
    let mut marks = vec![match reason {
        "IPAllocated" if message.contains("additional") => Mark::ToldAdditional,
        "IPAllocated" => Mark::ToldAssigned,
        "ClearAssignment" => Mark::ToldCleared,
        "AdditionalAssignFailed" => Mark::ToldNoAdditional,
        "AllocationFailed" => Mark::ToldNotAllocated,
        "LoadBalancerFailed" => Mark::ToldInvalidRequest,
        "not enough clusterips" => Mark::ToldNotEnough,
        "nolbIPsIPFamily" => Mark::ToldHeld,
        "noclusterIPsIPFamily" => Mark::ToldClusterIps,
        "deprecatedAnnotation" => Mark::ToldDeprecated,
        "StatusContested" => Mark::ToldContested,
        _ => Mark::ToldUnknown,
    }];
    // The first that fits: some texts are the beginning of others.
    let refusals = [
        ("can not have both", Mark::SaidBoth),
        ("invalid metallb.io/loadBalancerIPs", Mark::SaidAnnotation),
        ("invalid spec.loadBalancerIP", Mark::SaidField),
        ("does not match the ipFamily", Mark::SaidFamilyMismatch),
        ("not compatible with requested address pool", Mark::SaidPoolMismatch),
        ("unknown pool", Mark::SaidUnknownPool),
        ("for dual IPFamily", Mark::SaidPoolNotDual),
        ("for ipv4 IPFamily", Mark::SaidPoolLacksFamily),
        ("for ipv6 IPFamily", Mark::SaidPoolLacksFamily),
        ("no available IPs in pool", Mark::SaidPoolFull),
        ("no available IPs", Mark::SaidNoAddress),
        ("is not allowed in config", Mark::SaidNotInOnePool),
        ("not compatible for ip assignment", Mark::SaidNotCompatible),
        ("more than two addresses", Mark::SaidMoreThanTwo),
        ("has the same family", Mark::SaidSameFamily),
        ("can't change sharing key", Mark::SaidInUse),
        ("is already in use on", Mark::SaidPortInUse),
    ];
    marks.extend(refusals.iter().find(|(text, _)| message.contains(text)).map(|(_, mark)| *mark));
    if marks[0] == Mark::ToldInvalidRequest && message.contains("IPFamilyForAddresses") {
        marks.push(Mark::SaidFamily);
    }
    marks
}

/// Whether two Services list one address that they may not share.
pub(crate) fn double_use(services: &[(usize, &Facts)]) -> Option<String> {
    services.iter().enumerate().find_map(|(n, (slot, facts))| {
        services[..n].iter().find_map(|(other_slot, other)| {
            let ip = facts.ips().find(|ip| other.lists(*ip))?;
            (!facts.may_share(other))
                .then(|| format!("{} and {} list {ip}", shown(*other_slot), shown(*slot)))
        })
    })
}
