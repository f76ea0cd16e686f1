// SPDX-License-Identifier: Apache-2.0
//! NOTIFICATION: why a session ends (RFC 4271, section 4.5), in numbers and in words.

use std::fmt;

use ferrolb_net_types::IpFamily;

use super::cursor::Cursor;
use super::family::{UNICAST, afi, family};
use super::{Kind, MAX_LENGTH, begin, end};

/// The longest text of a shutdown communication, in bytes of UTF-8 (RFC 9003).
pub const MAX_TEXT: usize = 255;

/// What a NOTIFICATION complains of: error code and subcode.
///
/// Any two numbers can come from a peer; those that are registered have a name and a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// The error code.
    pub code: u8,
    /// The error subcode; 0 where there is none.
    pub subcode: u8,
}

/// The registered codes: constant, numbers, name as in IANA's registry, meaning.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $constant:ident = $code:literal / $subcode:literal, $name:literal, $meaning:literal;)*) => {
        impl Code {
            $($(#[doc = $doc])+ pub const $constant: Self = Self { code: $code, subcode: $subcode };)*

            /// Every registered code, ascending.
            pub const ALL: &[Self] = &[$(Self::$constant),*];

            const fn words(self) -> Option<(&'static str, &'static str)> {
                match (self.code, self.subcode) {
                    $(($code, $subcode) => Some(($name, $meaning)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// RFC 4271, section 6.1.
    HEADER_UNSPECIFIC = 1/0, "Message Header Error", "a message's header is wrong";
    /// RFC 4271, section 6.1.
    NOT_SYNCHRONIZED = 1/1, "Connection Not Synchronized", "a message did not begin where one has to";
    /// RFC 4271, section 6.1.
    BAD_LENGTH = 1/2, "Bad Message Length", "a message has a length that it cannot have";
    /// RFC 4271, section 6.1.
    BAD_TYPE = 1/3, "Bad Message Type", "a message is of a type that its receiver does not know";
    /// RFC 4271, section 6.2.
    OPEN_UNSPECIFIC = 2/0, "OPEN Message Error", "the OPEN is malformed";
    /// RFC 4271, section 6.2.
    UNSUPPORTED_VERSION = 2/1, "Unsupported Version Number", "the two speak different versions of BGP";
    /// RFC 4271, section 6.2.
    BAD_PEER_AS = 2/2, "Bad Peer AS", "the autonomous system is not the one that is configured on the other side";
    /// RFC 4271, section 6.2.
    BAD_IDENTIFIER = 2/3, "Bad BGP Identifier", "the router ID is 0.0.0.0, or that of the other side";
    /// RFC 4271, section 6.2.
    UNSUPPORTED_PARAMETER = 2/4, "Unsupported Optional Parameter", "the OPEN has a parameter that its receiver does not know";
    /// Deprecated.
    AUTHENTICATION_FAILURE = 2/5, "Authentication Failure", "the OPEN could not be authenticated";
    /// RFC 4271, section 6.2.
    UNACCEPTABLE_HOLD_TIME = 2/6, "Unacceptable Hold Time", "the hold time is not accepted";
    /// RFC 5492.
    UNSUPPORTED_CAPABILITY = 2/7, "Unsupported Capability", "the receiver wants a capability that the OPEN does not offer";
    /// RFC 9234.
    ROLE_MISMATCH = 2/11, "Role Mismatch", "the two do not agree on who is the provider";
    /// RFC 4271, section 6.3.
    UPDATE_UNSPECIFIC = 3/0, "UPDATE Message Error", "an UPDATE is wrong";
    /// RFC 4271, section 6.3.
    MALFORMED_ATTRIBUTE_LIST = 3/1, "Malformed Attribute List", "the attributes of an UPDATE do not fit into their lengths";
    /// RFC 4271, section 6.3.
    UNRECOGNIZED_WELL_KNOWN = 3/2, "Unrecognized Well-known Attribute", "an attribute that all should know is unknown";
    /// RFC 4271, section 6.3.
    MISSING_WELL_KNOWN = 3/3, "Missing Well-known Attribute", "an UPDATE lacks an attribute";
    /// RFC 4271, section 6.3.
    ATTRIBUTE_FLAGS = 3/4, "Attribute Flags Error", "an attribute has the wrong flags";
    /// RFC 4271, section 6.3.
    ATTRIBUTE_LENGTH = 3/5, "Attribute Length Error", "an attribute has the wrong length";
    /// RFC 4271, section 6.3.
    INVALID_ORIGIN = 3/6, "Invalid ORIGIN Attribute", "the ORIGIN is not one of three";
    /// Deprecated.
    ROUTING_LOOP = 3/7, "AS Routing Loop", "the receiver's own autonomous system is in the path";
    /// RFC 4271, section 6.3.
    INVALID_NEXT_HOP = 3/8, "Invalid NEXT_HOP Attribute", "the next hop is no address that can be one";
    /// RFC 4271, section 6.3.
    OPTIONAL_ATTRIBUTE = 3/9, "Optional Attribute Error", "an optional attribute is wrong";
    /// RFC 4271, section 6.3.
    INVALID_NETWORK = 3/10, "Invalid Network Field", "a prefix is malformed";
    /// RFC 4271, section 6.3.
    MALFORMED_AS_PATH = 3/11, "Malformed AS_PATH", "the AS path is malformed, or does not begin with the sender's autonomous system";
    /// RFC 4271, section 6.5.
    HOLD_TIMER_EXPIRED = 4/0, "Hold Timer Expired", "nothing was heard from the other side for the hold time";
    /// RFC 4271, section 6.6.
    FSM_UNSPECIFIC = 5/0, "Finite State Machine Error", "a message came that does not belong there";
    /// RFC 6608.
    UNEXPECTED_IN_OPEN_SENT = 5/1, "Receive Unexpected Message in OpenSent State", "something else came where an OPEN had to";
    /// RFC 6608.
    UNEXPECTED_IN_OPEN_CONFIRM = 5/2, "Receive Unexpected Message in OpenConfirm State", "something else came where the first KEEPALIVE had to";
    /// RFC 6608.
    UNEXPECTED_IN_ESTABLISHED = 5/3, "Receive Unexpected Message in Established State", "a message came that an established session does not have";
    /// RFC 4486.
    CEASE = 6/0, "Cease", "the sender ends the session";
    /// RFC 4486.
    MAXIMUM_PREFIXES = 6/1, "Maximum Number of Prefixes Reached", "more prefixes came than the sender is configured to take";
    /// RFC 4486.
    ADMINISTRATIVE_SHUTDOWN = 6/2, "Administrative Shutdown", "the session was shut down on the sender's side";
    /// RFC 4486.
    PEER_DECONFIGURED = 6/3, "Peer De-configured", "the session was removed from the sender's configuration";
    /// RFC 4486.
    ADMINISTRATIVE_RESET = 6/4, "Administrative Reset", "the session was reset on the sender's side";
    /// RFC 4486.
    CONNECTION_REJECTED = 6/5, "Connection Rejected", "the sender does not want the connection: the neighbor is not configured there, or not yet ready";
    /// RFC 4486.
    CONFIGURATION_CHANGE = 6/6, "Other Configuration Change", "the sender's configuration of the session has changed";
    /// RFC 4486.
    COLLISION_RESOLUTION = 6/7, "Connection Collision Resolution", "the sender already has a session with this address, perhaps with another BGP speaker on the node";
    /// RFC 4486.
    OUT_OF_RESOURCES = 6/8, "Out of Resources", "the sender lacks memory or the like";
    /// RFC 8538.
    HARD_RESET = 6/9, "Hard Reset", "the session ends without graceful restart";
    /// RFC 9384.
    BFD_DOWN = 6/10, "BFD Down", "BFD found the other side unreachable";
    /// RFC 7313.
    REFRESH_LENGTH = 7/1, "Invalid Message Length", "a ROUTE-REFRESH has the wrong length";
    /// RFC 9687.
    SEND_HOLD_TIMER_EXPIRED = 8/0, "Send Hold Timer Expired", "the receiver does not read what is sent to it";
}

impl Code {
    /// The registered name; for a subcode that is not registered, the name of its error code.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.nearest().map(|(name, _)| name)
    }

    /// What it means, for somebody who does not know BGP by heart: a clause that tells the sender from the receiver.
    #[must_use]
    pub fn meaning(self) -> Option<&'static str> {
        self.nearest().map(|(_, meaning)| meaning)
    }

    /// Whether the name or the meaning is this very code's, not only its class's.
    #[must_use]
    pub const fn is_registered(self) -> bool {
        self.words().is_some()
    }

    fn nearest(self) -> Option<(&'static str, &'static str)> {
        self.words().or_else(|| match self.code {
            7 => Some(("ROUTE-REFRESH Message Error", "a ROUTE-REFRESH is wrong")),
            code => Self { code, subcode: 0 }.words(),
        })
    }
}

/// Prints the name and both numbers: `Bad Peer AS (2/2)`.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, subcode } = self;
        match self.name() {
            Some(name) => write!(f, "{name} ({code}/{subcode})"),
            None => write!(f, "unknown error ({code}/{subcode})"),
        }
    }
}

/// A NOTIFICATION. Whoever sends it closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// What it complains of.
    pub code: Code,
    /// What belongs to it: as much as the code defines, at most 4,075 bytes. [`Notification::detail`] reads it.
    pub data: Vec<u8>,
}

/// What the data of a NOTIFICATION says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing, or nothing that has a meaning.
    None,
    /// A shutdown communication (RFC 9003), made safe for a log: control characters and marks that turn the
    /// direction of writing are replaced.
    Text(String),
    /// How many prefixes of a family the sender takes (RFC 4486).
    PrefixLimit {
        /// The family.
        family: IpFamily,
        /// The limit.
        limit: u32,
    },
    /// The reason behind a hard reset (RFC 8538).
    Reason(Box<Notification>),
    /// The highest version that the sender speaks.
    Version(u16),
}

