// SPDX-License-Identifier: Apache-2.0
//! Objects as the API server returns them become values, and values the objects that are written.

use ferrolb_api::{BGPPeer, ConfigurationState, IPAddressPool, L2Advertisement, ServiceL2Status};
use serde_json::json;
use similar_asserts::assert_eq;

#[test]
fn what_an_object_leaves_out_has_its_default() {
    let pool: IPAddressPool = serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": { "name": "p" },
        "spec": { "addresses": ["10.0.0.0/24"] },
    }))
    .unwrap();
    assert!(pool.spec.auto_assign);
    assert!(!pool.spec.avoid_buggy_ips);
    assert_eq!(pool.spec.service_allocation, None);

    let peer: BGPPeer =
        serde_json::from_value(json!({ "metadata": { "name": "q" }, "spec": { "myASN": 1 } })).unwrap();
    assert_eq!(peer.spec.peer_port, 179);
}

#[test]
fn an_advertisement_may_come_without_spec() {
    let advertisement: L2Advertisement = serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement", "metadata": { "name": "all" },
    }))
    .unwrap();
    assert_eq!(advertisement.spec, Default::default());
}

#[test]
fn unknown_fields_do_no_harm() {
    let advertisement: L2Advertisement = serde_json::from_value(json!({
        "metadata": { "name": "a" }, "spec": { "interfaces": ["ens18"], "fromTheFuture": { "x": 1 } }, "more": true,
    }))
    .unwrap();
    assert_eq!(advertisement.spec.interfaces, ["ens18"]);
}

#[test]
fn a_configuration_state_has_no_spec() {
    let object = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "ConfigurationState",
        "metadata": { "name": "controller" },
        "status": {
            "result": "Valid",
            "conditions": [{
                "type": "poolReconcilerValid", "status": "True", "reason": "Reconciled", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
        },
    });
    let state: ConfigurationState = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(state).unwrap(), object);
}

#[test]
fn what_is_empty_is_not_written() {
    let mut peer = BGPPeer::new("q", Default::default());
    peer.spec.my_asn = 64512;
    peer.spec.peer_asn = 64513;
    peer.spec.hold_time = Some("90s".parse().unwrap());
    let expected = json!({
        "myASN": 64512, "peerASN": 64513, "peerPort": 179, "holdTime": "1m30s",
        "disableMP": false, "dualStackAddressFamily": false,
    });
    assert_eq!(serde_json::to_value(&peer).unwrap()["spec"], expected);

    let status = ServiceL2Status::new("l2-x", Default::default());
    assert_eq!(serde_json::to_value(&status).unwrap()["spec"], json!({}));
}
