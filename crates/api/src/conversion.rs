// SPDX-License-Identifier: Apache-2.0
//! Conversion of BGPPeers between v1beta1 and v1beta2, as the API server asks for it with a ConversionReview.
//!
//! Objects are converted as they are written, not by way of the types: an object that one of the types could not hold
//! must not keep the whole list from being read. `metadata` and `status` are not touched.
//!
//! A timer that is absent stays absent. In v1beta1 a timer of zero counts as absent, because nobody could leave it out
//! there: MetalLB writes `0s` into every object that it converts. In v1beta2, where it can be left out, a zero is meant.

use serde_json::{Map, Value, json};

use crate::{Duration, GROUP};

/// The answer to a ConversionReview: a review of the same version with a response in place of the request.
///
/// Either every object is converted, in order, or none is and the result says why. `apiextensions.k8s.io/v1` and
/// `v1beta1` have the same form.
pub fn review(review: &Value) -> Result<Value, ReviewError> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    let (Some(api_version), Some("ConversionReview")) = (api_version, kind.as_deref()) else {
        return Err(ReviewError::NoReview);
    };
    let request = review["request"].as_object().ok_or(ReviewError::NoRequest)?;
    let desired = request.get("desiredAPIVersion").and_then(Value::as_str).unwrap_or_default();
    let objects = request.get("objects").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let converted: Result<Vec<Value>, ConversionError> =
        objects.iter().map(|object| convert(object, desired)).collect();
    let mut response = match converted {
        Ok(objects) => {
            json!({ "convertedObjects": objects, "result": { "metadata": {}, "status": "Success" } })
        }
        Err(error) => json!({
            "convertedObjects": [],
            "result": { "metadata": {}, "status": "Failure", "message": error.to_string() },
        }),
    };
    response["uid"] = request.get("uid").cloned().unwrap_or_else(|| json!(""));
    Ok(json!({ "kind": "ConversionReview", "apiVersion": api_version, "response": response }))
}

/// A BGPPeer in another version, such as `metallb.io/v1beta2`.
pub fn convert(object: &Value, desired: &str) -> Result<Value, ConversionError> {
    let version = |api_version: &str| {
        let (group, version) = api_version.split_once('/')?;
        match version {
            "v1beta1" if group == GROUP => Some(Version::V1beta1),
            "v1beta2" if group == GROUP => Some(Version::V1beta2),
            _ => None,
        }
    };
    let current = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    if kind != "BGPPeer" {
        return Err(ConversionError::Kind(kind.to_owned()));
    }
    let from = version(current).ok_or_else(|| ConversionError::Version(current.to_owned()))?;
    let to = version(desired).ok_or_else(|| ConversionError::Version(desired.to_owned()))?;
    if from == to {
        return Err(ConversionError::Same(desired.to_owned()));
    }
    let mut converted = object.clone();
    converted["apiVersion"] = json!(desired);
    if let Some(spec) = object.get("spec").and_then(Value::as_object) {
        converted["spec"] = Value::Object(match to {
            Version::V1beta1 => to_v1beta1(spec),
            Version::V1beta2 => to_v1beta2(spec),
        });
    }
    Ok(converted)
}

/// Why a text is no ConversionReview; to be answered with HTTP 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// `apiVersion` or `kind` is missing or another.
    #[error("not a ConversionReview")]
    NoReview,
    /// There is no `request`.
    #[error("the ConversionReview has no request")]
    NoRequest,
}

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// It is of this kind.
    #[error("objects of kind {0:?} are not converted, only BGPPeers")]
    Kind(String),
    /// It is, or is to become, of this version.
    #[error("BGPPeer has no version {0:?}")]
    Version(String),
    /// It is of the wanted version already.
    #[error("the BGPPeer is of version {0:?} already")]
    Same(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1beta1,
    V1beta2,
}

/// The fields that both versions have and that are left out when they say nothing.
const SAME: [&str; 6] = ["sourceAddress", "peerPort", "routerID", "password", "bfdProfile", "ebgpMultiHop"];

