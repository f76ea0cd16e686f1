// SPDX-License-Identifier: Apache-2.0
//! Other controllers, where no Lease may be written: found by their Pods, and waited for.
//!
//! Before each batch of writes the core looks; what follows within a tenth of a second belongs to the batch. While another controller's Pod is there it writes nothing and looks
//! again every second; each rival is waited for a minute at most, and then the oldest of ours goes on. There is no
//! proof in that, as there is none with MetalLB, but the usual case, a rollout in which the old Pod and the new one
//! overlap, is over long before.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_net_types::Time;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::io::Neighbours;

/// While there is a rival, look again after this long.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);
/// For so long a look is good for another batch: Services that are created one after the other need not wait for one each.
/// A Pod is there for longer before its controller acts.
pub(crate) const GOOD: Duration = Duration::from_millis(100);
/// No rival is waited for longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The container that a controller runs in, by MetalLB's manifests.
const CONTAINER: &str = "controller";

/// Whether the nodes matter for what these Pods say, given the uid of the own one. Otherwise they need not be read.
pub fn needs_nodes(pods: &[Pod], own_uid: &str) -> bool {
    pods.iter().any(|pod| may_act(pod, own_uid))
}

/// Looking for rivals, over time.
#[derive(Debug)]
pub(crate) struct Rivals {
    own_uid: String,
    state: State,
    /// When it was looked last.
    looked: Time,
    /// The batch for which that was is over.
    over: bool,
    /// Who was there when it was looked last, and since when.
    known: BTreeMap<String, Time>,
    /// Who was last spoken of, and whether as of somebody who is no longer waited for.
    told: Option<(bool, Vec<String>)>,
    told_forbidden: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody looked.
    Unknown,
    /// Somebody should look.
    Wanted,
    /// Somebody does.
    Asking,
    /// Nobody is in the way of the batch for which it was looked, or of one right after it.
    Clear,
    /// Somebody is; look again then.
    Waiting(Time),
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nobody is in the way.
    Clear,
    /// Somebody is there, and was waited for long enough: a sentence about it, if it was not said yet.
    GoOn(Option<String>),
    /// Wait.
    Wait,
}

impl Rivals {
    pub(crate) fn new(own_uid: &str) -> Self {
        Self {
            own_uid: own_uid.to_owned(),
            state: State::Unknown,
            looked: Time::ZERO,
            over: false,
            known: BTreeMap::new(),
            told: None,
            told_forbidden: false,
        }
    }

    /// Whether things may be written at the moment.
    pub(crate) const fn is_clear(&self) -> bool {
        matches!(self.state, State::Clear)
    }

    /// Whether it is worth while to decide something: either it may be written, or it makes somebody look.
    pub(crate) const fn may_decide(&self) -> bool {
        matches!(self.state, State::Clear | State::Unknown)
    }

    /// There is something to write.
    pub(crate) fn want(&mut self, now: Time) {
        let outdated = self.is_clear() && self.over && now - self.looked >= GOOD;
        if outdated || matches!(self.state, State::Unknown) {
            self.state = State::Wanted;
        }
        self.over = false;
    }

    /// Whether somebody should look now; asked once per look.
    pub(crate) const fn take_request(&mut self, now: Time) -> bool {
        let wanted = matches!(self.state, State::Wanted);
        if wanted {
            self.state = State::Asking;
            self.looked = now;
        }
        wanted
    }

    /// The batch is over.
    pub(crate) const fn done(&mut self) {
        self.over = true;
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if matches!(self.state, State::Waiting(at) if at <= now) {
            self.state = State::Unknown;
        }
    }

    pub(crate) const fn next_deadline(&self) -> Option<Time> {
        match self.state {
            State::Waiting(at) => Some(at),
            _ => None,
        }
    }

