// SPDX-License-Identifier: Apache-2.0
//! The conditions of a Service: what ours should say, and how they go among those of others.
//!
//! A condition that says what is so anyhow, and is merely missing, is no reason to write: otherwise a first start
//! would write every Service. It comes along with the next write that has a reason.
//!
//! Nor does anything here depend on who else holds what: that changes without the Service being looked at, and the next
//! start would write it. The events name names.

use ferrolb_api::{ALLOCATED_CONDITION, ANNOUNCED_CONDITION};
use ferrolb_ipam::{Decision, Lack, Outcome, PoolMark, Refusal};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What one of our conditions should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// As it is: nothing is known.
    Unchanged,
    /// Not there.
    Absent,
    /// There, and so.
    Is(Fact),
}

/// What a condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// `True` or `False`.
    pub(crate) holds: bool,
    /// A word in CamelCase.
    pub(crate) reason: &'static str,
    /// A sentence.
    pub(crate) message: String,
    /// Whether its being missing is a reason to write it.
    pub(crate) insists: bool,
}

/// What both should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) allocated: Want,
    pub(crate) announced: Want,
}

/// The longest message that a condition may have.
const MAX_MESSAGE: usize = 32768;

/// What the condition `Allocated` should be after a decision.
pub(crate) fn allocated(decision: &Decision) -> Want {
    let refused = |reason: &'static str, message: String| {
        Want::Is(Fact { holds: false, reason, message, insists: true })
    };
    let text = |message: &str| message.to_owned();
    match &decision.outcome {
        Outcome::NotLoadBalancer => Want::Absent,
        _ if !decision.ingress.is_empty() => {
            let addresses: Vec<String> = decision.ingress.iter().map(ToString::to_string).collect();
            let mut message = addresses.join(", ");
            match &decision.pool {
                PoolMark::Is(pool) => message.push_str(&format!(" from pool {pool}")),
                PoolMark::Absent | PoolMark::Unchanged => {
                    message.push_str(" from a pool that cannot be read at the moment");
                }
            }
            if let Outcome::KeptDespite(why) = &decision.outcome {
                message.push_str(&format!("; what the Service asks for is not understood: {why}"));
            }
            Want::Is(Fact { holds: true, reason: "Allocated", message, insists: false })
        }
        Outcome::Pending(refusal) => match &decision.lack {
            Some(why) => refused(word(why), why.to_string()),
            None => refused(word(&Lack::Refused(refusal.clone())), refusal.to_string()),
        },
        Outcome::KeptDespite(why) => refused("InvalidRequest", why.to_string()),
        Outcome::NoPools => refused("NoPools", text("there is no IPAddressPool")),
        Outcome::NoClusterIps => refused("NoClusterIPs", text("the Service has no cluster IP yet")),
        Outcome::NotEnoughClusterIps => refused(
            "NotEnoughClusterIPs",
            text("ipFamilyPolicy RequireDualStack needs cluster IPs of both families"),
        ),
        Outcome::UnknownFamily => {
            refused("UnknownFamily", text("the cluster IPs of the Service are not one per family"))
        }
        Outcome::Kept | Outcome::Extended | Outcome::Allocated(_) => {
            refused("NoAddress", text("the Service has no address"))
        }
    }
}

const fn word(why: &Lack) -> &'static str {
    let why = match why {
        Lack::InPool(_) => return "NoAddressInPool",
        Lack::InUse(_) => return "AddressInUse",
        Lack::Refused(why) => why,
    };
    match why {
        Refusal::Request(_) => "InvalidRequest",
        Refusal::FamilyMismatch(_) => "FamilyMismatch",
        Refusal::PoolMismatch { .. } => "PoolMismatch",
        Refusal::UnknownPool(_) => "UnknownPool",
        Refusal::NoAddress => "NoAddress",
        Refusal::PoolFull(_) | Refusal::PoolNotDual(_) | Refusal::PoolLacksFamily(..) => "NoAddressInPool",
        Refusal::NotInOnePool(_) => "NotInOnePool",
        Refusal::PoolNotCompatible(_) => "PoolNotCompatible",
        Refusal::MoreThanTwo(_) | Refusal::SameFamily(..) => "TooManyAddresses",
        Refusal::InUse { .. } | Refusal::PortInUse { .. } => "AddressInUse",
    }
}

