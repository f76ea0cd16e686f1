// SPDX-License-Identifier: Apache-2.0
//! Plays a sequence, and cuts one that breaks a rule down to the steps that it takes.

use super::api::Author;
use super::rest::rest;
use super::step::{Deed, Step, draw, prelude};
use super::tally::{Mark, Tally};
use super::world::{Mode, World};
use super::{Broken, Verdict};
use crate::rng::Rng;

/// Plays the sequence of a seed: what it was made of, or the rule it breaks.
///
/// # Errors
///
/// A rule was broken. The sequence is then cut down first, which takes a while.
pub fn run(seed: u64) -> Result<Tally, Box<Broken>> {
    let mut rng = Rng::new(seed);
    let before = prelude(&mut rng);
    let steps = draw(&mut rng);
    let mode = if rng.chance(50) { Mode::Alone } else { Mode::Lease };
    match play(mode, &before, &steps, false) {
        (world, Ok(())) => Ok(world.tally),
        (_, Err(violation)) => {
            let all: Vec<Step> = before.into_iter().chain(steps).collect();
            let steps = shrink(mode, all, violation.rule);
            let (world, verdict) = play(mode, &[], &steps, true);
            let violation = verdict.err().unwrap_or(violation);
            Err(Box::new(Broken {
                seed,
                rule: violation.rule.text(),
                what: violation.what,
                steps: steps.len(),
                story: world.story,
            }))
        }
    }
}

/// Plays steps; those of `before` do not count.
fn play(mode: Mode, before: &[Step], steps: &[Step], recording: bool) -> (World, Verdict) {
    let mut world = World::new(mode, recording);
    let verdict = play_all(&mut world, before, steps);
    world.tally.sequences = 1;
    world.tally.steps = steps.len() as u64;
    world.tally.seconds = world.now / 1000;
    (world, verdict)
}

fn play_all(world: &mut World, before: &[Step], steps: &[Step]) -> Verdict {
    for step in before.iter().chain(steps) {
        world.rng = Rng::new(step.noise);
        take(world, &step.deed)?;
        let until = world.now + step.pause;
        world.run_until(until)?;
    }
    world.rng = Rng::new(0);
    rest(world)
}

/// Takes a step, if there is anything to take it on.
fn take(world: &mut World, deed: &Deed) -> Verdict {
    let mark = match deed {
        Deed::Rest => {
            rest(world)?;
            Some(Mark::Rested)
        }
        Deed::Wait => Some(Mark::Waited),
        Deed::Restart(which) => world.restart(*which).then_some(Mark::Restarted),
        Deed::Kill(which) => world.kill(*which).map(|_| Mark::Killed),
        Deed::Stop(which) => world.stop(*which).then_some(Mark::Stopped),
        Deed::Start => world.start(None).then_some(Mark::Started),
        Deed::Pause(which, millis) => world.pause(*which, *millis).then_some(Mark::Paused),
        Deed::Outage(millis) => {
            world.outage(*millis);
            None
        }
        Deed::Fate(fate, times) => {
            world.fates.extend((0..*times).map(|_| *fate));
            None
        }
        Deed::LeaseFate(fate, times) => {
            if world.mode == Mode::Lease {
                world.lease_fates.extend((0..*times).map(|_| *fate));
            }
            None
        }
        Deed::BreakWatch(which, kind, millis) => {
            world.break_watch(*which, *kind, *millis).then_some(Mark::BrokenWatch)
        }
        Deed::LagWatch(which, kind, millis) => {
            world.lag_watch(*which, *kind, *millis).then_some(Mark::LaggingWatch)
        }
        Deed::Contest(slot, times) => {
            world.contests[*slot] = *times;
            None
        }
        other => {
            let mark = change(world, other);
            if mark.is_some() {
                world.tell(|| format!("{other:?}"));
                world.disturbed();
            }
            mark
        }
    };
    if let Some(mark) = mark {
        world.tally.count(mark);
    }
    Ok(())
}

