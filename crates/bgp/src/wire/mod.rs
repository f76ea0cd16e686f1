// SPDX-License-Identifier: Apache-2.0
//! What two BGP speakers say to each other, in bytes.
//!
//! ```text
//!   stream ──► Reader ──► Message ─┬─ Open          who am I, what can I do
//!                                  ├─ Update        routes: announced, withdrawn, all told
//!   bytes  ◄── encode, announce, ──┼─ Notification  why this ends
//!              withdraw            ├─ Keepalive
//!                                  └─ RouteRefresh  say it all again
//! ```
//!
//! What is read is read to the letter of the RFCs: a fault is a typed error that knows the NOTIFICATION it earns, and
//! in an UPDATE one that costs no more than RFC 7606 says. What is written has the form that MetalLB's has, with as
//! many prefixes in a message as fit.

mod attribute;
mod capability;
mod community;
mod cursor;
mod family;
mod message;
mod nlri;
mod notification;
mod open;
mod pack;
mod path;
mod reader;
mod received;
mod update;

pub use attribute::{Attributes, Origin, OtherAttribute};
pub use capability::{Capability, GracefulRestart, OtherCapability};
pub use community::{Community, ExtendedCommunity, LargeCommunity};
pub use family::Families;
pub use message::{Message, MessageError, RouteRefresh, keepalive};
pub use notification::{Code, Detail, MAX_TEXT, Notification};
pub use open::{HoldTime, HoldTimeError, Open, OpenError, RouterId};
pub use pack::{AttributeBlock, TooLong, announce, end_of_rib, withdraw};
pub use path::{AsPath, Segment, SegmentKind};
pub use reader::{HeaderError, Reader};
pub use received::{Fault, FaultKind, Received, Treatment, UpdateError};
pub use update::{Announce, Context, NextHop, Prefixes, Update};

/// The length of a message's header: marker, length, type.
pub const HEADER: usize = 19;
/// The longest message there is (RFC 4271, section 4.1). The longer ones of RFC 8654 are never offered.
pub const MAX_LENGTH: u16 = 4096;

const MARKER: [u8; 16] = [0xff; 16];

/// The types of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Open = 1,
    Update = 2,
    Notification = 3,
    Keepalive = 4,
    RouteRefresh = 5,
}

/// Begins a message: its header, with a length that [`end`] corrects. Gives the place where it begins.
pub(crate) fn begin(out: &mut Vec<u8>, kind: Kind) -> usize {
    let start = out.len();
    out.extend(MARKER);
    out.extend([0, 0, kind as u8]);
    start
}

/// Ends the message that began at this place.
pub(crate) fn end(out: &mut [u8], start: usize) {
    // Whoever writes a message keeps it below 4,096 bytes.
    let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    debug_assert!(length <= MAX_LENGTH);
    out[start + 16..start + 18].copy_from_slice(&length.to_be_bytes());
}
