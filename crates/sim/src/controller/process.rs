// SPDX-License-Identifier: Apache-2.0
//! A running controller: its core, what it has heard, and what it may therefore be expected to know.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use ferrolb_api::Change;
use ferrolb_api::request::{WriteError, WriteResult};
use ferrolb_api::{Clock, IPAddressPool};
use ferrolb_config::{Config, Evaluation, LastGood, Resources, apply, evaluate};
use ferrolb_controller_core::{Core, Input, Neighbours, Replicas, Settings, WriteId};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;

use super::api::{Kind, News, Stored, Version};
use super::shape::{SERVICES, SYSTEM, service_name};
use super::world::Mode;

/// Something that reached a process.
#[derive(Debug)]
pub(crate) enum Arrival {
    News(News),
    Answer { id: WriteId, result: WriteResult, stored: Stored },
    Lease { turn: u64, result: Result<Box<Lease>, WriteError> },
    Listed(Result<Vec<Rc<Version>>, WriteError>),
    Rivals(Neighbours),
    Stopping,
}

impl Arrival {
    /// In a line of the story, if it is worth one.
    pub(crate) fn said(&self) -> Option<String> {
        let versions = |list: &[Rc<Version>]| {
            let each = |version: &Rc<Version>| format!("{} {}", shown(version.slot), version.number);
            list.iter().map(each).collect::<Vec<_>>().join(" ")
        };
        Some(match self {
            Self::News(News::Service(version)) => format!("of {} {}", shown(version.slot), version.number),
            Self::News(News::ServiceGone(slot)) => format!("that {} is gone", shown(*slot)),
            Self::News(News::Services(list)) => format!("of all Services ({})", versions(list)),
            Self::News(News::Pool(pool)) => {
                format!("of pool {}", pool.metadata.name.as_deref().unwrap_or_default())
            }
            Self::News(News::PoolGone(slot)) => {
                format!("that pool {} is gone", super::shape::POOL_NAMES[*slot])
            }
            Self::News(News::Pools(list)) => format!("of all {} pools", list.len()),
            Self::News(other) => format!("of {:?}", other.kind()),
            Self::Answer { result: Ok(_), .. } => "that a write is stored".to_owned(),
            Self::Answer { result: Err(error), .. } => format!("of a write: {error}"),
            Self::Listed(result) => {
                format!("a reading ({})", versions(result.as_deref().unwrap_or_default()))
            }
            Self::Stopping => "that it is to end".to_owned(),
            Self::Lease { .. } | Self::Rivals(_) => return None,
        })
    }
}

/// A controller's process.
#[derive(Debug)]
pub(crate) struct Process {
    /// Never the same for two processes.
    pub(crate) number: u64,
    /// Its Pod. Those whose container was started again share it.
    pub(crate) pod: u64,
    pub(crate) core: Core,
    pub(crate) inbox: Vec<Arrival>,
    /// It says that it decides.
    pub(crate) leads: bool,
    /// It was asked to end.
    pub(crate) leaves: bool,
    /// It does not run, though it exists.
    pub(crate) asleep: bool,
    /// When it is to look at the clock again.
    pub(crate) wake: Option<u64>,
    pub(crate) watches: BTreeMap<Kind, Watch>,
    pub(crate) knows: Knowledge,
    pub(crate) configuration: Configuration,
    /// What was in force before the last inputs.
    pub(crate) before: Option<Rc<Config>>,
    /// Texts told about each Service that still hold.
    pub(crate) told: [Vec<String>; SERVICES],
    /// When each object was written, lately.
    pub(crate) attempts: BTreeMap<String, Vec<u64>>,
    /// The figures it shows.
    pub(crate) gauges: BTreeMap<String, [i64; 4]>,
    /// Its writes of Services without an answer: which, upon which version, which addresses.
    pub(crate) under_way: BTreeMap<WriteId, Doubt>,
    /// Those of which nobody will ever tell it what became of them.
    pub(crate) doubts: Vec<Doubt>,
    /// Services of which a reading told and the watch has not.
    read_ahead: [bool; SERVICES],
    /// Uids of Services that it knows to be gone.
    gone: BTreeSet<String>,
    /// Requests about the Lease so far, and whether the last one was answered.
    turns: u64,
    answered: bool,
}

