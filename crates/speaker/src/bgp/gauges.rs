// SPDX-License-Identifier: Apache-2.0
//! `metallb_bgp_*`: MetalLB's series of its native mode, one set per peer's address and port.
//!
//! Two BGPPeers may name the same address and port, and then share their series: numbers add up, and the session counts
//! as up while both are.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ferrolb_bgp::State;
use ferrolb_kube_support::metrics::Metrics;
use ferrolb_net_types::PeerName;
use ferrolb_speaker_core::bgp::PeerReport;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// The series of the sessions.
#[derive(Debug)]
pub(crate) struct Gauges {
    up: IntGaugeVec,
    updates: IntCounterVec,
    announced: IntGaugeVec,
    pending: IntGaugeVec,
    /// What each session adds to the series of its peer.
    sessions: BTreeMap<PeerName, Share>,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    remote: SocketAddr,
    up: bool,
    updates: u64,
    announced: usize,
    wanted: usize,
    /// Something was wanted once: as in MetalLB, the series for it appears with its first use.
    used: bool,
}

impl Gauges {
    pub(crate) fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let registry = metrics.registry();
        let gauge = |name: &str, help: &str| -> Result<IntGaugeVec, prometheus::Error> {
            let gauge = IntGaugeVec::new(Opts::new(format!("metallb_bgp_{name}"), help), &["peer"])?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let updates = IntCounterVec::new(
            Opts::new("metallb_bgp_updates_total", "Number of BGP UPDATE messages sent"),
            &["peer"],
        )?;
        registry.register(Box::new(updates.clone()))?;
        Ok(Self {
            up: gauge("session_up", "BGP session state (1 is up, 0 is down)")?,
            updates,
            announced: gauge(
                "announced_prefixes_total",
                "Number of prefixes currently being advertised on the BGP session",
            )?,
            pending: gauge(
                "pending_prefixes_total",
                "Number of prefixes that should be advertised on the BGP session",
            )?,
            sessions: BTreeMap::new(),
        })
    }

    /// There is a session with a peer at this address, or it has moved there.
    pub(crate) fn session(&mut self, peer: &PeerName, remote: SocketAddr) {
        let before = self.sessions.get(peer).copied();
        if before.is_some_and(|before| before.remote == remote) {
            return;
        }
        // What was counted before was counted of the other peer.
        let updates = before.map_or(0, |before| before.updates);
        let share = Share { remote, up: false, updates, announced: 0, wanted: 0, used: false };
        self.sessions.insert(peer.clone(), share);
        self.draw(remote);
        if let Some(before) = before {
            self.draw(before.remote);
        }
    }

    /// There is no longer a session with this peer.
    pub(crate) fn no_session(&mut self, peer: &PeerName) {
        if let Some(share) = self.sessions.remove(peer) {
            self.draw(share.remote);
        }
    }

    /// The session is so.
    pub(crate) fn report(&mut self, peer: &PeerName, report: &PeerReport) {
        let Some(share) = self.sessions.get_mut(peer) else { return };
        let before = *share;
        let remote = before.remote;
        *share = Share {
            remote,
            up: report.state == State::Established,
            updates: report.counters.sent.updates,
            announced: report.told,
            wanted: report.wanted,
            used: before.used || report.wanted > 0,
        };
        let label = remote.to_string();
        let sent = report.counters.sent.updates.saturating_sub(before.updates);
        if sent > 0 {
            self.updates.with_label_values(&[&label]).inc_by(sent);
        }
        self.draw(remote);
    }