impl From<Code> for Notification {
    fn from(code: Code) -> Self {
        Self::new(code, &[])
    }
}

impl Notification {
    /// A NOTIFICATION with data, of which what does not fit into a message is cut off.
    #[must_use]
    pub fn new(code: Code, data: &[u8]) -> Self {
        let room = usize::from(MAX_LENGTH) - super::HEADER - 2;
        Self { code, data: data[..data.len().min(room)].to_vec() }
    }

    /// A Cease that says why in words: a shutdown or a reset (RFC 9003). The text is cut after 255 bytes, between
    /// characters; an empty one is left out.
    #[must_use]
    pub fn with_text(code: Code, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_TEXT)];
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        let data = [&[length][..], text.as_bytes()].concat();
        if text.is_empty() { code.into() } else { Self::new(code, &data) }
    }

    /// What the data says.
    #[must_use]
    pub fn detail(&self) -> Detail {
        let mut cursor = Cursor::new(&self.data);
        let detail = match self.code {
            Code::ADMINISTRATIVE_SHUTDOWN | Code::ADMINISTRATIVE_RESET => {
                cursor.counted_u8().filter(|text| !text.is_empty()).map(|text| Detail::Text(harmless(text)))
            }
            Code::MAXIMUM_PREFIXES => {
                cursor.u16().zip(cursor.u8()).zip(cursor.u32()).and_then(|((afi, safi), limit)| {
                    family(afi, safi).map(|family| Detail::PrefixLimit { family, limit })
                })
            }
            Code::HARD_RESET => cursor.array().map(|[code, subcode]| {
                Detail::Reason(Box::new(Self { code: Code { code, subcode }, data: cursor.rest().to_vec() }))
            }),
            Code::UNSUPPORTED_VERSION => cursor.u16().map(Detail::Version),
            _ => None,
        };
        detail.unwrap_or(Detail::None)
    }

    /// A Cease for too many prefixes that names the limit (RFC 4486).
    #[must_use]
    pub fn prefix_limit(family: IpFamily, limit: u32) -> Self {
        let data = [&afi(family).to_be_bytes()[..], &[UNICAST], &limit.to_be_bytes()].concat();
        Self::new(Code::MAXIMUM_PREFIXES, &data)
    }

    /// Reads the body of a NOTIFICATION; `None` if it lacks its two codes.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        let [code, subcode] = cursor.array()?;
        Some(Self { code: Code { code, subcode }, data: cursor.rest().to_vec() })
    }

    /// The whole message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let start = begin(&mut out, Kind::Notification);
        out.extend([self.code.code, self.code.subcode]);
        let room = usize::from(MAX_LENGTH) - super::HEADER - 2;
        out.extend(self.data.iter().take(room));
        end(&mut out, start);
        out
    }
}

