// SPDX-License-Identifier: Apache-2.0
//! What is to be done about certificates, given what the API has and what is presented. Values in, values out.

use std::time::{Duration, SystemTime};

use super::certificates::{Material, Renewal, Verdict};
use super::trust::{Apply, OVERLAP, Target};

/// Clocks are set, and machines sleep: what is due is looked at this often at least.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// What is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The Secret's content; `None` if there is no Secret, or none that can be read.
    pub(crate) stored: Option<Material>,
    /// What is presented.
    pub(crate) served: Option<Material>,
    /// The objects that name CAs, as far as they exist.
    pub(crate) targets: Vec<Target>,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// Present what the Secret holds.
    pub(crate) serve: bool,
    /// Name the CA in these.
    pub(crate) apply: Vec<Apply>,
    /// Make this anew and put it into the Secret, and why.
    pub(crate) renew: Option<(Renewal, String)>,
    /// Whether whoever is asked now can answer, and is trusted.
    pub(crate) settled: bool,
    /// When to decide again at the latest.
    pub(crate) due: SystemTime,
}

/// Decides for a server of this DNS name.
pub(crate) fn decide(view: &View, dns: &str, now: SystemTime) -> Decision {
    let mut decision =
        Decision { serve: false, apply: Vec::new(), renew: None, settled: false, due: now + LOOK_AGAIN };
    let Some(stored) = &view.stored else { return decision };
    match stored.verdict(dns, now) {
        Verdict::Good { until } => decision.due = decision.due.min(until),
        Verdict::Renew { what, why } => decision.renew = Some((what, why)),
    }
    if stored.usable(dns, now).is_err() {
        return decision;
    }
    decision.apply = view.targets.iter().filter_map(|target| target.missing(stored, now)).collect();
    if let Some(end) = stored.made().map(|made| made + OVERLAP).filter(|end| now < *end) {
        decision.due = decision.due.min(end);
    }
    let served = view.served.as_ref().filter(|served| served.usable(dns, now).is_ok());
    decision.serve = view.served.as_ref() != Some(stored)
        && served.is_none_or(|served| {
            !view.targets.iter().any(|target| target.holds_back(served, stored, dns, now))
        });
    decision.settled = view.served.as_ref().is_some_and(|served| {
        served.usable(dns, now).is_ok() && view.targets.iter().all(|target| target.accepts(served, dns, now))
    });
    decision
}

#[cfg(test)]
mod tests {
    use super::super::certificates::AHEAD;
    use super::super::certificates::tests::{DNS, OTHER, OURS, days, metallb, start};
    use super::super::trust::tests::{text, webhooks};
    use super::*;

    /// What of it is done: present, apply, make anew; and whether all is well.
    fn done(view: &View, now: SystemTime) -> (bool, usize, Option<Renewal>, bool) {
        let decision = decide(view, DNS, now);
        (decision.serve, decision.apply.len(), decision.renew.map(|(what, _)| what), decision.settled)
    }

    #[test]
    fn what_is_done_at_each_stage_of_a_life() {
        use Renewal::{Everything, Server};
        let (ours, other) = (Some(OURS.clone()), Some(OTHER.clone()));
        let renewed = Some(OURS.issue_server(DNS, start() + days(280)).unwrap());
        let (ca, former) = (text(&OURS.ca), text(&OTHER.ca));
        let both = format!("{ca}{former}");
        let empty = Some(Material::default());
        let (now, due, ended) = (start(), start() + days(280), start() + days(370));
        for (name, stored, served, bundle, now, expected) in [
            ("no Secret", None, None, "", now, (false, 0, None, false)),
            ("the Secret was deleted", None, ours.clone(), ca, now, (false, 0, None, false)),
            ("an empty Secret", empty.clone(), None, "", now, (false, 0, Some(Everything), false)),
            ("made just now", ours.clone(), None, "", now, (true, 1, None, false)),
            ("presented, not yet trusted", ours.clone(), ours.clone(), "", now, (false, 1, None, false)),
            ("all is well", ours.clone(), ours.clone(), ca, now, (false, 0, None, true)),
            ("somebody removed the bundle", ours.clone(), ours.clone(), "", now, (false, 1, None, false)),
            ("a start with a good Secret", ours.clone(), None, ca, now, (true, 0, None, false)),
            ("90 days left", ours.clone(), ours.clone(), ca, due, (false, 0, Some(Server), true)),
            ("renewed by somebody", renewed, ours.clone(), ca, due, (true, 0, None, true)),
            (
                "ended, the API was away",
                ours.clone(),
                ours.clone(),
                ca,
                ended,
                (false, 0, Some(Server), false),
            ),
            ("emptied on purpose", empty, other.clone(), former, now, (false, 0, Some(Everything), false)),
            ("another CA, not yet trusted", ours.clone(), other.clone(), former, now, (false, 1, None, true)),
            ("another CA, trusted beside", ours.clone(), other, &both, now, (true, 0, None, true)),
            ("the former CA goes", ours.clone(), ours, &both, start() + OVERLAP, (false, 1, None, true)),
            ("from MetalLB's hands", Some(metallb()), None, "", now, (true, 1, None, false)),
        ] {
            let view = View { stored, served, targets: vec![webhooks(&[bundle])] };
            assert_eq!(done(&view, now), expected, "{name}");
        }
    }

    #[test]
    fn what_is_due_is_looked_at_when_it_is_due_and_every_hour_whatever_the_clock_does() {
        let view = View { stored: Some(OURS.clone()), ..View::default() };
        let hour = LOOK_AGAIN;
        for (now, due) in [
            (start() + days(1), start() + days(1) + hour),
            (start() + days(275) - hour / 2, start() + days(275)),
            // For an hour after it was made, whose end is when former authorities go.
            (start() + hour / 4, start() + hour),
        ] {
            assert_eq!(decide(&view, DNS, now).due, due);
        }
        assert_eq!(AHEAD, days(90));
    }

    #[test]
    fn a_rotation_of_two_replicas_never_presents_what_is_not_trusted_in_any_order_of_events() {
        // Replica a makes the new CA and applies it; b learns of the Secret and of the bundle in either order.
        let (old, new) = (OTHER.clone(), OURS.clone());
        let (before, between) = (text(&old.ca), format!("{}{}", text(&new.ca), text(&old.ca)));
        for order in [["secret", "bundle"], ["bundle", "secret"]] {
            let mut view = View {
                stored: Some(old.clone()),
                served: Some(old.clone()),
                targets: vec![webhooks(&[before])],
            };
            let mut real = before.to_owned();
            for event in order {
                match event {
                    "secret" => view.stored = Some(new.clone()),
                    _ => {
                        real.clone_from(&between);
                        view.targets = vec![webhooks(&[&between])];
                    }
                }
                if decide(&view, DNS, start()).serve {
                    view.served = view.stored.clone();
                }
                let served = view.served.clone().unwrap();
                assert!(webhooks(&[&real]).accepts(&served, DNS, start()), "{order:?} after {event}");
            }
            assert_eq!(view.served, Some(new.clone()), "{order:?}");
        }
    }
}