/// A write that may still arrive.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    pub(crate) slot: usize,
    /// It can arrive only while the Service is of this version.
    pub(crate) version: u64,
    pub(crate) ips: Vec<IpAddr>,
}

/// One watch of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// Counts the times it broke: what was sent before is lost.
    pub(crate) epoch: u64,
    /// It lists again before it tells anything.
    pub(crate) broken: bool,
    /// Nothing arrives before what was sent earlier.
    pub(crate) last: u64,
}

/// What a process has heard of Services, and what it did about them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    pub(crate) seen: [Option<Rc<Version>>; SERVICES],
    /// Which versions of the others were known when the present one of each was learnt.
    pub(crate) learnt: [[u64; SERVICES]; SERVICES],
    /// Its last write of each.
    pub(crate) wrote: [Option<Rc<Wrote>>; SERVICES],
    /// Those before it, as far as anything may still have been decided for their sake.
    pub(crate) wrote_before: [Vec<Rc<Wrote>>; SERVICES],
}

/// How many writes of a Service are of interest.
const MEMORY: usize = 4;

/// A write of a Service.
#[derive(Clone, Debug)]
pub(crate) struct Wrote {
    pub(crate) upon: Rc<Version>,
    pub(crate) ips: Vec<IpAddr>,
    /// Which versions of all Services were known when each of the addresses was decided.
    pub(crate) since: BTreeMap<IpAddr, [u64; SERVICES]>,
}

impl Knowledge {
    fn versions(&self) -> [u64; SERVICES] {
        std::array::from_fn(|slot| self.seen[slot].as_ref().map_or(0, |version| version.number))
    }

    /// Takes note of a write. A write that is repeated was decided before.
    pub(crate) fn write(&mut self, slot: usize, upon: &Rc<Version>, ips: &[IpAddr]) {
        let known = self.versions();
        let former = self.wrote[slot].take();
        let since = |ip| {
            let before =
                former.as_ref().filter(|wrote| wrote.ips.contains(ip)).and_then(|wrote| wrote.since.get(ip));
            (*ip, before.copied().unwrap_or(known))
        };
        let since = ips.iter().map(since).collect();
        self.wrote[slot] = Some(Rc::new(Wrote { upon: Rc::clone(upon), ips: ips.to_vec(), since }));
        let before = &mut self.wrote_before[slot];
        before.extend(former);
        if before.len() > MEMORY {
            before.remove(0);
        }
    }
}

/// The configuration as a process has it, which depends on what it saw before.
#[derive(Debug)]
pub(crate) struct Configuration {
    resources: Resources,
    listed: [bool; 3],
    changed: bool,
    last_good: LastGood,
    pub(crate) evaluation: Option<Evaluation>,
    pub(crate) config: Option<Rc<Config>>,
}

impl Process {
    pub(crate) fn new(number: u64, pod: u64, mode: Mode, clock: Clock) -> Self {
        Self {
            number,
            pod,
            core: Core::new(clock, settings(pod, mode)),
            inbox: Vec::new(),
            leads: false,
            leaves: false,
            asleep: false,
            wake: Some(0),
            watches: Kind::ALL
                .into_iter()
                .map(|kind| (kind, Watch { broken: true, ..Watch::default() }))
                .collect(),
            knows: Knowledge::default(),
            configuration: Configuration::new(),
            before: None,
            told: Default::default(),
            attempts: BTreeMap::new(),
            gauges: BTreeMap::new(),
            under_way: BTreeMap::new(),
            doubts: Vec::new(),
            read_ahead: [false; SERVICES],
            gone: BTreeSet::new(),
            turns: 0,
            answered: true,
        }
    }

    /// It sends a request about the Lease: which one it is.
    pub(crate) fn asks_for_lease(&mut self) -> u64 {
        self.turns += 1;
        self.answered = false;
        self.turns
    }

