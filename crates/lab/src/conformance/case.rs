// SPDX-License-Identifier: Apache-2.0
//! The language of recorded cases: what a file says, read strictly.
//!
//! ```text
//!  file ── case ── step ─┬─ do      one verb and its argument
//!                        ├─ answer  what the API server said to it
//!                        └─ seen    what was there once everything had come to rest
//! ```
//!
//! A word that is not part of the language is an error that names file, case and step: a case that is only half
//! understood would be compared only in half.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

/// A file of cases.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Corpus {
    /// What was recorded, in one line.
    pub(crate) title: String,
    pub(crate) cases: Vec<Case>,
}

/// Steps that follow one another, from an empty configuration and in a namespace of their own.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) about: String,
    /// Why the outcome is left to chance where it was recorded. Such a case is played, and not compared.
    pub(crate) varies: Option<String>,
    pub(crate) steps: Vec<Step>,
}

/// One action, and what was recorded of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Step {
    pub(crate) action: Action,
    /// The action as the file has it.
    pub(crate) written: Value,
    pub(crate) answer: Option<Map<String, Value>>,
    pub(crate) seen: Option<Map<String, Value>>,
    /// That it did not come to rest: what was seen is one moment of an endless change.
    pub(crate) never_quiet: bool,
}

/// What a step does.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Action {
    /// Creates a configuration object, or replaces the one of its name.
    Configure(Configure),
    /// Creates a Service, or patches the one of its name.
    Service(Service),
    /// Patches a Service.
    Patch {
        service: Reference,
        body: Value,
    },
    /// Writes the list of a Service's addresses.
    Status {
        service: Reference,
        ingress: Value,
    },
    /// Gives a label of a Service that has no meaning another value.
    Touch(Reference),
    Delete(Kind, Reference),
    Get(Kind, Reference),
    /// Sets labels of a Node; `null` removes one.
    Node(Labelled),
    /// Sets labels of a Namespace, which is made if there is none.
    Namespace(Labelled),
    /// Creates a Secret in the daemons' namespace, or replaces the one of its name. Values are plain texts.
    Secret {
        name: String,
        secret_type: Option<String>,
        data: Map<String, Value>,
    },
    Restart,
    Stop,
    Start,
    Scrape,
    Wait(Duration),
}

/// A configuration object as a step writes it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Configure {
    pub(crate) kind: Kind,
    /// Its name and, if it is not the daemons', its namespace.
    pub(crate) object: Reference,
    pub(crate) labels: Option<Value>,
    pub(crate) spec: Value,
}

/// A Service as a step writes it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Service {
    pub(crate) object: Reference,
    /// Keys are whole.
    pub(crate) annotations: Map<String, Value>,
    pub(crate) labels: Map<String, Value>,
    /// Fields of its spec that the step gives; shorthands are written out.
    pub(crate) spec: Map<String, Value>,
}

/// An object by its name; no namespace is the usual one of its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
}

/// An object and labels to set.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Labelled {
    pub(crate) name: String,
    pub(crate) labels: Map<String, Value>,
}

/// Kinds that steps name by a verb.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    IPAddressPool,
    L2Advertisement,
    BGPAdvertisement,
    BGPPeer,
    BGPPeerV1beta1,
    BFDProfile,
    Community,
    ConfigurationState,
    Service,
    Secret,
    Node,
    Namespace,
}

/// What is wrong with a file of cases.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadCorpus {
    /// It is not JSON, or not of the outer form.
    #[error("{file}: {source}")]
    Form {
        /// The file.
        file: String,
        /// Where and what.
        source: serde_json::Error,
    },
    /// A word that is not part of the language, or an argument that makes no sense.
    #[error("{file}: case {case}, step {step}: {fault}")]
    Step {
        /// The file.
        file: String,
        /// The id of the case.
        case: String,
        /// The number of the step, the first is 0.
        step: usize,
        /// What is wrong.
        fault: String,
    },
    /// Two cases of one name: a report could not tell them apart.
    #[error("{file}: there are two cases {case}")]
    Twice {
        /// The file.
        file: String,
        /// The id of both.
        case: String,
    },
}

