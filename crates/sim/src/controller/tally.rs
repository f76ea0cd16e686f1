// SPDX-License-Identifier: Apache-2.0
//! What a run was made of: how often each rule was put to the test, and each thing happened that can.
//!
//! A simulation that never meets a situation says nothing about it, so a zero here is a failure of its own.

use std::fmt;

use crate::marks::marks;

marks! {
    Rules, "Rules, and how often each was put to the test" {
        OneHolder = "no write lists an address that another Service lists, unless the two may share",
        Survives = "no write takes an address away that the Service may keep",
        NewIsLegal = "an address that is given out lies in a pool that admits the Service, and fits what it asks",
        OneHolderAtRest = "at rest no two Services list one address, unless they may share",
        ServedAtRest = "at rest nobody waits for an address that it could have",
        DualAtRest = "at rest nobody lacks a second address that its pool could give",
        LegalAtRest = "at rest every listed address is one that the Service may keep",
        FullIsIncremental = "a controller that starts on a store at rest writes nothing",
        QuietAtRest = "at rest nothing is written",
        BoundedWrites = "no object is written in a tight loop",
        Counters = "a pool's status counts what the Services list",
        Gauges = "the metrics show what the status shows",
        ToldOnce = "no fact is told twice while nothing changed",
        OtherClass = "a Service of another class is not touched",
        Succession = "somebody leads within five seconds after a leader died",
        OneLeaderAtRest = "at rest one leads, and holds the Lease",
        ConditionsAtRest = "at rest the conditions say what is",
        OthersConditions = "conditions of others are kept",
    }
    Steps, "Steps" {
        ServiceCreated = "a Service is created",
        ServiceEdited = "a Service is edited",
        ServiceTouched = "a Service is changed in a way that means nothing",
        ServiceDeleted = "a Service is deleted",
        ServiceReplaced = "a Service is deleted and created under the same name",
        PoolCreated = "a pool is created",
        PoolEdited = "a pool is edited",
        PoolShrunk = "a pool loses addresses",
        PoolGrown = "a pool gains addresses",
        PoolDeleted = "a pool is deleted",
        PoolReplaced = "a pool is deleted and created under the same name",
        PoolBroken = "a pool becomes unparsable",
        PoolOverlaps = "a pool wants addresses of another one",
        PoolsSwapped = "two pools swap their addresses",
        NamespaceLabelled = "a Namespace is labelled",
        StatusStolen = "a stranger writes a Service's status",
        AnnotationStolen = "a stranger writes the pool annotation",
        PoolStatusStolen = "a stranger writes a pool's status",
        StatusContested = "a stranger answers every write of a status",
        StateDeleted = "the ConfigurationState is deleted",
        Restarted = "the controller is killed and started",
        Killed = "the controller is killed",
        Started = "a controller is started",
        Paused = "the controller sleeps and goes on",
        Waited = "time passes",
        Rested = "everything comes to rest",
        Stopped = "a controller is asked to end",
        AnnouncedByNode = "a speaker announces a Service",
        NotAnnouncedByNode = "a speaker ceases to announce a Service",
        ConditionStolen = "a stranger writes conditions",
    }
    Faults, "Faults" {
        Outage = "the API server is away",
        Refused = "a write is refused with 500",
        Throttled = "a write is refused with 429",
        Conflicted = "a write is refused with 409",
        Missing = "a write is refused with 404",
        LostRequest = "a write does not arrive",
        LostAnswer = "a write is stored, its answer is lost",
        LateWrite = "a write is stored after its writer gave it up",
        SlowWrite = "a write takes its time",
        BrokenWatch = "a watch breaks and lists anew",
        LaggingWatch = "a watch lags",
        DeadWrite = "a write of a process that is dead arrives",
        HeldWrite = "a write is held back while its writer sleeps",
        StaleEvent = "a watch tells what the answer of a write told before",
        LeaseTrouble = "a request about the Lease is refused, lost or late",
        LeaseConflict = "a request about the Lease comes upon another version",
        TwoLeaders = "two controllers believe that they lead",
        Deposed = "a leader learns that it leads no more",
        FreshReading = "a new leader reads the Services anew",
        LateLeader = "a write of a former leader is stored while another one leads",
        LateLeaderRefused = "a write of a former leader is refused while another one leads",
    }
    Decisions, "Decisions" {
        Asked = "assigned: the addresses asked for",
        FromAskedPool = "assigned: from the pool asked for",
        FromPinned = "assigned: from a pool with serviceAllocation",
        FromOpen = "assigned: from a pool without",
        Both = "assigned: two addresses at once",
        Extended = "assigned: a second address beside the one held",
        Shared = "assigned: an address that another Service holds",
        Moved = "moved: other addresses in the same write",
        Cleared = "cleared: the status becomes empty",
        Reformed = "written anew with the same addresses",
        Renamed = "the pool annotation alone is written",
        Conditioned = "conditions alone are written",
        LostNotLoadBalancer = "lost: not of type LoadBalancer",
        LostNoPools = "lost: there is no pool",
        LostNoClusterIps = "lost: no cluster IP",
        LostNotEnoughClusterIps = "lost: RequireDualStack with one cluster IP",
        LostBadClusterIps = "lost: cluster IPs without a family",
        LostBadHeld = "lost: the status lists no sane addresses",
        LostOtherFamilies = "lost: of another family than the Service",
        LostNotInOnePool = "lost: not in one pool",
        LostNotAdmitted = "lost: the pool does not admit the Service",
        LostOtherPool = "lost: another pool is asked for",
        LostOtherAddresses = "lost: other addresses are asked for",
        LostContended = "lost: another Service lists the address",
        LostHalf = "lost: two addresses are required and one is held",
        KeptUnknown = "kept: the pool is not known",
        Reserved = "reserved at rest, for a write that may still arrive",
    }
    Told, "Told in events" {
        ToldAssigned = "IPAllocated",
        ToldAdditional = "IPAllocated, a second address",
        ToldCleared = "ClearAssignment",
        ToldNoAdditional = "AdditionalAssignFailed",
        ToldNotAllocated = "AllocationFailed",
        ToldInvalidRequest = "LoadBalancerFailed",
        ToldNotEnough = "not enough clusterips",
        ToldHeld = "nolbIPsIPFamily",
        ToldClusterIps = "noclusterIPsIPFamily",
        ToldDeprecated = "deprecatedAnnotation",
        ToldUnknown = "unknownAnnotation",
        ToldContested = "StatusContested",
        SaidBoth = "refused: asked for in two ways",
        SaidAnnotation = "refused: annotation unreadable",
        SaidField = "refused: field unreadable",
        SaidFamily = "refused: request without a family",
        SaidFamilyMismatch = "refused: request of another family",
        SaidPoolMismatch = "refused: request and pool do not agree",
        SaidUnknownPool = "refused: unknown pool",
        SaidNoAddress = "refused: no available IPs",
        SaidPoolFull = "refused: no available IPs in the pool",
        SaidPoolNotDual = "refused: the pool has not both families",
        SaidPoolLacksFamily = "refused: the pool lacks the family",
        SaidNotInOnePool = "refused: not allowed in config",
        SaidNotCompatible = "refused: pool not compatible",
        SaidMoreThanTwo = "refused: more than two addresses",
        SaidSameFamily = "refused: two of the same family",
        SaidInUse = "refused: in use",
        SaidPortInUse = "refused: port in use",
    }
}

