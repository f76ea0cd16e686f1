// SPDX-License-Identifier: Apache-2.0
//! Why there is no session, in words that tell whom to ask.

use std::fmt;

use ferrolb_net_types::{Asn, IpFamily};

use super::{PeerAs, State};
use crate::wire::{Code, Fault, MessageError, Notification, RouterId, TooLong};

/// Why an attempt failed, or a session ended. Prints a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// No connection: the operating system's words.
    NotConnected(String),
    /// No connection, and no word why: nothing answers, or what answers was dropped on the way, as by a wrong password.
    NoAnswer,
    /// The peer closed the connection without a word.
    Closed {
        /// How far it had come.
        state: State,
        /// The operating system's words; `None` where it was closed in good order.
        error: Option<String>,
    },
    /// The peer ended it and said why.
    Told(Notification),
    /// The peer said something that cannot be accepted.
    Refused(MessageError),
    /// The peer is of an autonomous system that the session is not with.
    PeerAs {
        /// Its system; `None` where it says 0.
        found: Option<Asn>,
        /// What it has to be.
        wanted: PeerAs,
        /// The own one, as this peer sees it.
        own: Asn,
    },
    /// The peer is of the own autonomous system and has the own BGP Identifier (RFC 6286, section 2.2).
    SameIdentifier(RouterId),
    /// The peer said something that does not belong there.
    Unexpected {
        /// How far it had come.
        state: State,
    },
    /// Nothing was heard from the peer for the hold time.
    HoldTimer {
        /// How far it had come.
        state: State,
    },
    /// The peer did not read what was sent to it (RFC 9687).
    SendHoldTimer,
    /// Both sides had connected; the other connection stays (RFC 4271, section 6.8).
    Collision,
    /// The configuration has changed in a way that needs another session.
    Reconfigured,
    /// It was stopped here.
    Stopped(Notification),
}

impl Down {
    /// What the peer is told about it; `None` where there is nobody to tell.
    #[must_use]
    pub fn notification(&self) -> Option<Notification> {
        match self {
            Self::Refused(error) => Some(error.notification()),
            Self::PeerAs { .. } => Some(Code::BAD_PEER_AS.into()),
            Self::SameIdentifier(_) => Some(Code::BAD_IDENTIFIER.into()),
            Self::Unexpected { state } => Some(
                match state {
                    State::OpenSent => Code::UNEXPECTED_IN_OPEN_SENT,
                    State::OpenConfirm => Code::UNEXPECTED_IN_OPEN_CONFIRM,
                    _ => Code::UNEXPECTED_IN_ESTABLISHED,
                }
                .into(),
            ),
            Self::HoldTimer { .. } => Some(Code::HOLD_TIMER_EXPIRED.into()),
            Self::Collision => Some(Code::COLLISION_RESOLUTION.into()),
            Self::Reconfigured => Some(Code::CONFIGURATION_CHANGE.into()),
            Self::Stopped(notification) => Some(notification.clone()),
            Self::NotConnected(_)
            | Self::NoAnswer
            | Self::Closed { .. }
            | Self::Told(_)
            | Self::SendHoldTimer => None,
        }
    }
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected(error) => write!(f, "cannot connect: {error}"),
            Self::NoAnswer => f.write_str("cannot connect: no answer"),
            Self::Closed { state, error } => {
                write!(f, "the peer closed the connection in state {state}, without a NOTIFICATION")?;
                error.iter().try_for_each(|error| write!(f, ": {error}"))
            }
            Self::Told(notification) => {
                write!(f, "the peer sent NOTIFICATION {notification}")?;
                let meaning = notification.code.meaning();
                meaning.iter().try_for_each(|meaning| write!(f, ": {meaning}"))
            }
            Self::Refused(error) => write!(f, "the peer's message is refused: {error}"),
            Self::PeerAs { found, wanted, own } => {
                write!(f, "unexpected peer ASN {}, want {wanted}", found.map_or(0, Asn::number))?;
                match wanted {
                    PeerAs::Exactly(_) => Ok(()),
                    PeerAs::Internal => write!(f, ": the own ASN, {own}"),
                    PeerAs::External => write!(f, ": any but the own ASN, {own}"),
                }
            }
            Self::SameIdentifier(own) => {
                write!(f, "the peer has this speaker's router ID {own}, in the same autonomous system")
            }
            Self::Unexpected { state } => write!(f, "the peer's message does not belong into state {state}"),
            Self::HoldTimer { state } => {
                write!(f, "nothing was heard from the peer for the hold time, in state {state}")
            }
            Self::SendHoldTimer => f.write_str("the peer does not read what is sent to it"),
            Self::Collision => f.write_str("both sides had connected; the other connection stays"),
            Self::Reconfigured => f.write_str("the configuration has changed"),
            Self::Stopped(notification) => write!(f, "stopped here: {notification}"),
        }
    }
}

/// Something that somebody should see. What is wrong with a session ([`Notice::FamilyRefused`], [`Notice::NoNextHop`],
/// [`Notice::TooLong`], [`Notice::Faults`]) is said once it is established, and over with the [`Notice::Down`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An attempt failed, or the session ended.
    Down {
        /// How far it had come.
        was: State,
        /// Why.
        down: Down,
    },
    /// The peer does not take routes of a family that it is to be told.
    FamilyRefused(IpFamily),
    /// The node has no address that routes of a family could lead to.
    NoNextHop(IpFamily),
    /// More routes are wanted than the limit allows; or, with 0, no longer.
    HeldBack {
        /// Their family.
        family: IpFamily,
        /// How many are not told.
        routes: usize,
    },
    /// Routes cannot be told, since their attributes fill a message.
    TooLong {
        /// How many.
        routes: usize,
        /// How long they are.
        error: TooLong,
    },
    /// There are no such routes any more.
    AllFit,
    /// An UPDATE of the peer's is wrong in a way that none of this session was before, and borne with: this, and whatever
    /// was before, each once, up to sixteen.
    Faults(Vec<Fault>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_system_is_told_with_the_number_that_is_wanted() {
        let asn = |number| Asn::new(number).unwrap();
        let text =
            |found, wanted| Down::PeerAs { found: Some(asn(found)), wanted, own: asn(64_512) }.to_string();
        assert_eq!(text(64_514, PeerAs::Exactly(asn(64_513))), "unexpected peer ASN 64514, want 64513");
        assert_eq!(
            text(64_514, PeerAs::Internal),
            "unexpected peer ASN 64514, want internal: the own ASN, 64512"
        );
        assert_eq!(
            text(64_512, PeerAs::External),
            "unexpected peer ASN 64512, want external: any but the own ASN, 64512"
        );
    }
}