/// The timers of both versions.
const TIMERS: [&str; 2] = ["holdTime", "keepaliveTime"];

fn to_v1beta2(old: &Map<String, Value>) -> Map<String, Value> {
    let mut new = Map::new();
    new.insert("myASN".to_owned(), old.get("myASN").cloned().unwrap_or_else(|| json!(0)));
    copy(old, &mut new, &["peerASN", "peerAddress"]);
    copy(old, &mut new, &SAME);
    for timer in TIMERS {
        let parsed = old.get(timer).map(canonical);
        if let Some(time) = parsed.filter(|time| time != "0s") {
            new.insert(timer.to_owned(), time);
        }
    }
    let selectors = selectors(old, |mut expression| {
        // What the way there had to write.
        if let Some(expression) = expression.as_object_mut()
            && expression.get("values").is_some_and(says_nothing)
        {
            expression.remove("values");
        }
        expression
    });
    if !selectors.is_empty() {
        new.insert("nodeSelectors".to_owned(), Value::Array(selectors));
    }
    // As MetalLB writes it: an empty reference, which names nothing.
    new.insert("passwordSecret".to_owned(), json!({}));
    new
}

fn to_v1beta1(new: &Map<String, Value>) -> Map<String, Value> {
    let mut old = Map::new();
    // These three must be there.
    for (field, nothing) in [("myASN", json!(0)), ("peerASN", json!(0)), ("peerAddress", json!(""))] {
        old.insert(field.to_owned(), new.get(field).cloned().unwrap_or(nothing));
    }
    copy(new, &mut old, &SAME);
    for timer in TIMERS {
        if let Some(time) = new.get(timer).map(canonical) {
            old.insert(timer.to_owned(), time);
        }
    }
    let selectors = selectors(new, |mut expression| {
        // Required there; operators that take no values cannot be written, but must be readable.
        if let Some(expression) = expression.as_object_mut() {
            expression.entry("values").or_insert_with(|| json!([]));
        }
        expression
    });
    if !selectors.is_empty() {
        old.insert("nodeSelectors".to_owned(), Value::Array(selectors));
    }
    old
}