/// What an object holds of ours, without times.
pub(crate) fn own(conditions: &[Condition]) -> Vec<(String, String, String, String)> {
    let ours = |c: &&Condition| c.type_ == ALLOCATED_CONDITION || c.type_ == ANNOUNCED_CONDITION;
    let parts = |c: &Condition| (c.type_.clone(), c.status.clone(), c.reason.clone(), c.message.clone());
    conditions.iter().filter(ours).map(parts).collect()
}

/// Whether what is stored differs from what a condition should be, so that it has to be written.
pub(crate) fn differs(conditions: &[Condition], kind: &str, want: &Want) -> bool {
    let present = conditions.iter().find(|c| c.type_ == kind);
    match (want, present) {
        (Want::Unchanged, _) | (Want::Absent, None) => false,
        (Want::Absent, Some(_)) => true,
        (Want::Is(fact), None) => fact.insists,
        (Want::Is(fact), Some(present)) => !says(present, fact),
    }
}

/// The conditions with ours as they should be. Others stay as they are, where they are.
pub(crate) fn merged(
    conditions: &[Condition],
    wants: &Wants,
    generation: Option<i64>,
    wall: Timestamp,
) -> Vec<Condition> {
    let mut merged = conditions.to_vec();
    for (kind, want) in [(ALLOCATED_CONDITION, &wants.allocated), (ANNOUNCED_CONDITION, &wants.announced)] {
        let fact = match want {
            Want::Unchanged => continue,
            Want::Absent => {
                merged.retain(|c| c.type_ != kind);
                continue;
            }
            Want::Is(fact) => fact,
        };
        // Seconds are what the API server's type has.
        let now = Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall));
        let mut new = Condition {
            type_: kind.to_owned(),
            status: status(fact).to_owned(),
            reason: fact.reason.to_owned(),
            message: within_limit(&fact.message),
            last_transition_time: now,
            observed_generation: generation,
        };
        match merged.iter_mut().find(|c| c.type_ == kind) {
            Some(present) if says(present, fact) => {}
            Some(present) => {
                if present.status == new.status {
                    new.last_transition_time = present.last_transition_time.clone();
                }
                *present = new;
            }
            None => merged.push(new),
        }
    }
    merged
}

/// Marks our condition `Allocated` as of now, whatever it says: a write that changes nothing else.
pub(crate) fn touched(conditions: &mut [Condition], wall: Timestamp) -> bool {
    let Some(own) = conditions.iter_mut().find(|c| c.type_ == ALLOCATED_CONDITION) else { return false };
    let now = Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall));
    let is_news = own.last_transition_time != now;
    own.last_transition_time = now;
    is_news
}

/// The same where there is no such condition: then there is one that says that nothing is known.
pub(crate) fn mark_taken_over(conditions: &mut Vec<Condition>, wall: Timestamp) -> bool {
    if conditions.iter().any(|c| c.type_ == ALLOCATED_CONDITION) {
        return touched(conditions, wall);
    }
    conditions.push(Condition {
        type_: ALLOCATED_CONDITION.to_owned(),
        status: "Unknown".to_owned(),
        reason: "TakenOver".to_owned(),
        message: "another controller decides from now on".to_owned(),
        last_transition_time: Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall)),
        observed_generation: None,
    });
    true
}

const fn status(fact: &Fact) -> &'static str {
    if fact.holds { "True" } else { "False" }
}

fn says(condition: &Condition, fact: &Fact) -> bool {
    condition.status == status(fact)
        && condition.reason == fact.reason
        && condition.message == within_limit(&fact.message)
}

