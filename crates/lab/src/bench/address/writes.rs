// SPDX-License-Identifier: Apache-2.0
//! How often the daemons wrote, by kind of object, as the in-memory API server's audit has it. Writes that changed nothing
//! and writes that were refused count like any other.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http::Request;
use serde::{Deserialize, Serialize};

use crate::api_server::ApiSource;
use crate::bench_handle::{Bench, SYSTEM};

/// What was written in one part of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Writes {
    /// What happened meanwhile.
    pub name: String,
    /// How long that took, until nobody wrote any more, in seconds.
    pub seconds: f64,
    /// By kind, in the order of [`Kind`].
    pub counts: Vec<Count>,
    /// Whether no count exceeds its aim.
    pub met: bool,
}

/// Writes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Count {
    /// Of what.
    pub kind: Kind,
    /// How many.
    pub count: u64,
    /// How many there should be at most; none for what is only told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<u64>,
}

/// What daemons write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The status of a Service.
    ServiceStatus,
    /// An Event, new or counted up.
    Event,
    /// A ServiceL2Status, the object or its status.
    L2Status,
    /// The status of an IPAddressPool: its counters.
    PoolStatus,
    /// A ConfigurationState, the object or its status.
    ConfigurationState,
    /// A Lease.
    Lease,
    /// Anything else.
    Other,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::ServiceStatus,
        Self::Event,
        Self::L2Status,
        Self::PoolStatus,
        Self::ConfigurationState,
        Self::Lease,
        Self::Other,
    ];

    fn of(resource: &str) -> Self {
        match resource {
            "services" => Self::ServiceStatus,
            "events" => Self::Event,
            "servicel2statuses" => Self::L2Status,
            "ipaddresspools" => Self::PoolStatus,
            "configurationstates" => Self::ConfigurationState,
            "leases" => Self::Lease,
            _ => Self::Other,
        }
    }

    const fn heading(self) -> &'static str {
        match self {
            Self::ServiceStatus => "Service",
            Self::Event => "Event",
            Self::L2Status => "ServiceL2Status",
            Self::PoolStatus => "pool",
            Self::ConfigurationState => "ConfigurationState",
            Self::Lease => "Lease",
            Self::Other => "other",
        }
    }
}

/// The counts so far, in the order of [`Kind::ALL`].
type Counts = [u64; Kind::ALL.len()];

/// What should be written at most in one part of the measurement.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) enum Aim {
    /// For so many new Services: each one's status so often, an event each of controller and speaker, one ServiceL2Status
    /// with its status; the pool's counters once a second.
    New {
        /// New Services.
        services: usize,
        /// Writes of each one's status: one with its address; where there are conditions, one when it is announced.
        statuses: usize,
    },
    /// Nothing but Leases.
    Nothing,
    /// Nothing but Leases, and the ConfigurationState if another replica owns it from now on.
    Restart {
        /// Whether there are several replicas.
        replicas: bool,
    },
    /// The pool's counters, once.
    Counters,
}

impl Aim {
    fn of(self, kind: Kind, seconds: f64) -> Option<u64> {
        match (self, kind) {
            (_, Kind::Lease) => None,
            (Self::New { services, statuses }, Kind::ServiceStatus) => {
                u64::try_from(statuses * services).ok()
            }
            (Self::New { services, .. }, Kind::Event | Kind::L2Status) => u64::try_from(2 * services).ok(),
            // A part of the measurement is short: whole seconds that begin in it.
            (Self::New { .. }, Kind::PoolStatus) => Some(seconds.ceil() as u64 + 1),
            (Self::Counters, Kind::PoolStatus) => Some(1),
            (Self::Restart { replicas }, Kind::ConfigurationState) => Some(replicas.into()),
            _ => Some(0),
        }
    }
}

impl Writes {
    fn of(name: &str, aim: Aim, before: &Counts, after: &Counts, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
        let counts: Vec<Count> = Kind::ALL
            .iter()
            .zip(before.iter().zip(after))
            .map(|(kind, (before, after))| Count {
                kind: *kind,
                count: after.saturating_sub(*before),
                aim: aim.of(*kind, seconds),
            })
            .collect();
        let met = counts.iter().all(|count| count.aim.is_none_or(|aim| count.count <= aim));
        Self { name: name.to_owned(), seconds, counts, met }
    }

    /// Whether no count is more than a tenth beyond its aim, or three where that is less: a conflict is tried again.
    /// Unlike a time, a count does not depend on what else the machine does.
    pub(super) fn tolerable(&self) -> bool {
        let limit = |aim: u64| aim + (aim / 10).max(3);
        self.counts.iter().all(|count| count.aim.is_none_or(|aim| count.count <= limit(aim)))
    }

    /// All of them as a table.
    pub(in crate::bench) fn table(all: &[Self]) -> String {
        let mut text = format!("writes of the daemons\n{:<28}", "");
        for kind in Kind::ALL {
            let _ = write!(text, " {:>width$}", kind.heading(), width = width(kind));
        }
        for writes in all {
            let _ = write!(text, "\n{:<28}", writes.name);
            for count in &writes.counts {
                let _ = write!(text, " {:>width$}", count.count, width = width(count.kind));
            }
            let missed = writes.counts.iter().filter_map(|count| {
                let aim = count.aim.filter(|aim| count.count > *aim)?;
                Some(format!("{} at most {aim}", count.kind.heading()))
            });
            let missed: Vec<String> = missed.collect();
            let verdict =
                if missed.is_empty() { "met".to_owned() } else { format!("missed: {}", missed.join(", ")) };
            let _ = write!(text, "  (aim {verdict})");
        }
        text
    }
}

