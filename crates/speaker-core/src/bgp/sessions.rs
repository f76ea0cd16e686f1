// SPDX-License-Identifier: Apache-2.0
//! The sessions of this node, and what each peer is to be told: only differences go out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_announce::bgp::{BgpPlan, BgpRoute};
use ferrolb_api::Clock;
use ferrolb_bgp::{Route, State};
use ferrolb_config::BgpPeer;
use ferrolb_net_types::{NodeName, PeerName, Prefix, Time};
use jiff::Timestamp;

use super::untold::{News, NotTold};
use super::weights::Weights;
use super::{PeerPlan, PeerReport, convert};
use crate::io::Effect;

/// The sessions of this node.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: BTreeMap<PeerName, Session>,
    /// What is known of sessions, of those that are ending, too.
    reports: BTreeMap<PeerName, Known>,
}

/// A report, with its times as the wall clock had them when they were first heard of: that clock may be set.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) report: Box<PeerReport>,
    pub(crate) since: Timestamp,
    pub(crate) failed: Option<Timestamp>,
    pub(crate) dropped: Option<Timestamp>,
}

impl Known {
    fn new(clock: Clock, report: Box<PeerReport>, former: Option<&Self>) -> Self {
        let known = |time: Time, of: fn(&PeerReport) -> Option<Time>, at: fn(&Self) -> Option<Timestamp>| {
            let former = former.filter(|former| of(&former.report) == Some(time));
            former.and_then(at).unwrap_or_else(|| wall(clock, time))
        };
        let failed = |report: &PeerReport| report.last_down.as_ref().map(|(time, _)| *time);
        let dropped = |report: &PeerReport| report.last_drop.as_ref().map(|(time, _)| *time);
        Self {
            since: known(report.since, |report| Some(report.since), |former| Some(former.since)),
            failed: failed(&report).map(|time| known(time, failed, |former| former.failed)),
            dropped: dropped(&report).map(|time| known(time, dropped, |former| former.dropped)),
            report,
        }
    }
}

/// A moment of the past on the wall clock.
fn wall(clock: Clock, time: Time) -> Timestamp {
    let ago = clock.now.since(time);
    jiff::SignedDuration::try_from(ago)
        .ok()
        .and_then(|ago| clock.wall.checked_sub(ago).ok())
        .unwrap_or(clock.wall)
}

#[derive(Debug)]
struct Session {
    peer: Arc<BgpPeer>,
    plan: PeerPlan,
    told: BTreeMap<Prefix, Arc<Route>>,
    /// Routes in the engine's form, so that equal ones are one.
    routes: BTreeMap<BgpRoute, Arc<Route>>,
    weights: Weights,
    /// What the peer is not told of it; `None` until the session was up once, with the peer at this address.
    not_told: Option<NotTold>,
}

/// Why there is no session with a peer any more, in MetalLB's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// The object is gone, or says nothing good.
    RemovedFromConfig,
    /// The object is not for this node.
    FilteredByNodeSelector,
}

impl Sessions {
    /// Keeps exactly these sessions of this node from now on.
    pub(crate) fn configure(
        &mut self,
        now: Time,
        node: &NodeName,
        peers: &BTreeMap<PeerName, Arc<BgpPeer>>,
        why_gone: impl Fn(&PeerName) -> Gone,
        routes: &BgpPlan,
        effects: &mut impl Extend<Effect>,
    ) {
        let gone: Vec<_> = self.sessions.keys().filter(|name| !peers.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(session) = self.sessions.remove(&name) {
                log_gone(&name, &session, why_gone(&name));
            }
            effects.extend([Effect::Session { peer: name, plan: None }]);
        }
        for (name, peer) in peers {
            let known = self.sessions.get(name);
            if known.is_some_and(|session| session.peer == *peer) {
                continue;
            }
            let plan = convert::plan(peer, node);
            if known.is_none_or(|session| session.plan != plan) {
                if known.is_none() {
                    tracing::info!(
                        event = "peerAdded",
                        peer = %peer.address,
                        port = peer.port,
                        name = %name,
                        "peer configured, starting BGP session"
                    );
                }
                effects.extend([Effect::Session { peer: name.clone(), plan: Some(Box::new(plan.clone())) }]);
            }
            let former = self.sessions.remove(name);
            let (told, weights, not_told) = match former {
                Some(former) if former.plan.remote == plan.remote => {
                    (former.told, former.weights, former.not_told)
                }
                Some(former) => (former.told, former.weights, None),
                None => Default::default(),
            };
            let session =
                Session { peer: Arc::clone(peer), plan, told, routes: BTreeMap::new(), weights, not_told };
            let before: BTreeSet<Prefix> = session.told.keys().copied().chain(routes.prefixes()).collect();
            self.sessions.insert(name.clone(), session);
            self.tell_one(now, name, routes, &before, effects);
        }
    }