impl Corpus {
    /// Reads the text of a file; `file` is its name in errors.
    ///
    /// # Errors
    /// The first fault, with its place.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, BadCorpus> {
        let written: File =
            serde_json::from_str(text).map_err(|source| BadCorpus::Form { file: file.to_owned(), source })?;
        let mut cases: Vec<Case> = Vec::new();
        for case in written.cases {
            if cases.iter().any(|other| other.id == case.id) {
                return Err(BadCorpus::Twice { file: file.to_owned(), case: case.id });
            }
            let steps = case.steps.into_iter().enumerate().map(|(number, step)| {
                step.read().map_err(|fault| BadCorpus::Step {
                    file: file.to_owned(),
                    case: case.id.clone(),
                    step: number,
                    fault,
                })
            });
            let steps = steps.collect::<Result<Vec<_>, _>>()?;
            cases.push(Case { id: case.id, about: case.about, varies: case.varies, steps });
        }
        Ok(Self { title: written.title, cases })
    }

    /// The value of `METALLB_BGP_TYPE` that the title names (`… METALLB_BGP_TYPE=frr: …`); `None` where it was unset.
    pub(crate) fn bgp_type(&self) -> Option<&str> {
        let (_, value) = self.title.split_once("METALLB_BGP_TYPE=")?;
        let end = value.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(value.len());
        value.get(..end).filter(|value| !value.is_empty())
    }
}

impl Step {
    /// The action with `namespace` in the place of `$ns`.
    ///
    /// # Errors
    /// None for a namespace that is a DNS label: then it is the action that was read.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Result<Action, String> {
        let text = self.written.to_string().replace("$ns", namespace);
        action(&serde_json::from_str(&text).map_err(|error| error.to_string())?)
    }
}

