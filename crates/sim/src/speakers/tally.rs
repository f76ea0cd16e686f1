// SPDX-License-Identifier: Apache-2.0
//! What a run was made of: how often each rule was put to the test, how often each thing happened that can, and the
//! longest that addresses were owned twice, or by nobody.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::marks::marks;

marks! {
    Rules, "Rules, and how often each was put to the test" {
        Candidate = "who answers is a candidate in the plan that it has",
        Heard = "nobody answers before it has heard the others that run",
        Entered = "who begins to answer sees all that ran before and that it reaches",
        OneOwner = "no two that reach each other answer for one address, once they could know",
        RightOwner = "who should answer does, once all could know",
        Still = "nothing moves when all lose the API, nor when all have it back",
        Whole = "left in peace, every member sees every other",
        Ends = "a speaker that is stopped ends in time",
        NotBusy = "no deadline is left behind",
    }
    Faults, "Faults" {
        StartedTogether = "all speakers start at once",
        HostDied = "a node dies silently",
        Crashed = "a speaker dies, its node answers for the closed port",
        Restarted = "a speaker dies and is started again at once",
        Left = "a speaker is stopped and stays away",
        Replaced = "a speaker is stopped and started again",
        CameBack = "a speaker that was away is started",
        Parted = "the network falls apart",
        Isolated = "one node is cut off",
        Healed = "what was parted is one again",
        OneWay = "a link passes nothing in one direction",
        NoDatagrams = "a link passes streams, but no datagrams",
        Lossy = "datagrams are lost",
        Slow = "everything takes long",
        Napped = "a speaker stands still for a moment",
        Slept = "a speaker stands still for so long that others notice",
        Excluded = "a node is labelled for exclusion",
        NoNetwork = "a node's condition NetworkUnavailable becomes true",
        Readmitted = "a node may announce again",
        EndpointsMoved = "a Service's endpoints move",
        ApiLostByOne = "one speaker loses the API",
        ApiLostByAll = "all speakers lose the API",
        ApiBack = "the API is back",
        DiedAtRest = "a speaker dies, and nothing else goes on",
        DiedWithoutApi = "a node dies while nobody has the API",
        Overlapped = "something happens before all is well again",
    }
    Outcomes, "What came of it" {
        Moved = "an address has another owner",
        BothSides = "each side of a partition has an owner",
        StaleSkipped = "a speaker without the API made way",
        TakenOver = "addresses of a dead speaker were taken over",
        Handed = "addresses of a speaker that leaves were handed over",
        NoCandidate = "nobody could answer for an address",
    }
    Mixed, "With speakers of MetalLB" {
        MetallbLed = "a MetalLB speaker leads, ours are silent",
        OursLed = "one of ours leads, MetalLB's are silent",
        MetallbTwice = "MetalLB's speakers own an address twice by their own rule",
        MetallbStarted = "a speaker of MetalLB is started",
        SwappedToOurs = "a speaker of MetalLB is replaced by one of ours",
        SwappedBack = "one of ours is replaced by a speaker of MetalLB",
    }
    Forgiven, "What MetalLB's speakers do by themselves, and is held against nobody" {
        MetallbAstray = "a MetalLB speaker has not found another one of MetalLB's again, and answers or is silent for it",
    }
}

impl Mark {
    pub(crate) fn text(self) -> &'static str {
        MARKS[self as usize].1
    }
}

/// Why addresses move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Speakers start.
    Start,
    /// A speaker is stopped.
    Stop,
    /// A node or a speaker dies.
    Death,
    /// The network falls apart.
    Part,
    /// A partition ends.
    Heal,
    /// A speaker stood still.
    Sleep,
    /// Nodes or Services change in the API.
    Change,
    /// Speakers lose the API or have it back.
    Api,
    /// A bad network is good again.
    Trouble,
}

impl Cause {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Start => "speakers start",
            Self::Stop => "a speaker is stopped",
            Self::Death => "a speaker dies",
            Self::Part => "the network falls apart",
            Self::Heal => "a partition ends",
            Self::Sleep => "a speaker stood still",
            Self::Change => "nodes or Services change",
            Self::Api => "the API is lost or back",
            Self::Trouble => "a bad network is good again",
        }
    }
}

/// The longest times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    /// That two nodes which reach each other owned an address.
    pub twice: u64,
    /// That nobody owned an address that somebody could.
    pub nobody: u64,
}

/// Counts of everything, over any number of sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    counts: Vec<u64>,
    /// Sequences run.
    pub sequences: u64,
    /// Faults of all of them.
    pub steps: u64,
    /// Datagrams that speakers sent.
    pub datagrams: u64,
    /// Simulated time of all of them, in seconds.
    pub seconds: u64,
    /// The worst that each cause brought about.
    pub worst: BTreeMap<Cause, Worst>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: vec![0; MARKS.len()],
            sequences: 0,
            steps: 0,
            datagrams: 0,
            seconds: 0,
            worst: BTreeMap::new(),
        }
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

    pub(crate) fn twice(&mut self, cause: Cause, time: Duration) {
        let worst = self.worst.entry(cause).or_default();
        worst.twice = worst.twice.max(time.as_millis() as u64);
    }

    pub(crate) fn nobody(&mut self, cause: Cause, time: Duration) {
        let worst = self.worst.entry(cause).or_default();
        worst.nobody = worst.nobody.max(time.as_millis() as u64);
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sequences += other.sequences;
        self.steps += other.steps;
        self.datagrams += other.datagrams;
        self.seconds += other.seconds;
        for (cause, more) in &other.worst {
            let worst = self.worst.entry(*cause).or_default();
            worst.twice = worst.twice.max(more.twice);
            worst.nobody = worst.nobody.max(more.nobody);
        }
    }

    /// What is counted in this group, and how often it happened.
    pub fn counts(&self, group: Group) -> impl Iterator<Item = (&'static str, u64)> {
        MARKS
            .iter()
            .zip(&self.counts)
            .filter(move |((g, _), _)| *g == group)
            .map(|((_, text), n)| (*text, *n))
    }

    /// What never happened; without speakers of MetalLB nothing is expected of them, and what is only forgiven need not
    /// happen.
    pub fn missing(&self, metallb: bool) -> impl Iterator<Item = &'static str> {
        Group::ALL
            .iter()
            .filter(move |group| **group != Group::Forgiven && (metallb || **group != Group::Mixed))
            .flat_map(|group| self.counts(*group))
            .filter(|(_, n)| *n == 0)
            .map(|(text, _)| text)
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
        writeln!(
            f,
            "The longest that an address had two owners that reach each other, and none, by what happened last:"
        )?;
        for (cause, worst) in &self.worst {
            writeln!(f, "{:>9} ms {:>9} ms  {}", worst.twice, worst.nobody, cause.text())?;
        }
        write!(
            f,
            "\n{} sequences with {} faults, {} datagrams, {} simulated seconds",
            self.sequences, self.steps, self.datagrams, self.seconds
        )
    }
}
