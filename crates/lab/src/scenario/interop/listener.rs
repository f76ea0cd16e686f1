// SPDX-License-Identifier: Apache-2.0
//! A peer of our own, for what no router does: it changes the password of a connection that is there.
//!
//! It waits for one node, says who it is, answers KEEPALIVE with KEEPALIVE, and counts what it hears.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ferrolb_bgp::wire::{Context, Families, Message, Open, Reader, RouterId, keepalive};
use ferrolb_linux::{Namespace, tcp};
use ferrolb_net_types::Asn;

use super::super::conversation::PORT;

/// What it has heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Connections on which both had said who they are.
    pub(super) sessions: u32,
    /// KEEPALIVEs of the session that is there.
    pub(super) keepalives: u32,
    /// Routes that were announced in it.
    pub(super) announced: usize,
}

/// The peer. It ends with the value.
pub(super) struct Listener {
    shared: Arc<Shared>,
    _thread: JoinHandle<()>,
}

struct Shared {
    end: AtomicBool,
    heard: Mutex<Heard>,
    /// To be taken by the connection that is there, and those to come.
    password: Mutex<Option<Vec<u8>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listener {
    /// Begins to wait at `own` in a namespace for `node`, which has to know the password.
    pub(super) fn start(namespace: &Namespace, own: IpAddr, node: IpAddr, password: &str) -> Result<Self> {
        let listener = namespace.run(|| TcpListener::bind((own, PORT)))?;
        let listener = listener.with_context(|| format!("listen on {own}"))?;
        listener.set_nonblocking(true)?;
        tcp::set_password(&listener, node, password.as_bytes())?;
        let shared = Arc::new(Shared {
            end: AtomicBool::new(false),
            heard: Mutex::default(),
            password: Mutex::default(),
        });
        let mut peer = Peer { listener, node, connection: None, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("listener".to_owned());
        let thread = thread.spawn(move || {
            while !peer.shared.end.load(Ordering::Relaxed) {
                if let Err(error) = peer.turn() {
                    tracing::info!(error = format!("{error:#}"), "the connection ended");
                    peer.connection = None;
                }
                std::thread::sleep(TURN);
            }
        })?;
        Ok(Self { shared, _thread: thread })
    }

    /// Goes on with another password.
    pub(super) fn change_password(&self, password: &str) {
        *lock(&self.shared.password) = Some(password.as_bytes().to_vec());
    }

    /// What it has heard so far.
    pub(super) fn heard(&self) -> Heard {
        *lock(&self.shared.heard)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
    }
}

struct Peer {
    listener: TcpListener,
    node: IpAddr,
    connection: Option<Connection>,
    shared: Arc<Shared>,
}

struct Connection {
    stream: TcpStream,
    reader: Reader,
}

impl Peer {
    fn turn(&mut self) -> Result<()> {
        if let Some(password) = lock(&self.shared.password).take() {
            tcp::set_password(&self.listener, self.node, &password)?;
            if let Some(connection) = &self.connection {
                tcp::set_password(&connection.stream, self.node, &password)?;
            }
        }
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                self.connection = Some(Connection { stream, reader: Reader::new() });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("accept"),
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        for message in connection.read()? {
            let mut heard = lock(&self.shared.heard);
            match message {
                Message::Open(open) => {
                    *heard = Heard { sessions: heard.sessions, ..Heard::default() };
                    connection.stream.write_all(&[answer(&open)?, keepalive()].concat())?;
                }
                Message::Keepalive => {
                    // The first one ends the greeting, which has been answered.
                    if heard.keepalives == 0 {
                        heard.sessions += 1;
                    } else {
                        connection.stream.write_all(&keepalive())?;
                    }
                    heard.keepalives += 1;
                }
                Message::Update(received) => heard.announced += received.updates.len(),
                Message::Notification(told) => tracing::info!(%told, "the node ends the session"),
                Message::RouteRefresh(_) => {}
            }
        }
        Ok(())
    }
}

/// Who it is, to whom has said who he is.
fn answer(open: &Open) -> Result<Vec<u8>> {
    let own = RouterId::new(super::LISTENER).context("an identifier")?;
    let asn = Asn::new(super::Case::Password.router_as()).context("a system")?;
    Ok(Open::new(asn, open.hold_time, own, Families::BOTH, Vec::new()).encode())
}

impl Connection {
    /// The messages that are whole.
    fn read(&mut self) -> Result<Vec<Message>> {
        let context = Context { families: Families::BOTH, ..Context::default() };
        let (mut buffer, mut messages) = ([0; 4096], Vec::new());
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the node has closed it"),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            let mut rest = buffer.get(..count).unwrap_or_default();
            while let Some(message) = self.reader.read(&mut rest, &context)? {
                messages.push(message);
            }
        }
        Ok(messages)
    }
}

/// How often it looks at its sockets.
const TURN: Duration = Duration::from_millis(10);
