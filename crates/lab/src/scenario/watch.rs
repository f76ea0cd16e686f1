// SPDX-License-Identifier: Apache-2.0
//! Who answers for many addresses, over time: every address is asked for every 20 ms, and every answer is kept.
//!
//! The round is written into the sender's address of each request, which comes back as the target of its answer: an answer that is
//! late still belongs to the request it answers, however busy the machine is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use ferrolb_linux::packet::Frames;
use ferrolb_linux::probe::Listener;
use ferrolb_linux::{Namespace, Netlink, PacketSocket, inspect};
use ferrolb_net_types::Mac;

use super::cluster::eventually;
use super::wire::{Arp, Operation};

/// From one round to the next.
pub(crate) const ROUND: Duration = Duration::from_millis(20);

/// How long answers to the last round are waited for.
const LATE: Duration = Duration::from_millis(300);

/// Requests under way, until [`Watch::stop`].
#[derive(Debug)]
pub(crate) struct Watch {
    end: Arc<AtomicBool>,
    began: Instant,
    seen: Shared,
    thread: Option<JoinHandle<Result<()>>>,
}

type Shared = Arc<Mutex<Timeline>>;

fn lock(seen: &Shared) -> MutexGuard<'_, Timeline> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// When each round was sent, since the beginning.
    rounds: Vec<Duration>,
    /// Who answered each round.
    answers: BTreeMap<Ipv4Addr, Vec<BTreeSet<Mac>>>,
    /// Gratuitous frames: when, by whom, for what.
    gratuitous: Vec<(Duration, Mac, Ipv4Addr)>,
}

/// Rounds one after the other of which something is true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// Of which address.
    pub(crate) address: Ipv4Addr,
    /// The first round, since the beginning.
    pub(crate) from: Duration,
    /// How long: a single round counts 20 ms.
    pub(crate) length: Duration,
    /// Everybody who answered meanwhile.
    pub(crate) by: BTreeSet<Mac>,
}

impl Watch {
    /// Begins to ask, from an interface of a namespace.
    pub(crate) fn start(namespace: &Namespace, interface: &str, addresses: &[Ipv4Addr]) -> Result<Self> {
        let namespace = Namespace::open(namespace.name())?;
        let (name, addresses) = (interface.to_owned(), addresses.to_vec());
        let (index, mac) = namespace.run(|| -> Result<_> {
            let found = inspect::interfaces(&mut Netlink::open()?)?;
            let own = found.into_iter().find(|own| own.name.as_str() == name);
            let own = own.with_context(|| format!("there is no {name}"))?;
            Ok((own.index, own.mac.context("it has no hardware address")?))
        })??;
        let (listener, sender) = namespace.run(|| -> Result<_> {
            Ok((Listener::open(index)?, PacketSocket::open(index, Frames::ArpRequests)?))
        })??;
        let began = Instant::now();
        let end = Arc::new(AtomicBool::new(false));
        let answers = addresses.iter().map(|address| (*address, Vec::new())).collect();
        let seen = Arc::new(Mutex::new(Timeline { answers, ..Timeline::default() }));
        let asker = Asker { listener, sender, mac, began, end: Arc::clone(&end), seen: Arc::clone(&seen) };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(move || asker.run())?;
        Ok(Self { end, began, seen, thread: Some(thread) })
    }

    /// Waits until these have answered, and nobody else, for so many rounds: the first of them.
    pub(crate) async fn settled(
        &self,
        expected: &BTreeMap<Ipv4Addr, BTreeSet<Mac>>,
        rounds: usize,
        limit: Duration,
    ) -> Result<Duration> {
        // Only rounds that begin from here on count.
        let from = self.now();
        eventually(limit, async || {
            let seen = lock(&self.seen);
            // The last two may still be answered.
            let last = seen.rounds.len().saturating_sub(2);
            let first = last.saturating_sub(rounds);
            let begun = seen.rounds.get(first).copied().unwrap_or_default();
            ensure!(begun >= from, "too few rounds");
            for (address, macs) in expected {
                let answers = seen.answers.get(address).and_then(|answers| answers.get(first..last));
                for answer in answers.context("it is not asked for")? {
                    ensure!(answer == macs, "{address} is answered by {answer:?}, not {macs:?}");
                }
            }
            Ok(begun)
        })
        .await
    }

