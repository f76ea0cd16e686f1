// SPDX-License-Identifier: Apache-2.0
//! Who answers for many addresses, over time: every address is asked for again and again, and every answer is kept.
//!
//! By ARP every 20 ms: the round is written into the sender's address of each request, which comes back as the target of its answer: an
//! answer that is late still belongs to the request it answers, however busy the machine is. By Neighbor Discovery, where who asks has
//! to be somebody that the answer finds, every 100 ms: an answer belongs to the last round before it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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
use super::ndp;
use super::wire::{Arp, Operation};

/// From one round of ARP requests to the next.
const ROUND: Duration = Duration::from_millis(20);

/// So many rounds of now may still be answered.
const OPEN: usize = 2;

/// From one round of Neighbor Solicitations to the next.
const ROUND_OF_NDP: Duration = Duration::from_millis(100);

/// How many requests are sent at once. The rest of a round follows in portions, so that no queue of the bench has to hold all.
const PORTION: usize = 20;

/// How long answers to the last round are waited for.
const LATE: Duration = Duration::from_millis(300);

/// Requests under way, until [`Watch::stop`].
#[derive(Debug)]
pub(crate) struct Watch {
    end: Arc<AtomicBool>,
    began: Instant,
    seen: Shared,
    threads: Vec<JoinHandle<Result<()>>>,
}

type Shared = Arc<Mutex<Timeline>>;

fn lock(seen: &Shared) -> MutexGuard<'_, Timeline> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    lanes: Vec<Lane>,
    /// Unsolicited frames: when, by whom, for what.
    gratuitous: Vec<(Duration, Mac, IpAddr)>,
}

/// The addresses of one family.
#[derive(Debug, Default)]
struct Lane {
    /// From one round to the next.
    every: Duration,
    /// When each round was begun, since the beginning.
    rounds: Vec<Duration>,
    /// Who answered each round.
    answers: BTreeMap<IpAddr, Vec<BTreeSet<Mac>>>,
}

/// Rounds one after the other of which something is true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// Of which address.
    pub(crate) address: IpAddr,
    /// The first round, since the beginning.
    pub(crate) from: Duration,
    /// How long: a single round counts 20 ms, of an IPv6 address 100 ms.
    pub(crate) length: Duration,
    /// Everybody who answered meanwhile.
    pub(crate) by: BTreeSet<Mac>,
    /// The length of a single round.
    pub(crate) every: Duration,
}

impl Span {
    /// Whether it is longer than a bound, as far as rounds can tell.
    pub(crate) fn is_beyond(&self, bound: Duration) -> bool {
        self.length > bound.max(self.every)
    }
}

