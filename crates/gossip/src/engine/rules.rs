// SPDX-License-Identifier: Apache-2.0
//! What a word about a member changes. Numbers decide: an incarnation is counted up by its member alone.

use ferrolb_net_types::Time;

use super::{Change, Engine, MAX_MEMBERS, Notice, Output};
use crate::member::Member;
use crate::name::Name;
use crate::settings::{MAX_META, Role};
use crate::suspicion::Suspicion;
use crate::wire::{Accusation, Alive, Message, State};

/// Bytes that a name may have; Kubernetes' have 253.
const MAX_NAME: usize = 512;

impl Engine {
    /// Somebody says that a member is alive.
    pub(super) fn word_alive(&mut self, now: Time, alive: Alive) {
        let own = alive.node == self.settings.name;
        if own && self.has_left {
            return;
        }
        let Some(versions) = sensible_versions(&alive) else {
            self.counters.senseless += 1;
            return;
        };
        if own && self.role == Role::Reader {
            self.heard_of_own(alive.incarnation);
            return;
        }
        let port = if alive.port == 0 { self.settings.address.port() } else { alive.port };
        let known = self.members.get(&alive.node);
        let known_state = known.map(|member| member.state);
        let mut moved = false;
        match known {
            None if alive.incarnation == 0 || self.members.len() >= MAX_MEMBERS => return,
            None => {}
            Some(member) => {
                if member.address != alive.address || member.port != port {
                    let reclaim = self.settings.reclaim;
                    moved = match member.state {
                        State::Left => true,
                        State::Dead => !reclaim.is_zero() && now - member.changed > reclaim,
                        State::Alive | State::Suspect => false,
                    };
                    if !moved {
                        self.notice(now, Notice::Conflict { name: alive.node, claimed: alive.address });
                        return;
                    }
                }
                let old = if own {
                    alive.incarnation < member.incarnation
                } else {
                    alive.incarnation <= member.incarnation
                };
                if old && (own || !moved) {
                    let differs = member.meta.as_deref().unwrap_or_default()
                        != alive.meta.as_deref().unwrap_or_default();
                    if !own && (differs || !member.is_usable()) {
                        let held = member.clone();
                        self.tell_what_is_held(&held);
                    }
                    return;
                }
            }
        }
        self.suspicions.remove(&alive.node);
        if own {
            let same = known_same(self.members.get(&alive.node), &alive, versions);
            if !same {
                self.refute(alive.incarnation);
            }
            return;
        }
        let fresh = Member {
            name: alive.node.clone(),
            address: alive.address.clone(),
            port,
            meta: alive.meta.clone(),
            versions,
            incarnation: alive.incarnation,
            state: State::Alive,
            changed: now,
        };
        let change = match self.members.get_mut(&alive.node) {
            None => {
                self.members.insert(fresh.clone(), &mut self.random);
                Some(Change::Joined)
            }
            Some(member) => {
                let before = std::mem::replace(member, fresh.clone());
                match before.state {
                    State::Dead | State::Left => Some(Change::Joined),
                    State::Alive | State::Suspect => {
                        if before.state == State::Alive {
                            member.changed = before.changed;
                        }
                        // None and empty mean the same; they only travel differently.
                        let differs =
                            before.meta.unwrap_or_default() != alive.meta.clone().unwrap_or_default();
                        differs.then_some(Change::Updated)
                    }
                }
            }
        };
        self.broadcast(&fresh.name, &Message::Alive(alive));
        if change == Some(Change::Joined)
            && let Some(address) = fresh.socket()
        {
            self.reunion.found(address);
        }
        if matches!(known_state, Some(State::Suspect | State::Dead)) {
            self.back(now, &fresh);
        }
        if let Some(change) = change {
            self.outputs.push_back(Output::Member { change, member: fresh });
        }
    }

    /// Somebody says that a member does not answer.
    pub(super) fn word_suspect(&mut self, now: Time, word: &Accusation) {
        if word.node == self.settings.name && self.role == Role::Reader {
            self.heard_of_own(word.incarnation);
            return;
        }
        let Some(member) = self.members.get(&word.node) else { return };
        if word.incarnation < member.incarnation {
            self.reunion.refuted |= word.node == self.settings.name;
            return;
        }
        if let Some(suspicion) = self.suspicions.get_mut(&word.node) {
            if suspicion.join(&word.from) {
                self.broadcast(&word.node, &Message::Suspect(word.clone()));
            }
            return;
        }
        if member.state != State::Alive {
            return;
        }
        if word.node == self.settings.name {
            self.refute(word.incarnation);
            return;
        }
        self.broadcast(&word.node, &Message::Suspect(word.clone()));
        let suspicion = Suspicion::start(now, &self.settings.profile, self.members.len(), word.from.clone());
        self.suspicions.insert(word.node.clone(), suspicion);
        if let Some(member) = self.members.get_mut(&word.node) {
            member.incarnation = word.incarnation;
            member.state = State::Suspect;
            member.changed = now;
        }
    }

