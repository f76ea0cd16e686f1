// SPDX-License-Identifier: Apache-2.0
//! The Lease as a value: who holds it, what stands in it, and the next version of it.
//!
//! The holder proves that it lives by replacing the object once a second. What it is about to write stands in an
//! annotation, so that whoever takes over knows what may still arrive.

use ferrolb_api::annotations::INTENTS;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use crate::intents::Inherited;

/// The name of the controllers' Lease, in their own namespace.
pub const LEASE: &str = "ferrolb-controller";

/// What the Lease says of itself, in seconds: after this long without a change it may be taken.
pub(crate) const DURATION_SECONDS: u8 = 4;

/// Who holds the Lease; empty if nobody does.
pub(crate) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Which version of the Lease it is.
pub(crate) fn version(lease: &Lease) -> &str {
    lease.metadata.resource_version.as_deref().unwrap_or_default()
}

/// What the holder may have sent. A Lease without the annotation says nothing, unless it never had a holder.
pub(crate) fn intents(lease: &Lease) -> Inherited {
    let text = lease.metadata.annotations.as_ref().and_then(|notes| notes.get(INTENTS));
    let was_held =
        || lease.spec.as_ref().is_some_and(|spec| spec.acquire_time.is_some() || !holder(lease).is_empty());
    match text {
        Some(text) => Inherited::decode(text),
        None if was_held() => Inherited::Unknown,
        None => Inherited::default(),
    }
}

/// The first version of the Lease.
pub(crate) fn first(namespace: &str, holder: &str, wall: Timestamp, intents: String) -> Lease {
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(LEASE.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    };
    next(&lease, Some(holder), wall, intents)
}

/// The version after `lease`, held by `holder` or nobody. Whatever else stands in the object stays.
pub(crate) fn next(lease: &Lease, holder: Option<&str>, wall: Timestamp, intents: String) -> Lease {
    let mut next = lease.clone();
    next.metadata.annotations.get_or_insert_default().insert(INTENTS.to_owned(), intents);
    next.metadata.managed_fields = None;
    let spec: &mut LeaseSpec = next.spec.get_or_insert_default();
    if let Some(holder) = holder
        && spec.holder_identity.as_deref() != Some(holder)
    {
        spec.acquire_time = Some(MicroTime(wall));
        spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count.saturating_add(1)));
    }
    spec.holder_identity = holder.map(str::to_owned);
    spec.lease_duration_seconds = Some(DURATION_SECONDS.into());
    spec.renew_time = Some(MicroTime(wall));
    next
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const WALL: Timestamp = Timestamp::UNIX_EPOCH;

    fn json(lease: &Lease) -> Value {
        serde_json::to_value(lease).unwrap()
    }

    #[test]
    fn the_first_version_has_what_a_lease_must_have() {
        assert_eq!(
            json(&first("metallb-system", "c_u", WALL, "[]".to_owned())),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": "ferrolb-controller", "namespace": "metallb-system",
                    "annotations": { "ferrolb.io/intents": "[]" },
                },
                "spec": {
                    "holderIdentity": "c_u", "leaseDurationSeconds": 4, "leaseTransitions": 0,
                    "acquireTime": "1970-01-01T00:00:00.000000Z", "renewTime": "1970-01-01T00:00:00.000000Z",
                },
            })
        );
    }

    #[test]
    fn a_renewal_changes_the_time_and_a_new_holder_is_counted() {
        let later = WALL + std::time::Duration::from_millis(1500);
        let mut lease = first("n", "a", WALL, "[]".to_owned());
        lease.metadata.annotations.get_or_insert_default().insert("theirs".to_owned(), "x".to_owned());
        let renewed = json(&next(&lease, Some("a"), later, "[1]".to_owned()));
        assert_eq!(renewed["spec"]["renewTime"], "1970-01-01T00:00:01.500000Z");
        assert_eq!(renewed["spec"]["acquireTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(renewed["metadata"]["annotations"], json!({ "theirs": "x", "ferrolb.io/intents": "[1]" }));
        let released = next(&lease, None, later, "[]".to_owned());
        assert_eq!(holder(&released), "");
        let taken = json(&next(&released, Some("b"), later, "[]".to_owned()));
        assert_eq!(taken["spec"]["leaseTransitions"], 1);
        assert_eq!(taken["spec"]["acquireTime"], "1970-01-01T00:00:01.500000Z");
    }

    #[test]
    fn what_may_still_arrive_is_known_only_if_it_can_be_read() {
        let lease = |annotations: Value, spec: Value| -> Lease {
            serde_json::from_value(json!({ "metadata": { "annotations": annotations }, "spec": spec }))
                .unwrap()
        };
        let held = || json!({ "holderIdentity": "a" });
        let given_up = || json!({ "acquireTime": "1970-01-01T00:00:00.000000Z" });
        for (what, lease, known) in [
            ("nothing", lease(json!({ "ferrolb.io/intents": "[]" }), held()), true),
            ("garbage", lease(json!({ "ferrolb.io/intents": "?" }), held()), false),
            ("removed", lease(json!({}), held()), false),
            ("removed, and given up", lease(json!({}), given_up()), false),
            ("made by somebody for a controller to take", lease(json!({}), json!({})), true),
        ] {
            assert_eq!(intents(&lease) != Inherited::Unknown, known, "{what}");
        }
    }
}