    /// Tells the peers what is new of these prefixes, and what is due of others.
    pub(crate) fn tell(
        &mut self,
        now: Time,
        routes: &BgpPlan,
        prefixes: &BTreeSet<Prefix>,
        effects: &mut impl Extend<Effect>,
    ) {
        let names: Vec<_> = self.sessions.keys().cloned().collect();
        for name in names {
            if !prefixes.is_empty() {
                self.tell_one(now, &name, routes, prefixes, effects);
            }
            let due = self.sessions.get_mut(&name).map(|session| session.weights.take_due(now));
            if let Some(due) = due.filter(|due| !due.is_empty()) {
                self.tell_one(now, &name, routes, &due, effects);
            }
        }
    }

    /// When something is to be told that waits.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.sessions.values().filter_map(|session| session.weights.next_deadline()).min()
    }

    /// Takes note of how a session is, and says what that changes of what its peer is told.
    pub(crate) fn report(&mut self, clock: Clock, peer: PeerName, report: Option<Box<PeerReport>>) -> News {
        let up = report.as_ref().filter(|report| report.state == State::Established);
        let news = match up.zip(self.sessions.get_mut(&peer)) {
            Some((report, session)) => NotTold::hear(&mut session.not_told, report, &session.peer),
            None => News::default(),
        };
        match report {
            Some(report) => {
                let known = Known::new(clock, report, self.reports.get(&peer));
                self.reports.insert(peer, known)
            }
            None => self.reports.remove(&peer),
        };
        news
    }

    /// Whether a peer is told a prefix that is announced to it, or was when its session was up last; `None` if that never
    /// was.
    pub(crate) fn tells(&self, peer: &PeerName, prefix: Prefix) -> Option<bool> {
        Some(!self.sessions.get(peer)?.not_told.as_ref()?.has(prefix))
    }

    /// The sessions, each with what is known of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PeerName, &BgpPeer, Option<&Known>)> {
        self.sessions.iter().map(|(name, session)| (name, &*session.peer, self.reports.get(name)))
    }

    /// The peers that another one's session keeps from connecting, one entry each: object, field, and why.
    pub(crate) fn excluded(&self) -> Vec<String> {
        let rival = |known: Option<&Known>| known.and_then(|known| known.report.rival.clone());
        let excluded = self.iter().filter_map(|(name, peer, known)| Some((name, peer, rival(known)?)));
        excluded
            .map(|(name, peer, rival)| {
                let field = match peer.source {
                    Some(source) => format!("spec.sourceAddress {source}"),
                    None => format!("spec.peerAddress {}", peer.address),
                };
                format!("BGPPeer {name}, {field}: {rival}")
            })
            .collect()
    }

    /// Whether every session is up, and its peer knows everything.
    pub(crate) fn all_up(&self) -> bool {
        self.iter().all(|(.., known)| {
            known.is_some_and(|known| known.report.state == State::Established && known.report.settled)
        })
    }

    fn tell_one(
        &mut self,
        now: Time,
        name: &PeerName,
        routes: &BgpPlan,
        prefixes: &BTreeSet<Prefix>,
        effects: &mut impl Extend<Effect>,
    ) {
        let Some(session) = self.sessions.get_mut(name) else { return };
        let mut changes = Vec::new();
        for prefix in prefixes {
            let wanted = routes.route(name, &session.peer, *prefix).map(|route| session.engine_route(route));
            let known = session.told.get(prefix);
            if known == wanted.as_ref() {
                session.weights.settle(*prefix);
                continue;
            }
            match known.zip(wanted.as_ref()) {
                Some((known, wanted)) if !session.weights.may_tell(now, *prefix, known, wanted) => continue,
                Some(_) => {}
                None => session.weights.settle(*prefix),
            }
            if let Some(not_told) = session.not_told.as_mut().filter(|_| known.is_none() && wanted.is_some())
            {
                not_told.expect(*prefix);
            }
            match &wanted {
                Some(route) => session.told.insert(*prefix, Arc::clone(route)),
                None => session.told.remove(prefix),
            };
            changes.push((*prefix, wanted));
        }
        if !changes.is_empty() {
            effects.extend([Effect::Routes { peer: name.clone(), changes }]);
        }
    }
}

impl Session {
    fn engine_route(&mut self, route: BgpRoute) -> Arc<Route> {
        // Of what was once told some is told no longer.
        if self.routes.len() > 2 * self.told.len() + 16 {
            self.routes.clear();
        }
        let peer = &self.peer;
        let make = |route: &BgpRoute| Arc::new(convert::route(route, peer));
        Arc::clone(self.routes.entry(route).or_insert_with_key(make))
    }
}

fn log_gone(name: &PeerName, session: &Session, why: Gone) {
    let reason = match why {
        Gone::RemovedFromConfig => "removedFromConfig",
        Gone::FilteredByNodeSelector => "filteredByNodeSelector",
    };
    tracing::info!(
        event = "peerRemoved",
        peer = %session.peer.address,
        port = session.peer.port,
        name = %name,
        reason,
        "peer deconfigured, closing BGP session"
    );
}