    fn draw(&self, remote: SocketAddr) {
        let label = remote.to_string();
        let shares: Vec<Share> =
            self.sessions.values().filter(|share| share.remote == remote).copied().collect();
        let sum =
            |of: fn(&Share) -> usize| i64::try_from(shares.iter().map(of).sum::<usize>()).unwrap_or(i64::MAX);
        if shares.is_empty() {
            // The only error is that there was no such series.
            for gauge in [&self.up, &self.announced, &self.pending] {
                let _ = gauge.remove_label_values(&[&label]);
            }
            let _ = self.updates.remove_label_values(&[&label]);
            return;
        }
        let up = shares.iter().all(|share| share.up);
        self.up.with_label_values(&[&label]).set(up.into());
        self.announced.with_label_values(&[&label]).set(sum(|share| share.announced));
        if shares.iter().any(|share| share.used) {
            self.pending.with_label_values(&[&label]).set(sum(|share| share.wanted));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ferrolb_bgp::Counters;
    use ferrolb_net_types::Time;

    use super::*;

    fn report(state: State, wanted: usize, told: usize, updates: u64) -> PeerReport {
        let mut counters = Counters::default();
        counters.sent.updates = updates;
        PeerReport {
            state,
            since: Time::ZERO,
            remote: None,
            local: None,
            wanted,
            told,
            settled: true,
            untold: Arc::default(),
            next_attempt: None,
            last_down: None,
            last_drop: None,
            drops: 0,
            counters,
            finding: None,
            rival: None,
        }
    }

    fn shown(metrics: &Metrics) -> Vec<String> {
        let text = String::from_utf8(metrics.text()).unwrap();
        text.lines().filter(|line| line.starts_with("metallb_bgp_")).map(str::to_owned).collect()
    }

    #[test]
    fn series_have_metallbs_names_labels_and_values_and_end_with_the_session() {
        let metrics = Metrics::new().unwrap();
        let mut gauges = Gauges::register(&metrics).unwrap();
        let peer = PeerName::from("router");
        gauges.session(&peer, "192.168.10.1:179".parse().unwrap());
        let label = "{peer=\"192.168.10.1:179\"}";
        assert_eq!(
            shown(&metrics),
            [
                format!("metallb_bgp_announced_prefixes_total{label} 0"),
                format!("metallb_bgp_session_up{label} 0")
            ]
        );
        gauges.report(&peer, &report(State::Established, 1, 1, 2));
        assert_eq!(
            shown(&metrics),
            [
                format!("metallb_bgp_announced_prefixes_total{label} 1"),
                format!("metallb_bgp_pending_prefixes_total{label} 1"),
                format!("metallb_bgp_session_up{label} 1"),
                format!("metallb_bgp_updates_total{label} 2"),
            ]
        );
        gauges.report(&peer, &report(State::Idle, 1, 0, 2));
        assert!(shown(&metrics).contains(&format!("metallb_bgp_session_up{label} 0")));
        gauges.no_session(&peer);
        assert_eq!(shown(&metrics), [""; 0]);
        // What comes too late brings nothing back.
        gauges.report(&peer, &report(State::Idle, 1, 0, 3));
        assert_eq!(shown(&metrics), [""; 0]);
    }

    #[test]
    fn x16_the_series_of_a_peer_that_is_created_again_stay() {
        let metrics = Metrics::new().unwrap();
        let mut gauges = Gauges::register(&metrics).unwrap();
        let (first, second) = (PeerName::from("router"), PeerName::from("tor"));
        let remote = "192.168.10.1:179".parse().unwrap();
        let up = "metallb_bgp_session_up{peer=\"192.168.10.1:179\"} 1".to_owned();
        // Under the same name, and under another one before the former is gone.
        gauges.session(&first, remote);
        gauges.no_session(&first);
        gauges.session(&first, remote);
        gauges.session(&second, remote);
        gauges.report(&first, &report(State::Established, 1, 1, 2));
        gauges.report(&second, &report(State::Established, 1, 1, 2));
        // MetalLB's first worker wakes up 120 s later, and takes them away.
        gauges.no_session(&first);
        gauges.report(&first, &report(State::Idle, 1, 0, 2));
        assert!(shown(&metrics).contains(&up), "{:?}", shown(&metrics));
        assert_eq!(shown(&metrics).len(), 4);
    }

    #[test]
    fn s74_s82_peers_at_one_address_share_their_series_and_ipv6_addresses_have_brackets() {
        let metrics = Metrics::new().unwrap();
        let mut gauges = Gauges::register(&metrics).unwrap();
        let (one, two) = (PeerName::from("one"), PeerName::from("two"));
        for peer in [&one, &two] {
            gauges.session(peer, "[fd00:10::1]:179".parse().unwrap());
        }
        gauges.report(&one, &report(State::Established, 3, 3, 5));
        let up = |value| format!("metallb_bgp_session_up{{peer=\"[fd00:10::1]:179\"}} {value}");
        assert!(shown(&metrics).contains(&up(0)));
        gauges.report(&two, &report(State::Established, 2, 1, 4));
        assert!(shown(&metrics).contains(&up(1)));
        let told = "metallb_bgp_announced_prefixes_total{peer=\"[fd00:10::1]:179\"} 4";
        assert!(shown(&metrics).contains(&told.to_owned()));
        assert!(
            shown(&metrics).contains(&"metallb_bgp_updates_total{peer=\"[fd00:10::1]:179\"} 9".to_owned())
        );
        // One moves: what it counts from now on counts there.
        gauges.session(&one, "[fd00:10::3]:179".parse().unwrap());
        gauges.report(&one, &report(State::Established, 3, 3, 6));
        let moved = "metallb_bgp_updates_total{peer=\"[fd00:10::3]:179\"} 1".to_owned();
        assert!(shown(&metrics).contains(&moved), "{:?}", shown(&metrics));
        gauges.no_session(&two);
        assert!(!shown(&metrics).iter().any(|line| line.contains("fd00:10::1")));
    }
}