fn within_limit(message: &str) -> String {
    message.chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use ferrolb_ipam::Choice;

    use super::*;

    fn decision(ips: &[&str], pool: PoolMark, outcome: Outcome) -> Decision {
        Decision {
            ingress: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            pool,
            notices: vec![],
            outcome,
            cleared: None,
            lack: None,
            waits_for: None,
        }
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str, second: i64) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
            observed_generation: None,
        }
    }

    fn fact(holds: bool, message: &str) -> Fact {
        Fact { holds, reason: "Reason", message: message.to_owned(), insists: false }
    }

    #[test]
    fn what_allocated_says() {
        let pool = || PoolMark::Is("first".into());
        for (decision, expected) in [
            (
                decision(&["10.0.0.1", "fd00::1"], pool(), Outcome::Allocated(Choice::Open)),
                Some((true, "Allocated", "10.0.0.1, fd00::1 from pool first")),
            ),
            (
                decision(&["10.0.0.1"], PoolMark::Unchanged, Outcome::Kept),
                Some((true, "Allocated", "10.0.0.1 from a pool that cannot be read at the moment")),
            ),
            (
                decision(&[], PoolMark::Absent, Outcome::Pending(Refusal::NoAddress)),
                Some((false, "NoAddress", "no available IPs")),
            ),
            (
                decision(&[], PoolMark::Absent, Outcome::Pending(Refusal::UnknownPool("x".to_owned()))),
                Some((false, "UnknownPool", "unknown pool \"x\"")),
            ),
            (
                decision(&[], PoolMark::Absent, Outcome::NoPools),
                Some((false, "NoPools", "there is no IPAddressPool")),
            ),
            (decision(&[], PoolMark::Absent, Outcome::NotLoadBalancer), None),
        ] {
            let said = match allocated(&decision) {
                Want::Is(fact) => Some((fact.holds, fact.reason, fact.message)),
                _ => None,
            };
            assert_eq!(said, expected.map(|(holds, reason, message)| (holds, reason, message.to_owned())));
        }
    }

    #[test]
    fn a_missing_condition_is_written_only_if_it_insists() {
        let want = |insists| Want::Is(Fact { insists, ..fact(true, "a") });
        assert!(!differs(&[], ALLOCATED_CONDITION, &want(false)));
        assert!(differs(&[], ALLOCATED_CONDITION, &want(true)));
        let stored = |status, message| [condition(ALLOCATED_CONDITION, status, "Reason", message, 1)];
        for (stored, expected) in
            [(stored("True", "a"), false), (stored("True", "b"), true), (stored("False", "a"), true)]
        {
            assert_eq!(differs(&stored, ALLOCATED_CONDITION, &want(false)), expected, "{stored:?}");
            assert!(!differs(&stored, ALLOCATED_CONDITION, &Want::Unchanged));
            assert!(differs(&stored, ALLOCATED_CONDITION, &Want::Absent));
        }
    }

    #[test]
    fn ours_go_among_the_others_and_the_time_is_that_of_the_last_change_of_status() {
        let stored = [
            condition("theirs", "True", "X", "", 1),
            condition(ALLOCATED_CONDITION, "True", "Reason", "a", 2),
            condition("more", "False", "Y", "z", 3),
        ];
        let wall = Timestamp::from_second(100).unwrap() + std::time::Duration::from_millis(900);
        let wants = |message: &str, holds| Wants {
            allocated: Want::Is(fact(holds, message)),
            announced: Want::Is(fact(false, "nobody")),
        };
        let table = [("a", true, 2), ("b", true, 2), ("b", false, 100)];
        for (message, holds, second) in table {
            let result = merged(&stored, &wants(message, holds), Some(7), wall);
            assert_eq!((&result[0], &result[2]), (&stored[0], &stored[2]), "others");
            assert_eq!(result[1].message, message);
            assert_eq!(result[1].last_transition_time.0.as_second(), second);
            assert_eq!(
                (result[3].type_.as_str(), result[3].observed_generation),
                (ANNOUNCED_CONDITION, Some(7))
            );
        }
        let none = Wants { allocated: Want::Absent, announced: Want::Unchanged };
        assert_eq!(merged(&stored, &none, None, wall), [stored[0].clone(), stored[2].clone()]);
    }
}