impl Kind {
    const VERBS: [(&'static str, Self); 12] = [
        ("pool", Self::IPAddressPool),
        ("l2", Self::L2Advertisement),
        ("adv", Self::BGPAdvertisement),
        ("peer", Self::BGPPeer),
        ("peer1", Self::BGPPeerV1beta1),
        ("bfd", Self::BFDProfile),
        ("comm", Self::Community),
        ("state", Self::ConfigurationState),
        ("svc", Self::Service),
        ("secret", Self::Secret),
        ("node", Self::Node),
        ("ns", Self::Namespace),
    ];

    /// The six kinds of configuration, in an order in which all objects can be deleted.
    pub(crate) const CONFIGURATION: [Self; 6] = [
        Self::BGPPeer,
        Self::BFDProfile,
        Self::BGPAdvertisement,
        Self::L2Advertisement,
        Self::Community,
        Self::IPAddressPool,
    ];

    fn of(verb: &str) -> Option<Self> {
        Self::VERBS.iter().find(|(name, _)| *name == verb).map(|(_, kind)| *kind)
    }

    /// Whether objects of this kind are written as [`Configure`].
    fn is_configuration(self) -> bool {
        self == Self::BGPPeerV1beta1 || Self::CONFIGURATION.contains(&self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    cases: Vec<WrittenCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCase {
    id: String,
    about: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers of the file")]
    refs: Vec<String>,
    varies: Option<String>,
    steps: Vec<WrittenStep>,
}

/// Anything, so that a fault is told with its place.
#[derive(Deserialize)]
#[serde(transparent)]
struct WrittenStep(Map<String, Value>);

type Read<T> = Result<T, String>;

impl WrittenStep {
    fn read(mut self) -> Read<Step> {
        let written = self.0.remove("do").ok_or("there is no `do`")?;
        let answer = self.0.remove("answer").map(|value| map(value, "answer", &ANSWER)).transpose()?;
        let seen = self.0.remove("seen").map(|value| map(value, "seen", &SEEN)).transpose()?;
        let never_quiet = match self.0.remove("never_quiet") {
            None => false,
            Some(Value::Bool(value)) => value,
            Some(other) => return Err(format!("`never_quiet` is {other}, not true or false")),
        };
        only(&self.0, "step", &["note"])?;
        Ok(Step { action: action(&written)?, written, answer, seen, never_quiet })
    }
}

const ANSWER: [&str; 7] = ["code", "message", "reason", "warnings", "apiVersion", "spec", "metrics"];
const SEEN: [&str; 4] = ["services", "events", "pools", "configuration_state"];

/// A map with no other keys than `known`.
fn map(value: Value, what: &str, known: &[&str]) -> Read<Map<String, Value>> {
    let Value::Object(map) = value else { return Err(format!("`{what}` is {value}, not a map")) };
    only(&map, what, known)?;
    Ok(map)
}

fn only(map: &Map<String, Value>, what: &str, known: &[&str]) -> Read<()> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("`{what}` has an unknown key {key:?} (known: {})", known.join(", "))),
        None => Ok(()),
    }
}

fn action(written: &Value) -> Read<Action> {
    let Value::Object(map) = written else { return Err(format!("`do` is {written}, not a map")) };
    let mut verbs = map.iter().filter(|(verb, _)| *verb != "note");
    let (Some((verb, argument)), None) = (verbs.next(), verbs.next()) else {
        return Err(format!("`do` has to hold exactly one verb: {written}"));
    };
    let argument = argument.clone();
    if let Some(kind) = Kind::of(verb).filter(|kind| kind.is_configuration()) {
        return configure(kind, argument);
    }
    match verb.as_str() {
        "svc" => service(argument),
        "patch" => {
            let mut fields = Fields::of(verb, argument)?;
            let (service, body) = (fields.reference("svc")?, fields.value("body")?);
            fields.end(Action::Patch { service, body })
        }
        "status" => {
            let mut fields = Fields::of(verb, argument)?;
            let (service, ingress) = (fields.reference("svc")?, ingress(fields.value("ingress")?)?);
            fields.end(Action::Status { service, ingress })
        }
        "touch" => match argument {
            Value::String(name) => Ok(Action::Touch(Reference { name, namespace: None })),
            argument => {
                let mut fields = Fields::of(verb, argument)?;
                let key = if fields.map.contains_key("svc") { "svc" } else { "name" };
                let service = fields.reference(key)?;
                fields.end(Action::Touch(service))
            }
        },
        "delete" => referred(verb, argument).map(|(kind, object)| Action::Delete(kind, object)),
        "get" => referred(verb, argument).map(|(kind, object)| Action::Get(kind, object)),
        "node" => Ok(Action::Node(labelled(verb, argument)?)),
        "ns" => Ok(Action::Namespace(labelled(verb, argument)?)),
        "secret" => secret(argument),
        "restart" => the_controller(verb, &argument, Action::Restart),
        "stop" => the_controller(verb, &argument, Action::Stop),
        "start" => the_controller(verb, &argument, Action::Start),
        "scrape" => the_controller(verb, &argument, Action::Scrape),
        "wait" => match argument.as_u64() {
            Some(milliseconds) => Ok(Action::Wait(Duration::from_millis(milliseconds))),
            None => Err(format!("`wait` takes milliseconds, not {argument}")),
        },
        _ => Err(format!("unknown verb {verb:?}")),
    }
}

fn configure(kind: Kind, argument: Value) -> Read<Action> {
    let Value::Object(mut map) = argument else { return Err(format!("{argument} is not an object")) };
    let name = text(map.remove("name").unwrap_or_default(), "name")?;
    let namespace = map.remove("in").map(|value| text(value, "in")).transpose()?;
    let labels = map.remove("labels");
    let spec = match map.remove("spec") {
        None => Value::Object(map),
        Some(spec) => {
            only(&map, "an object with a `spec`", &[])?;
            spec
        }
    };
    Ok(Action::Configure(Configure { kind, object: Reference { name, namespace }, labels, spec }))
}

fn service(argument: Value) -> Read<Action> {
    let mut fields = Fields::of("svc", argument)?;
    let object = fields.reference("name")?;
    let annotations = fields.optional_map("ann")?.into_iter().map(|(key, value)| {
        let key = if key.contains('/') { key } else { format!("metallb.io/{key}") };
        (key, value)
    });
    let annotations = annotations.collect();
    let labels = fields.optional_map("labels")?;
    let mut spec = Map::new();
    if let Some(ports) = fields.map.remove("ports") {
        spec.insert("ports".to_owned(), self::ports(ports)?);
    }
    for (word, policy, families) in [
        ("dual", "RequireDualStack", &["IPv4", "IPv6"][..]),
        ("prefer", "PreferDualStack", &[]),
        ("v6", "SingleStack", &["IPv6"]),
    ] {
        match fields.map.remove(word) {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => {
                spec.insert("ipFamilyPolicy".to_owned(), policy.into());
                if !families.is_empty() {
                    spec.insert("ipFamilies".to_owned(), families.into());
                }
            }
            Some(other) => return Err(format!("`{word}` is {other}, not true or false")),
        }
    }
    // Everything else is the spec's, and stands above a shorthand.
    spec.extend(std::mem::take(&mut fields.map));
    Ok(Action::Service(Service { object, annotations, labels, spec }))
}

/// Port entries: a number is a TCP port.
fn ports(written: Value) -> Read<Value> {
    let Value::Array(written) = written else { return Err(format!("`ports` is {written}, not a list")) };
    let entries = written.into_iter().enumerate().map(|(index, entry)| {
        let mut port = match entry {
            Value::Object(map) => map,
            Value::Number(number) => Map::from_iter([("port".to_owned(), Value::Number(number))]),
            other => return Err(format!("a port is {other}, not a number or a map")),
        };
        port.entry("name").or_insert_with(|| format!("p{index}").into());
        port.entry("protocol").or_insert_with(|| "TCP".into());
        Ok(Value::Object(port))
    });
    entries.collect()
}

/// A list of ingress entries: a text is an `ip`.
fn ingress(written: Value) -> Read<Value> {
    let Value::Array(written) = written else { return Err(format!("`ingress` is {written}, not a list")) };
    let entries = written.into_iter().map(|entry| match entry {
        Value::String(ip) => Ok(serde_json::json!({ "ip": ip })),
        Value::Object(map) => Ok(Value::Object(map)),
        other => Err(format!("an ingress entry is {other}, not a text or a map")),
    });
    entries.collect()
}

fn labelled(verb: &str, argument: Value) -> Read<Labelled> {
    let mut fields = Fields::of(verb, argument)?;
    let name = text(fields.value("name")?, "name")?;
    let labels = match fields.map.remove("labels") {
        Some(value) => map_of(value, "labels")?,
        // Without the word, what stands beside the name is the labels.
        None => std::mem::take(&mut fields.map),
    };
    fields.end(Labelled { name, labels })
}

fn secret(argument: Value) -> Read<Action> {
    let mut fields = Fields::of("secret", argument)?;
    let name = text(fields.value("name")?, "name")?;
    let secret_type = fields.map.remove("type").map(|value| text(value, "type")).transpose()?;
    let mut data = fields.optional_map("stringData")?;
    data.extend(fields.optional_map("data")?);
    if data.is_empty() {
        // Without either word, what stands beside the name is the data.
        data = std::mem::take(&mut fields.map);
    }
    fields.end(Action::Secret { name, secret_type, data })
}

/// `{kind verb: name}`, with a namespace if it is not the usual one.
fn referred(verb: &str, argument: Value) -> Read<(Kind, Reference)> {
    let mut fields = Fields::of(verb, argument)?;
    let (word, kind) = Kind::VERBS
        .into_iter()
        .find(|(word, _)| *word != "ns" && fields.map.contains_key(*word))
        .or_else(|| fields.map.contains_key("ns").then_some(("ns", Kind::Namespace)))
        .ok_or_else(|| {
            format!("`{verb}` names no kind that is known: {}", Value::from(fields.map.clone()))
        })?;
    let object = fields.reference(word)?;
    fields.end((kind, object))
}

fn the_controller(verb: &str, argument: &Value, action: Action) -> Read<Action> {
    if argument == "controller" {
        Ok(action)
    } else {
        Err(format!("`{verb}` takes \"controller\", not {argument}"))
    }
}

/// The argument of a verb, from which fields are taken one by one.
struct Fields {
    verb: String,
    map: Map<String, Value>,
}

impl Fields {
    fn of(verb: &str, argument: Value) -> Read<Self> {
        Ok(Self { verb: verb.to_owned(), map: map_of(argument, verb)? })
    }