    /// Two owners from a moment until now, in words.
    pub(crate) fn contested(&self, from: Duration) -> String {
        longest(&lock(&self.seen).contested(from, self.now()))
    }

    /// What was seen so far.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Timeline) -> T) -> T {
        look(&lock(&self.seen))
    }

    /// Now, since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends it: what was seen.
    pub(crate) fn stop(mut self) -> Result<Timeline> {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the watch has ended already")?;
        thread.join().map_err(|_| anyhow!("the watch panicked"))??;
        Ok(std::mem::take(&mut *lock(&self.seen)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

struct Asker {
    listener: Listener,
    sender: PacketSocket,
    mac: Mac,
    began: Instant,
    end: Arc<AtomicBool>,
    seen: Shared,
}

impl Asker {
    fn run(mut self) -> Result<()> {
        while !self.end.load(Ordering::Relaxed) {
            let sent = Instant::now();
            let requests: Vec<Vec<u8>> = {
                let mut timeline = lock(&self.seen);
                let round = timeline.rounds.len();
                timeline.rounds.push(sent.duration_since(self.began));
                let asked = timeline.answers.iter_mut().map(|(address, answers)| {
                    answers.push(BTreeSet::new());
                    request(self.mac, sender_of(round), *address)
                });
                asked.collect()
            };
            for request in requests {
                // A full queue costs this request; the next round comes.
                let _ = self.sender.send(&request);
            }
            self.listen(sent + ROUND)?;
        }
        self.listen(Instant::now() + LATE)
    }

    fn listen(&mut self, until: Instant) -> Result<()> {
        while let Some(heard) = self.listener.next(until)? {
            if heard.outgoing {
                continue;
            }
            let Some(arp) = Arp::parse(heard.at, &heard.frame) else { continue };
            let mut timeline = lock(&self.seen);
            if arp.sender == arp.target && timeline.answers.contains_key(&arp.sender) {
                timeline.gratuitous.push((self.began.elapsed(), arp.source, arp.sender));
            } else if arp.operation == Operation::Reply
                && let Some(round) = round_of(arp.target)
                && let Some(answers) = timeline.answers.get_mut(&arp.sender)
                && let Some(answers) = answers.get_mut(round)
            {
                answers.insert(arp.sender_mac);
            }
        }
        Ok(())
    }
}

/// The sender's address of a round's requests: 10.0.0.0/8, which nobody on the bench has.
fn sender_of(round: usize) -> Ipv4Addr {
    let [.., a, b, c] = round.to_be_bytes();
    Ipv4Addr::new(10, a, b, c)
}

fn round_of(sender: Ipv4Addr) -> Option<usize> {
    let [ten, a, b, c] = sender.octets();
    (ten == 10).then(|| usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))
}

fn request(mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let header = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
    [&Mac::BROADCAST.0[..], &mac.0, &header, &mac.0, &sender.octets(), &[0; 6], &target.octets()].concat()
}

impl Timeline {
    /// Stretches between two moments in which an address was answered as `test` says.
    pub(crate) fn spans(
        &self,
        from: Duration,
        to: Duration,
        test: impl Fn(&BTreeSet<Mac>) -> bool,
    ) -> Vec<Span> {
        let mut spans = Vec::new();
        for (address, answers) in &self.answers {
            let mut open: Option<Span> = None;
            let within = self.rounds.iter().zip(answers).filter(|(at, _)| (from..to).contains(*at));
            for (at, by) in within {
                if test(by) {
                    let span = open.get_or_insert_with(|| Span {
                        address: *address,
                        from: *at,
                        length: Duration::ZERO,
                        by: BTreeSet::new(),
                    });
                    span.length = *at - span.from + ROUND;
                    span.by.extend(by.iter().copied());
                } else {
                    spans.extend(open.take());
                }
            }
            spans.extend(open);
        }
        spans
    }

    /// Stretches in which several answered.
    pub(crate) fn contested(&self, from: Duration, to: Duration) -> Vec<Span> {
        self.spans(from, to, |by| by.len() > 1)
    }

    /// Stretches in which nobody answered.
    pub(crate) fn dark(&self, from: Duration, to: Duration) -> Vec<Span> {
        self.spans(from, to, BTreeSet::is_empty)
    }

    /// Gratuitous frames between two moments: by whom, for what.
    pub(crate) fn gratuitous(&self, from: Duration, to: Duration) -> Vec<(Mac, Ipv4Addr)> {
        let within = self.gratuitous.iter().filter(|(at, ..)| (from..to).contains(at));
        within.map(|(_, mac, address)| (*mac, *address)).collect()
    }

    /// How often an address came to another owner between two moments, darkness in between not counted.
    pub(crate) fn moves(&self, from: Duration, to: Duration) -> usize {
        let mut moves = 0;
        for answers in self.answers.values() {
            let mut last: Option<Mac> = None;
            let within = self.rounds.iter().zip(answers).filter(|(at, _)| (from..to).contains(*at));
            for (_, by) in within {
                let [only] = by.iter().copied().collect::<Vec<_>>()[..] else { continue };
                moves += usize::from(last.is_some_and(|last| last != only));
                last = Some(only);
            }
        }
        moves
    }

    /// How many rounds there were between two moments.
    pub(crate) fn rounds(&self, from: Duration, to: Duration) -> usize {
        self.rounds.iter().filter(|at| (from..to).contains(*at)).count()
    }
}

/// The longest of these, and how many addresses they concern: `120 ms (3 addresses)`, or `none`.
pub(crate) fn longest<'a>(spans: impl IntoIterator<Item = &'a Span>) -> String {
    let spans: Vec<&Span> = spans.into_iter().collect();
    let addresses: BTreeSet<Ipv4Addr> = spans.iter().map(|span| span.address).collect();
    match spans.iter().map(|span| span.length).max() {
        Some(length) => format!("{} ms ({} addresses)", length.as_millis(), addresses.len()),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    fn timeline(answers: &[&[u8]]) -> Timeline {
        let rounds = (0..answers.len()).map(|round| ROUND * u32::try_from(round).unwrap()).collect();
        let answers = answers.iter().map(|by| by.iter().map(|last| mac(*last)).collect()).collect();
        Timeline { rounds, answers: [(A, answers)].into(), gratuitous: Vec::new() }
    }

    #[test]
    fn a_round_comes_back_in_its_answers() {
        for round in [0, 1, 255, 256, 70_000, 0xff_ffff] {
            assert_eq!(round_of(sender_of(round)), Some(round));
        }
        assert_eq!(round_of(A), None);
    }

    #[test]
    fn spans_are_as_long_as_their_rounds_and_know_who_answered() {
        let seen = timeline(&[&[1], &[1, 2], &[1, 2], &[2], &[], &[2], &[2, 3]]);
        let end = Duration::from_secs(1);
        let contested = seen.contested(Duration::ZERO, end);
        assert_eq!(
            contested.iter().map(|span| span.length / 20).collect::<Vec<_>>(),
            [ROUND * 2 / 20, ROUND / 20]
        );
        assert_eq!(contested[0].by, BTreeSet::from([mac(1), mac(2)]));
        assert_eq!(contested[0].from, ROUND);
        assert_eq!(seen.dark(Duration::ZERO, end).len(), 1);
        assert_eq!(seen.dark(ROUND * 5, end), []);
        assert_eq!(seen.moves(Duration::ZERO, end), 1);
        assert_eq!(longest(&contested), "40 ms (1 addresses)");
        assert_eq!(longest(&[]), "none");
    }
}
