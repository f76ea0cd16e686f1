// SPDX-License-Identifier: Apache-2.0
//! The connections of a session: at most one that it dialled and one that it accepted.

use super::connection::Connection;
use super::{ConnectionId, State};

#[derive(Debug, Default)]
pub(super) struct Connections {
    dialled: Option<Connection>,
    accepted: Option<Connection>,
}

impl Connections {
    /// Adds a connection, in place of one of its kind.
    pub(super) fn add(&mut self, connection: Connection) {
        self.slot(connection.id).replace(connection);
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.slot(id).as_mut().filter(|connection| connection.id == id)
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        self.slot(id).take_if(|connection| connection.id == id);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        [&self.dialled, &self.accepted].into_iter().flatten()
    }

    pub(super) fn ids(&self) -> Vec<ConnectionId> {
        self.iter().map(|connection| connection.id).collect()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.dialled.is_none() && self.accepted.is_none()
    }

    /// Whether there is one of this one's kind.
    pub(super) const fn has_like(&self, id: ConnectionId) -> bool {
        match id {
            ConnectionId::Dialled(_) => self.dialled.is_some(),
            ConnectionId::Accepted(_) => self.accepted.is_some(),
        }
    }

    /// The one of the other kind.
    pub(super) const fn rival(&self, id: ConnectionId) -> Option<&Connection> {
        match id {
            ConnectionId::Dialled(_) => self.accepted.as_ref(),
            ConnectionId::Accepted(_) => self.dialled.as_ref(),
        }
    }

    /// The one that has come furthest.
    pub(super) fn furthest(&self) -> Option<&Connection> {
        self.iter().max_by_key(|connection| connection.state())
    }

    pub(super) fn established(&self) -> Option<ConnectionId> {
        self.furthest()
            .filter(|connection| connection.state() == State::Established)
            .map(|connection| connection.id)
    }

    const fn slot(&mut self, id: ConnectionId) -> &mut Option<Connection> {
        match id {
            ConnectionId::Dialled(_) => &mut self.dialled,
            ConnectionId::Accepted(_) => &mut self.accepted,
        }
    }
}