    fn value(&mut self, key: &str) -> Read<Value> {
        self.map.remove(key).ok_or_else(|| format!("`{}` lacks {key:?}", self.verb))
    }

    /// The name under `key`, and a namespace if there is one.
    fn reference(&mut self, key: &str) -> Read<Reference> {
        let name = text(self.value(key)?, key)?;
        let namespace =
            ["ns", "in"].into_iter().filter(|word| *word != key).find_map(|word| self.map.remove(word));
        Ok(Reference { name, namespace: namespace.map(|value| text(value, "ns")).transpose()? })
    }

    fn optional_map(&mut self, key: &str) -> Read<Map<String, Value>> {
        self.map.remove(key).map_or_else(|| Ok(Map::new()), |value| map_of(value, key))
    }

    /// `value`, if nothing is left over.
    fn end<T>(self, value: T) -> Read<T> {
        only(&self.map, &self.verb, &[]).map_err(|_| {
            let keys: Vec<_> = self.map.keys().cloned().collect();
            format!("`{}` has unknown keys: {}", self.verb, keys.join(", "))
        })?;
        Ok(value)
    }
}

fn map_of(value: Value, what: &str) -> Read<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(format!("`{what}` is {other}, not a map")),
    }
}

fn text(value: Value, what: &str) -> Read<String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("{what:?} is {other}, not a text")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(written: Value) -> Read<Action> {
        action(&written)
    }

    fn corpus(cases: Value) -> Result<Corpus, String> {
        let text = json!({ "title": "t", "cases": cases }).to_string();
        Corpus::parse("f.json", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn every_recorded_case_is_understood() {
        for (text, cases, bgp_type) in [
            (include_str!("../../tests/data/metallb/allocation.json"), 28, None),
            (include_str!("../../tests/data/metallb/webhook.json"), 28, None),
            (include_str!("../../tests/data/metallb/webhook_frr.json"), 6, Some("frr")),
        ] {
            let corpus = Corpus::parse("recorded", text).unwrap();
            assert_eq!((corpus.cases.len(), corpus.bgp_type()), (cases, bgp_type));
        }
    }

    #[test]
    fn fields_beside_name_labels_and_namespace_are_the_spec_unless_there_is_one() {
        let Action::Configure(pool) = read(
            json!({"pool": {"name": "p", "labels": {"a": "b"}, "in": "$ns", "addresses": ["1.2.3.0/24"]}}),
        )
        .unwrap() else {
            panic!()
        };
        assert_eq!(pool.kind, Kind::IPAddressPool);
        assert_eq!(pool.object, Reference { name: "p".to_owned(), namespace: Some("$ns".to_owned()) });
        assert_eq!((pool.labels, pool.spec), (Some(json!({"a": "b"})), json!({"addresses": ["1.2.3.0/24"]})));
        let Action::Configure(pool) =
            read(json!({"pool": {"name": "p", "spec": {"autoAssign": false}}})).unwrap()
        else {
            panic!()
        };
        assert_eq!(pool.spec, json!({"autoAssign": false}));
        assert!(read(json!({"pool": {"name": "p", "spec": {}, "addresses": []}})).is_err());
    }

    #[test]
    fn shorthands_of_services_are_written_out() {
        for (written, spec) in [
            (json!({}), json!({})),
            (
                json!({"dual": true}),
                json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}),
            ),
            (json!({"prefer": true}), json!({"ipFamilyPolicy": "PreferDualStack"})),
            (json!({"v6": true}), json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]})),
            (json!({"ports": [81]}), json!({"ports": [{"port": 81, "name": "p0", "protocol": "TCP"}]})),
            (
                json!({"ports": [81, {"port": 80, "protocol": "UDP"}]}),
                json!({"ports": [
                    {"port": 81, "name": "p0", "protocol": "TCP"},
                    {"port": 80, "name": "p1", "protocol": "UDP"},
                ]}),
            ),
            (json!({"loadBalancerIP": "1.2.3.4"}), json!({"loadBalancerIP": "1.2.3.4"})),
            (
                json!({"dual": true, "ipFamilies": ["IPv6", "IPv4"]}),
                json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}),
            ),
        ] {
            let mut argument = written.clone();
            argument["name"] = "a".into();
            let Action::Service(service) = read(json!({"svc": argument})).unwrap() else { panic!() };
            assert_eq!(Value::Object(service.spec), spec, "{written}");
        }
    }

    #[test]
    fn annotations_without_a_prefix_are_metallbs() {
        let ann = json!({"address-pool": "p", "metallb.universe.tf/address-pool": null});
        let Action::Service(service) =
            read(json!({"svc": {"name": "a", "ns": "other", "ann": ann}})).unwrap()
        else {
            panic!()
        };
        let expected = json!({"metallb.io/address-pool": "p", "metallb.universe.tf/address-pool": null});
        assert_eq!(Value::Object(service.annotations), expected);
        assert_eq!(service.object.namespace.as_deref(), Some("other"));
    }

    #[test]
    fn every_verb_is_understood_in_all_its_forms() {
        let reference = |name: &str, namespace: Option<&str>| Reference {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        let labels = |value: Value| map_of(value, "").unwrap();
        for (written, expected) in [
            (
                json!({"patch": {"svc": "a", "body": {"x": 1}}, "note": "why"}),
                Action::Patch { service: reference("a", None), body: json!({"x": 1}) },
            ),
            (
                json!({"status": {"svc": "a", "ns": "o", "ingress": ["1.2.3.4", {"hostname": "h"}]}}),
                Action::Status {
                    service: reference("a", Some("o")),
                    ingress: json!([{"ip": "1.2.3.4"}, {"hostname": "h"}]),
                },
            ),
            (json!({"touch": "a"}), Action::Touch(reference("a", None))),
            (json!({"touch": {"svc": "a"}}), Action::Touch(reference("a", None))),
            (
                json!({"delete": {"state": "controller"}}),
                Action::Delete(Kind::ConfigurationState, reference("controller", None)),
            ),
            (
                json!({"delete": {"svc": "a", "ns": "o"}}),
                Action::Delete(Kind::Service, reference("a", Some("o"))),
            ),
            (json!({"delete": {"ns": "o"}}), Action::Delete(Kind::Namespace, reference("o", None))),
            (json!({"get": {"peer1": "q"}}), Action::Get(Kind::BGPPeerV1beta1, reference("q", None))),
            (
                json!({"node": {"name": "node1", "labels": {"a": null}}}),
                Action::Node(Labelled { name: "node1".to_owned(), labels: labels(json!({"a": null})) }),
            ),
            (
                json!({"ns": {"name": "$ns", "team": "x"}}),
                Action::Namespace(Labelled { name: "$ns".to_owned(), labels: labels(json!({"team": "x"})) }),
            ),
            (
                json!({"secret": {"name": "s", "type": "kubernetes.io/basic-auth", "stringData": {"password": "x"}}}),
                Action::Secret {
                    name: "s".to_owned(),
                    secret_type: Some("kubernetes.io/basic-auth".to_owned()),
                    data: labels(json!({"password": "x"})),
                },
            ),
            (
                json!({"secret": {"name": "s", "password": "x"}}),
                Action::Secret {
                    name: "s".to_owned(),
                    secret_type: None,
                    data: labels(json!({"password": "x"})),
                },
            ),
            (json!({"restart": "controller"}), Action::Restart),
            (json!({"stop": "controller"}), Action::Stop),
            (json!({"start": "controller"}), Action::Start),
            (json!({"scrape": "controller"}), Action::Scrape),
            (json!({"wait": 300}), Action::Wait(Duration::from_millis(300))),
        ] {
            assert_eq!(read(written.clone()), Ok(expected), "{written}");
        }
    }

    #[test]
    fn what_is_not_part_of_the_language_is_named_with_file_case_and_step() {
        for (step, fault) in [
            (json!({}), "there is no `do`"),
            (json!({"do": {"dance": 1}}), "unknown verb \"dance\""),
            (json!({"do": {"wait": 1, "svc": {}}}), "exactly one verb"),
            (json!({"do": {"wait": "long"}}), "takes milliseconds"),
            (json!({"do": {"restart": "speaker"}}), "takes \"controller\""),
            (json!({"do": {"delete": {"thing": "a"}}}), "names no kind"),
            (json!({"do": {"patch": {"svc": "a", "body": {}, "more": 1}}}), "unknown keys: more"),
            (json!({"do": {"svc": {"ports": [80]}}}), "lacks \"name\""),
            (json!({"do": {"wait": 1}, "answer": {"colour": 1}}), "`answer` has an unknown key \"colour\""),
            (json!({"do": {"wait": 1}, "seen": {"pods": {}}}), "`seen` has an unknown key \"pods\""),
            (json!({"do": {"wait": 1}, "never_quiet": 1}), "`never_quiet`"),
            (json!({"do": {"wait": 1}, "sometimes": 1}), "unknown key \"sometimes\""),
        ] {
            let text =
                corpus(json!([{"id": "c", "about": "", "steps": [{"do": {"wait": 0}}, step]}])).unwrap_err();
            assert!(text.starts_with("f.json: case c, step 1: ") && text.contains(fault), "{text}");
        }
        let twice = json!({"id": "c", "about": "", "steps": []});
        assert_eq!(corpus(json!([twice, twice])).unwrap_err(), "f.json: there are two cases c");
        assert!(corpus(json!([{"id": "c", "about": "", "moods": 1, "steps": []}])).is_err());
    }
}
