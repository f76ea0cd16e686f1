// SPDX-License-Identifier: Apache-2.0
//! What a stretch of time shows, in two ways.
//!
//! *How long* something lasted depends on the machine that plays the story, which also plays three nodes, an API server and whoever
//! else works on it: these figures are printed with how many of them are beyond their bound, and the story fails only at ten times the
//! bound. *What happened* does not depend on it, and is counted without any allowance: an answer of ours for what is not its own, an
//! address that nothing was to happen to and that had two owners for one round or was dark beyond the bound itself, one that came and
//! went more than once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use ferrolb_net_types::Mac;

use super::super::watch::{Span, Timeline, longest};
use super::{Kind, Situation};
use crate::host::Host;

/// What two owners, or darkness, may last when everybody has seen the same.
pub(in crate::scenario) const BOUND: Duration = Duration::from_millis(50);

/// How long a speaker that leaves may go on answering for an heir that announces nothing.
pub(in crate::scenario) const LEAVING: Duration = Duration::from_millis(500);

/// At how many times the bound of a time the story fails. Only times have this allowance.
const GROSS: u32 = 10;

/// What no machine is too slow for.
#[derive(Default)]
pub(in crate::scenario) struct Outcome {
    /// One of ours answered for an address that it owns neither before nor after.
    wrong: Vec<Span>,
    /// Two owners, one of them ours, of an address whose owner stays.
    contested: Vec<Span>,
    /// Nobody answered for longer than the bound for an address whose owner, one of ours, stays.
    dark: Vec<Span>,
    /// Addresses that came to another owner more often than once, and how often.
    flapped: Vec<(IpAddr, usize)>,
}

impl Outcome {
    /// What was seen between two moments in which the cluster went through these situations. What a speaker of MetalLB's does by
    /// itself, such as to claim everything when it starts, is not in it; where `left_alone`, what it does to addresses of ours is.
    pub(in crate::scenario) fn of(
        seen: &Timeline,
        from: Duration,
        to: Duration,
        situations: &[&Situation],
        left_alone: bool,
    ) -> Self {
        let ours: BTreeSet<Mac> = Host::NODES
            .into_iter()
            .filter(|node| situations.iter().all(|situation| situation.kinds.get(node) == Some(&Kind::Ours)))
            .map(Host::mac)
            .collect();
        let mut owners: BTreeMap<IpAddr, BTreeSet<Option<Mac>>> = BTreeMap::new();
        for situation in situations {
            for (address, owner) in situation.owners() {
                owners.entry(address).or_default().insert(owner.map(Host::mac));
            }
        }
        let may = |address: IpAddr, mac: Mac| {
            // Of an address in dispute nothing is said here.
            owners.get(&address).is_none_or(|owners| owners.contains(&Some(mac)))
        };
        let stays_with_ours = |address: IpAddr| {
            owners.get(&address).is_some_and(|owners| {
                owners.len() == 1 && owners.iter().flatten().any(|owner| ours.contains(owner))
            })
        };
        let wrong = seen.spans(from, to, |address, by| by.intersection(&ours).any(|mac| !may(address, *mac)));
        let mut contested = seen.contested(from, to);
        contested.retain(|span| left_alone && stays_with_ours(span.address));
        let mut dark = seen.dark(from, to);
        // A frame that gets lost makes a round dark, and so does a late answer by Neighbor Discovery, which counts for the round
        // after its own.
        dark.retain(|span| stays_with_ours(span.address) && span.is_beyond(BOUND));
        let moves = if left_alone { seen.moves_by_address(from, to) } else { BTreeMap::new() };
        let flapped = moves.into_iter().filter(|(address, moves)| {
            let known =
                owners.get(address).is_some_and(|owners| owners.iter().flatten().any(|o| ours.contains(o)));
            known && *moves > 1
        });
        Self { wrong, contested, dark, flapped: flapped.collect() }
    }

    /// Both together.
    pub(in crate::scenario) fn add(&mut self, other: Self) {
        self.wrong.extend(other.wrong);
        self.contested.extend(other.contested);
        self.dark.extend(other.dark);
        self.flapped.extend(other.flapped);
    }

    /// The counts in words.
    pub(in crate::scenario) fn words(&self) -> String {
        format!(
            "answers of ours for what is others': {}; addresses that stay: two owners {}, dark {}; moved twice {}",
            self.wrong.len(),
            self.contested.len(),
            self.dark.len(),
            self.flapped.len()
        )
    }

    /// That all of them are none.
    pub(in crate::scenario) fn judge(&self) -> Result<()> {
        let told = |what: &str, span: &Span| {
            let by: Vec<_> = span.by.iter().map(ToString::to_string).collect();
            format!("{}: {what} for {} ms ({by:?})", span.address, span.length.as_millis())
        };
        let wrong = self.wrong.iter().map(|span| told("answered by one of ours that does not own it", span));
        let contested =
            self.contested.iter().map(|span| told("two owners though nothing happened to it", span));
        let dark = self.dark.iter().map(|span| told("dark though nothing happened to it", span));
        let flapped = self.flapped.iter().map(|(address, moves)| format!("{address}: moved {moves} times"));
        let all: Vec<String> = wrong.chain(contested).chain(dark).chain(flapped).collect();
        let some = all.iter().take(8).map(String::as_str).collect::<Vec<_>>().join("; ");
        ensure!(all.is_empty(), "{some}, {} in all", all.len());
        Ok(())
    }
}

