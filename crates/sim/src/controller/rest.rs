// SPDX-License-Identifier: Apache-2.0
//! The rules that hold when everything has come to rest: nothing is on its way and nothing fails any more.

use std::net::IpAddr;
use std::rc::Rc;

use ferrolb_api::annotations::INTENTS;
use ferrolb_api::request::Resource;
use ferrolb_api::{ALLOCATED_CONDITION, ANNOUNCED_CONDITION};
use ferrolb_config::Config;
use ferrolb_controller_core::{Core, Effect, Settings};
use ferrolb_net_types::IpFamily;
use serde_json::Value;

use super::api::Kind;
use super::facts::{Facts, count};
use super::judge::double_use;
use super::process::{Configuration, settings, shown};
use super::shape::pool_slot;
use super::tally::Mark;
use super::world::{Mode, World};
use super::{Verdict, Violation};

/// Lets everything come to rest, and judges what it came to.
pub(crate) fn rest(world: &mut World) -> Verdict {
    let begun = world.now;
    loop {
        world.run_dry()?;
        match judge(world) {
            Ok(marks) => {
                for mark in marks {
                    world.tally.count(mark);
                }
                return Ok(());
            }
            // A core that renews a Lease always has a next deadline: only time tells whether it waited for anything.
            Err(_) if world.mode == Mode::Lease && world.now < begun + PATIENCE => {
                world.wrote = world.now + SOME_TIME;
            }
            Err(violation) => return Err(violation),
        }
    }
}

/// Longer than the longest pause of a controller that is overruled again and again.
const PATIENCE: u64 = 400_000;
const SOME_TIME: u64 = 20_000;

/// What was put to the test, or which rule is broken.
fn judge(world: &mut World) -> Result<Vec<Mark>, Violation> {
    world.tell(|| "everything is at rest".to_owned());
    let mut marks = vec![Mark::QuietAtRest, Mark::OneHolderAtRest];
    one_leader(world, &mut marks)?;
    let Some(config) = world.leader().and_then(|process| process.configuration.config.clone()) else {
        return Err(Violation::of(Mark::QuietAtRest, "the controller has no configuration".to_owned()));
    };
    let reserved = reserved(world);
    marks.extend(reserved.iter().map(|_| Mark::Reserved));
    let api = &world.api;
    let ours = api.ours();
    if let Some(what) = double_use(&ours) {
        return Err(Violation::of(Mark::OneHolderAtRest, what));
    }
    marks.extend(api.services.iter().flatten().filter(|v| !v.facts.is_ours()).map(|_| Mark::OtherClass));
    for (slot, facts) in &ours {
        let others: Vec<&Facts> = ours
            .iter()
            .chain(&borrowed(&reserved))
            .filter(|(other, _)| other != slot)
            .map(|(_, facts)| *facts)
            .collect();
        one_service(*slot, facts, &config, &others, &mut marks)?;
    }
    if world.mode == Mode::Lease {
        conditions(world, &mut marks)?;
    }
    counters(world, &config, &reserved, &mut marks)?;
    if reserved.is_empty() {
        full_pass(world, &config, &mut marks)?;
    }
    Ok(marks)
}

/// One controller decides, and the Lease says so.
fn one_leader(world: &World, marks: &mut Vec<Mark>) -> Verdict {
    if world.mode == Mode::Alone {
        return Ok(());
    }
    marks.push(Mark::OneLeaderAtRest);
    let leaders: Vec<u64> =
        world.processes.iter().filter(|process| process.leads).map(|process| process.pod).collect();
    let spec = world.api.lease.as_ref().and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    match leaders[..] {
        [pod] if holder == format!("controller-{pod}_pod-{pod}") => Ok(()),
        _ => {
            let what = format!("those of Pods {leaders:?} lead, the Lease is held by {holder:?}");
            Err(Violation::of(Mark::OneLeaderAtRest, what))
        }
    }
}

