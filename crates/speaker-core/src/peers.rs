// SPDX-License-Identifier: Apache-2.0
//! The other speakers: which of their Pods run, and when to look again.
//!
//! Pods may be listed, not watched. The list is read at the start, soon after anything that hints at a change of it
//! (a node that is new, the own node in another state, a member that is gone), and every minute besides. What was
//! listed last stays in force until there is a new list.
//!
//! A list without the own Pod was made with a label selector that is not the speakers', and where nothing may be listed
//! nothing is known. Alone among unknown others each speaker would announce everything; so until there is a list that
//! can be true every node counts as having a speaker at its own address, which is where speakers are, since they use
//! their node's network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_net_types::{NodeName, Time, parse_ip};

use crate::wire::Peer;

/// A Pod with the labels of the speakers, as the API server lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeakerPod {
    /// `metadata.name`.
    pub name: String,
    /// `spec.nodeName`; empty while it has no node.
    pub node: String,
    /// `status.podIP`; empty while it has no address.
    pub ip: String,
    /// `status.phase`.
    pub phase: String,
    /// `metadata.deletionTimestamp` is set.
    pub terminating: bool,
}

impl SpeakerPod {
    /// Whether its containers have ended for good.
    fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

/// The list of the speakers' Pods over time.
#[derive(Debug)]
pub(crate) struct Peers {
    node: NodeName,
    /// The port of the members; `None` if there is no member list, and so nothing to do.
    port: Option<u16>,
    pods: Option<Vec<SpeakerPod>>,
    asked: Asked,
    /// When to ask.
    due: Option<Time>,
    /// Lists that failed in a row.
    failures: u32,
    /// Nodes whose Pod ends or is gone, and that have no other yet.
    vacant: BTreeSet<NodeName>,
    /// Lists in a row since the last of them came to be one.
    ending: u32,
    /// Since when this node is told that it may not list them, or not so.
    refused: Option<Time>,
    /// What it was told, once that was taken for the last word, until there is a list.
    barred: Option<WriteError>,
    /// How the last one failed.
    complained: Option<u16>,
    members: BTreeSet<NodeName>,
    /// What the wire side was told.
    told: Option<Vec<Peer>>,
}

/// Why it is not known which Pods are the speakers'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unlisted {
    /// The label selector takes so many Pods, and not the own one.
    Another(usize),
    /// The API server refuses the list, and goes on doing so.
    Refused(WriteError),
}

/// What is known of the nodes that bears on their speakers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hosts<'a> {
    /// Every node with its own address, where it has one.
    pub(crate) addresses: &'a BTreeMap<NodeName, Option<IpAddr>>,
    /// The nodes that are known not to be ready.
    pub(crate) not_ready: &'a BTreeSet<NodeName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Never,
    /// And there is no answer yet.
    At(Time),
    Answered(Time),
}

impl Peers {
    /// Asks for nothing before [`Peers::start`].
    pub(crate) const fn new(node: NodeName, port: Option<u16>) -> Self {
        Self {
            node,
            port,
            pods: None,
            asked: Asked::Never,
            due: None,
            failures: 0,
            vacant: BTreeSet::new(),
            ending: 0,
            refused: None,
            barred: None,
            complained: None,
            members: BTreeSet::new(),
            told: None,
        }
    }

    /// The first list is due.
    pub(crate) fn start(&mut self, now: Time) {
        if self.port.is_some() && self.asked == Asked::Never {
            self.due = Some(now);
        }
    }

    /// These should be members, by what a former process knew.
    pub(crate) fn resume(&mut self, peers: Vec<Peer>) {
        self.told = Some(peers);
    }

    /// Who should be members, as it was said last.
    pub(crate) fn told(&self) -> Option<&[Peer]> {
        self.told.as_deref()
    }

    /// Something hints at a change of the list. With many speakers not all of them ask at the same moment.
    pub(crate) fn look_again(&mut self, now: Time) {
        let earliest = match self.asked {
            Asked::Never => return, // The first list is still to come.
            Asked::At(time) | Asked::Answered(time) => time + SHORTEST,
        };
        self.want(earliest.max(now + self.spread()));
    }