/// Copies what says something.
fn copy(from: &Map<String, Value>, to: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        if let Some(value) = from.get(*field).filter(|value| !says_nothing(value)) {
            to.insert((*field).to_owned(), value.clone());
        }
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// A time in canonical form; what is none stays as it is.
fn canonical(time: &Value) -> Value {
    let parsed = time.as_str().and_then(|text| text.parse::<Duration>().ok());
    parsed.map_or_else(|| time.clone(), |parsed| json!(parsed.to_string()))
}

/// The selectors of nodes without their empty parts; an empty selector stays one.
fn selectors(spec: &Map<String, Value>, expression: impl Fn(Value) -> Value) -> Vec<Value> {
    let given = spec.get("nodeSelectors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let convert = |selector: &Value| {
        let mut converted = Map::new();
        for (field, value) in selector.as_object().into_iter().flatten() {
            match value {
                Value::Array(list) if field == "matchExpressions" && !list.is_empty() => {
                    let list = list.iter().cloned().map(&expression).collect();
                    converted.insert(field.clone(), Value::Array(list));
                }
                value if says_nothing(value) => {}
                value => {
                    converted.insert(field.clone(), value.clone());
                }
            }
        }
        Value::Object(converted)
    };
    given.iter().map(convert).collect()
}

#[cfg(test)]
mod tests {
    use similar_asserts::assert_eq;

    use super::*;
    use crate::{bgppeer, bgppeer_v1beta1};

    fn peer(version: &str, spec: &Value) -> Value {
        json!({ "apiVersion": format!("metallb.io/{version}"), "kind": "BGPPeer", "metadata": metadata(), "spec": spec })
    }

    /// With parts that no type of ours knows.
    fn metadata() -> Value {
        json!({ "name": "p", "namespace": "ns", "labels": { "a": "b" }, "future": [1, { "x": null }],
                "managedFields": [{ "manager": "kubectl", "fieldsV1": { "f:spec": {} } }] })
    }

    fn converted(from: &str, to: &str, spec: &Value) -> Value {
        let converted = convert(&peer(from, spec), &format!("metallb.io/{to}")).unwrap();
        assert_eq!(converted["metadata"], metadata());
        assert_eq!(converted["apiVersion"], format!("metallb.io/{to}"));
        assert_eq!(converted["kind"], "BGPPeer");
        converted["spec"].clone()
    }

    #[test]
    fn k1_every_field_of_the_deprecated_version_is_kept() {
        let old = json!({
            "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.2", "sourceAddress": "192.168.10.20",
            "routerID": "10.0.0.1", "peerPort": 1179, "holdTime": "90s", "keepaliveTime": "30s", "password": "secret",
            "bfdProfile": "fast", "ebgpMultiHop": true,
            "nodeSelectors": [
                { "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] },
                {},
            ],
        });
        let new = converted("v1beta1", "v1beta2", &old);
        let mut expected = old.clone();
        expected["holdTime"] = json!("1m30s");
        expected["passwordSecret"] = json!({});
        assert_eq!(new, expected);
        let typed: bgppeer::BGPPeerSpec = serde_json::from_value(new.clone()).unwrap();
        assert_eq!(typed.node_selectors.len(), 2);

        let mut back = old;
        back["holdTime"] = json!("1m30s");
        assert_eq!(converted("v1beta2", "v1beta1", &new), back);
    }

    #[test]
    fn what_the_deprecated_version_lacks_is_left_out() {
        let new = json!({
            "myASN": 64512, "dynamicASN": "external", "interface": "ens18", "localASN": 64999, "connectTime": "10s",
            "passwordSecret": { "name": "s" }, "enableGracefulRestart": true, "vrf": "red", "disableMP": true,
            "dualStackAddressFamily": true, "peerPort": 179,
            "nodeSelectors": [{ "matchExpressions": [{ "key": "k", "operator": "Exists" }] }],
        });
        let old = converted("v1beta2", "v1beta1", &new);
        assert_eq!(
            old,
            json!({
                "myASN": 64512, "peerASN": 0, "peerAddress": "", "peerPort": 179,
                "nodeSelectors": [{ "matchExpressions": [{ "key": "k", "operator": "Exists", "values": [] }] }],
            })
        );
        let back = converted("v1beta1", "v1beta2", &old);
        assert_eq!(
            back["nodeSelectors"], new["nodeSelectors"],
            "what the way there added goes on the way back"
        );
        serde_json::from_value::<bgppeer_v1beta1::BGPPeerSpec>(old).unwrap();
    }

    #[test]
    fn s6_absent_timers_stay_absent_both_ways() {
        let basic = json!({ "myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1" });
        let with = |more: Value| {
            let mut spec = basic.clone();
            for (field, value) in more.as_object().unwrap() {
                spec[field] = value.clone();
            }
            spec
        };
        let timers = |spec: &Value| (spec.get("holdTime").cloned(), spec.get("keepaliveTime").cloned());
        let time = |text: &str| Some(json!(text));
        for (from, to, given, expected) in [
            ("v1beta1", "v1beta2", json!({}), (None, None)),
            ("v1beta1", "v1beta2", json!({ "holdTime": "0s", "keepaliveTime": "0" }), (None, None)),
            ("v1beta1", "v1beta2", json!({ "holdTime": "180s" }), (time("3m0s"), None)),
            (
                "v1beta1",
                "v1beta2",
                json!({ "holdTime": "180s", "keepaliveTime": "0s" }),
                (time("3m0s"), None),
            ),
            ("v1beta1", "v1beta2", json!({ "keepaliveTime": "60s" }), (None, time("1m0s"))),
            ("v1beta2", "v1beta1", json!({}), (None, None)),
            ("v1beta2", "v1beta1", json!({ "holdTime": "0s" }), (time("0s"), None)),
            (
                "v1beta2",
                "v1beta1",
                json!({ "holdTime": "9s", "keepaliveTime": "3s" }),
                (time("9s"), time("3s")),
            ),
        ] {
            assert_eq!(timers(&converted(from, to, &with(given.clone()))), expected, "{from} {given}");
        }
    }

    #[test]
    fn ports_and_flags_that_say_nothing_are_left_to_their_defaults() {
        let old = json!({ "myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1", "peerPort": 0, "ebgpMultiHop": false,
                          "password": "", "nodeSelectors": [] });
        assert_eq!(
            converted("v1beta1", "v1beta2", &old),
            json!({ "myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1", "passwordSecret": {} })
        );
    }

    #[test]
    fn one_odd_object_does_not_keep_the_others_from_being_read() {
        let odd =
            json!({ "myASN": "many", "holdTime": "soon", "keepaliveTime": 7, "nodeSelectors": [3, "x"] });
        let old = converted("v1beta2", "v1beta1", &odd);
        assert_eq!(
            (&old["myASN"], &old["holdTime"], &old["keepaliveTime"]),
            (&json!("many"), &json!("soon"), &json!(7))
        );
        let without = json!({ "apiVersion": "metallb.io/v1beta1", "kind": "BGPPeer", "status": { "x": 1 } });
        assert_eq!(
            convert(&without, "metallb.io/v1beta2").unwrap(),
            json!({ "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer", "status": { "x": 1 } })
        );
    }

    fn request(desired: &str, objects: &[Value]) -> Value {
        json!({ "uid": "u-1", "desiredAPIVersion": desired, "objects": objects })
    }

    #[test]
    fn reviews_of_both_versions_are_answered_in_kind() {
        for version in ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"] {
            let objects = ["a", "b"].map(|name| {
                json!({ "apiVersion": "metallb.io/v1beta1", "kind": "BGPPeer", "metadata": { "name": name } })
            });
            let asked = json!({ "apiVersion": version, "kind": "ConversionReview",
                                "request": request("metallb.io/v1beta2", &objects) });
            let as_converted = |name: &str| json!({ "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer", "metadata": { "name": name } });
            assert_eq!(
                review(&asked),
                Ok(json!({ "apiVersion": version, "kind": "ConversionReview", "response": {
                    "uid": "u-1",
                    "convertedObjects": [as_converted("a"), as_converted("b")],
                    "result": { "metadata": {}, "status": "Success" },
                } }))
            );
        }
    }

    #[test]
    fn one_failure_fails_the_review() {
        let good = peer("v1beta1", &json!({}));
        for (desired, object, message) in [
            ("metallb.io/v1beta1", &good, "the BGPPeer is of version \"metallb.io/v1beta1\" already"),
            ("metallb.io/v1", &good, "BGPPeer has no version \"metallb.io/v1\""),
            ("example.com/v1beta2", &good, "BGPPeer has no version \"example.com/v1beta2\""),
            ("metallb.io/v1beta2", &json!({ "kind": "BGPPeer" }), "BGPPeer has no version \"\""),
            (
                "metallb.io/v1beta2",
                &json!({ "apiVersion": "metallb.io/v1beta1", "kind": "Community" }),
                "objects of kind \"Community\" are not converted, only BGPPeers",
            ),
            ("metallb.io/v1beta2", &json!(7), "objects of kind \"\" are not converted, only BGPPeers"),
        ] {
            let asked = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                                "request": request(desired, &[good.clone(), object.clone()]) });
            let response = review(&asked).unwrap()["response"].clone();
            assert_eq!(
                response,
                json!({ "uid": "u-1", "convertedObjects": [],
                        "result": { "metadata": {}, "status": "Failure", "message": message } })
            );
        }
    }

    #[test]
    fn what_is_no_review_is_refused() {
        for (asked, error) in [
            (json!({}), ReviewError::NoReview),
            (json!([1]), ReviewError::NoReview),
            (json!("x"), ReviewError::NoReview),
            (json!({ "apiVersion": "v1", "kind": "Pod" }), ReviewError::NoReview),
            (
                json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview" }),
                ReviewError::NoRequest,
            ),
            (
                json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": null }),
                ReviewError::NoRequest,
            ),
        ] {
            assert_eq!(review(&asked), Err(error), "{asked}");
        }
    }
}