/// What Services would list if writes arrived of which nobody knows what became of them: as the leader knows, and as
/// stands in the Lease.
fn reserved(world: &World) -> Vec<(usize, Facts)> {
    let mut doubts: Vec<(usize, u64, Vec<IpAddr>)> = Vec::new();
    let own = world.leader().map(|process| process.doubts.as_slice()).unwrap_or_default();
    doubts.extend(own.iter().map(|doubt| (doubt.slot, doubt.version, doubt.ips.clone())));
    let notes = world.api.lease.as_ref().and_then(|lease| lease.metadata.annotations.as_ref());
    let intents: Value = notes
        .and_then(|notes| notes.get(INTENTS))
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    for intent in intents.as_array().into_iter().flatten() {
        let version = world.api.services.iter().flatten().find(|version| {
            version.object.metadata.uid.as_deref() == intent["uid"].as_str()
                && version.object.metadata.resource_version.as_deref() == intent["rv"].as_str()
        });
        let ips = intent["ips"].as_array().into_iter().flatten();
        let ips = ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect();
        doubts.extend(version.map(|version| (version.slot, version.number, ips)));
    }
    let open = doubts.into_iter().filter_map(|(slot, number, ips)| {
        let version = world.api.services[slot].as_ref().filter(|version| version.number == number)?;
        let mut facts = version.facts.clone();
        facts.listed = ips.into_iter().map(Some).collect();
        Some((slot, facts))
    });
    open.filter(|(_, facts)| !facts.listed.is_empty()).collect()
}

fn borrowed(facts: &[(usize, Facts)]) -> Vec<(usize, &Facts)> {
    facts.iter().map(|(slot, facts)| (*slot, facts)).collect()
}

/// A Service has what it may and could have.
fn one_service(
    slot: usize,
    facts: &Facts,
    config: &Config,
    others: &[&Facts],
    marks: &mut Vec<Mark>,
) -> Verdict {
    let name = shown(slot);
    if facts.listed.is_empty() {
        marks.push(Mark::ServedAtRest);
        return match facts.could_have(config, others) {
            None => Ok(()),
            Some(ips) => {
                let what = format!("{name} waits, though it could have {ips:?}");
                Err(Violation::of(Mark::ServedAtRest, what))
            }
        };
    }
    marks.push(Mark::LegalAtRest);
    if let Some(fault) = facts.fault(&facts.listed, config) {
        let what = format!("{name} still lists {:?}: {fault:?}", facts.listed);
        return Err(Violation::of(Mark::LegalAtRest, what));
    }
    if facts.ips().any(|ip| config.pool_of(ip).is_none()) {
        marks.push(Mark::KeptUnknown);
    }
    if facts.wants_another() {
        marks.push(Mark::DualAtRest);
        if let Some(ip) = facts.could_add(config, others) {
            let what = format!("{name} lists {:?} alone, though it could have {ip} as well", facts.listed);
            return Err(Violation::of(Mark::DualAtRest, what));
        }
    }
    Ok(())
}

/// Conditions that are there say what is, and one says of whoever waits that it does.
fn conditions(world: &World, marks: &mut Vec<Mark>) -> Verdict {
    for (slot, facts) in world.api.ours() {
        let Some(version) = &world.api.services[slot] else { continue };
        let status = version.object.status.as_ref();
        let stored = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let says = |kind: &str| stored.iter().find(|c| c.type_ == kind).map(|c| c.status.as_str());
        let has = !facts.listed.is_empty();
        let word = |holds: bool| Some(if holds { "True" } else { "False" });
        marks.push(Mark::ConditionsAtRest);
        let allocated = says(ALLOCATED_CONDITION);
        let fine = match (facts.load_balancer, has) {
            (false, _) => allocated.is_none(),
            (true, true) => allocated.is_none() || allocated == word(true),
            (true, false) => allocated == word(false),
        };
        let announced = says(ANNOUNCED_CONDITION);
        let right = announced.is_none() || (has && announced == word(world.api.announced[slot]));
        if !fine || !right {
            let what = format!(
                "{} lists {:?}, its conditions say Allocated {allocated:?}, Announced {announced:?} (announced: {})",
                shown(slot),
                facts.listed,
                world.api.announced[slot]
            );
            return Err(Violation::of(Mark::ConditionsAtRest, what));
        }
    }
    Ok(())
}