/// Counts of everything, over any number of sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    counts: Vec<u64>,
    /// Sequences run.
    pub sequences: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// Requests that the controllers sent.
    pub requests: u64,
    /// Simulated time of all of them, in seconds.
    pub seconds: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { counts: vec![0; MARKS.len()], sequences: 0, steps: 0, requests: 0, seconds: 0 }
    }
}

impl Tally {
    pub(crate) fn count(&mut self, mark: Mark) {
        self.counts[mark as usize] += 1;
    }

    pub(crate) fn count_if(&mut self, condition: bool, mark: Mark) {
        if condition {
            self.count(mark);
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sequences += other.sequences;
        self.steps += other.steps;
        self.requests += other.requests;
        self.seconds += other.seconds;
    }

    /// What is counted in this group, and how often it happened.
    pub fn counts(&self, group: Group) -> impl Iterator<Item = (&'static str, u64)> {
        MARKS
            .iter()
            .zip(&self.counts)
            .filter(move |((g, _), _)| *g == group)
            .map(|((_, text), n)| (*text, *n))
    }

    /// What never happened.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        Group::ALL.iter().flat_map(|group| self.counts(*group)).filter(|(_, n)| *n == 0).map(|(text, _)| text)
    }

    /// Steps per sequence.
    pub fn mean_steps(&self) -> f64 {
        // Exact far beyond any number of steps there will be.
        #[allow(clippy::cast_precision_loss)]
        let mean = self.steps as f64 / self.sequences.max(1) as f64;
        mean
    }
}

/// A table of everything.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in Group::ALL {
            writeln!(f, "{}:", group.title())?;
            for (text, n) in self.counts(*group) {
                writeln!(f, "{n:>12}  {text}")?;
            }
            writeln!(f)?;
        }
        write!(
            f,
            "{} sequences of {:.1} steps on average, {} requests, {} simulated seconds",
            self.sequences,
            self.mean_steps(),
            self.requests,
            self.seconds
        )
    }
}

impl Mark {
    pub(crate) fn text(self) -> &'static str {
        MARKS[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_zeros_are_named() {
        let (mut a, mut b) = (Tally::default(), Tally { sequences: 2, steps: 61, ..Tally::default() });
        a.count(Mark::Shared);
        b.count(Mark::Shared);
        b.count(Mark::Outage);
        a.add(&b);
        let of = |mark: Mark| {
            Group::ALL.iter().flat_map(|g| a.counts(*g)).find(|(t, _)| *t == mark.text()).unwrap().1
        };
        assert_eq!((of(Mark::Shared), of(Mark::Outage), of(Mark::Moved)), (2, 1, 0));
        assert!(a.missing().any(|text| text == Mark::Moved.text()));
        assert!(a.missing().all(|text| text != Mark::Outage.text()));
        assert!((a.mean_steps() - 30.5).abs() < 1e-9);
    }
}
