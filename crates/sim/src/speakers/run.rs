// SPDX-License-Identifier: Apache-2.0
//! Plays the sequence of a seed.

use super::faults;
use super::tally::Tally;
use super::world::World;
use crate::Broken;

/// What a cluster consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many nodes there are, at least two; each has a speaker.
    pub nodes: u16,
    /// How many of the speakers are MetalLB's.
    pub metallb: u16,
}

/// Plays the sequence of a seed on a cluster: what it was made of, or the rule it breaks.
///
/// # Errors
///
/// A rule was broken. The sequence is then played again, to be told.
pub fn run(seed: u64, shape: Shape) -> Result<Tally, Box<Broken>> {
    let mut world = play(seed, shape, false);
    if world.broken.is_none() {
        world.tally.sequences = 1;
        world.tally.seconds = world.now.since_start().as_secs();
        return Ok(world.tally);
    }
    let mut told = play(seed, shape, true);
    let Some(broken) = told.broken.take().or(world.broken) else { return Ok(told.tally) };
    Err(Box::new(Broken {
        seed,
        rule: broken.rule.text(),
        what: broken.what,
        steps: told.tally.steps as usize,
        story: told.take_story(),
    }))
}

/// What happens in the sequence of a seed, line by line, whether it breaks a rule or not.
pub fn story(seed: u64, shape: Shape) -> Vec<String> {
    play(seed, shape, true).take_story()
}

fn play(seed: u64, shape: Shape, telling: bool) -> World {
    let mut world = World::new(seed, shape, telling);
    faults::play(&mut world);
    world
}