    /// Somebody looked.
    pub(crate) fn found(&mut self, now: Time, found: Result<Neighbours, WriteError>) -> Finding {
        let finding = match found {
            Ok(neighbours) => self.judge(now, &neighbours),
            Err(error) if error.code == 403 => {
                let first = !std::mem::replace(&mut self.told_forbidden, true);
                Finding::GoOn(first.then(|| {
                    format!(
                        "Cannot look for other controllers ({}); going on without. Grant this ServiceAccount list \
                         on pods in its namespace and list on nodes",
                        error.message
                    )
                }))
            }
            Err(error) => {
                tracing::debug!(op = "findRivals", %error, "cannot look for other controllers now, trying again");
                Finding::Wait
            }
        };
        self.state = if finding == Finding::Wait { State::Waiting(now + AGAIN) } else { State::Clear };
        self.over = false;
        finding
    }

    fn judge(&mut self, now: Time, neighbours: &Neighbours) -> Finding {
        let own = neighbours.pods.iter().find(|pod| uid(pod) == self.own_uid);
        let repository = own.and_then(image_repository);
        let rivals: Vec<&Pod> = neighbours
            .pods
            .iter()
            .filter(|pod| may_act(pod, &self.own_uid) && is_on_ready_node(pod, &neighbours.nodes))
            .collect();
        self.known.retain(|known, _| rivals.iter().any(|pod| uid(pod) == known));
        for pod in &rivals {
            self.known.entry(uid(pod).to_owned()).or_insert(now);
        }
        if rivals.is_empty() {
            self.told = None;
            return Finding::Clear;
        }
        let names: Vec<String> = rivals.iter().map(|pod| name(pod).to_owned()).collect();
        let is_older = |pod: &&Pod| {
            let ours = repository.is_some() && image_repository(pod) == repository;
            ours && own.is_some_and(|own| age(pod) < age(own))
        };
        let older = rivals.iter().copied().find(is_older);
        let go_on = older.is_none() && self.known.values().all(|since| now - *since >= PATIENCE);
        let list = names.join(", ");
        let telling = Some((go_on, names));
        let is_news = self.told != telling;
        self.told = telling;
        if go_on {
            let text = format!(
                "Another controller is running ({list}) and did not go away within {} s; this one assigns addresses \
                 now. Two controllers may give one address to two Services: remove the other one",
                PATIENCE.as_secs()
            );
            return Finding::GoOn(is_news.then_some(text));
        }
        if is_news {
            tracing::info!(
                op = "findRivals",
                pods = list,
                first = older.map(name),
                "another controller is running, waiting for it to go"
            );
        }
        Finding::Wait
    }
}

/// Whether a Pod may hold a controller that acts: it is not the own one, not over, and not ending.
fn may_act(pod: &Pod, own_uid: &str) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    uid(pod) != own_uid
        && pod.metadata.deletion_timestamp.is_none()
        && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_on_ready_node(pod: &Pod, nodes: &[Node]) -> bool {
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else { return false };
    nodes.iter().filter(|found| found.metadata.name.as_deref() == Some(node)).any(|node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True")
    })
}

