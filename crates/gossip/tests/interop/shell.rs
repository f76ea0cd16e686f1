// SPDX-License-Identifier: Apache-2.0
//! A member of ours with real sockets and a real clock: one thread for the engine, one for each thing that blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::spawn;
use std::time::{Duration, Instant};

use ferrolb_gossip::wire::{Codec, StreamMessage, StreamReader};
use ferrolb_gossip::{Change, Engine, Input, Name, Output, Settings, StreamFailure, StreamId};
use ferrolb_net_types::Time;

enum Event {
    Datagram(SocketAddr, Vec<u8>),
    Accepted(u64, TcpStream, SocketAddr),
    Connected(StreamId),
    Said(StreamId, Result<StreamMessage, StreamFailure>),
    Closed(StreamId),
    Ask(Ask),
}

pub(crate) enum Ask {
    Join(Vec<SocketAddr>),
    Candidates(Vec<SocketAddr>),
    Participate,
    Metadata(Vec<u8>),
    Leave,
    /// Let nothing pass, in neither direction, or again everything.
    Isolate(bool),
    Stop,
}

/// What a test looks at.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) members: BTreeSet<Name>,
    pub(crate) changes: Vec<(Change, Name)>,
    pub(crate) left: bool,
}

pub(crate) struct Shell {
    events: Sender<Event>,
    pub(crate) view: Arc<Mutex<View>>,
}

impl Shell {
    pub(crate) fn start(settings: Settings) -> Self {
        let address = settings.address;
        let udp = UdpSocket::bind(address).unwrap();
        let tcp = TcpListener::bind(address).unwrap();
        let (events, received) = channel();
        let (socket, datagrams) = (udp.try_clone().unwrap(), events.clone());
        spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok((length, source)) = socket.recv_from(&mut buffer) {
                if datagrams.send(Event::Datagram(source, buffer[..length].to_vec())).is_err() {
                    return;
                }
            }
        });
        let streams = events.clone();
        spawn(move || {
            for (number, stream) in tcp.incoming().flatten().enumerate() {
                let Ok(source) = stream.peer_addr() else { continue };
                if streams.send(Event::Accepted(number as u64, stream, source)).is_err() {
                    return;
                }
            }
        });
        let view = Arc::new(Mutex::new(View::default()));
        let owner = Owner {
            codec: settings.codec.clone(),
            udp,
            events: events.clone(),
            view: view.clone(),
            accepted: BTreeMap::new(),
            isolated: false,
            nonces: 0,
            began: Instant::now(),
        };
        spawn(move || owner.run(settings, &received));
        Self { events, view }
    }

    pub(crate) fn ask(&self, ask: Ask) {
        // An engine that has stopped needs nothing any more.
        let _gone = self.events.send(Event::Ask(ask));
    }

    pub(crate) fn members(&self) -> BTreeSet<Name> {
        self.view.lock().unwrap().members.clone()
    }
}

struct Owner {
    codec: Codec,
    udp: UdpSocket,
    events: Sender<Event>,
    view: Arc<Mutex<View>>,
    accepted: BTreeMap<StreamId, TcpStream>,
    isolated: bool,
    nonces: u64,
    began: Instant,
}

impl Owner {
    fn now(&self) -> Time {
        Time::after(self.began.elapsed())
    }

