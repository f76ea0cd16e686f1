// SPDX-License-Identifier: Apache-2.0
//! A router for tests, on a loopback address: it accepts, reads whole messages, and says what it is told to say.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ferrolb_bgp::wire::{
    Code, Context, Families, HoldTime, Message, Notification, Open, Reader, RouterId, Update, keepalive,
};
use ferrolb_net_types::{Asn, IpFamily, Prefix};

/// Far beyond every bound: what is asserted is that it happens, not how fast.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Router {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
}

/// One of its connections.
pub(super) struct Talk {
    pub(super) stream: TcpStream,
    pub(super) from: IpAddr,
    reader: Reader,
    context: Context,
    unread: Vec<u8>,
}

/// What it heard of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Announced(Vec<Prefix>),
    /// With the community that says that it is about to go.
    AboutToGo(Vec<Prefix>),
    Withdrawn(Vec<Prefix>),
    EndOfRib,
    Notification(Notification),
    /// The connection is no more.
    Closed,
}

pub(super) const OWN: u32 = 64_512;
pub(super) const THEIRS: u32 = 64_513;

pub(super) fn asn(number: u32) -> Asn {
    Asn::new(number).unwrap()
}

impl Router {
    pub(super) fn on(address: &str) -> Self {
        let listener = TcpListener::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    /// The next connection.
    pub(super) fn accept(&self) -> Talk {
        self.listener.set_nonblocking(true).unwrap();
        let end = Instant::now() + PATIENCE;
        let (stream, from) = loop {
            match self.listener.accept() {
                Ok(accepted) => break accepted,
                Err(error) => assert!(Instant::now() < end, "nobody connects: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let context = Context { four_octet_as: true, internal: false, families: Families::BOTH };
        Talk { stream, from: from.ip(), reader: Reader::new(), context, unread: Vec::new() }
    }

    /// The next connection, with a session on it.
    pub(super) fn session(&self) -> Talk {
        let mut talk = self.accept();
        talk.agree();
        talk
    }
}

impl Talk {
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Says something to a peer that may have closed already; whether it had not.
    pub(super) fn try_say(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Takes the OPEN and answers it.
    pub(super) fn agree(&mut self) {
        self.agree_on(Families::BOTH);
    }

    /// Takes the OPEN and answers it with one that offers these families.
    pub(super) fn agree_on(&mut self, families: Families) {
        assert!(matches!(self.read(), Some(Message::Open(_))));
        let id = RouterId::new("192.0.2.1".parse().unwrap()).unwrap();
        let hold = HoldTime::seconds(90).unwrap();
        let open = Open::new(asn(THEIRS), hold, id, families, Vec::new());
        self.say(&[open.encode(), keepalive()].concat());
    }

    /// The next message; none once the connection is closed.
    pub(super) fn read(&mut self) -> Option<Message> {
        loop {
            let mut rest = &self.unread[..];
            let message = self.reader.read(&mut rest, &self.context).unwrap();
            self.unread = rest.to_vec();
            if message.is_some() {
                return message;
            }
            let mut buffer = [0; 65_536];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.unread.extend(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing is said: {error}"),
            }
        }
    }

    /// The next thing that is not a KEEPALIVE.
    pub(super) fn hear(&mut self) -> Heard {
        loop {
            match self.read() {
                None => return Heard::Closed,
                Some(Message::Keepalive) => {}
                Some(Message::Notification(notification)) => return Heard::Notification(notification),
                Some(Message::Update(received)) => {
                    let [update] = &received.updates[..] else { panic!("{received:?}") };
                    return match update {
                        // Offered, as MetalLB does, and never used by its defaults.
                        Update::EndOfRib(IpFamily::V6) => continue,
                        Update::EndOfRib(IpFamily::V4) => Heard::EndOfRib,
                        Update::Withdraw(prefixes) => Heard::Withdrawn(prefixes.as_slice().to_vec()),
                        Update::Announce(announce) => {
                            let gone = ferrolb_bgp::wire::Community::GRACEFUL_SHUTDOWN;
                            let prefixes = announce.prefixes().to_vec();
                            if announce.attributes().communities.contains(&gone) {
                                Heard::AboutToGo(prefixes)
                            } else {
                                Heard::Announced(prefixes)
                            }
                        }
                    };
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    /// The code of the last message, as bytes: what came before may have another form than the reader's.
    pub(super) fn last_code(&mut self) -> Option<Code> {
        let mut all = std::mem::take(&mut self.unread);
        let _ = self.stream.read_to_end(&mut all);
        let mut last = None;
        let mut rest = &all[..];
        while let Some((header, _)) = rest.split_at_checked(19) {
            let (message, behind) = rest.split_at(u16::from_be_bytes([header[16], header[17]]).into());
            last = (header[18] == 3).then(|| Code { code: message[19], subcode: message[20] });
            rest = behind;
        }
        last
    }

    /// Whatever is said until the connection ends: its NOTIFICATION, if there is one.
    pub(super) fn last_word(&mut self) -> Option<Notification> {
        let mut last = None;
        loop {
            match self.hear() {
                Heard::Closed => return last,
                Heard::Notification(notification) => last = Some(notification),
                _ => {}
            }
        }
    }
}
