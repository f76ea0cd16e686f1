// SPDX-License-Identifier: Apache-2.0
//! One connection, from the OPEN on: its phase and its timers.

use std::time::Duration;

use ferrolb_net_types::{Asn, Time};

use super::outbox::Outbox;
use super::{ConnectionId, Down, Local, Settings, State};
use crate::wire::{
    Capability, Context, Families, Fault, GracefulRestart, HoldTime, Open, Reader, RouteRefresh, RouterId,
};

/// How long to wait for the peer's OPEN (RFC 4271, section 8.2.2: "a large value", four minutes).
pub(super) const OPEN_HOLD: Duration = Duration::from_secs(240);

/// So many faults of one session are told apart.
const MAX_FAULTS: usize = 16;

/// Who is at the other end, and what was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its autonomous system.
    pub asn: Asn,
    /// Its BGP Identifier.
    pub router_id: RouterId,
    /// The hold time agreed on.
    pub hold_time: HoldTime,
    /// How often a KEEPALIVE is sent; `None`: never.
    pub keepalive: Option<Duration>,
    /// The families that both take.
    pub families: Families,
    /// Whether both have four octets for an autonomous system.
    pub four_octet_as: bool,
    /// Whether it is of the own autonomous system.
    pub internal: bool,
    /// Whether it offers ROUTE-REFRESH.
    pub route_refresh: bool,
    /// What it says of its restarts.
    pub graceful_restart: Option<GracefulRestart>,
}

impl Peer {
    /// What was agreed on, as far as bytes depend on it.
    #[must_use]
    pub const fn context(&self) -> Context {
        Context { four_octet_as: self.four_octet_as, internal: self.internal, families: self.families }
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    OpenSent,
    OpenConfirm(Peer),
    Established(Peer),
}

/// A connection on which an OPEN was sent.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) local: Local,
    pub(super) phase: Phase,
    pub(super) reader: Reader,
    /// When the peer has been silent for too long; `None`: never.
    pub(super) hold: Option<Time>,
    /// When the next KEEPALIVE is due.
    pub(super) keepalive: Option<Time>,
    /// How far what was sent has come.
    pub(super) outbox: Outbox,
    /// The families whose routes the peer wants to be told again, and was not yet.
    pub(super) asked: Families,
    /// What was wrong with the peer's UPDATEs up to now, each once; they come from a stranger, so not more than so many.
    faults: Vec<Fault>,
}

impl Connection {
    pub(super) fn new(now: Time, id: ConnectionId, local: Local) -> Self {
        Self {
            id,
            local,
            phase: Phase::OpenSent,
            reader: Reader::new(),
            hold: Some(now + OPEN_HOLD),
            keepalive: None,
            outbox: Outbox::new(now),
            asked: Families::NONE,
            faults: Vec::new(),
        }
    }

    pub(super) const fn state(&self) -> State {
        match self.phase {
            Phase::OpenSent => State::OpenSent,
            Phase::OpenConfirm(_) => State::OpenConfirm,
            Phase::Established(_) => State::Established,
        }
    }

    pub(super) const fn peer(&self) -> Option<&Peer> {
        match &self.phase {
            Phase::OpenSent => None,
            Phase::OpenConfirm(peer) | Phase::Established(peer) => Some(peer),
        }
    }

    pub(super) const fn peer_mut(&mut self) -> Option<&mut Peer> {
        match &mut self.phase {
            Phase::OpenSent => None,
            Phase::OpenConfirm(peer) | Phase::Established(peer) => Some(peer),
        }
    }

    /// How the bytes of the other side are to be understood.
    pub(super) fn context(&self) -> Context {
        self.peer().map_or_else(Context::default, Peer::context)
    }

    /// Starts the hold timer anew: there was a sign of life.
    pub(super) fn alive(&mut self, now: Time) {
        let hold = self.peer().map_or(OPEN_HOLD, |peer| peer.hold_time.duration());
        self.hold = (!hold.is_zero()).then(|| now + hold);
    }

    /// Notes what is wrong with an UPDATE; whether some of that is new.
    pub(super) fn note_faults(&mut self, faults: Vec<Fault>) -> bool {
        let before = self.faults.len();
        for fault in faults {
            if self.faults.len() < MAX_FAULTS && !self.faults.contains(&fault) {
                self.faults.push(fault);
            }
        }
        self.faults.len() > before
    }

    /// What was wrong with the peer's UPDATEs up to now.
    pub(super) fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Notes that the peer wants all routes of a family again, if that was agreed on (RFC 2918, section 4). One that asks
    /// without having been offered the capability is answered all the same.
    pub(super) fn ask(&mut self, refresh: RouteRefresh) {
        let agreed = self.peer().map_or(Families::NONE, |peer| peer.families);
        if let Some(family) = refresh.family().filter(|family| agreed.contains(*family)) {
            self.asked = self.asked.with(family);
        }
    }

    /// The time of the next thing that is due.
    pub(super) fn deadline(&self, settings: &Settings) -> Option<Time> {
        let outbox = self.outbox.deadline(self.send_hold_time(settings));
        [self.hold, self.keepalive, outbox].into_iter().flatten().min()
    }

    pub(super) fn send_hold_time(&self, settings: &Settings) -> Duration {
        settings.send_hold(self.peer().map_or(settings.hold_time, |peer| peer.hold_time))
    }
}

/// Judges an OPEN, and what both sides can do.
pub(super) fn negotiate(settings: &Settings, own: RouterId, open: &Open) -> Result<Peer, Down> {
    let found = open.asn();
    let refused = Down::PeerAs { found, wanted: settings.peer, own: settings.asn };
    let asn = found.filter(|asn| settings.accepts(*asn)).ok_or(refused)?;
    let internal = asn == settings.asn;
    // RFC 6286, section 2.2: the identifier need be unique within an autonomous system only.
    if internal && open.identifier == own {
        return Err(Down::SameIdentifier(own));
    }
    let hold_time = settings.hold_time.agree(open.hold_time);
    Ok(Peer {
        asn,
        router_id: open.identifier,
        hold_time,
        keepalive: settings.keepalive_every(hold_time),
        families: settings.families.or(settings.offered).and(open.families()),
        four_octet_as: open.four_octet_as().is_some(),
        internal,
        route_refresh: open.capabilities.contains(&Capability::RouteRefresh),
        graceful_restart: open.capabilities.iter().find_map(|capability| match capability {
            Capability::GracefulRestart(restart) => Some(restart.clone()),
            _ => None,
        }),
    })
}
