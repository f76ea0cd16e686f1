// SPDX-License-Identifier: Apache-2.0
//! A thread with one session and its socket: all that the engine needs of the world.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ferrolb_bgp::{
    Close, ConnectionId, Down, Goodbye, Input, Local, NextHops, Notice, Output, Route, Session, Settings,
    State,
};
use ferrolb_net_types::{Prefix, Time};
use socket2::{Domain, Socket, Type};

/// A change of what is wanted.
pub(crate) type Change = (Prefix, Option<Arc<Route>>);

/// What the thread is asked to do.
pub(crate) enum Ask {
    Routes(Vec<Change>),
    Stop(Goodbye),
}

/// What has been seen of the session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) established: bool,
    pub(crate) sessions: usize,
    pub(crate) told: usize,
    pub(crate) settled: bool,
    pub(crate) downs: Vec<Down>,
    pub(crate) received_refreshes: u64,
    pub(crate) stopped: bool,
}

pub(crate) struct Shell {
    asks: Sender<Ask>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

impl Shell {
    /// A session from one address to another. Routes lead elsewhere: nobody takes a loopback address for a next hop.
    pub(crate) fn start(from: SocketAddr, to: SocketAddr, next_hops: NextHops, settings: Settings) -> Self {
        let (asks, inbox) = channel();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let local = Local { next_hops, ..Local::new(from.ip(), &[], None, "node1") };
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let session = Session::new(Time::ZERO, settings, 7);
            Runner { start, session, wire: None, from, to, local, seen: shared }.run(&inbox);
        });
        Self { asks, seen, thread: Some(thread) }
    }

    pub(crate) fn ask(&self, ask: Ask) {
        self.asks.send(ask).unwrap();
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.asks.send(Ask::Stop(Goodbye::deconfigured()));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Runner {
    start: Instant,
    session: Session,
    wire: Option<(ConnectionId, TcpStream, Vec<u8>)>,
    from: SocketAddr,
    to: SocketAddr,
    local: Local,
    seen: Arc<Mutex<Seen>>,
}

impl Runner {
    fn run(mut self, inbox: &Receiver<Ask>) {
        while !self.seen.lock().unwrap().stopped {
            self.drain();
            for ask in inbox.try_iter() {
                match ask {
                    Ask::Routes(changes) => self.input(Input::Routes(&changes)),
                    Ask::Stop(goodbye) => self.input(Input::Stop(goodbye)),
                }
            }
            self.read();
            self.write();
            if let Some((connection, ..)) = self.wire {
                // These routers read.
                self.input(Input::Unacknowledged { connection, bytes: 0 });
            }
            let now = self.now();
            self.session.handle_timeout(now);
            self.note();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn now(&self) -> Time {
        Time::after(self.start.elapsed())
    }

    fn input(&mut self, input: Input<'_>) {
        let now = self.now();
        self.session.handle(now, input);
    }

    fn note(&self) {
        let (status, mut seen) = (self.session.status(), self.seen.lock().unwrap());
        seen.established = status.state == State::Established;
        (seen.told, seen.settled) = (status.told, status.settled);
        seen.received_refreshes = self.session.counters().received.route_refreshes;
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Connect(connection) => self.connect(connection),
                Output::Send { connection, bytes } => {
                    if let Some((_, _, unwritten)) = self.wire.as_mut().filter(|wire| wire.0 == connection) {
                        unwritten.extend(bytes);
                    }
                }
                Output::Close { connection, how } => {
                    if let Some((_, mut stream, unwritten)) = self.wire.take_if(|wire| wire.0 == connection)
                        && how == Close::AfterWriting
                    {
                        stream.set_nonblocking(false).unwrap();
                        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
                        let _ = stream.write_all(&unwritten);
                    }
                }
                Output::State { to, .. } => {
                    self.seen.lock().unwrap().sessions += usize::from(to == State::Established);
                }
                Output::Notice(Notice::Down { down, .. }) => self.seen.lock().unwrap().downs.push(down),
                Output::Notice(notice) => eprintln!("notice: {notice:?}"),
                Output::Stopped => self.seen.lock().unwrap().stopped = true,
            }
        }
    }

    fn connect(&mut self, connection: ConnectionId) {
        let connect = || {
            let socket = Socket::new(Domain::for_address(self.to), Type::STREAM, None)?;
            socket.bind(&self.from.into())?;
            socket.connect_timeout(&self.to.into(), Duration::from_secs(2))?;
            let stream = TcpStream::from(socket);
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            std::io::Result::Ok(stream)
        };
        match connect() {
            Ok(stream) => {
                self.wire = Some((connection, stream, Vec::new()));
                self.input(Input::Connected { connection, local: self.local });
            }
            Err(error) => self.input(Input::ConnectFailed { connection, error: error.to_string() }),
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        let Some((connection, stream, _)) = &mut self.wire else { return };
        let connection = *connection;
        let error = match stream.read(&mut buffer) {
            Ok(0) => None,
            Ok(count) => return self.input(Input::Received { connection, bytes: &buffer[..count] }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => Some(error.to_string()),
        };
        self.wire = None;
        self.input(Input::Closed { connection, error });
    }

    fn write(&mut self) {
        self.drain();
        let Some((connection, stream, unwritten)) = &mut self.wire else { return };
        if unwritten.is_empty() {
            return;
        }
        let connection = *connection;
        match stream.write(unwritten) {
            Ok(count) => {
                unwritten.drain(..count);
                self.input(Input::Written { connection, bytes: count });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // What it still had to say is read first.
            Err(_) => {}
        }
    }
}