fn width(kind: Kind) -> usize {
    kind.heading().len().max(7)
}

/// Reads the audit of the API server.
#[derive(Debug)]
pub(in crate::bench) struct Auditor<'a> {
    bench: &'a Bench,
    /// Only the in-memory API server tells.
    told: bool,
}

/// As much of the audit as is looked at.
#[derive(Deserialize)]
struct Audit {
    counts: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    verb: String,
    resource: String,
    user: String,
    count: u64,
}

/// Where a part of the measurement began.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Mark {
    counts: Counts,
    at: Instant,
}

impl<'a> Auditor<'a> {
    pub(in crate::bench) fn of(bench: &'a Bench) -> Self {
        Self { bench, told: *bench.api() == ApiSource::Fakekube }
    }

    /// Here a part begins.
    pub(in crate::bench) async fn mark(&self) -> Result<Mark> {
        Ok(Mark { counts: self.counts().await?, at: Instant::now() })
    }

    /// Waits until nobody writes any more, Leases aside, and adds what was written since.
    pub(in crate::bench) async fn settled(
        &self,
        name: &str,
        aim: Aim,
        since: Mark,
        found: &mut Vec<Writes>,
    ) -> Result<()> {
        if !self.told {
            // Long enough for counters that wait for their second, and for events.
            tokio::time::sleep(QUIET).await;
            return Ok(());
        }
        let deadline = Instant::now() + SETTLE_WITHIN;
        let (mut last, mut quiet_since) = (self.counts().await?, Instant::now());
        while quiet_since.elapsed() < QUIET && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            let now = self.counts().await?;
            if without_leases(&now) != without_leases(&last) {
                quiet_since = Instant::now();
            }
            last = now;
        }
        found.push(Writes::of(name, aim, &since.counts, &last, quiet_since - since.at));
        Ok(())
    }

    async fn counts(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        if !self.told {
            return Ok(counts);
        }
        let request = Request::get("/fakekube/requests?latest=false").body(Vec::new())?;
        let audit: Audit = self.bench.client().request(request).await.context("read the audit")?;
        let daemons = ["controller", "speaker"].map(|name| format!("system:serviceaccount:{SYSTEM}:{name}"));
        for entry in audit.counts.iter().filter(|entry| {
            WRITES.contains(&entry.verb.as_str())
                && daemons.contains(&entry.user)
                && !REVIEWS.contains(&entry.resource.as_str())
        }) {
            let place = Kind::ALL.iter().position(|kind| *kind == Kind::of(&entry.resource));
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count += entry.count;
            }
        }
        Ok(counts)
    }
}

fn without_leases(counts: &Counts) -> u64 {
    Kind::ALL.iter().zip(counts).filter(|(kind, _)| **kind != Kind::Lease).map(|(_, count)| count).sum()
}

/// Verbs that change something.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// What is created to ask a question.
const REVIEWS: [&str; 2] = ["tokenreviews", "subjectaccessreviews"];

/// So long nobody has written when it counts as over.
const QUIET: Duration = Duration::from_millis(2500);
const SETTLE_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(aim: Aim, after: Counts) -> Writes {
        Writes::of("x", aim, &[1, 1, 1, 1, 1, 1, 1], &after, Duration::from_millis(2500))
    }

    const NEW: Aim = Aim::New { services: 100, statuses: 1 };

    #[test]
    fn new_services_may_be_written_once_and_counters_once_a_second() {
        let good = writes(NEW, [101, 201, 201, 5, 1, 99, 1]);
        assert!(good.met && good.tolerable(), "{good:?}");
        for (place, beyond) in [(0, 102), (1, 202), (2, 202), (3, 6), (4, 2), (6, 2)] {
            let mut after = [101, 201, 201, 5, 1, 99, 1];
            after[place] = beyond;
            let missed = writes(NEW, after);
            assert!(!missed.met && missed.tolerable(), "{missed:?}");
        }
        assert!(!writes(NEW, [112, 1, 1, 1, 1, 1, 1]).tolerable(), "a tenth of them twice");
    }

    #[test]
    fn where_nothing_should_be_written_only_leases_may_be() {
        assert!(writes(Aim::Nothing, [1, 1, 1, 1, 1, 60, 1]).met);
        assert!(writes(Aim::Counters, [1, 1, 1, 2, 1, 60, 1]).met);
        assert!(writes(Aim::Restart { replicas: true }, [1, 1, 1, 1, 2, 60, 1]).met);
        for aim in [Aim::Nothing, Aim::Counters, Aim::Restart { replicas: false }] {
            let missed = writes(aim, [2, 1, 1, 1, 1, 1, 1]);
            assert!(!missed.met && missed.tolerable());
            assert!(!writes(aim, [5, 1, 1, 1, 1, 1, 1]).tolerable());
        }
    }

    #[test]
    fn the_table_names_what_was_missed() {
        let table = Writes::table(&[
            writes(Aim::Nothing, [1, 1, 1, 1, 1, 60, 1]),
            writes(Aim::Nothing, [3, 1, 1, 1, 1, 1, 1]),
        ]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[2].ends_with("(aim met)"), "{table}");
        assert!(lines[3].ends_with("(aim missed: Service at most 0)"), "{table}");
    }
}