/// What was seen between two moments.
#[derive(Default)]
pub(in crate::scenario) struct Tally {
    /// Two owners, both ours.
    pub(in crate::scenario) ours: Vec<Span>,
    /// Two owners, one of them ours.
    pub(in crate::scenario) between: Vec<Span>,
    /// Two owners, both MetalLB's.
    pub(in crate::scenario) theirs: Vec<Span>,
    /// Nobody answers, though one of ours is to.
    pub(in crate::scenario) dark: Vec<Span>,
    /// Nobody answers, and one of MetalLB's is to.
    pub(in crate::scenario) dark_theirs: Vec<Span>,
}

impl Tally {
    /// What was seen while the cluster was on its way to this situation.
    pub(in crate::scenario) fn of(
        seen: &Timeline,
        from: Duration,
        to: Duration,
        situation: &Situation,
    ) -> Self {
        let ours: BTreeSet<Mac> = situation
            .kinds
            .iter()
            .filter(|(_, kind)| **kind == Kind::Ours)
            .map(|(node, _)| node.mac())
            .collect();
        let (own, theirs): (Vec<_>, Vec<_>) =
            seen.contested(from, to).into_iter().partition(|span| !span.by.is_disjoint(&ours));
        let (own, between) = own.into_iter().partition(|span| span.by.is_subset(&ours));
        let owner = |span: &Span| situation.owner_of(span.address).map(Host::mac);
        let dark = seen.dark(from, to).into_iter().filter(|span| owner(span).is_some());
        let (dark, dark_theirs) =
            dark.partition(|span| owner(span).is_some_and(|owner| ours.contains(&owner)));
        Self { ours: own, between, theirs, dark, dark_theirs }
    }

    /// Both together.
    pub(in crate::scenario) fn add(&mut self, other: Self) {
        self.ours.extend(other.ours);
        self.between.extend(other.between);
        self.theirs.extend(other.theirs);
        self.dark.extend(other.dark);
        self.dark_theirs.extend(other.dark_theirs);
    }

    /// The figures in words, with how many of those that concern ours are longer than a bound.
    pub(in crate::scenario) fn words(&self, bound: Duration) -> String {
        let with = |spans: &[Span]| {
            let beyond = spans.iter().filter(|span| span.is_beyond(bound)).count();
            let beyond = format!(", {beyond} beyond {} ms", bound.as_millis());
            longest(spans) + if spans.is_empty() { "" } else { &beyond }
        };
        format!(
            "two owners: both ours {}, one ours {}, both MetalLB's {}; dark though ours could serve {}, MetalLB's {}",
            with(&self.ours),
            with(&self.between),
            longest(&self.theirs),
            with(&self.dark),
            longest(&self.dark_theirs)
        )
    }

    /// Whether ours kept to ten times the bound.
    pub(in crate::scenario) fn judge(&self, bound: Duration) -> Result<()> {
        let contested =
            self.ours.iter().chain(&self.between).map(|span| ("two owners, one of them ours", span));
        let dark = self.dark.iter().map(|span| ("dark", span));
        for (what, span) in contested.chain(dark) {
            ensure!(
                !span.is_beyond(bound * GROSS),
                "{}: {what} for {} ms ({:?})",
                span.address,
                span.length.as_millis(),
                span.by.iter().map(ToString::to_string).collect::<Vec<_>>()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::super::watch::tests::timeline_of;
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 230);

    /// Who answered for [`ADDRESS`], round by round, while nothing, or the exclusion of its owner, happened.
    fn outcome(excluded: bool, left_alone: bool, rounds: &[&[Host]]) -> Outcome {
        let before = Situation::of(Kind::Ours);
        let mut after = before.clone();
        if excluded {
            after.excluded.insert(before.owner(ADDRESS).unwrap());
        }
        let answers = rounds.iter().map(|hosts| hosts.iter().map(|host| host.mac()).collect());
        let seen = timeline_of(ADDRESS.into(), answers.collect());
        Outcome::of(&seen, Duration::ZERO, Duration::from_secs(9), &[&before, &after], left_alone)
    }

    #[test]
    fn outcomes_have_no_allowance() {
        let all = Situation::of(Kind::Ours);
        let owner = all.owner(ADDRESS).unwrap();
        let mut without = all;
        without.excluded.insert(owner);
        let heir = without.owner(ADDRESS).unwrap();
        let third = Host::NODES.into_iter().find(|node| ![owner, heir].contains(node)).unwrap();
        for (excluded, rounds, good) in [
            (false, vec![&[owner][..], &[owner]], true),
            (false, vec![&[owner][..], &[], &[], &[owner]], true),
            (false, vec![&[owner][..], &[], &[], &[], &[owner]], false),
            (false, vec![&[owner][..], &[owner, heir]], false),
            (true, vec![&[owner][..], &[owner, heir], &[heir]], true),
            (true, vec![&[owner][..], &[], &[heir]], true),
            (true, vec![&[owner][..], &[heir], &[owner], &[heir]], false),
            (true, vec![&[owner][..], &[heir, third], &[heir]], false),
        ] {
            let seen = outcome(excluded, true, &rounds);
            assert_eq!(seen.judge().is_ok(), good, "{excluded} {rounds:?}: {}", seen.words());
        }
        // A newcomer's claims are not ours to answer for, darkness is.
        assert!(outcome(false, false, &[&[owner], &[owner, heir]]).wrong.len() == 1);
        assert!(outcome(false, false, &[&[owner], &[], &[], &[]]).judge().is_err());
    }
}