    /// Takes in what arrived. Whether a watch told what an answer had told before.
    pub(crate) fn hear(&mut self, clock: Clock, arrival: Arrival) -> bool {
        match arrival {
            Arrival::News(news) => {
                let stale = self.see(&news);
                self.configuration.hear(&news);
                self.core.handle(clock, news.input());
                stale
            }
            Arrival::Answer { id, result, stored } => {
                if let Some(doubt) = self.under_way.remove(&id)
                    && result.as_ref().is_err_and(WriteError::is_unknown)
                {
                    self.doubts.push(doubt);
                }
                match stored {
                    Stored::Nothing => {}
                    Stored::Service { after, .. } => {
                        let known = self.knows.seen[after.slot].as_ref();
                        if known.is_some_and(|known| known.is_of(&after) && known.number < after.number) {
                            self.learn(after.slot, Some(after));
                        }
                    }
                    Stored::Pool(pool) => self.configuration.stored(&pool),
                }
                self.core.handle(clock, Input::Written { id, result });
                false
            }
            Arrival::Lease { turn, result } => {
                // An answer that comes too late is nobody's.
                if turn == self.turns && !std::mem::replace(&mut self.answered, true) {
                    self.core.handle(clock, Input::Lease(result));
                }
                false
            }
            Arrival::Listed(result) => {
                for version in result.iter().flatten() {
                    let uid = version.object.metadata.uid.as_deref().unwrap_or_default();
                    if self.gone.contains(uid) {
                        continue;
                    }
                    let known = self.knows.seen[version.slot].as_ref();
                    let ahead = match known.filter(|known| known.is_of(version)) {
                        Some(_) => self.read_ahead[version.slot],
                        None => true,
                    };
                    self.see(&News::Service(Rc::clone(version)));
                    self.read_ahead[version.slot] = ahead;
                }
                let objects = result.map(|list| list.iter().map(|version| version.object.clone()).collect());
                self.core.handle(clock, Input::ServicesListed(objects));
                false
            }
            Arrival::Rivals(neighbours) => {
                self.core.handle(clock, Input::RivalsFound(Ok(neighbours)));
                false
            }
            Arrival::Stopping => {
                self.core.handle(clock, Input::Stopping);
                false
            }
        }
    }

    fn see(&mut self, news: &News) -> bool {
        match news {
            News::Service(version) => {
                let known = self.knows.seen[version.slot].as_ref();
                let same = known.is_some_and(|known| known.is_of(version));
                let newer = known.is_none_or(|known| known.number < version.number);
                if self.read_ahead[version.slot] && !same && !newer {
                    return true;
                }
                self.read_ahead[version.slot] = false;
                if same && !newer {
                    return true;
                }
                self.learn(version.slot, Some(Rc::clone(version)));
            }
            // What a reading told before the watch did is of a later one of that name.
            News::ServiceGone(slot) if self.read_ahead[*slot] => {}
            News::ServiceGone(slot) => self.learn(*slot, None),
            News::Services(list) => {
                self.read_ahead = [false; SERVICES];
                for slot in 0..SERVICES {
                    let listed = list.iter().find(|version| version.slot == slot);
                    let known = self.knows.seen[slot].as_ref();
                    let newer = known
                        .zip(listed)
                        .is_some_and(|(known, listed)| known.is_of(listed) && known.number >= listed.number);
                    if !newer {
                        self.learn(slot, listed.cloned());
                    }
                }
            }
            _ => {}
        }
        false
    }

    fn learn(&mut self, slot: usize, version: Option<Rc<Version>>) {
        let known = &mut self.knows.seen[slot];
        if known.as_ref().map(|known| &known.facts) != version.as_ref().map(|version| &version.facts) {
            self.told[slot].clear();
        }
        if !known.as_ref().zip(version.as_ref()).is_some_and(|(known, version)| known.is_of(version)) {
            self.knows.wrote[slot] = None;
            self.knows.wrote_before[slot].clear();
            self.gone.extend(known.as_ref().and_then(|known| known.object.metadata.uid.clone()));
        }
        *known = version;
        self.knows.learnt[slot] = self.knows.versions();
    }

    /// Evaluates the configuration where the core does.
    pub(crate) fn evaluate(&mut self) {
        if !self.configuration.evaluate() {
            return;
        }
        let empty = self.configuration.config.as_ref().is_none_or(|config| config.pools.is_empty());
        for told in &mut self.told {
            // Somebody who waited and still waits for the same reason is not told again.
            let waits = told.pop().filter(|text| !empty && text.starts_with("AllocationFailed"));
            told.clear();
            told.extend(waits);
        }
    }
}