    /// The members are these now. One that is gone may have been replaced.
    pub(crate) fn members(&mut self, now: Time, members: BTreeSet<NodeName>) {
        if self.members.difference(&members).next().is_some() {
            self.look_again(now);
        }
        self.members = members;
    }

    /// Takes the answer to the last question.
    pub(crate) fn listed(&mut self, now: Time, result: Result<Vec<SpeakerPod>, WriteError>) {
        let Asked::At(asked) = self.asked else { return };
        self.asked = Asked::Answered(asked);
        match result {
            Ok(pods) => {
                if self.complained.take().is_some() {
                    tracing::info!(op = "memberDiscovery", "the speakers' Pods can be listed again");
                }
                (self.failures, self.refused, self.barred) = (0, None, None);
                // A Pod that runs and whose address is not published yet is about to have one.
                let unfinished =
                    pods.iter().any(|pod| !pod.node.is_empty() && pod.ip.is_empty() && !pod.is_over());
                let period = period(pods.len());
                // So is one that ends, or has ended, about to have a successor, unless its node is dead or gone.
                let vacant = self.vacant_with(&pods);
                self.ending = match vacant.is_subset(&self.vacant) {
                    _ if vacant.is_empty() => 0,
                    true => self.ending.saturating_add(1),
                    false => 1,
                };
                self.vacant = vacant;
                self.want(match self.ending {
                    _ if unfinished => asked + SHORTEST,
                    0 => now + period,
                    lists => now + (period / ENDING_SHARE).saturating_mul(1 << lists.min(9)).min(period),
                });
                self.pods = Some(pods);
            }
            Err(error) => {
                if self.complained.replace(error.code) != Some(error.code) {
                    tracing::error!(op = "memberDiscovery", error = %error, "failed to get pod IPs");
                }
                // A server that has just started refuses what it has not read the rights for.
                self.refused = is_refusal(&error).then(|| self.refused.unwrap_or(now));
                if self.refused.is_some_and(|since| now - since >= REFUSED_FOR) {
                    self.barred = Some(error);
                }
                let pause = SHORTEST.saturating_mul(1 << self.failures.min(3)).min(LONGEST_RETRY);
                self.failures = self.failures.saturating_add(1);
                self.want(now + pause);
            }
        }
    }

    /// Whether the list is to be asked for now; it is asked for once, and answered by [`Peers::listed`].
    pub(crate) fn ask(&mut self, now: Time) -> bool {
        if matches!(self.asked, Asked::At(_)) || self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.due = None;
        self.asked = Asked::At(now);
        true
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        if matches!(self.asked, Asked::At(_)) { None } else { self.due }
    }

    /// Why it is not known which Pods are the speakers', if it is not; the own one has this name.
    pub(crate) fn unlisted(&self, own: &str) -> Option<Unlisted> {
        if let Some(error) = &self.barred {
            return Some(Unlisted::Refused(error.clone()));
        }
        let pods = self.pods.as_deref()?;
        (!holds(pods, own)).then_some(Unlisted::Another(pods.len()))
    }

    /// Whether the peers are no more than the nodes: no list names them.
    pub(crate) fn guesses(&self, own: &str) -> bool {
        match &self.pods {
            Some(pods) => !holds(pods, own),
            None => self.barred.is_some(),
        }
    }

    /// Who should be members, if that is not what was said last. Nothing before it is known, or found out that it will
    /// not be.
    pub(crate) fn news(&mut self, own: &str, hosts: Hosts<'_>) -> Option<Vec<Peer>> {
        let port = self.port?;
        self.vacant.retain(|node| hosts.addresses.contains_key(node));
        let peers = if self.guesses(own) {
            nodes(&self.node, port, hosts)?
        } else {
            peers(self.pods.as_deref()?, &self.node, port, hosts.not_ready)
        };
        (self.told.as_ref() != Some(&peers)).then(|| {
            self.told = Some(peers.clone());
            peers
        })
    }