/// Somebody changes an object; `None` if there is nothing to change.
fn change(world: &mut World, deed: &Deed) -> Option<Mark> {
    let wall = world.clock().wall;
    let api = &mut world.api;
    match deed {
        Deed::CreateService(slot, shape) => {
            if api.services[*slot].is_some() {
                return None;
            }
            api.apply_service(*slot, shape, wall);
            Some(Mark::ServiceCreated)
        }
        Deed::EditService(slot, field, from) => {
            let mut shape = api.service_shapes[*slot].clone()?;
            shape.take(*field, from);
            if api.service_shapes[*slot].as_ref() == Some(&shape) {
                return None;
            }
            api.apply_service(*slot, &shape, wall);
            Some(Mark::ServiceEdited)
        }
        Deed::TouchService(slot, number) => {
            let touch = |object: &mut k8s_openapi::api::core::v1::Service| {
                object.metadata.finalizers = Some(vec![format!("example.com/{number}")]);
            };
            api.change_service(*slot, Author::User, touch).then_some(Mark::ServiceTouched)
        }
        Deed::DeleteService(slot) => api.delete_service(*slot).then_some(Mark::ServiceDeleted),
        Deed::ReplaceService(slot, shape) => {
            let existed = api.delete_service(*slot);
            api.apply_service(*slot, shape, wall);
            Some(if existed { Mark::ServiceReplaced } else { Mark::ServiceCreated })
        }
        Deed::StealStatus(slot, theft) => world.steal(*slot, *theft).then_some(Mark::StatusStolen),
        Deed::StealAnnotation(slot, pool) => {
            let steal = |object: &mut k8s_openapi::api::core::v1::Service| {
                let key = "metallb.io/ip-allocated-from-pool".to_owned();
                let notes = object.metadata.annotations.get_or_insert_default();
                match pool {
                    Some(pool) => notes.insert(key, (*pool).to_owned()),
                    None => notes.remove(&key),
                };
                if notes.is_empty() {
                    object.metadata.annotations = None;
                }
            };
            api.change_service(*slot, Author::Stranger, steal).then_some(Mark::AnnotationStolen)
        }
        Deed::Announce(slot) => {
            let announced = api.announce(*slot);
            Some(if announced { Mark::AnnouncedByNode } else { Mark::NotAnnouncedByNode })
        }
        Deed::StealConditions(slot, how) => {
            api.steal_conditions(*slot, *how, wall).then_some(Mark::ConditionStolen)
        }
        Deed::StealPoolStatus(slot) => api.steal_pool_status(*slot).then_some(Mark::PoolStatusStolen),
        Deed::DeleteState => api.delete_state().then_some(Mark::StateDeleted),
        Deed::LabelNamespace(index, tier) => {
            api.label_namespace(*index, tier);
            Some(Mark::NamespaceLabelled)
        }
        other => change_pool(world, other),
    }
}

fn change_pool(world: &mut World, deed: &Deed) -> Option<Mark> {
    let wall = world.clock().wall;
    let api = &mut world.api;
    let (slot, shape, mark) = match deed {
        Deed::CreatePool(slot, shape) => {
            if api.pools[*slot].is_some() {
                return None;
            }
            (*slot, shape.clone(), Mark::PoolCreated)
        }
        Deed::DeletePool(slot) => return api.delete_pool(*slot).then_some(Mark::PoolDeleted),
        Deed::ReplacePool(slot, shape) => {
            let existed = api.delete_pool(*slot);
            (*slot, shape.clone(), if existed { Mark::PoolReplaced } else { Mark::PoolCreated })
        }
        Deed::SwapPools(a, b) => {
            let (mut first, mut second) = (api.pool_shapes[*a].clone()?, api.pool_shapes[*b].clone()?);
            std::mem::swap(&mut first.home, &mut second.home);
            api.apply_pool(*a, &first, wall);
            api.apply_pool(*b, &second, wall);
            return Some(Mark::PoolsSwapped);
        }
        Deed::EditPool(slot, field, from) => {
            let mut shape = api.pool_shapes[*slot].clone()?;
            shape.take(*field, from);
            (*slot, shape, Mark::PoolEdited)
        }
        Deed::ShrinkPool(slot) => {
            let mut shape = api.pool_shapes[*slot].clone()?;
            shape.v4 = shape.v4.checked_sub(1)?;
            (*slot, shape, Mark::PoolShrunk)
        }
        Deed::GrowPool(slot) => {
            let mut shape = api.pool_shapes[*slot].clone()?;
            shape.v4 = (shape.v4 + 1).min(3);
            shape.v6 = (shape.v6 + 1).min(2);
            (*slot, shape, Mark::PoolGrown)
        }
        Deed::BreakPool(slot, fault) => {
            let mut shape = api.pool_shapes[*slot].clone()?;
            shape.broken = Some(*fault);
            (*slot, shape, Mark::PoolBroken)
        }
        Deed::OverlapPool(slot, other) => {
            let mut shape = api.pool_shapes[*slot].clone()?;
            shape.also = Some(*other).filter(|other| other != slot);
            (*slot, shape, Mark::PoolOverlaps)
        }
        _ => return None,
    };
    if api.pool_shapes[slot].as_ref() == Some(&shape) {
        return None;
    }
    api.apply_pool(slot, &shape, wall);
    Some(mark)
}

/// Leaves out what the rule is broken without: whole stretches first, single steps at last.
fn shrink(mode: Mode, mut steps: Vec<Step>, rule: Mark) -> Vec<Step> {
    let breaks =
        |steps: &[Step]| matches!(play(mode, &[], steps, false).1, Err(violation) if violation.rule == rule);
    let mut stretch = steps.len() / 2;
    while stretch > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + stretch).min(steps.len()));
            if breaks(&fewer) {
                steps = fewer;
                shorter = true;
            } else {
                at += stretch;
            }
        }
        if stretch > 1 {
            stretch /= 2;
        } else if !shorter {
            break;
        }
    }
    steps
}
