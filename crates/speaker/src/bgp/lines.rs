// SPDX-License-Identifier: Apache-2.0
//! What the log says of sessions, in MetalLB's words where it has some.

use ferrolb_bgp::wire::Notification;
use ferrolb_bgp::{Down, Notice, State};
use ferrolb_config::Password;
use ferrolb_net_types::{IpFamily, PeerName};
use ferrolb_speaker_core::bgp::{Hops, PeerPlan, reason};

/// The keys that every line of a session has.
#[derive(Debug)]
pub(super) struct Lines {
    /// The BGPPeer: several may have one address.
    name: PeerName,
    /// The peer's address; MetalLB has it without the port.
    peer: String,
    port: u16,
    local_asn: String,
    peer_asn: String,
    password: Option<Password>,
    gtsm_hops: Option<u8>,
}

/// A line of a session: its level, its [`Lines`], and what only this one has.
macro_rules! line {
    ($level:ident, $lines:expr, $($rest:tt)+) => {{
        let Lines { name, peer, port, local_asn, peer_asn, .. } = $lines;
        tracing::$level!(peer, port, name = %name, localASN = local_asn, peerASN = peer_asn, $($rest)+)
    }};
}

impl Lines {
    pub(super) fn new(name: &PeerName, plan: &PeerPlan) -> Self {
        Self {
            name: name.clone(),
            peer: plan.remote.ip().to_string(),
            port: plan.remote.port(),
            local_asn: plan.settings.asn.to_string(),
            peer_asn: plan.settings.peer.to_string(),
            password: plan.password.clone(),
            gtsm_hops: match plan.hops {
                Hops::Gtsm(hops) => Some(hops),
                Hops::Unlimited | Hops::Direct | Hops::Multihop => None,
            },
        }
    }

    pub(super) fn state(&self, to: State) {
        if to == State::Established {
            line!(info, self, event = "sessionUp", "BGP session established");
        }
    }

    pub(super) fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Down { was, down } => self.down(*was, down),
            other => {
                if let Some(finding) = finding(other) {
                    line!(warn, self, event = "sessionFinding", finding, "BGP session goes on with a flaw");
                }
            }
        }
    }

    pub(super) fn password_changed(&self) {
        line!(info, self, event = "passwordChanged", "BGP session goes on with another password");
    }

    pub(super) fn password_refused(&self, error: &ferrolb_linux::Error) {
        line!(warn, self, event = "passwordChanged", %error, "a connection cannot go on with it");
    }

    fn down(&self, was: State, down: &Down) {
        let reason = reason(down, self.password.as_ref(), self.gtsm_hops);
        if let Down::Told(notification) = down {
            // MetalLB has the code alone; what it means, and what the router says to it, is what helps.
            let error = told(notification);
            line!(
                error,
                self,
                event = "peerNotification",
                error,
                reason,
                "peer sent notification, closing session"
            );
        }
        if was == State::Established {
            line!(warn, self, event = "sessionDown", reason, "BGP session down");
        } else if !matches!(down, Down::Told(_) | Down::Stopped(_) | Down::Reconfigured) {
            line!(error, self, op = "connect", error = reason, "failed to connect to peer");
        }
    }
}

/// What is wrong although the session goes on, in a sentence; `None` for what is no such thing, or over.
pub(super) fn finding(notice: &Notice) -> Option<String> {
    Some(match notice {
        Notice::Down { .. } | Notice::HeldBack { routes: 0, .. } | Notice::AllFit => return None,
        Notice::FamilyRefused(family) => format!("the peer does not take {} routes", name(*family)),
        Notice::NoNextHop(family) => {
            format!("this node's end of the session has no {} address for routes to lead to", name(*family))
        }
        Notice::HeldBack { family, .. } => {
            format!(
                "not all {} routes are told, since there are more than max-prefixes allows",
                name(*family)
            )
        }
        Notice::TooLong { error, .. } => format!("some routes cannot be told: {error}"),
        Notice::Faults(faults) => {
            let all: Vec<String> = faults.iter().take(FAULTS).map(ToString::to_string).collect();
            let others = match faults.len().saturating_sub(FAULTS) {
                0 => String::new(),
                others => format!("; and {others} others"),
            };
            format!("the peer's UPDATEs have faults that are borne with: {}{others}", all.join("; "))
        }
    })
}

/// So many faults are named.
const FAULTS: usize = 4;

const fn name(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "IPv4",
        IpFamily::V6 => "IPv6",
    }
}

/// A NOTIFICATION of the peer's in MetalLB's words.
fn told(notification: &Notification) -> String {
    let code = notification.code;
    let name = code.name().unwrap_or("unknown code");
    format!("got BGP notification code 0x{:02x}{:02x} ({name})", code.code, code.subcode)
}

#[cfg(test)]
mod tests {
    use ferrolb_bgp::wire::{Code, Fault, FaultKind, Treatment};

    use super::*;

    #[test]
    fn faults_are_named_up_to_a_number() {
        let fault = |attribute, kind, treatment| Fault { attribute, kind, treatment };
        let text = |faults: &[Fault]| finding(&Notice::Faults(faults.to_vec())).unwrap();
        let one = fault(8, FaultKind::Malformed, Treatment::Withdraw);
        let two = fault(5, FaultKind::Unexpected, Treatment::Discard);
        assert_eq!(
            text(&[one.clone(), two]),
            "the peer's UPDATEs have faults that are borne with: \
             attribute 8 (COMMUNITIES) is malformed: its routes count as withdrawn; \
             attribute 5 (LOCAL_PREF) is not for this kind of peer: ignored"
        );
        let many = text(&vec![one; 16]);
        assert!(many.matches("COMMUNITIES").count() == 4 && many.ends_with("; and 12 others"), "{many}");
    }

    #[test]
    fn s80_a_notification_is_told_in_metallbs_words_and_by_its_name() {
        for (code, text) in [
            (Code::ADMINISTRATIVE_SHUTDOWN, "got BGP notification code 0x0602 (Administrative Shutdown)"),
            (Code::BAD_PEER_AS, "got BGP notification code 0x0202 (Bad Peer AS)"),
            (Code { code: 6, subcode: 9 }, "got BGP notification code 0x0609 (Hard Reset)"),
            (Code { code: 66, subcode: 1 }, "got BGP notification code 0x4201 (unknown code)"),
        ] {
            assert_eq!(told(&code.into()), text);
        }
    }
}
