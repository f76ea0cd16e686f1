// SPDX-License-Identifier: Apache-2.0
//! What a session is configured with.

use std::fmt;
use std::time::Duration;

use ferrolb_net_types::Asn;

use crate::wire::{Capability, Families, HoldTime, Open, RouterId};

/// The settings of a session. Addresses, port, password (RFC 2385) and the TTL of what is sent and taken (RFC 5082) are
/// the business of its owner, who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The own autonomous system, as this peer is to see it.
    pub asn: Asn,
    /// The peer's.
    pub peer: PeerAs,
    /// The hold time to propose.
    pub hold_time: HoldTime,
    /// How often to send a KEEPALIVE: not more than once a second (RFC 4271, section 4.4). `None`, and whatever is
    /// longer, for a third of the hold time agreed on.
    pub keepalive: Option<Duration>,
    /// How long to wait at most between two attempts to connect: at least one second.
    pub retry_at_most: Duration,
    /// How long the peer may leave unread what is sent to it, to an eighth of that; `None` for what RFC 9687 recommends:
    /// eight minutes, or twice the hold time if that is longer.
    pub send_hold: Option<Duration>,
    /// The families whose routes are told, if the peer takes them.
    pub families: Families,
    /// The families that the OPEN offers beside those.
    pub offered: Families,
    /// What else the OPEN offers.
    pub capabilities: Vec<Capability>,
    /// The local preference of routes that have none of their own, for an internal peer.
    pub local_pref: u32,
    /// How many prefixes of each family are told at most.
    pub max_prefixes: Option<usize>,
    /// Whether it connects; else it waits for the peer to do so.
    pub dials: bool,
}

/// What the peer's autonomous system has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAs {
    /// This one.
    Exactly(Asn),
    /// The own one.
    Internal,
    /// Any other than the own one.
    External,
}

/// Prints a number or MetalLB's word for it.
impl fmt::Display for PeerAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(asn) => fmt::Display::fmt(asn, f),
            Self::Internal => f.write_str("internal"),
            Self::External => f.write_str("external"),
        }
    }
}

/// The longest wait between two attempts to connect where nothing else is said (RFC 4271, section 10).
pub const RETRY_AT_MOST: Duration = Duration::from_secs(120);
const SEND_HOLD: Duration = Duration::from_secs(8 * 60);
/// The shortest time between two KEEPALIVEs (RFC 4271, section 4.4); the hold time is three times as long at least.
const KEEPALIVE_AT_LEAST: Duration = Duration::from_secs(1);

impl Settings {
    /// What MetalLB's native mode does where nothing is said: hold time 90 s, both families offered, IPv4 told, local
    /// preference 0.
    #[must_use]
    pub fn native(asn: Asn, peer: PeerAs) -> Self {
        Self {
            asn,
            peer,
            hold_time: HoldTime::seconds(90).unwrap_or(HoldTime::ZERO),
            keepalive: None,
            retry_at_most: RETRY_AT_MOST,
            send_hold: None,
            families: Families::V4,
            offered: Families::BOTH,
            capabilities: Vec::new(),
            local_pref: 0,
            max_prefixes: None,
            dials: true,
        }
    }

    /// What MetalLB's FRR mode does where nothing is said: hold time 180 s, the families that are told are those
    /// offered, local preference 100.
    #[must_use]
    pub fn frr(asn: Asn, peer: PeerAs, families: Families) -> Self {
        Self {
            hold_time: HoldTime::seconds(180).unwrap_or(HoldTime::ZERO),
            families,
            offered: families,
            local_pref: 100,
            ..Self::native(asn, peer)
        }
    }

    /// Whether two settings make for the same OPEN and the same judgement of the peer's, so that an established
    /// session can go from one to the other.
    pub(super) fn same_session(&self, other: &Self) -> bool {
        let of = |all: &Self| {
            let families = all.families.or(all.offered);
            (all.asn, all.peer, all.hold_time, all.families, families, all.dials)
        };
        of(self) == of(other) && self.capabilities == other.capabilities
    }

    pub(super) fn open(&self, identifier: RouterId) -> Open {
        let families = self.families.or(self.offered);
        Open::new(self.asn, self.hold_time, identifier, families, self.capabilities.clone())
    }

    /// Whether the peer may be of this autonomous system.
    pub(super) fn accepts(&self, asn: Asn) -> bool {
        match self.peer {
            PeerAs::Exactly(wanted) => asn == wanted,
            PeerAs::Internal => asn == self.asn,
            PeerAs::External => asn != self.asn,
        }
    }