/// The status of each pool in force, and the metrics, say what the Services list, or may come to list.
fn counters(world: &World, config: &Config, reserved: &[(usize, Facts)], marks: &mut Vec<Mark>) -> Verdict {
    let mut services: Vec<&Facts> = world.api.ours().into_iter().map(|(_, facts)| facts).collect();
    services.extend(reserved.iter().map(|(_, facts)| facts));
    let Some(process) = world.leader() else { return Ok(()) };
    if let Some(name) =
        process.gauges.keys().find(|name| !config.pools.keys().any(|pool| pool.as_str() == *name))
    {
        return Err(Violation::of(
            Mark::Gauges,
            format!("the metrics show pool {name}, which is not in force"),
        ));
    }
    for (name, pool) in &config.pools {
        let [[used4, free4], [used6, free6]] =
            [IpFamily::V4, IpFamily::V6].map(|family| count(pool, family, &services));
        let expected = [used4, used6, free4, free6];
        marks.push(Mark::Gauges);
        let shown = process.gauges.get(name.as_str());
        if shown != Some(&expected) {
            let what = format!("the metrics of pool {name} are {shown:?} instead of {expected:?}");
            return Err(Violation::of(Mark::Gauges, what));
        }
        let Some(object) = pool_slot(name.as_str()).and_then(|slot| world.api.pools[slot].as_ref()) else {
            return Err(Violation::of(Mark::Counters, format!("pool {name} is in force and does not exist")));
        };
        marks.push(Mark::Counters);
        let stored =
            object.status.map(|s| [s.assigned_ipv4, s.assigned_ipv6, s.available_ipv4, s.available_ipv6]);
        if stored != Some(expected) {
            let what = format!("the status of pool {name} says {stored:?} instead of {expected:?}");
            return Err(Violation::of(Mark::Counters, what));
        }
    }
    Ok(())
}

/// A controller that begins with what is stored, and knows nothing else, has nothing to write.
///
/// Unless it has to see the pools otherwise: it does not know the last good versions.
fn full_pass(world: &mut World, config: &Rc<Config>, marks: &mut Vec<Mark>) -> Verdict {
    let clock = world.clock();
    let with_conditions = Settings { conditions: world.mode == Mode::Lease, ..settings(0, Mode::Alone) };
    let mut core = Core::new(clock, with_conditions);
    let mut configuration = Configuration::new();
    let mut kinds = Kind::ALL;
    for n in (1..kinds.len()).rev() {
        kinds.swap(n, world.rng.index(n + 1));
    }
    for kind in kinds {
        let news = world.api.list(kind);
        configuration.hear(&news);
        core.handle(clock, news.input());
    }
    configuration.evaluate();
    if configuration.config.as_ref() != Some(config) {
        return Ok(());
    }
    marks.push(Mark::FullIsIncremental);
    while let Some(effect) = core.poll() {
        match effect {
            Effect::Write { request, .. }
                if matches!(request.resource, Resource::Services | Resource::IPAddressPools) =>
            {
                let name = request.name.unwrap_or_default();
                let body = request.body.unwrap_or_default();
                let what = format!("a controller that starts now writes {name}: {body}");
                return Err(Violation::of(Mark::FullIsIncremental, what));
            }
            Effect::Event(event) if ["IPAllocated", "ClearAssignment"].contains(&event.reason) => {
                let what = format!("a controller that starts now tells {}", event.message);
                return Err(Violation::of(Mark::FullIsIncremental, what));
            }
            _ => {}
        }
    }
    Ok(())
}
