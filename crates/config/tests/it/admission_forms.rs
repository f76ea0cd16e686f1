// SPDX-License-Identifier: Apache-2.0
//! The forms of reviews and answers, and what is no review.

use ferrolb_config::admission::{Answer, Operation, Review, Stored, Target, judge};
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use crate::api_server::{ApiServer, NAMESPACE, review};

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

fn pool(addresses: &Value) -> Value {
    json!({ "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
            "metadata": { "name": "p", "namespace": NAMESPACE }, "spec": { "addresses": addresses } })
}

fn answer(target: Target, body: &Value) -> Answer {
    let server = ApiServer::new("native");
    match Review::decode(target, body.to_string().as_bytes()) {
        Ok(review) => judge(&review, &server.read(&review), &server.setup),
        Err(answer) => answer,
    }
}

#[test]
fn answers_have_the_form_of_metallbs() {
    let allowed = answer(
        Target::L2Advertisement,
        &review("CREATE", &json!({ "metadata": { "namespace": NAMESPACE, "name": "l" } }), &Value::Null),
    );
    assert_eq!(
        allowed.to_json(),
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {
            "uid": UID, "allowed": true, "status": { "metadata": {}, "code": 200 },
        } })
    );
    let warned =
        answer(Target::IPAddressPool, &review("CREATE", &pool(&json!(["10.0.0.0/24"])), &Value::Null));
    assert_eq!(warned.to_json()["response"]["warnings"], json!(warned.warnings));
    assert_eq!(warned.warnings.len(), 1);

    let denied = answer(Target::IPAddressPool, &review("CREATE", &pool(&json!([])), &Value::Null));
    assert_eq!(
        denied.to_json(),
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {
            "uid": UID, "allowed": false, "status": {
                "metadata": {}, "code": 403, "reason": "Forbidden",
                "message": "parsing address pool p: pool has no prefixes defined",
            },
        } })
    );
    let mut older = review("CREATE", &pool(&json!([])), &Value::Null);
    older["apiVersion"] = json!("admission.k8s.io/v1beta1");
    assert_eq!(answer(Target::IPAddressPool, &older).to_json()["apiVersion"], "admission.k8s.io/v1beta1");
}

#[test]
fn an_object_that_cannot_be_decoded_is_answered_with_400() {
    let preference =
        |value: Value| json!({ "metadata": { "namespace": NAMESPACE }, "spec": { "localPref": value } });
    for (target, object, message) in [
        (Target::IPAddressPool, pool(&json!("10.0.0.0/24")), "expected a sequence"),
        (Target::IPAddressPool, json!({ "metadata": {} }), "missing field `spec`"),
        (Target::IPAddressPool, Value::Null, "there is no object to judge"),
        (Target::IPAddressPool, json!([]), "there is no object to judge"),
        (Target::Community, pool(&json!([])), "expected an object of kind Community, found IPAddressPool"),
        (
            Target::BGPAdvertisement,
            preference(json!(-1)),
            "spec.localPref: expected 0 to 4294967295, found -1",
        ),
        (
            Target::BGPAdvertisement,
            preference(json!(4_294_967_296_u64)),
            "spec.localPref: expected 0 to 4294967295",
        ),
        (
            Target::BGPPeer,
            json!({ "metadata": {}, "spec": { "myASN": 1, "holdTime": "soon" } }),
            "invalid duration \"soon\"",
        ),
    ] {
        let answer = answer(target, &review("CREATE", &object, &Value::Null));
        assert_eq!((answer.allowed, answer.code, answer.reason), (false, 400, None), "{object}");
        assert!(answer.message.contains(message), "{}", answer.message);
        let json = answer.to_json();
        assert_eq!((&json["response"]["uid"], &json["kind"]), (&json!(UID), &json!("AdmissionReview")));
    }
}

#[test]
fn what_is_no_review_is_answered_too() {
    let decode = |body: &[u8]| Review::decode(Target::BGPPeer, body).unwrap_err().to_json();
    assert_eq!(
        decode(b""),
        json!({ "response": { "uid": "", "allowed": false, "status": {
            "metadata": {}, "message": "request body is empty", "code": 400,
        } } })
    );
    assert_eq!(
        Answer::malformed("contentType=text/plain, expected application/json").to_json(),
        json!({ "response": { "uid": "", "allowed": false, "status": {
            "metadata": {}, "message": "contentType=text/plain, expected application/json", "code": 400,
        } } })
    );
    let garbage = decode(b"{");
    assert_eq!((&garbage["kind"], &garbage["response"]["status"]["code"]), (&Value::Null, &json!(400)));
    for body in ["{}", "[]", "7", r#"{"request":null}"#, r#"{"request":{"operation":"LOOK"}}"#] {
        let answer = decode(body.as_bytes());
        assert_eq!(
            (&answer["kind"], &answer["apiVersion"], &answer["response"]["allowed"]),
            (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"), &json!(false)),
            "{body}"
        );
        assert_eq!(answer["response"]["status"]["code"], 400);
    }
}

#[test]
fn what_nobody_asks_about_is_allowed() {
    for target in Target::ALL {
        let connect = answer(target, &review("CONNECT", &Value::Null, &Value::Null));
        assert!(connect.allowed);
    }
    for target in Target::ALL.into_iter().filter(|target| *target != Target::BFDProfile) {
        let gone = json!({ "metadata": { "name": "x", "namespace": NAMESPACE } });
        assert!(answer(target, &review("DELETE", &Value::Null, &gone)).allowed);
        assert!(!target.operations().contains(&Operation::Delete));
    }
    // A profile elsewhere is nobody's, and needs no reading.
    let elsewhere =
        review("DELETE", &Value::Null, &json!({ "metadata": { "name": "f", "namespace": "default" } }));
    let decoded = Review::decode(Target::BFDProfile, elsewhere.to_string().as_bytes()).unwrap();
    assert_eq!(
        (decoded.namespace(), decoded.name(), decoded.operation()),
        ("default", "f", Operation::Delete)
    );
    assert!(judge(&decoded, &Stored::new(), &ApiServer::new("frr").setup).allowed);
}

#[test]
fn a_deletion_without_the_former_object_goes_by_the_name() {
    let mut body = review("DELETE", &Value::Null, &Value::Null);
    body["request"]["name"] = json!("f");
    body["request"]["namespace"] = json!(NAMESPACE);
    let mut server = ApiServer::new("frr");
    server.admits(
        Target::BGPPeer,
        "q",
        &json!({ "myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1", "bfdProfile": "f" }),
    );
    let decoded = Review::decode(Target::BFDProfile, body.to_string().as_bytes()).unwrap();
    let answer = judge(&decoded, &server.read(&decoded), &server.setup);
    assert_eq!(answer.message, "failed to delete BFDProfile f, used by BGPPeer q");
}