    /// How often to send a KEEPALIVE, once a hold time is agreed on; never if that is zero (RFC 4271, section 4.4).
    pub(super) fn keepalive_every(&self, agreed: HoldTime) -> Option<Duration> {
        let third = Some(agreed.duration() / 3).filter(|third| !third.is_zero())?;
        let wanted = self.keepalive.filter(|time| !time.is_zero());
        Some(wanted.map_or(third, |time| time.max(KEEPALIVE_AT_LEAST).min(third)))
    }

    /// How long the peer may leave unread what is sent to it.
    pub(super) fn send_hold(&self, agreed: HoldTime) -> Duration {
        self.send_hold.unwrap_or_else(|| SEND_HOLD.max(agreed.duration() * 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn asn(number: u32) -> Asn {
        Asn::new(number).unwrap()
    }

    fn hold(seconds: u16) -> HoldTime {
        HoldTime::seconds(seconds).unwrap()
    }

    #[test]
    fn a_keepalive_is_sent_at_least_three_times_per_hold_time() {
        let mut settings = Settings::native(asn(1), PeerAs::External);
        let seconds = Duration::from_secs;
        assert_eq!(settings.keepalive_every(hold(90)), Some(seconds(30)));
        assert_eq!(settings.keepalive_every(hold(10)), Some(seconds(10) / 3));
        assert_eq!(settings.keepalive_every(hold(0)), None);
        for (configured, wanted) in [(10, 10), (30, 30), (57, 30), (0, 30)] {
            settings.keepalive = Some(seconds(configured));
            assert_eq!(settings.keepalive_every(hold(90)), Some(seconds(wanted)), "{configured}");
        }
        settings.keepalive = Some(seconds(10));
        assert_eq!(settings.keepalive_every(hold(0)), None);
    }

    #[test]
    fn a_keepalive_is_sent_once_a_second_at_most() {
        for (milliseconds, wanted) in [(1, 1000), (999, 1000), (1000, 1000), (1001, 1001)] {
            let keepalive = Some(Duration::from_millis(milliseconds));
            let settings = Settings { keepalive, ..Settings::native(asn(1), PeerAs::External) };
            let every = |seconds| settings.keepalive_every(hold(seconds)).unwrap().as_millis();
            assert_eq!(every(90), wanted, "{milliseconds}");
            assert_eq!(every(3), 1000, "{milliseconds}: a third of the hold time");
        }
    }

    #[test]
    fn the_peer_may_be_of_the_systems_that_are_configured() {
        let accepts = |peer, number| Settings::native(asn(64_512), peer).accepts(asn(number));
        assert!(
            accepts(PeerAs::Exactly(asn(64_513)), 64_513) && !accepts(PeerAs::Exactly(asn(64_513)), 64_512)
        );
        assert!(accepts(PeerAs::Internal, 64_512) && !accepts(PeerAs::Internal, 64_513));
        assert!(accepts(PeerAs::External, 64_513) && !accepts(PeerAs::External, 64_512));
    }

    #[test]
    fn the_send_hold_time_is_longer_than_the_hold_time() {
        let settings = Settings::native(asn(1), PeerAs::External);
        assert_eq!(settings.send_hold(hold(90)), Duration::from_secs(480));
        assert_eq!(settings.send_hold(hold(0)), Duration::from_secs(480));
        assert_eq!(settings.send_hold(hold(600)), Duration::from_secs(1200));
    }

    #[test]
    fn only_what_the_peer_sees_makes_another_session() {
        let settings = Settings::native(asn(1), PeerAs::External);
        let same = Settings {
            keepalive: Some(Duration::from_secs(1)),
            retry_at_most: Duration::from_secs(5),
            send_hold: Some(Duration::from_secs(60)),
            local_pref: 7,
            max_prefixes: Some(1),
            ..settings.clone()
        };
        assert!(settings.same_session(&same));
        for other in [
            Settings { asn: asn(2), ..settings.clone() },
            Settings { peer: PeerAs::Internal, ..settings.clone() },
            Settings { hold_time: hold(9), ..settings.clone() },
            Settings { offered: Families::V4, ..settings.clone() },
            Settings { families: Families::BOTH, ..settings.clone() },
            Settings { capabilities: vec![Capability::RouteRefresh], ..settings.clone() },
        ] {
            assert!(!settings.same_session(&other), "{other:?}");
        }
    }
}
