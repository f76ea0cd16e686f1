// SPDX-License-Identifier: Apache-2.0
//! Messages: which there are, and reading one whose bytes are all there.

use ferrolb_net_types::IpFamily;
use thiserror::Error;

use super::cursor::Cursor;
use super::family::{UNICAST, afi, family};
use super::notification::{Code, Notification};
use super::open::{Open, OpenError};
use super::reader::HeaderError;
use super::received::{Received, UpdateError, read_update};
use super::update::Context;
use super::{Kind, begin, end};

/// A message, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// OPEN.
    Open(Open),
    /// UPDATE.
    Update(Received),
    /// NOTIFICATION.
    Notification(Notification),
    /// KEEPALIVE.
    Keepalive,
    /// ROUTE-REFRESH.
    RouteRefresh(RouteRefresh),
}

/// A ROUTE-REFRESH (RFC 2918): the sender wants all routes of a family again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRefresh {
    /// The address family's number.
    pub afi: u16,
    /// 0; RFC 7313, which nobody is offered here, has other subtypes in this place.
    pub subtype: u8,
    /// The subsequent address family's number.
    pub safi: u8,
}

/// Why a message is refused, and the session with it. [`MessageError::notification`] is what its sender is told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// An OPEN.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An UPDATE, beyond what RFC 7606 lets pass.
    #[error(transparent)]
    Update(#[from] UpdateError),
}

impl MessageError {
    /// The NOTIFICATION for it.
    #[must_use]
    pub fn notification(&self) -> Notification {
        match self {
            Self::Header(error) => error.notification(),
            Self::Open(error) => error.notification(),
            Self::Update(error) => error.notification(),
        }
    }
}

impl Message {
    /// Reads the body of a message whose header was checked.
    pub(crate) fn decode(kind: Kind, body: &[u8], context: &Context) -> Result<Self, MessageError> {
        // The shortest body of each type was asked for with the header.
        let short = || HeaderError::Length(u16::try_from(super::HEADER + body.len()).unwrap_or(u16::MAX));
        Ok(match kind {
            Kind::Open => Self::Open(Open::decode(body)?),
            Kind::Update => Self::Update(read_update(body, context)?),
            Kind::Notification => Self::Notification(Notification::decode(body).ok_or_else(short)?),
            Kind::Keepalive => Self::Keepalive,
            Kind::RouteRefresh => Self::RouteRefresh(RouteRefresh::decode(body).ok_or_else(short)?),
        })
    }
}

impl RouteRefresh {
    /// The wish for all routes of a family.
    #[must_use]
    pub const fn new(family: IpFamily) -> Self {
        Self { afi: afi(family), subtype: 0, safi: UNICAST }
    }

    /// The family, if it is one of ours and nothing else is meant.
    #[must_use]
    pub const fn family(&self) -> Option<IpFamily> {
        if self.subtype == 0 { family(self.afi, self.safi) } else { None }
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        let (afi, [subtype, safi]) = (cursor.u16()?, cursor.array()?);
        cursor.is_empty().then_some(Self { afi, subtype, safi })
    }

    /// The whole message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(23);
        let start = begin(&mut out, Kind::RouteRefresh);
        out.extend(self.afi.to_be_bytes());
        out.extend([self.subtype, self.safi]);
        end(&mut out, start);
        out
    }
}

/// A whole KEEPALIVE.
#[must_use]
pub fn keepalive() -> Vec<u8> {
    let mut out = Vec::with_capacity(super::HEADER);
    let start = begin(&mut out, Kind::Keepalive);
    end(&mut out, start);
    out
}

impl From<&MessageError> for Code {
    fn from(error: &MessageError) -> Self {
        error.notification().code
    }
}
