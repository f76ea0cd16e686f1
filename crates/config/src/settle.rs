// SPDX-License-Identifier: Apache-2.0
//! Which of several objects that exclude each other has what it wants: pools with the same addresses, peers with the same
//! session.
//!
//! An object that is as it was, or that cannot be read and lives on in its last good version, keeps what it has: what was
//! in force never excludes each other, since it comes from one configuration. Every other object is new or changed. One
//! that wants what those have falls back to its last good version, and keeps that. Among the rest the earlier one (by
//! time of creation, then name) is preferred.

use std::collections::BTreeSet;

/// One object's wishes.
#[derive(Debug)]
pub(crate) struct Claim<'a, T: ?Sized> {
    /// What the current version wants; `None` if it cannot be read.
    pub(crate) current: Option<&'a T>,
    /// What the last good version holds.
    pub(crate) former: Option<&'a T>,
}

impl<'a, T: ?Sized> Claim<'a, T> {
    /// What it has when this is granted.
    pub(crate) fn held(&self, granted: Granted) -> Option<&'a T> {
        match granted {
            Granted::Current => self.current,
            Granted::Former => self.former,
            Granted::Nothing => None,
        }
    }
}

/// What objects have, each with its number.
pub(crate) trait Held<'a, T: ?Sized>: Default {
    /// Adds what an object has. It must not be excluded by what is there.
    fn insert(&mut self, owner: usize, claim: &'a T);

    /// Takes away what was added.
    fn remove(&mut self, owner: usize, claim: &'a T);

    /// Whether nobody can have this beside what is there.
    fn excludes(&self, claim: &T) -> bool;
}

/// Which version of an object is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    /// The current one.
    Current,
    /// The last good one.
    Former,
    /// None: it was never good.
    Nothing,
}

/// Decides for every object, in order of preference, which version is in force.
///
/// The outcome is at rest: with it as the past, the same wishes come to the same outcome.
pub(crate) fn settle<'a, T: ?Sized + PartialEq, H: Held<'a, T>>(claims: &[Claim<'a, T>]) -> Vec<Granted> {
    let mut granted = settle_together::<T, H>(claims);
    loop {
        // An object may have been refused for one that was refused itself later on. What is granted in its current
        // version stays so, hence there are at most as many rounds as objects.
        let before = granted.clone();
        settle_singly::<T, H>(claims, &mut granted);
        let past: Vec<Claim<'a, T>> = claims
            .iter()
            .zip(&granted)
            .map(|(claim, granted)| Claim { current: claim.current, former: claim.held(*granted) })
            .collect();
        granted = settle_together::<T, H>(&past);
        if granted == before {
            return granted;
        }
    }
}

/// Grants the current version to every object for which it is free now, one after the other.
fn settle_singly<'a, T: ?Sized, H: Held<'a, T>>(claims: &[Claim<'a, T>], granted: &mut [Granted]) {
    let mut held = H::default();
    for (i, claim) in claims.iter().enumerate() {
        if let Some(own) = claim.held(granted[i]) {
            held.insert(i, own);
        }
    }
    let mut again = true;
    while again {
        again = false;
        for (i, claim) in claims.iter().enumerate() {
            let Some(wanted) = claim.current.filter(|_| granted[i] != Granted::Current) else { continue };
            let own = claim.held(granted[i]);
            if let Some(own) = own {
                held.remove(i, own);
            }
            if !held.excludes(wanted) {
                held.insert(i, wanted);
                granted[i] = Granted::Current;
                again = true;
            } else if let Some(own) = own {
                held.insert(i, own);
            }
        }
    }
}

/// Lets all objects change at once, so that two may swap what they have. One that wants what another keeps falls back.
fn settle_together<'a, T: ?Sized + PartialEq, H: Held<'a, T>>(claims: &[Claim<'a, T>]) -> Vec<Granted> {
    // Objects that stay with their last good version. Only ever grows, which bounds the loop.
    let mut kept: BTreeSet<usize> = (0..claims.len())
        .filter(|&i| {
            claims[i].former.is_some()
                && (claims[i].current.is_none() || claims[i].current == claims[i].former)
        })
        .collect();
    loop {
        let mut held = H::default();
        for &i in &kept {
            if let Some(former) = claims[i].former {
                held.insert(i, former);
            }
        }
        let mut granted = vec![Granted::Nothing; claims.len()];
        let mut fell_back = false;
        for (i, claim) in claims.iter().enumerate() {
            if kept.contains(&i) {
                granted[i] = if claim.current == claim.former { Granted::Current } else { Granted::Former };
                continue;
            }
            let Some(wanted) = claim.current else { continue };
            if !held.excludes(wanted) {
                held.insert(i, wanted);
                granted[i] = Granted::Current;
            } else if claim.former.is_some() {
                kept.insert(i);
                fell_back = true;
                break;
            }
        }
        if !fell_back {
            return granted;
        }
    }
}