    /// Of a test only: unique within this process is enough.
    fn nonce(&mut self) -> [u8; 12] {
        self.nonces += 1;
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&std::process::id().to_be_bytes());
        nonce[4..].copy_from_slice(&self.nonces.to_be_bytes());
        nonce
    }

    fn run(mut self, settings: Settings, received: &Receiver<Event>) {
        // Of a test only: no two members of one run have the same.
        let mut seed = [0; 32];
        let unique = format!("{} {}", settings.address, std::process::id());
        seed.iter_mut().zip(unique.bytes()).for_each(|(seed, byte)| *seed = byte);
        let mut engine = Engine::new(self.now(), settings, seed);
        loop {
            while let Some(output) = engine.poll() {
                self.act(output);
            }
            self.view.lock().unwrap().members = engine
                .members()
                .filter(|member| member.is_usable())
                .map(|member| member.name.clone())
                .collect();
            let wait =
                engine.next_deadline().map_or(Duration::from_secs(1), |deadline| deadline - self.now());
            match received.recv_timeout(wait) {
                Ok(Event::Ask(Ask::Stop)) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(event) => self.take(&mut engine, event),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if engine.next_deadline().is_some_and(|deadline| deadline <= self.now()) {
                engine.handle_timeout(self.now());
            }
        }
    }

    fn take(&mut self, engine: &mut Engine, event: Event) {
        let now = self.now();
        match event {
            Event::Datagram(source, bytes) if !self.isolated => {
                engine.handle(now, Input::Datagram { source, bytes: &bytes });
            }
            Event::Datagram(..) => {}
            // The operating system has opened it, but nothing is ever said on it.
            Event::Accepted(_, stream, _) if self.isolated => {
                spawn(move || {
                    std::thread::park_timeout(Duration::from_secs(30));
                    drop(stream);
                });
            }
            Event::Accepted(number, stream, source) => {
                engine.handle(now, Input::Accepted { stream: number, source });
                let id = StreamId::Accepted(number);
                let (codec, events) = (self.codec.clone(), self.events.clone());
                if let Ok(reading) = stream.try_clone() {
                    self.accepted.insert(id, stream);
                    spawn(move || {
                        events.send(Event::Said(id, read(reading, &codec, StreamReader::accepted())))
                    });
                }
            }
            Event::Connected(stream) => engine.handle(now, Input::Connected(stream)),
            Event::Said(stream, Ok(message)) => engine.handle(now, Input::Received { stream, message }),
            Event::Said(stream, Err(failure)) => engine.handle(now, Input::Failed { stream, failure }),
            Event::Closed(stream) => engine.handle(now, Input::Closed(stream)),
            Event::Ask(ask) => match ask {
                Ask::Join(addresses) => engine.handle(now, Input::Join(&addresses)),
                Ask::Candidates(addresses) => engine.handle(now, Input::Candidates(&addresses)),
                Ask::Participate => engine.handle(now, Input::Participate),
                Ask::Metadata(meta) => engine.handle(now, Input::Metadata(&meta)),
                Ask::Leave => engine.handle(now, Input::Leave { within: Duration::from_secs(1) }),
                Ask::Isolate(isolated) => self.isolated = isolated,
                Ask::Stop => {}
            },
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Datagram { to, bytes } if !self.isolated => {
                // A datagram that cannot be sent is one that is lost.
                let _lost = self.udp.send_to(&bytes, to);
            }
            Output::Open { stream, to, message } if !self.isolated => {
                let nonce = self.nonce();
                let bytes = self.codec.stream(&message, true, &nonce);
                let (codec, events) = (self.codec.clone(), self.events.clone());
                spawn(move || {
                    let opened = TcpStream::connect_timeout(&to, Duration::from_secs(10));
                    let said = match opened.and_then(|mut opened| opened.write_all(&bytes).map(|()| opened)) {
                        Ok(opened) => {
                            events.send(Event::Connected(stream)).ok();
                            read(opened, &codec, StreamReader::dialled())
                        }
                        Err(error) => Err(StreamFailure::Connection(error.to_string())),
                    };
                    events.send(Event::Said(stream, said))
                });
            }
            Output::Answer { stream, message } => {
                let nonce = self.nonce();
                let bytes = self.codec.stream(&message, false, &nonce);
                if let Some(mut accepted) = self.accepted.remove(&stream) {
                    accepted.write_all(&bytes).ok();
                }
                self.events.send(Event::Closed(stream)).ok();
            }
            Output::Close(stream) => drop(self.accepted.remove(&stream)),
            Output::Member { change, member } => {
                self.view.lock().unwrap().changes.push((change, member.name))
            }
            Output::Left => self.view.lock().unwrap().left = true,
            _ => {}
        }
    }
}

fn read(
    mut stream: TcpStream,
    codec: &Codec,
    mut reader: StreamReader,
) -> Result<StreamMessage, StreamFailure> {
    let mut buffer = [0; 8192];
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok();
    loop {
        let length =
            stream.read(&mut buffer).map_err(|error| StreamFailure::Connection(error.to_string()))?;
        if length == 0 {
            return Err(reader.ended().into());
        }
        if let Some(message) = reader.push(codec, &buffer[..length])? {
            return Ok(message);
        }
    }
}