    /// The nodes that are without a Pod, or about to be, by this list and what was there before.
    fn vacant_with(&self, pods: &[SpeakerPod]) -> BTreeSet<NodeName> {
        let here: BTreeSet<&str> = pods.iter().map(|pod| pod.node.as_str()).collect();
        let before = self.pods.iter().flatten().map(|pod| pod.node.as_str());
        let before = before.chain(self.vacant.iter().map(NodeName::as_str));
        let gone = before.filter(|node| !node.is_empty() && !here.contains(node));
        gone.chain(ending(pods)).map(NodeName::from).collect()
    }

    fn want(&mut self, at: Time) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// This node's place in the time over which all speakers ask.
    fn spread(&self) -> Duration {
        let pods = u64::try_from(self.pods.as_ref().map_or(0, Vec::len)).unwrap_or(u64::MAX);
        // FNV-1a: the same place every time, another for each node.
        let hash = self.node.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Duration::from_millis(pods.saturating_mul(PER_POD).saturating_mul(hash % 1024) / 1024)
    }
}

/// The nodes on which a Pod ends and that have no other yet.
fn ending(pods: &[SpeakerPod]) -> impl Iterator<Item = &str> {
    let stays: BTreeSet<&str> =
        pods.iter().filter(|pod| !pod.terminating && !pod.is_over()).map(|pod| pod.node.as_str()).collect();
    let ends = pods.iter().filter(|pod| pod.terminating && !pod.is_over() && !pod.node.is_empty());
    ends.map(|pod| pod.node.as_str()).filter(move |node| !stays.contains(node))
}

fn holds(pods: &[SpeakerPod], name: &str) -> bool {
    pods.iter().any(|pod| pod.name == name)
}

/// A speaker on every other node; none if there are others and no address of any is known, since that is not to be alone.
fn nodes(own: &NodeName, port: u16, hosts: Hosts<'_>) -> Option<Vec<Peer>> {
    let mut others = hosts.addresses.iter().filter(|(node, _)| *node != own).peekable();
    let alone = others.peek().is_none();
    let peers: Vec<Peer> = others
        .filter_map(|(node, ip)| {
            let address = SocketAddr::new((*ip)?, port);
            Some(Peer { node: node.clone(), address, awaited: !hosts.not_ready.contains(node) })
        })
        .collect();
    (alone || !peers.is_empty()).then_some(peers)
}

/// The speakers of other nodes, each once.
fn peers(pods: &[SpeakerPod], own: &NodeName, port: u16, not_ready: &BTreeSet<NodeName>) -> Vec<Peer> {
    let running = || pods.iter().filter(|pod| !pod.is_over() && !pod.node.is_empty());
    let here: BTreeSet<IpAddr> =
        running().filter(|pod| pod.node == own.as_str()).filter_map(|pod| parse_ip(&pod.ip)).collect();
    let mut found: BTreeMap<(NodeName, SocketAddr), bool> = BTreeMap::new();
    for pod in running().filter(|pod| pod.node != own.as_str()) {
        let Some(ip) = parse_ip(&pod.ip).filter(|ip| !here.contains(ip)) else { continue };
        let awaited = !pod.terminating && !not_ready.contains(pod.node.as_str());
        // During a rollout a node has two Pods at one address.
        *found.entry((pod.node.as_str().into(), SocketAddr::new(ip, port))).or_default() |= awaited;
    }
    found.into_iter().map(|((node, address), awaited)| Peer { node, address, awaited }).collect()
}

/// Whether asking again in the same way would have the same answer: not so of a server that has too much to do, or does
/// not know this one now.
const fn is_refusal(error: &WriteError) -> bool {
    !error.is_unknown() && !matches!(error.code, 401 | 408 | 410 | 429)
}

/// How long a list holds without a hint. Among many it is longer, so that all together ask as often as a hundred do.
fn period(pods: usize) -> Duration {
    let pods = u32::try_from(pods).unwrap_or(u32::MAX);
    PERIOD.max(PERIOD.saturating_mul(pods) / 100)
}