impl Version {
    /// Whether the two are versions of one object, not only of one name.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.object.metadata.uid == other.object.metadata.uid
    }
}

impl Configuration {
    pub(crate) fn new() -> Self {
        Self {
            resources: Resources::default(),
            listed: [false; 3],
            changed: true,
            last_good: LastGood::default(),
            evaluation: None,
            config: None,
        }
    }

    pub(crate) fn hear(&mut self, news: &News) {
        let labels = |namespace: &Namespace| {
            (
                namespace.metadata.name.clone().unwrap_or_default(),
                namespace.metadata.labels.clone().unwrap_or_default(),
            )
        };
        match news {
            News::Pool(pool) if self.knows(pool) => {}
            News::Pool(pool) => self.apply(Change::Applied(Box::new(IPAddressPool::clone(pool)))),
            News::PoolGone(slot) => {
                let name = super::shape::POOL_NAMES[*slot].to_owned();
                self.apply(Change::Deleted { namespace: SYSTEM.to_owned(), name });
            }
            News::Pools(list) => {
                self.listed[0] = true;
                self.apply(Change::Reset(list.iter().map(|pool| IPAddressPool::clone(pool)).collect()));
            }
            News::Communities => self.listed[1] = true,
            News::Namespace(namespace) => {
                let (name, labels) = labels(namespace);
                self.changed |= self.resources.namespaces.insert(name, labels.clone()) != Some(labels);
            }
            News::Namespaces(list) => {
                self.listed[2] = true;
                let new = list.iter().map(|namespace| labels(namespace)).collect();
                self.changed |= self.resources.namespaces != new;
                self.resources.namespaces = new;
            }
            _ => {}
        }
    }

    /// A pool as a write's answer tells it.
    fn stored(&mut self, pool: &IPAddressPool) {
        let known = self.resources.pools.iter().any(|known| known.metadata.uid == pool.metadata.uid);
        if known && !self.knows(pool) {
            self.apply(Change::Applied(Box::new(pool.clone())));
        }
    }

    /// Whether this version of a pool, or a newer one, is known.
    fn knows(&self, pool: &IPAddressPool) -> bool {
        let number = |pool: &IPAddressPool| pool.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        self.resources.pools.iter().any(|known| {
            known.metadata.name == pool.metadata.name
                && known.metadata.uid == pool.metadata.uid
                && number(known) >= number(pool)
        })
    }

    fn apply(&mut self, change: Change<IPAddressPool>) {
        self.changed |= apply(&mut self.resources.pools, change);
    }

    /// Whether the configuration in force is another one now.
    pub(crate) fn evaluate(&mut self) -> bool {
        if !self.changed || self.listed.contains(&false) {
            return false;
        }
        self.changed = false;
        let evaluation = evaluate(&self.resources, &self.last_good);
        self.last_good = evaluation.last_good.clone();
        let other = self.config.as_deref() != Some(&evaluation.config);
        if other {
            self.config = Some(Rc::new(evaluation.config.clone()));
        }
        self.evaluation = Some(evaluation);
        other
    }
}

/// The settings of a process. Without a Lease it is always the same Pod whose container starts again.
pub(crate) fn settings(pod: u64, mode: Mode) -> Settings {
    let pod = if mode == Mode::Lease { pod } else { 0 };
    Settings {
        namespace: SYSTEM.to_owned(),
        pod_name: format!("controller-{pod}"),
        pod_uid: format!("pod-{pod}"),
        field_manager: "controller".to_owned(),
        replicas: match mode {
            Mode::Alone => Replicas::Alone,
            Mode::Lease => Replicas::Lease { identity: format!("controller-{pod}_pod-{pod}") },
        },
        conditions: mode == Mode::Lease,
        ..Settings::default()
    }
}

/// How the log names a Service.
pub(crate) fn shown(slot: usize) -> String {
    let (namespace, name) = service_name(slot);
    format!("{namespace}/{name}")
}