/// Prints one line: `Administrative Shutdown (6/2): "maintenance"`.
impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        match self.detail() {
            Detail::None => Ok(()),
            Detail::Text(text) => write!(f, ": {text:?}"),
            Detail::PrefixLimit { family, limit } => write!(f, ": at most {limit} of {family}"),
            // A reason within a reason stays unprinted: whoever nests them may nest them deeply.
            Detail::Reason(reason) => match reason.detail() {
                Detail::Text(text) => write!(f, ": {}: {text:?}", reason.code),
                _ => write!(f, ": {}", reason.code),
            },
            Detail::Version(version) => write!(f, ": at most version {version}"),
        }
    }
}

/// Text from a stranger, for people and logs.
fn harmless(text: &[u8]) -> String {
    let dangerous = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    String::from_utf8_lossy(text).replace(dangerous, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(data: &[u8]) -> Detail {
        Notification::new(Code::ADMINISTRATIVE_SHUTDOWN, data).detail()
    }

    #[test]
    fn s80_every_registered_code_has_a_name_and_a_meaning_of_its_own() {
        assert!(Code::ALL.is_sorted());
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name().unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            let meaning = code.meaning().unwrap();
            assert!(meaning.len() > 10 && !meaning.ends_with('.'), "{code}");
        }
        let printed = |code, subcode| Code { code, subcode }.to_string();
        assert_eq!(printed(4, 0), "Hold Timer Expired (4/0)", "BG-13");
        assert_eq!(printed(6, 0), "Cease (6/0)");
        assert_eq!(printed(6, 9), "Hard Reset (6/9)");
        assert_eq!(printed(6, 10), "BFD Down (6/10)");
        assert_eq!(printed(7, 1), "Invalid Message Length (7/1)");
        assert_eq!(printed(7, 9), "ROUTE-REFRESH Message Error (7/9)");
        assert_eq!(printed(3, 77), "UPDATE Message Error (3/77)");
        assert_eq!(printed(99, 1), "unknown error (99/1)");
        assert!(!Code { code: 3, subcode: 77 }.is_registered());
    }

    #[test]
    fn bg_11_a_shutdown_communication() {
        let body = [6, 2, 5, b'm', b'a', b'i', b'n', b't'];
        let notification = Notification::decode(&body).unwrap();
        assert_eq!(notification.detail(), Detail::Text("maint".to_owned()));
        assert_eq!(notification.to_string(), "Administrative Shutdown (6/2): \"maint\"");
        assert_eq!(notification, Notification::with_text(Code::ADMINISTRATIVE_SHUTDOWN, "maint"));
        assert_eq!(notification.encode()[19..], body);
    }

    #[test]
    fn a_text_that_lies_about_its_length_is_none_and_one_that_harms_a_log_is_made_harmless() {
        assert_eq!(text(&[]), Detail::None);
        assert_eq!(text(&[0]), Detail::None);
        assert_eq!(text(&[6, b'm', b'a', b'i', b'n', b't']), Detail::None);
        assert_eq!(text(&[2, b'm', b'a', b'i']), Detail::Text("ma".to_owned()));
        assert_eq!(text(&[2, 0xff, b'!']), Detail::Text("\u{fffd}!".to_owned()));
        let evil = "a\nlevel=error\u{1b}[2J\u{202e}b\u{2066}\u{85}";
        let data = [&[u8::try_from(evil.len()).unwrap()][..], evil.as_bytes()].concat();
        assert_eq!(
            text(&data),
            Detail::Text("a\u{fffd}level=error\u{fffd}[2J\u{fffd}b\u{fffd}\u{fffd}".to_owned())
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "ä".repeat(200);
        let notification = Notification::with_text(Code::ADMINISTRATIVE_RESET, &long);
        assert_eq!(notification.data.len(), 255);
        assert_eq!(notification.detail(), Detail::Text("ä".repeat(127)));
        assert_eq!(
            Notification::with_text(Code::ADMINISTRATIVE_RESET, ""),
            Code::ADMINISTRATIVE_RESET.into()
        );
    }

    #[test]
    fn a_limit_of_prefixes_is_named() {
        let notification = Notification::prefix_limit(IpFamily::V4, 10);
        assert_eq!(notification.data, [0, 1, 1, 0, 0, 0, 10]);
        assert_eq!(notification.to_string(), "Maximum Number of Prefixes Reached (6/1): at most 10 of ipv4");
        assert_eq!(Notification::new(Code::MAXIMUM_PREFIXES, &[0, 1, 1, 0]).detail(), Detail::None);
        assert_eq!(
            Notification::new(Code::MAXIMUM_PREFIXES, &[0, 25, 70, 0, 0, 0, 1]).detail(),
            Detail::None
        );
    }

    #[test]
    fn a_hard_reset_names_its_reason() {
        let inner = Notification::with_text(Code::ADMINISTRATIVE_SHUTDOWN, "bye");
        let hard = Notification::new(Code::HARD_RESET, &inner.encode()[19..]);
        assert_eq!(hard.to_string(), "Hard Reset (6/9): Administrative Shutdown (6/2): \"bye\"");
        let nested = Notification::new(Code::HARD_RESET, &[6, 9].repeat(2000));
        assert_eq!(nested.to_string(), "Hard Reset (6/9): Hard Reset (6/9)");
        assert_eq!(nested.encode().len(), 19 + 2 + 4000);
        assert_eq!(Notification::new(Code::CEASE, &[1; 5000]).encode().len(), 4096);
    }
}