/// No two lists are closer together than this.
const SHORTEST: Duration = Duration::from_secs(2);

/// How long a refusal has to last before it is taken for the last word.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// How long a list holds.
const PERIOD: Duration = Duration::from_secs(60);

/// While a Pod ends the next list comes after the doubled, quadrupled … share of the time that a list holds: 2 s, 4 s …
const ENDING_SHARE: u32 = 60;

/// The longest pause after failures.
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Milliseconds over which all speakers ask after a hint, for each of them.
const PER_POD: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, ip: &str) -> SpeakerPod {
        SpeakerPod {
            name: format!("speaker-{node}"),
            node: node.into(),
            ip: ip.into(),
            phase: "Running".into(),
            terminating: false,
        }
    }

    fn at(seconds: u64) -> Time {
        Time::millis(seconds * 1000)
    }

    const OWN: &str = "speaker-n1";

    /// Who should be members, with these nodes not ready, each as `address awaited`; the nodes are n1 to n3.
    fn said(peers: &mut Peers, not_ready: &[&str]) -> Option<Vec<String>> {
        let known: [(NodeName, Option<IpAddr>); 3] =
            [1, 2, 3].map(|n: u8| (format!("n{n}").into(), Some([10, 0, 0, n].into())));
        said_among(peers, not_ready, &known.into())
    }

    fn said_among(
        peers: &mut Peers,
        not_ready: &[&str],
        addresses: &BTreeMap<NodeName, Option<IpAddr>>,
    ) -> Option<Vec<String>> {
        let not_ready = not_ready.iter().map(|node| NodeName::from(*node)).collect();
        let peers = peers.news(OWN, Hosts { addresses, not_ready: &not_ready })?;
        Some(peers.iter().map(|peer| format!("{} {}", peer.address, peer.awaited)).collect())
    }

    fn started() -> Peers {
        let mut peers = Peers::new("n1".into(), Some(7946));
        peers.start(at(0));
        assert!(peers.ask(at(0)));
        peers.listed(at(0), Ok(vec![pod("n1", "10.0.0.1"), pod("n2", "10.0.0.2")]));
        peers
    }

    #[test]
    fn peers_are_the_running_pods_of_other_nodes_s54() {
        let terminating = |pod| SpeakerPod { terminating: true, ..pod };
        let in_phase = |phase: &str, pod| SpeakerPod { phase: phase.into(), ..pod };
        let own = pod("n1", "10.0.0.1");
        let other = pod("n2", "10.0.0.2");
        for (about, pods, expected) in [
            ("nobody", vec![], vec![]),
            ("only this one", vec![own.clone()], vec![]),
            ("another", vec![own.clone(), other.clone()], vec![("n2", "10.0.0.2:7946", true)]),
            ("one that has no address yet", vec![own.clone(), pod("n2", "")], vec![]),
            ("one without a node", vec![own.clone(), pod("", "10.0.0.2")], vec![]),
            ("something that is no address", vec![own.clone(), pod("n2", "nonsense")], vec![]),
            ("the own address under another name", vec![own.clone(), pod("n2", "10.0.0.1")], vec![]),
            (
                "a former Pod of this node",
                vec![own.clone(), terminating(own.clone()), other.clone()],
                vec![("n2", "10.0.0.2:7946", true)],
            ),
            (
                "one that ends",
                vec![own.clone(), terminating(other.clone())],
                vec![("n2", "10.0.0.2:7946", false)],
            ),
            (
                "a rollout",
                vec![own.clone(), terminating(other.clone()), other.clone()],
                vec![("n2", "10.0.0.2:7946", true)],
            ),
            (
                "one that starts",
                vec![own.clone(), in_phase("Pending", other.clone())],
                vec![("n2", "10.0.0.2:7946", true)],
            ),
            ("one that was evicted", vec![own.clone(), in_phase("Failed", other.clone())], vec![]),
            ("one that has ended", vec![own.clone(), in_phase("Succeeded", other)], vec![]),
            (
                "one on a node that is not ready",
                vec![own, pod("dead", "10.0.0.9")],
                vec![("dead", "10.0.0.9:7946", false)],
            ),
            ("IPv6", vec![pod("n1", "fd00::1"), pod("n2", "fd00::2")], vec![("n2", "[fd00::2]:7946", true)]),
        ] {
            let found = peers(&pods, &"n1".into(), 7946, &["dead".into()].into());
            let found: Vec<_> = found
                .iter()
                .map(|peer| (peer.node.as_str(), peer.address.to_string(), peer.awaited))
                .collect();
            let expected: Vec<_> = expected.into_iter().map(|(n, a, w)| (n, a.to_owned(), w)).collect();
            assert_eq!(found, expected, "{about}");
        }
    }

    #[test]
    fn a_list_holds_for_a_minute_and_a_hint_ends_that() {
        let mut peers = started();
        assert_eq!(peers.next_deadline(), Some(at(60)));
        peers.look_again(at(30));
        assert!(!peers.ask(at(30)));
        let due = peers.next_deadline().unwrap();
        assert!(due <= at(30) + Duration::from_millis(2 * PER_POD), "{due:?}");
        assert!(peers.ask(due));
        assert!(!peers.ask(at(120)), "one question at a time");
        peers.listed(at(31), Ok(vec![pod("n1", "10.0.0.1"), pod("n2", "10.0.0.2")]));
        assert_eq!(peers.next_deadline(), Some(at(91)));
    }

    #[test]
    fn hints_in_a_row_do_not_make_it_ask_more_often_than_every_two_seconds() {
        let mut peers = started();
        let mut asked = Vec::new();
        for millis in 0..10_000 {
            let now = Time::millis(millis);
            peers.look_again(now);
            if peers.ask(now) {
                asked.push(millis);
                peers.listed(now, Ok(vec![]));
            }
        }
        assert_eq!(asked, [2000, 4000, 6000, 8000]);
    }

    #[test]
    fn only_a_member_that_is_gone_is_a_hint() {
        let mut peers = started();
        peers.members(at(10), ["n1".into(), "n2".into()].into());
        peers.members(at(11), ["n1".into(), "n2".into(), "n3".into()].into());
        assert_eq!(peers.next_deadline(), Some(at(60)));
        peers.members(at(12), ["n1".into(), "n3".into()].into());
        assert!(peers.next_deadline().unwrap() < at(13));
    }

    #[test]
    fn a_list_that_fails_leaves_the_last_one_and_is_asked_for_again() {
        let mut peers = started();
        assert_eq!(said(&mut peers, &[]).unwrap().len(), 1);
        assert!(peers.ask(at(60)));
        let mut now = at(60);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            peers.listed(now, Err(WriteError::no_answer("connection refused")));
            assert_eq!(said(&mut peers, &[]), None);
            let due = peers.next_deadline().unwrap();
            pauses.push((due - now).as_secs());
            now = due;
            assert!(peers.ask(now));
        }
        assert_eq!(pauses, [2, 4, 8, 10, 10]);
    }

    /// Three refusals take more than five seconds.
    #[test]
    fn who_may_not_list_takes_every_node_for_a_speakers_once_that_lasts_and_any_other_failure_says_nothing() {
        let refused = |code, reason: &str| WriteError::refused(code, reason, "");
        let every_node = Some(vec!["10.0.0.2:7946 true".to_owned(), "10.0.0.3:7946 false".to_owned()]);
        for (about, errors, expected) in [
            ("nobody answers", vec![WriteError::no_answer("refused"); 9], None),
            ("a server in trouble", vec![refused(503, "ServiceUnavailable"); 9], None),
            ("a server that has too much to do", vec![refused(429, "TooManyRequests"); 9], None),
            ("a token that is being replaced", vec![refused(401, "Unauthorized"); 9], None),
            ("rights that are not read yet", vec![refused(403, "Forbidden"); 2], None),
            ("no right", vec![refused(403, "Forbidden"); 3], every_node.clone()),
            ("labels that are none", vec![refused(400, "BadRequest"); 3], every_node),
            (
                "refusals with something else in between",
                [
                    vec![refused(403, "Forbidden"); 2],
                    vec![refused(429, "TooManyRequests")],
                    vec![refused(403, "Forbidden")],
                ]
                .concat(),
                None,
            ),
        ] {
            let mut peers = Peers::new("n1".into(), Some(7946));
            peers.start(at(0));
            let mut now = at(0);
            for error in errors {
                assert_eq!(said(&mut peers, &["n3"]), None, "{about}");
                assert!(peers.ask(now), "{about}");
                peers.listed(now, Err(error));
                now = peers.next_deadline().unwrap();
            }
            assert_eq!(peers.unlisted(OWN).is_some(), expected.is_some(), "{about}");
            assert_eq!(said(&mut peers, &["n3"]), expected, "{about}");
        }
    }

    #[test]
    fn a_list_without_the_own_pod_names_nobody_and_every_node_stands_in() {
        for pods in [vec![], vec![pod("n2", "10.9.9.9")]] {
            let mut peers = Peers::new("n1".into(), Some(7946));
            peers.start(at(0));
            assert!(peers.ask(at(0)));
            let number = pods.len();
            peers.listed(at(0), Ok(pods));
            assert_eq!(peers.unlisted(OWN), Some(Unlisted::Another(number)));
            let every_node = vec!["10.0.0.2:7946 true".to_owned(), "10.0.0.3:7946 true".to_owned()];
            assert_eq!(said(&mut peers, &[]), Some(every_node));
            // Once the labels are right the list is what counts.
            assert!(peers.ask(at(60)));
            peers.listed(at(60), Ok(vec![pod("n1", "10.0.0.1"), pod("n2", "10.9.9.9")]));
            assert_eq!((peers.unlisted(OWN), peers.guesses(OWN)), (None, false));
            assert_eq!(said(&mut peers, &[]), Some(vec!["10.9.9.9:7946 true".to_owned()]));
            // A right that is lost later takes nobody away.
            let mut now = peers.next_deadline().unwrap();
            for _ in 0..3 {
                assert!(peers.ask(now));
                peers.listed(now, Err(WriteError::refused(403, "Forbidden", "")));
                now = peers.next_deadline().unwrap();
            }
            assert!(matches!(peers.unlisted(OWN), Some(Unlisted::Refused(_))));
            assert_eq!((peers.guesses(OWN), said(&mut peers, &[])), (false, None));
        }
    }

    #[test]
    fn who_knows_neither_a_list_nor_where_the_nodes_are_is_not_alone_for_that() {
        let nodes = |others: &[&str]| -> BTreeMap<NodeName, Option<IpAddr>> {
            ["n1"].iter().chain(others).map(|node| (NodeName::from(*node), None)).collect()
        };
        let mut peers = Peers::new("n1".into(), Some(7946));
        peers.start(at(0));
        assert!(peers.ask(at(0)));
        peers.listed(at(0), Ok(vec![]));
        assert_eq!(said_among(&mut peers, &[], &nodes(&["n2"])), None);
        assert_eq!(said_among(&mut peers, &[], &nodes(&[])), Some(vec![]), "but who is the only node is");
    }

    #[test]
    fn a_pod_that_gets_its_address_any_moment_is_looked_for_soon() {
        let mut peers = Peers::new("n1".into(), Some(7946));
        peers.start(at(0));
        assert!(peers.ask(at(0)));
        peers.listed(at(0), Ok(vec![pod("n2", "")]));
        assert_eq!(peers.next_deadline(), Some(at(2)));
    }

    /// During a restart the list may be made between the end of one Pod and the beginning of the next.
    #[test]
    fn the_successor_of_a_pod_that_ends_is_looked_for_soon_and_then_ever_less_often() {
        let ending = || SpeakerPod { terminating: true, ..pod("n2", "10.0.0.2") };
        let mut peers = Peers::new("n1".into(), Some(7946));
        peers.start(at(0));
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(peers.ask(now));
            peers.listed(now, Ok(vec![pod("n1", "10.0.0.1"), ending()]));
            let due = peers.next_deadline().unwrap();
            pauses.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        assert!(peers.ask(now));
        peers.listed(now, Ok(vec![pod("n1", "10.0.0.1"), ending(), pod("n2", "10.0.0.2")]));
        assert_eq!(peers.next_deadline(), Some(now + Duration::from_secs(60)), "there it is");
        // Nor is one missed that ended before the list was made, and whose successor came after it, however much later.
        now = now + Duration::from_secs(60);
        let mut listed = |peers: &mut Peers, pods: Vec<SpeakerPod>, pause| {
            assert!(peers.ask(now));
            peers.listed(now, Ok(pods));
            assert_eq!(peers.next_deadline(), Some(now + Duration::from_secs(pause)));
            now = now + Duration::from_secs(pause);
        };
        let (first, second, third) = (pod("n1", "10.0.0.1"), pod("n2", "10.0.0.2"), pod("n3", "10.0.0.3"));
        for pause in [2, 4, 8, 16, 32, 60, 60] {
            listed(&mut peers, vec![first.clone()], pause);
        }
        // Another one that ends meanwhile is not looked for less often for that.
        listed(&mut peers, vec![first.clone(), third.clone()], 60);
        for (pods, pause) in [
            (vec![first.clone(), SpeakerPod { terminating: true, ..third.clone() }], 2),
            (vec![first.clone()], 4),
            (vec![first.clone(), third.clone()], 8),
            (vec![first.clone(), second, third], 60),
            (vec![first.clone()], 2),
        ] {
            listed(&mut peers, pods, pause);
        }
        // A node that is gone is waited for no longer.
        let nodes = |nodes: &[&str]| nodes.iter().map(|node| (NodeName::from(*node), None)).collect();
        said_among(&mut peers, &[], &nodes(&["n1", "n3"]));
        listed(&mut peers, vec![first.clone()], 4);
        said_among(&mut peers, &[], &nodes(&["n1"]));
        listed(&mut peers, vec![first], 60);
    }

    #[test]
    fn a_node_that_becomes_ready_makes_its_speaker_awaited_without_a_new_list() {
        let mut peers = started();
        let one = |awaited: bool| Some(vec![format!("10.0.0.2:7946 {awaited}")]);
        assert_eq!(said(&mut peers, &["n2"]), one(false));
        assert_eq!(said(&mut peers, &["n2"]), None, "said once");
        assert_eq!(said(&mut peers, &[]), one(true));
    }

    #[test]
    fn many_speakers_do_not_ask_at_once_nor_more_often_together_than_a_hundred() {
        let pods: Vec<_> =
            (0..1000).map(|n| pod(&format!("n{n}"), &format!("10.0.{}.{}", n / 250, n % 250))).collect();
        let mut dues = BTreeSet::new();
        for n in 0..1000 {
            let mut peers = Peers::new(format!("n{n}").as_str().into(), Some(7946));
            peers.start(at(0));
            assert!(peers.ask(at(0)));
            peers.listed(at(0), Ok(pods.clone()));
            assert_eq!(peers.next_deadline(), Some(at(600)));
            peers.look_again(at(100));
            dues.insert(peers.next_deadline().unwrap());
        }
        assert!(dues.len() > 500, "{}", dues.len());
        assert!(dues.iter().all(|due| *due >= at(100) && *due < at(110)));
    }

    #[test]
    fn without_a_member_list_no_pod_is_ever_listed() {
        let mut peers = Peers::new("n1".into(), None);
        peers.start(at(0));
        peers.look_again(at(100));
        peers.members(at(100), BTreeSet::new());
        assert!(!peers.ask(at(1000)));
        assert_eq!((peers.next_deadline(), said(&mut peers, &[])), (None, None));
    }
}
