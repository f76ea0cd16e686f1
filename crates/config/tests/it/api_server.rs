// SPDX-License-Identifier: Apache-2.0
//! As much of an API server as admission needs: objects in memory, a review before each write.

use std::collections::BTreeMap;

use ferrolb_config::BgpType;
use ferrolb_config::admission::{Answer, List, Operation, Review, Setup, Stored, Target, judge};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "metallb-system";

/// Objects of the kinds that are judged in the daemons' namespace, Nodes and Namespaces.
pub(crate) struct ApiServer {
    pub(crate) setup: Setup,
    objects: BTreeMap<(List, String), Value>,
    /// Lists that cannot be read, and why.
    failing: BTreeMap<List, String>,
    clock: u32,
}

impl ApiServer {
    /// Three nodes, two namespaces, the rules of a type of BGP.
    pub(crate) fn new(bgp_type: &str) -> Self {
        let bgp_type: BgpType = bgp_type.parse().unwrap();
        let mut server = Self {
            setup: Setup { namespace: NAMESPACE.to_owned(), bgp_type },
            objects: BTreeMap::new(),
            failing: BTreeMap::new(),
            clock: 0,
        };
        for node in ["n1", "n2", "n3"] {
            server.label(List::Nodes, node, &json!({ "name": node }));
        }
        server.label(List::Namespaces, "team-a", &json!({ "team": "a" }));
        server.label(List::Namespaces, NAMESPACE, &json!({}));
        server
    }

    /// Sets the labels of a Node or Namespace, which appears if need be.
    pub(crate) fn label(&mut self, list: List, name: &str, labels: &Value) {
        let object = json!({ "metadata": { "name": name, "labels": labels } });
        self.objects.insert((list, name.to_owned()), object);
    }

    /// Removes a Node or Namespace.
    pub(crate) fn forget(&mut self, list: List, name: &str) {
        self.objects.remove(&(list, name.to_owned()));
    }

    /// Makes the reads of a list fail.
    pub(crate) fn fail(&mut self, list: List, cause: &str) {
        self.failing.insert(list, cause.to_owned());
    }

    /// An object with the metadata that a server gives it.
    pub(crate) fn object(&mut self, target: Target, name: &str, spec: &Value) -> Value {
        self.clock += 1;
        let created = format!("2026-01-01T00:{:02}:{:02}Z", self.clock / 60, self.clock % 60);
        let metadata = json!({ "name": name, "namespace": NAMESPACE, "creationTimestamp": created,
                               "uid": format!("uid-{}", self.clock) });
        let api_version = format!("metallb.io/{}", target.version());
        json!({ "apiVersion": api_version, "kind": target.kind(), "metadata": metadata, "spec": spec })
    }

    /// The answer to the creation, or the update, of an object; nothing is stored.
    pub(crate) fn ask(&self, target: Target, object: &Value) -> Answer {
        let former = self.stored(target, object["metadata"]["name"].as_str().unwrap());
        let operation = if former.is_some() { Operation::Update } else { Operation::Create };
        self.answer(target, operation, object, &former.unwrap_or(Value::Null))
    }

    /// Stores an object, asking nobody.
    pub(crate) fn put(&mut self, target: Target, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut object = object;
        if let Some(former) = self.stored(target, &name) {
            object["metadata"]["creationTimestamp"] = former["metadata"]["creationTimestamp"].clone();
            object["metadata"]["uid"] = former["metadata"]["uid"].clone();
        }
        self.objects.insert((list_of(target), name), object);
    }

    /// Removes an object, asking nobody.
    pub(crate) fn remove(&mut self, target: Target, name: &str) {
        self.objects.remove(&(list_of(target), name.to_owned()));
    }

    pub(crate) fn stored(&self, target: Target, name: &str) -> Option<Value> {
        self.objects.get(&(list_of(target), name.to_owned())).cloned()
    }

    /// Creates or updates an object, if that is allowed.
    pub(crate) fn write(&mut self, target: Target, name: &str, spec: &Value) -> Answer {
        let object = self.object(target, name, spec);
        self.write_object(target, object)
    }

    pub(crate) fn write_object(&mut self, target: Target, object: Value) -> Answer {
        let answer = self.ask(target, &object);
        if answer.allowed {
            self.put(target, object);
        }
        answer
    }

    /// Stores an object that must be admitted, and returns the warnings.
    pub(crate) fn admits(&mut self, target: Target, name: &str, spec: &Value) -> Vec<String> {
        let answer = self.write(target, name, spec);
        assert_eq!(
            (answer.allowed, answer.code, answer.message.as_str()),
            (true, 200, ""),
            "{target} {name} {spec}"
        );
        answer.warnings
    }

    /// The text with which an object is refused.
    pub(crate) fn denies(&mut self, target: Target, name: &str, spec: &Value) -> String {
        let answer = self.write(target, name, spec);
        assert_eq!(
            (answer.allowed, answer.code, answer.reason),
            (false, 403, Some("Forbidden")),
            "{target} {name} {spec}"
        );
        answer.message
    }

    /// The answer to the deletion of a stored object; it goes if that is allowed.
    pub(crate) fn delete(&mut self, target: Target, name: &str) -> Answer {
        let former = self.stored(target, name).unwrap();
        let answer = self.answer(target, Operation::Delete, &Value::Null, &former);
        if answer.allowed {
            self.remove(target, name);
        }
        answer
    }

    fn answer(&self, target: Target, operation: Operation, object: &Value, former: &Value) -> Answer {
        let body = review(operation.as_str(), object, former).to_string();
        match Review::decode(target, body.as_bytes()) {
            Ok(review) => judge(&review, &self.read(&review), &self.setup),
            Err(answer) => answer,
        }
    }

    /// Just the reads that the review asks for.
    pub(crate) fn read(&self, review: &Review) -> Stored {
        let mut stored = Stored::new();
        for list in review.reads(&self.setup).all() {
            match self.failing.get(&list) {
                Some(cause) => stored.fail(list, cause),
                None => {
                    let items = self.objects.iter().filter(|((of, _), _)| *of == list);
                    stored.insert(list, items.map(|(_, object)| object.clone()).collect());
                }
            }
        }
        stored
    }
}

/// The body of a review.
pub(crate) fn review(operation: &str, object: &Value, former: &Value) -> Value {
    let metadata = if object.is_null() { &former["metadata"] } else { &object["metadata"] };
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "operation": operation,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "object": object,
            "oldObject": former,
            "dryRun": false,
        },
    })
}

fn list_of(target: Target) -> List {
    List::ALL.into_iter().find(|list| list.kind() == target.kind()).unwrap()
}
