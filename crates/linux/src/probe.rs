// SPDX-License-Identifier: Apache-2.0
//! Asks by ARP and measures the answers with the kernel's time stamps; listens to what others say.
//!
//! The time of an answer is that between the request leaving and the reply arriving, both as the kernel saw
//! them at the interface: what the asking program itself costs is not in it.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ferrolb_net_types::{IfIndex, Mac};

use crate::error::{Attempt, Error, Result};
use crate::inspect::{self, Interface};
use crate::netlink::Netlink;
use crate::packet::{Frames, PacketSocket};
use crate::poll::Poller;

/// Hears every ARP frame, or every one of Neighbor Discovery, of one interface, incoming and outgoing.
#[derive(Debug)]
pub struct Listener {
    socket: PacketSocket,
    poller: Poller,
}

/// A frame that passed the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When, by the kernel's clock, since 1970.
    pub at: Duration,
    /// Whether it went out.
    pub outgoing: bool,
    /// Its bytes, at most the first 128.
    pub frame: Vec<u8>,
}

/// Asks who has an address.
#[derive(Debug)]
pub struct Prober {
    listener: Listener,
    sender: PacketSocket,
    mac: Mac,
    source: Ipv4Addr,
}

/// Asks who has an address while much else passes: it hears the answers alone, and measures nothing.
#[derive(Debug)]
pub struct Caller {
    answers: PacketSocket,
    poller: Poller,
    mac: Mac,
    source: Ipv4Addr,
}

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// From the request leaving to the answer arriving.
    pub elapsed: Duration,
    /// The hardware address it gives.
    pub mac: Mac,
    /// The whole frame.
    pub frame: Vec<u8>,
}

impl Listener {
    /// Listens on an interface of the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// As [`PacketSocket::open`].
    pub fn open(index: IfIndex) -> Result<Self> {
        Self::open_for(index, Frames::ObservedArp)
    }

    /// Listens to Neighbor Solicitations and Advertisements on an interface of the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// As [`PacketSocket::open`].
    pub fn open_ndp(index: IfIndex) -> Result<Self> {
        Self::open_for(index, Frames::ObservedNdp)
    }

    fn open_for(index: IfIndex, frames: Frames) -> Result<Self> {
        let socket = PacketSocket::open(index, frames)?;
        let poller = Poller::new()?;
        poller.add(&socket, 0)?;
        Ok(Self { socket, poller })
    }

    /// Waits for the next frame, until `end`; `None` if none came.
    ///
    /// # Errors
    ///
    /// If the interface went down.
    pub fn next(&mut self, end: Instant) -> Result<Option<Heard>> {
        let mut buffer = [0; 128];
        loop {
            match self.socket.receive(&mut buffer) {
                Ok(Some(received)) => {
                    let frame = buffer.get(..received.length).unwrap_or(&buffer).to_vec();
                    let at = received.at.unwrap_or_default(); // the socket asks for it, so it is there
                    return Ok(Some(Heard { at, outgoing: received.outgoing, frame }));
                }
                Ok(None) => {
                    if end <= Instant::now() {
                        return Ok(None);
                    }
                    self.poller.wait(Some(end))?.for_each(drop);
                }
                Err(cause) => return Err(Error::new("listen to an interface", cause)),
            }
        }
    }
}

impl Prober {
    /// A prober on an interface of the calling thread's namespace, with this address as the sender.
    ///
    /// # Errors
    ///
    /// ENODEV if there is no such interface; else as [`PacketSocket::open`].
    pub fn open(interface: &str, source: Ipv4Addr) -> Result<Self> {
        let (index, mac) = find(interface)?;
        let listener = Listener::open(index)?;
        // A socket does not hear what it sends itself.
        let sender = PacketSocket::open(index, Frames::ArpRequests)?;
        Ok(Self { listener, sender, mac, source })
    }

    /// Asks once and waits for the first answer; `None` if none came in time.
    ///
    /// # Errors
    ///
    /// If the request cannot be sent or the interface went down.
    pub fn ask(&mut self, target: Ipv4Addr, at_most: Duration) -> Result<Option<Answer>> {
        let (end, mut left) = self.send(target, at_most)?;
        self.next_answer(target, end, &mut left)
    }