impl Watch {
    /// Begins to ask, from an interface of a namespace. Solicitations come from `own`, which is an address of that interface.
    pub(crate) fn start(
        namespace: &Namespace,
        interface: &str,
        addresses: &[Ipv4Addr],
        own: Ipv6Addr,
        addresses6: &[Ipv6Addr],
    ) -> Result<Self> {
        let namespace = Namespace::open(namespace.name())?;
        let name = interface.to_owned();
        let (index, mac) = namespace.run(|| -> Result<_> {
            let found = inspect::interfaces(&mut Netlink::open()?)?;
            let own = found.into_iter().find(|own| own.name.as_str() == name);
            let own = own.with_context(|| format!("there is no {name}"))?;
            Ok((own.index, own.mac.context("it has no hardware address")?))
        })??;
        let lane = |every: Duration, addresses: &mut dyn Iterator<Item = IpAddr>| Lane {
            every,
            rounds: Vec::new(),
            answers: addresses.map(|address| (address, Vec::new())).collect(),
        };
        let lanes = vec![
            lane(ROUND, &mut addresses.iter().copied().map(IpAddr::V4)),
            lane(ROUND_OF_NDP, &mut addresses6.iter().copied().map(IpAddr::V6)),
        ];
        let began = Instant::now();
        let end = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Timeline { lanes, gratuitous: Vec::new() }));
        let mut threads = Vec::new();
        for (lane, how) in [How::Arp, How::Ndp(own)].into_iter().enumerate() {
            let (listener, sender) = namespace.run(|| -> Result<_> {
                let listener = match how {
                    How::Arp => Listener::open(index)?,
                    How::Ndp(_) => Listener::open_ndp(index)?,
                };
                Ok((listener, PacketSocket::open(index, Frames::NeighborDiscovery)?))
            })??;
            let (end, seen) = (Arc::clone(&end), Arc::clone(&seen));
            let asker = Asker { how, lane, listener, sender, mac, began, end, seen };
            threads.push(std::thread::Builder::new().name("watch".to_owned()).spawn(move || asker.run())?);
        }
        Ok(Self { end, began, seen, threads })
    }

    /// Waits until these have answered, and nobody else, for so many rounds of ARP, and as long by Neighbor Discovery: the first of
    /// them. Rounds before that have had all the answers they get; the last ones of now may still be answered.
    pub(crate) async fn settled(
        &self,
        expected: &BTreeMap<IpAddr, BTreeSet<Mac>>,
        rounds: usize,
        limit: Duration,
    ) -> Result<Duration> {
        // Only rounds that begin from here on count.
        let from = self.now();
        eventually(limit, async || {
            let seen = lock(&self.seen);
            let mut settled = from;
            for lane in &seen.lanes {
                let last = lane.rounds.len().saturating_sub(OPEN);
                let ratio = lane.every.as_millis().div_ceil(ROUND.as_millis()) as usize; // 1 or 5
                let first = last.saturating_sub(rounds.div_ceil(ratio));
                let begun = lane.rounds.get(first).copied().unwrap_or_default();
                ensure!(begun >= from, "too few rounds");
                settled = settled.max(begun);
                for (address, answers) in &lane.answers {
                    let Some(macs) = expected.get(address) else { continue };
                    for answer in answers.get(first..last).unwrap_or_default() {
                        ensure!(answer == macs, "{address} is answered by {answer:?}, not {macs:?}");
                    }
                }
            }
            let missed = expected.keys().find(|address| !seen.asks_for(**address));
            ensure!(missed.is_none(), "{missed:?} is not asked for");
            Ok(settled)
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
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow!("the watch panicked"))??;
        }
        Ok(std::mem::take(&mut *lock(&self.seen)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// How an asker asks.
#[derive(Clone, Copy, Debug)]
enum How {
    Arp,
    /// From this address.
    Ndp(Ipv6Addr),
}

struct Asker {
    how: How,
    lane: usize,
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
            let (every, requests) = self.begin(sent);
            let portions = requests.chunks(PORTION).len().max(1);
            for (number, portion) in (1..).zip(requests.chunks(PORTION)) {
                for request in portion {
                    // A full queue costs this request; the next round comes.
                    let _ = self.sender.send(request);
                }
                self.listen(sent + every * number / portions as u32)?; // a handful
            }
            self.listen(sent + every)?;
        }
        self.listen(Instant::now() + LATE)
    }

    /// Begins a round: its requests, and when the next one follows.
    fn begin(&self, sent: Instant) -> (Duration, Vec<Vec<u8>>) {
        let mut timeline = lock(&self.seen);
        let Some(lane) = timeline.lanes.get_mut(self.lane) else { return (ROUND, Vec::new()) };
        let round = lane.rounds.len();
        lane.rounds.push(sent.duration_since(self.began));
        let asked = lane.answers.iter_mut().filter_map(|(address, answers)| {
            answers.push(BTreeSet::new());
            match (self.how, address) {
                (How::Arp, IpAddr::V4(address)) => Some(request(self.mac, sender_of(round), *address)),
                (How::Ndp(own), IpAddr::V6(address)) => Some(ndp::solicitation(self.mac, own, *address)),
                _ => None,
            }
        });
        let requests = asked.collect();
        (lane.every, requests)
    }

    fn listen(&mut self, until: Instant) -> Result<()> {
        while let Some(heard) = self.listener.next(until)? {
            if heard.outgoing {
                continue;
            }
            let now = self.began.elapsed();
            let mut timeline = lock(&self.seen);
            match self.how {
                How::Arp => {
                    let Some(arp) = Arp::parse(heard.at, &heard.frame) else { continue };
                    if arp.sender == arp.target {
                        timeline.unsolicited(now, arp.source, arp.sender.into());
                    } else if arp.operation == Operation::Reply
                        && let Some(round) = round_of(arp.target)
                    {
                        timeline.answered(self.lane, Some(round), arp.sender_mac, arp.sender.into());
                    }
                }
                How::Ndp(own) => {
                    let Some(said) = ndp::Advertisement::parse(&heard.frame) else { continue };
                    if said.solicited && said.to == own {
                        timeline.answered(self.lane, None, said.mac, said.target.into());
                    } else if !said.solicited {
                        timeline.unsolicited(now, said.mac, said.target.into());
                    }
                }
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
    fn asks_for(&self, address: IpAddr) -> bool {
        self.lanes.iter().any(|lane| lane.answers.contains_key(&address))
    }

    fn unsolicited(&mut self, at: Duration, by: Mac, address: IpAddr) {
        if self.asks_for(address) {
            self.gratuitous.push((at, by, address));
        }
    }

    /// Notes an answer to a round, or to the last one.
    fn answered(&mut self, lane: usize, round: Option<usize>, by: Mac, address: IpAddr) {
        let Some(answers) = self.lanes.get_mut(lane).and_then(|lane| lane.answers.get_mut(&address)) else {
            return;
        };
        let answers = match round {
            Some(round) => answers.get_mut(round),
            None => answers.last_mut(),
        };
        if let Some(answers) = answers {
            answers.insert(by);
        }
    }

    /// Each address with its rounds between two moments: when, and who answered.
    fn between(
        &self,
        from: Duration,
        to: Duration,
    ) -> impl Iterator<Item = (IpAddr, Duration, impl Iterator<Item = (Duration, &BTreeSet<Mac>)>)> {
        self.lanes.iter().flat_map(move |lane| {
            lane.answers.iter().map(move |(address, answers)| {
                let within = lane.rounds.iter().copied().zip(answers);
                (*address, lane.every, within.filter(move |(at, _)| (from..to).contains(at)))
            })
        })
    }

    /// The moment before which every round has had all the answers it gets.
    pub(crate) fn answered_until(&self) -> Duration {
        let begun = |lane: &Lane| lane.rounds.iter().rev().nth(OPEN - 1).copied().unwrap_or_default();
        self.lanes.iter().map(begun).min().unwrap_or_default()
    }

    /// Stretches between two moments in which an address was answered as `test` says.
    pub(crate) fn spans(
        &self,
        from: Duration,
        to: Duration,
        test: impl Fn(IpAddr, &BTreeSet<Mac>) -> bool,
    ) -> Vec<Span> {
        let mut spans = Vec::new();
        for (address, every, rounds) in self.between(from, to) {
            let mut open: Option<Span> = None;
            for (at, by) in rounds {
                if test(address, by) {
                    let span = open.get_or_insert_with(|| Span {
                        address,
                        from: at,
                        length: Duration::ZERO,
                        by: BTreeSet::new(),
                        every,
                    });
                    span.length = at - span.from + every;
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
        self.spans(from, to, |_, by| by.len() > 1)
    }

    /// Stretches in which nobody answered.
    pub(crate) fn dark(&self, from: Duration, to: Duration) -> Vec<Span> {
        self.spans(from, to, |_, by| by.is_empty())
    }

    /// Gratuitous frames between two moments: by whom, for what.
    pub(crate) fn gratuitous(&self, from: Duration, to: Duration) -> Vec<(Mac, IpAddr)> {
        let within = self.gratuitous.iter().filter(|(at, ..)| (from..to).contains(at));
        within.map(|(_, mac, address)| (*mac, *address)).collect()
    }

    /// How often each address came to another owner between two moments, darkness in between not counted; those that did.
    pub(crate) fn moves_by_address(&self, from: Duration, to: Duration) -> BTreeMap<IpAddr, usize> {
        let mut moves = BTreeMap::new();
        for (address, _, rounds) in self.between(from, to) {
            let mut last: Option<Mac> = None;
            for (_, by) in rounds {
                let [only] = by.iter().copied().collect::<Vec<_>>()[..] else { continue };
                if last.is_some_and(|last| last != only) {
                    *moves.entry(address).or_default() += 1;
                }
                last = Some(only);
            }
        }
        moves
    }

    /// How often any address came to another owner between two moments.
    pub(crate) fn moves(&self, from: Duration, to: Duration) -> usize {
        self.moves_by_address(from, to).values().sum()
    }

    /// How many rounds of ARP requests there were between two moments.
    pub(crate) fn rounds(&self, from: Duration, to: Duration) -> usize {
        let rounds = self.lanes.first().map(|lane| lane.rounds.as_slice()).unwrap_or_default();
        rounds.iter().filter(|at| (from..to).contains(*at)).count()
    }
}

/// The longest of these, and how many addresses they concern: `120 ms (3 addresses)`, or `none`.
pub(crate) fn longest<'a>(spans: impl IntoIterator<Item = &'a Span>) -> String {
    let spans: Vec<&Span> = spans.into_iter().collect();
    let addresses: BTreeSet<IpAddr> = spans.iter().map(|span| span.address).collect();
    match spans.iter().map(|span| span.length).max() {
        Some(length) => format!("{} ms ({} addresses)", length.as_millis(), addresses.len()),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, last])
    }

    /// Rounds of ARP of one address, each with who answered.
    pub(crate) fn timeline_of(address: IpAddr, answers: Vec<BTreeSet<Mac>>) -> Timeline {
        let rounds = (0..answers.len()).map(|round| ROUND * u32::try_from(round).unwrap()).collect();
        let lane = Lane { every: ROUND, rounds, answers: [(address, answers)].into() };
        Timeline { lanes: vec![lane], gratuitous: Vec::new() }
    }

    fn timeline(answers: &[&[u8]]) -> Timeline {
        timeline_of(A, answers.iter().map(|by| by.iter().map(|last| mac(*last)).collect()).collect())
    }

    #[test]
    fn a_round_comes_back_in_its_answers() {
        for round in [0, 1, 255, 256, 70_000, 0xff_ffff] {
            assert_eq!(round_of(sender_of(round)), Some(round));
        }
        assert_eq!(round_of(Ipv4Addr::new(192, 0, 2, 1)), None);
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
        assert!(contested[0].is_beyond(ROUND) && !contested[0].is_beyond(ROUND * 2));
        assert_eq!(seen.dark(Duration::ZERO, end).len(), 1);
        assert_eq!(seen.dark(ROUND * 5, end), []);
        assert_eq!(seen.moves(Duration::ZERO, end), 1);
        assert_eq!(seen.moves_by_address(Duration::ZERO, ROUND * 3), BTreeMap::new());
        assert_eq!(longest(&contested), "40 ms (1 addresses)");
        assert_eq!(longest(&[]), "none");
    }

    #[test]
    fn a_round_that_was_just_sent_is_no_darkness() {
        let seen = timeline(&[&[1], &[1], &[1], &[], &[]]);
        assert_eq!(seen.dark(Duration::ZERO, seen.answered_until()), []);
        let seen = timeline(&[&[1], &[1], &[], &[1], &[]]);
        assert_eq!(seen.dark(Duration::ZERO, seen.answered_until()).len(), 1);
        assert_eq!(timeline(&[&[1]]).answered_until(), Duration::ZERO);
    }

    #[test]
    fn an_answer_without_a_round_belongs_to_the_last_one_and_only_what_is_asked_for_is_noted() {
        let mut seen = timeline(&[&[1], &[]]);
        seen.answered(0, None, mac(7), A);
        seen.answered(0, Some(0), mac(8), A);
        seen.answered(0, None, mac(9), Ipv6Addr::LOCALHOST.into());
        let end = Duration::from_secs(1);
        assert_eq!(seen.spans(Duration::ZERO, end, |_, by| by.contains(&mac(7)))[0].from, ROUND);
        assert_eq!(seen.spans(Duration::ZERO, end, |_, by| by.contains(&mac(8)))[0].from, Duration::ZERO);
        assert_eq!(seen.spans(Duration::ZERO, end, |_, by| by.contains(&mac(9))), []);
        seen.unsolicited(ROUND, mac(7), A);
        seen.unsolicited(ROUND, mac(7), Ipv6Addr::LOCALHOST.into());
        assert_eq!(seen.gratuitous(Duration::ZERO, end), [(mac(7), A)]);
    }
}