    /// Somebody says that a member is dead, or it says itself that it leaves.
    pub(super) fn word_dead(&mut self, now: Time, word: &Accusation) {
        if word.node == self.settings.name && self.role == Role::Reader {
            self.heard_of_own(word.incarnation);
            return;
        }
        let Some(member) = self.members.get(&word.node) else { return };
        if word.incarnation < member.incarnation {
            self.reunion.refuted |= word.node == self.settings.name;
            return;
        }
        self.suspicions.remove(&word.node);
        if !member.is_usable() {
            return;
        }
        if word.node == self.settings.name {
            // Not leaving: then it would not count as usable any more.
            self.refute(word.incarnation);
            return;
        }
        self.broadcast(&word.node, &Message::Dead(word.clone()));
        let by_itself = word.from == word.node;
        if by_itself {
            self.pass_on_goodbye(word);
        }
        let Some(member) = self.members.get_mut(&word.node) else { return };
        member.incarnation = word.incarnation;
        member.state = if by_itself { State::Left } else { State::Dead };
        member.changed = now;
        let member = member.clone();
        let change = if by_itself { Change::Left } else { Change::Died { accuser: word.from.clone() } };
        // A host that was renamed has another member by now.
        let lost = member.socket().filter(|address| {
            !by_itself
                && !self.members.iter().any(|other| other.is_usable() && other.socket() == Some(*address))
        });
        if let Some(address) = lost {
            self.reunion.lost(address);
        }
        self.outputs.push_back(Output::Member { change, member });
    }

    /// Declares dead whom nobody has spoken for in time.
    pub(super) fn expire_suspicions(&mut self, now: Time) {
        let over: Vec<Name> = self
            .suspicions
            .iter()
            .filter(|(_, suspicion)| suspicion.deadline() <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for node in over {
            self.suspicions.remove(&node);
            let Some(member) = self.members.get(&node) else { continue };
            if member.state == State::Suspect {
                let (incarnation, from) = (member.incarnation, self.settings.name.clone());
                self.word_dead(now, &Accusation { incarnation, node, from });
            }
        }
    }

    /// Says that it is alive, above what was said against it.
    fn refute(&mut self, incarnation: u32) {
        let next = self.incarnation.map_or(1, |own| own.saturating_add(1));
        let next = if incarnation >= next { incarnation.saturating_add(1) } else { next };
        self.incarnation = Some(next);
        if let Some(member) = self.members.get_mut(&self.settings.name) {
            member.incarnation = next;
        }
        self.change_health(1);
        self.reunion.refuted = true;
        self.announce_own();
    }

    /// What is said of a reader is remembered, so that it can enter above it.
    fn heard_of_own(&mut self, incarnation: u32) {
        self.incarnation = Some(self.incarnation.map_or(incarnation, |known| known.max(incarnation)));
    }

    /// Queues the own word.
    pub(super) fn announce_own(&mut self) {
        let name = self.settings.name.clone();
        if let Some(alive) = self.own_alive() {
            self.broadcast(&name, &alive);
        }
    }

    /// The own word, unless this is a reader or has left.
    pub(super) fn own_alive(&self) -> Option<Message> {
        self.members.get(&self.settings.name).filter(|own| own.is_usable()).map(word_of)
    }

    pub(super) fn announce_dead(&mut self, incarnation: u32, node: &Name, from: &Name) {
        let word = Accusation { incarnation, node: node.clone(), from: from.clone() };
        self.broadcast(node, &Message::Dead(word));
    }

    /// Queues news. A reader spreads none: it would speak as somebody who is not there.
    fn broadcast(&mut self, about: &Name, message: &Message) {
        if self.role == Role::Member {
            self.news.push(about, message.encode());
        }
    }
}

/// That a member lives, as it is held to.
pub(super) fn word_of(member: &Member) -> Message {
    Message::Alive(Alive {
        incarnation: member.incarnation,
        node: member.name.clone(),
        address: member.address.clone(),
        port: member.port,
        meta: member.meta.clone(),
        versions: Some(member.versions.to_vec()),
    })
}

/// The versions of a word that can be true. What lacks some would make every exchange fail, for everybody.
fn sensible_versions(alive: &Alive) -> Option<[u8; 6]> {
    let versions: [u8; 6] = *alive.versions.as_deref()?.first_chunk()?;
    let [least, most, ..] = versions;
    let sensible = least != 0
        && most != 0
        && least <= most
        && matches!(alive.address.len(), 4 | 16)
        && !alive.node.is_empty()
        && alive.node.as_bytes().len() <= MAX_NAME
        && alive.meta.as_ref().is_none_or(|meta| meta.len() <= MAX_META);
    sensible.then_some(versions)
}

/// Whether a word about oneself says just what one has said.
fn known_same(own: Option<&Member>, alive: &Alive, versions: [u8; 6]) -> bool {
    own.is_some_and(|own| {
        alive.incarnation == own.incarnation
            && versions == own.versions
            && alive.meta.as_deref().unwrap_or_default() == own.meta.as_deref().unwrap_or_default()
    })
}