    /// Asks once and collects every answer that comes in this time.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn answers(&mut self, target: Ipv4Addr, within: Duration) -> Result<Vec<Answer>> {
        let (end, mut left) = self.send(target, within)?;
        let mut answers = Vec::new();
        while let Some(answer) = self.next_answer(target, end, &mut left)? {
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Sends a request. What was heard before it is of no interest.
    fn send(&mut self, target: Ipv4Addr, at_most: Duration) -> Result<(Instant, Option<Duration>)> {
        while self.listener.next(Instant::now())?.is_some() {}
        self.sender
            .send(&request(self.mac, self.source, target))
            .attempting(|| format!("ask who has {target}"))?;
        Ok((Instant::now() + at_most, None))
    }

    fn next_answer(
        &mut self,
        target: Ipv4Addr,
        end: Instant,
        left: &mut Option<Duration>,
    ) -> Result<Option<Answer>> {
        let request = request(self.mac, self.source, target);
        while let Some(Heard { at, outgoing, frame }) = self.listener.next(end)? {
            if outgoing && frame == request {
                *left = Some(at);
            }
            if !outgoing
                && let Some(asked) = *left
                && let Some(mac) = answerer(&frame, target, self.source)
            {
                return Ok(Some(Answer { elapsed: at.saturating_sub(asked), mac, frame }));
            }
        }
        Ok(None)
    }
}

impl Caller {
    /// A caller on an interface of the calling thread's namespace, with this address as the sender.
    ///
    /// # Errors
    ///
    /// As [`Prober::open`].
    pub fn open(interface: &str, source: Ipv4Addr) -> Result<Self> {
        let (index, mac) = find(interface)?;
        let answers = PacketSocket::open(index, Frames::ArpReplies)?;
        let poller = Poller::new()?;
        poller.add(&answers, 0)?;
        Ok(Self { answers, poller, mac, source })
    }

    /// Asks once and waits for the first answer: its hardware address; `None` if none came in time.
    ///
    /// # Errors
    ///
    /// If the request cannot be sent or the interface went down.
    pub fn ask(&mut self, target: Ipv4Addr, at_most: Duration) -> Result<Option<Mac>> {
        self.call(target)?;
        let end = Instant::now() + at_most;
        let mut buffer = [0; 128];
        loop {
            let received = self.answers.receive(&mut buffer).attempting(|| "hear answers")?;
            if let Some(received) = received {
                let frame = buffer.get(..received.length).unwrap_or(&buffer);
                if let Some(mac) = answerer(frame, target, self.source) {
                    return Ok(Some(mac));
                }
            } else if end <= Instant::now() {
                return Ok(None);
            } else {
                self.poller.wait(Some(end))?.for_each(drop);
            }
        }
    }

    /// Asks, and waits for nothing.
    ///
    /// # Errors
    ///
    /// If the request cannot be sent.
    pub fn call(&self, target: Ipv4Addr) -> Result<()> {
        let request = request(self.mac, self.source, target);
        self.answers.send(&request).attempting(|| format!("ask who has {target}"))
    }
}

/// An interface of the calling thread's namespace.
fn find(interface: &str) -> Result<(IfIndex, Mac)> {
    let missing = || Error::new(format!("probe on {interface}"), io::Error::from_raw_os_error(libc::ENODEV));
    let found = inspect::interfaces(&mut Netlink::open()?)?.into_iter();
    let Interface { index, mac, .. } =
        found.into_iter().find(|i| i.name.as_str() == interface).ok_or_else(missing)?;
    Ok((index, mac.ok_or_else(missing)?))
}

/// A broadcast request of 42 bytes, as a kernel sends it.
fn request(Mac(mac): Mac, source: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let header = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
    [&Mac::BROADCAST.0[..], &mac, &header, &mac, &source.octets(), &Mac::ZERO.0, &target.octets()].concat()
}

/// Who says in a frame that `target` is its, to whoever asked for it from `source` (RFC 826: in an answer the sender is who was asked
/// for, and the target is who asked). A gratuitous reply has itself as its target, whoever asked meanwhile: it is no answer.
fn answerer(frame: &[u8], target: Ipv4Addr, source: Ipv4Addr) -> Option<Mac> {
    let is_answer = frame.get(20..22) == Some(&[0, 2])
        && frame.get(28..32) == Some(&target.octets())
        && frame.get(38..42) == Some(&source.octets())
        && target != source;
    frame.get(22..28).filter(|_| is_answer)?.try_into().ok().map(Mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_reply_about_the_target_to_who_asked() {
        const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
        const ASKED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
        let (mac, other) = (Mac([2, 0, 0, 0, 0, 9]), Ipv4Addr::new(192, 0, 2, 2));
        let reply = |sender: Ipv4Addr, to: Ipv4Addr| {
            let mut frame = request(mac, sender, to);
            frame[21] = 2;
            frame
        };
        let heard = |frame: &[u8]| answerer(frame, ASKED, OWN);
        assert_eq!(heard(&reply(ASKED, OWN)), Some(mac));
        assert_eq!(heard(&reply(ASKED, ASKED)), None, "gratuitous");
        assert_eq!(heard(&reply(ASKED, other)), None, "to somebody else");
        assert_eq!(heard(&reply(other, OWN)), None, "about somebody else");
        assert_eq!(heard(&request(mac, ASKED, OWN)), None, "a request");
        assert_eq!(heard(&reply(ASKED, OWN)[..41]), None, "cut short");
        assert_eq!(answerer(&reply(OWN, OWN), OWN, OWN), None, "its own gratuitous reply");
    }
}