/// The image of a Pod's controller, without tag and digest.
fn image_repository(pod: &Pod) -> Option<&str> {
    let containers = &pod.spec.as_ref()?.containers;
    let container = containers.iter().find(|c| c.name == CONTAINER).or(containers.first())?;
    let image = container.image.as_deref()?;
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    // A colon before the last slash is that of a port.
    let tag = image.rfind(':').filter(|colon| image.rfind('/').is_none_or(|slash| slash < *colon));
    Some(&image[..tag.unwrap_or(image.len())])
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Orders Pods by age, then name.
fn age(pod: &Pod) -> (i64, &str) {
    (pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()), name(pod))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OURS: &str = "registry.example:5000/ferrolb/controller";

    fn pod(name: &str, created: u8, image: &str, change: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": name, "uid": format!("uid-{name}"),
                "creationTimestamp": format!("2024-01-01T00:00:{created:02}Z"),
            },
            "spec": { "nodeName": "n1", "containers": [
                { "name": "sidecar", "image": "other" }, { "name": "controller", "image": image },
            ] },
            "status": { "phase": "Running" },
        });
        for (part, fields) in change.as_object().unwrap() {
            for (field, value) in fields.as_object().unwrap() {
                pod[part][field] = value.clone();
            }
        }
        serde_json::from_value(pod).unwrap()
    }

    fn node(name: &str, ready: &str) -> Node {
        let status = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).unwrap()
    }

    fn ours(name: &str, created: u8) -> Pod {
        pod(name, created, &format!("{OURS}:v1"), json!({}))
    }

    fn theirs() -> Pod {
        pod("metallb", 1, "quay.io/metallb/controller:v0.16.1", json!({}))
    }

    /// What looks at these times, in seconds, come to; between them somebody always has something to write.
    fn looks(pods: Vec<Pod>, seconds: &[u64]) -> Vec<Finding> {
        let found = Neighbours { pods, nodes: vec![node("n1", "True"), node("n2", "Unknown")] };
        let mut rivals = Rivals::new("uid-me");
        let mut look = |second: &u64| rivals.found(Time::millis(second * 1000), Ok(found.clone()));
        seconds.iter().map(&mut look).collect()
    }

    #[test]
    fn who_counts_as_a_rival() {
        for (what, rival, counts) in [
            ("nobody but itself", None, false),
            ("MetalLB's", Some(theirs()), true),
            ("one of ours", Some(ours("a", 1)), true),
            ("a younger one of ours", Some(ours("z", 9)), true),
            (
                "one that ends",
                Some(pod(
                    "a",
                    1,
                    OURS,
                    json!({ "metadata": { "deletionTimestamp": "2024-01-01T00:00:00Z" } }),
                )),
                false,
            ),
            ("one that failed", Some(pod("a", 1, OURS, json!({ "status": { "phase": "Failed" } }))), false),
            (
                "one that is over",
                Some(pod("a", 1, OURS, json!({ "status": { "phase": "Succeeded" } }))),
                false,
            ),
            (
                "one on a node that is not ready",
                Some(pod("a", 1, OURS, json!({ "spec": { "nodeName": "n2" } }))),
                false,
            ),
            (
                "one on a node that is gone",
                Some(pod("a", 1, OURS, json!({ "spec": { "nodeName": "n3" } }))),
                false,
            ),
            ("one without a node", Some(pod("a", 1, OURS, json!({ "spec": { "nodeName": null } }))), false),
            ("one that starts", Some(pod("a", 1, OURS, json!({ "status": { "phase": "Pending" } }))), true),
        ] {
            let pods: Vec<Pod> = [ours("me", 5)].into_iter().chain(rival).collect();
            let expected = if counts { Finding::Wait } else { Finding::Clear };
            assert_eq!(looks(pods, &[0]), [expected], "{what}");
        }
    }

    #[test]
    fn after_a_minute_the_oldest_of_ours_goes_on_whatever_metallbs_does() {
        let goes_on = |findings: &[Finding]| matches!(findings.last(), Some(Finding::GoOn(_)));
        for (what, others, expected) in [
            ("MetalLB's, older", vec![theirs()], true),
            ("a younger one of ours", vec![ours("z", 9)], true),
            ("an older one of ours", vec![ours("a", 1)], false),
            ("MetalLB's and an older one of ours", vec![theirs(), ours("a", 1)], false),
            ("one of ours that is as old, and later by name", vec![ours("z", 5)], true),
            ("one of ours that is as old, and earlier by name", vec![ours("a", 5)], false),
            (
                "another version of ours, older",
                vec![pod("a", 1, &format!("{OURS}@sha256:0123"), json!({}))],
                false,
            ),
        ] {
            let pods: Vec<Pod> = [ours("me", 5)].into_iter().chain(others).collect();
            assert!(!goes_on(&looks(pods.clone(), &[0, 30, 59])), "{what}");
            assert_eq!(goes_on(&looks(pods, &[0, 30, 60])), expected, "{what}");
        }
    }

    #[test]
    fn going_on_is_said_once_and_a_new_rival_is_waited_for_again() {
        let nodes = vec![node("n1", "True")];
        let with = |pods: Vec<Pod>| Ok(Neighbours { pods, nodes: nodes.clone() });
        let mut rivals = Rivals::new("uid-me");
        let mut look = |second: u64, others: Vec<Pod>| {
            rivals
                .found(Time::millis(second * 1000), with([ours("me", 5)].into_iter().chain(others).collect()))
        };
        assert_eq!(look(0, vec![theirs()]), Finding::Wait);
        assert!(matches!(look(60, vec![theirs()]), Finding::GoOn(Some(text)) if text.contains("(metallb)")));
        assert_eq!(look(3600, vec![theirs()]), Finding::GoOn(None));
        assert_eq!(look(3601, vec![theirs(), ours("z", 9)]), Finding::Wait);
        assert!(matches!(look(3661, vec![theirs(), ours("z", 9)]), Finding::GoOn(Some(_))));
        assert_eq!(look(3662, vec![]), Finding::Clear);
        assert_eq!(look(3663, vec![theirs()]), Finding::Wait, "it was gone");
    }

    #[test]
    fn who_may_not_look_goes_on_and_says_so_once() {
        let mut rivals = Rivals::new("uid-me");
        let refused = |code| Err(WriteError::refused(code, "", "no"));
        assert!(matches!(rivals.found(Time::ZERO, refused(403)), Finding::GoOn(Some(_))));
        assert_eq!(rivals.found(Time::ZERO, refused(403)), Finding::GoOn(None));
        assert_eq!(
            rivals.found(Time::ZERO, refused(0)),
            Finding::Wait,
            "the API server is away, so nothing is lost"
        );
    }

    #[test]
    fn one_look_serves_a_batch_and_those_right_after_it_and_nobody_looks_without_need() {
        let mut rivals = Rivals::new("me");
        let at = Time::millis;
        rivals.done();
        assert!(!rivals.take_request(at(0)) && rivals.may_decide() && !rivals.is_clear());
        rivals.want(at(0));
        assert!(rivals.take_request(at(0)) && !rivals.take_request(at(0)) && !rivals.may_decide());
        rivals.want(at(10));
        rivals.found(at(50), Ok(Neighbours::default()));
        // A batch may take its time; another one has to come soon.
        rivals.want(at(300));
        assert!(rivals.is_clear() && !rivals.take_request(at(300)));
        rivals.done();
        rivals.want(at(300));
        assert!(!rivals.is_clear() && rivals.take_request(at(300)));
        rivals.found(at(310), Ok(Neighbours::default()));
        for soon in [320, 399] {
            rivals.done();
            rivals.want(at(soon));
            assert!(rivals.is_clear() && !rivals.take_request(at(soon)));
        }
        rivals.done();
        rivals.want(at(400));
        assert!(rivals.take_request(at(400)), "counted from when it was asked for");
        rivals.found(at(400), Err(WriteError::no_answer("away")));
        assert_eq!(rivals.next_deadline(), Some(at(1400)));
        rivals.want(at(500));
        assert!(!rivals.take_request(at(500)) && !rivals.may_decide());
        rivals.handle_timeout(at(1400));
        assert_eq!((rivals.next_deadline(), rivals.may_decide()), (None, true));
    }

    #[test]
    fn an_image_is_compared_without_tag_and_digest() {
        for (image, expected) in [
            ("a/b", "a/b"),
            ("a/b:v1", "a/b"),
            ("a/b:v1@sha256:01", "a/b"),
            ("a/b@sha256:01", "a/b"),
            ("host:5000/b", "host:5000/b"),
            ("host:5000/b:v1", "host:5000/b"),
        ] {
            assert_eq!(image_repository(&pod("p", 1, image, json!({}))), Some(expected), "{image}");
        }
    }

    #[test]
    fn nodes_are_of_interest_only_while_another_pod_may_act() {
        assert!(!needs_nodes(&[ours("me", 5)], "uid-me"));
        assert!(needs_nodes(&[ours("me", 5), theirs()], "uid-me"));
    }
}
