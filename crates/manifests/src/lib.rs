// SPDX-License-Identifier: Apache-2.0
//! What an installation consists of, as the text that `kubectl apply` takes.
//!
//! The objects are those of MetalLB v0.16.1's plain manifest, with its names, labels, ports and privileges; where they differ a
//! comment in the text says why. What a person would write by hand is a template; what follows from other crates, or
//! has to be reviewed as a table, is generated: definitions, [`rights`], webhooks. Neither status nor `caBundle` stands in
//! any of it: those are for the cluster to fill in, and applying the text again must not take them away.

pub mod release;
pub mod rights;

mod text;

use serde_json::Value;

pub use release::{Daemon, Images};

/// What may be chosen about an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    namespace: String,
    images: Images,
}

/// A value that cannot stand in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    /// No name of a namespace.
    #[error("{0:?} is no name of a namespace: 1 to 63 of a-z, 0-9 and hyphens, no hyphen first or last")]
    Namespace(String),
    /// No place of an image.
    #[error(
        "{0:?} cannot stand before the name of an image: HOST[:PORT]/PATH, or PATH, in small letters, as in registry.example/ferrolb"
    )]
    ImagePrefix(String),
    /// No tag.
    #[error("{0:?} is no tag of an image: up to 128 letters, digits and _.-, no dot or hyphen first")]
    Tag(String),
}

impl Default for Installation {
    fn default() -> Self {
        Self { namespace: ferrolb_api::DEFAULT_NAMESPACE.to_owned(), images: Images::default() }
    }
}

impl Installation {
    /// An installation in `namespace` that runs `images`.
    ///
    /// # Errors
    /// [`InvalidValue::Namespace`].
    pub fn new(namespace: &str, images: Images) -> Result<Self, InvalidValue> {
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = (1..=63).contains(&namespace.len())
            && namespace.starts_with(letter)
            && namespace.ends_with(letter)
            && namespace.chars().all(|c| letter(c) || c == '-');
        if !good {
            return Err(InvalidValue::Namespace(namespace.to_owned()));
        }
        Ok(Self { namespace: namespace.to_owned(), images })
    }

    /// Everything, as YAML documents with comments.
    ///
    /// # Errors
    /// [`Unwritable`]; a test rules it out for what the crates hold now.
    pub fn yaml(&self) -> Result<String, Unwritable> {
        Ok(text::whole(self)?)
    }

    /// The same as values, in the same order.
    ///
    /// # Errors
    /// [`Unwritable`], as for [`Self::yaml`].
    pub fn documents(&self) -> Result<Vec<Value>, Unwritable> {
        Ok(serde_saphyr::from_multiple(&self.yaml()?)?)
    }
}

/// The manifests cannot be put into words.
#[derive(Debug, thiserror::Error)]
pub enum Unwritable {
    /// A definition cannot be written as YAML.
    #[error("write a definition as YAML")]
    Write(#[from] serde_saphyr::SerializeError),
    /// What was written is no YAML.
    #[error("read the own manifests back")]
    Read(#[from] serde_saphyr::Error),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn documents() -> Vec<Value> {
        Installation::default().documents().unwrap()
    }

    fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
        let found = documents.iter().find(|d| d["kind"] == kind && d["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    #[test]
    fn the_objects_are_metallbs() {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for document in documents() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            names.entry(text(&document["kind"])).or_default().push(text(&document["metadata"]["name"]));
        }
        assert_eq!(names.remove("CustomResourceDefinition").unwrap().len(), 10, "MetalLB's nine, and ours");
        let expected = [
            ("ClusterRole", &["metallb-system:controller", "metallb-system:speaker"][..]),
            ("ClusterRoleBinding", &["metallb-system:controller", "metallb-system:speaker"]),
            ("ConfigMap", &["metallb-excludel2"]),
            ("DaemonSet", &["speaker"]),
            ("Deployment", &["controller"]),
            ("Namespace", &["metallb-system"]),
            ("Role", &["controller", "pod-lister"]),
            ("RoleBinding", &["controller", "pod-lister"]),
            ("Secret", &["metallb-webhook-cert"]),
            ("Service", &["metallb-webhook-service"]),
            ("ServiceAccount", &["controller", "speaker"]),
            ("ValidatingWebhookConfiguration", &["metallb-webhook-configuration"]),
        ];
        let expected = expected.map(|(kind, names)| {
            (kind.to_owned(), names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        });
        assert_eq!(names, expected.into());
    }

    #[test]
    fn nothing_that_the_cluster_fills_in_stands_there() {
        fn keys<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(map) => {
                    for (key, value) in map {
                        found.push(key);
                        keys(value, found);
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
                _ => {}
            }
        }
        for mut document in documents() {
            // A schema describes statuses; it has none.
            if let Some(versions) = document["spec"]["versions"].as_array_mut() {
                versions.iter_mut().for_each(|version| {
                    version.as_object_mut().unwrap().remove("schema");
                    version.as_object_mut().unwrap().remove("subresources");
                });
            }
            let mut found = Vec::new();
            keys(&document, &mut found);
            for banned in ["caBundle", "status", "creationTimestamp", "resourceVersion", "uid"] {
                assert!(!found.contains(&banned), "{banned} in {}", document["metadata"]["name"]);
            }
        }
    }

    #[test]
    fn another_namespace_and_other_images_leave_nothing_of_the_default() {
        let images = Images::new("registry.example/lb", "9.9").unwrap();
        let text = Installation::new("on", images).unwrap().yaml().unwrap();
        assert!(!text.contains("metallb-system"), "{text}");
        assert!(!text.contains("localhost/"), "{text}");
        for placeholder in ["$NAMESPACE", "$CONTROLLER", "$SPEAKER"] {
            assert!(!text.contains(placeholder), "{placeholder} is left");
        }
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for document in &documents {
            let namespaced = !matches!(
                document["kind"].as_str().unwrap(),
                "Namespace"
                    | "CustomResourceDefinition"
                    | "ClusterRole"
                    | "ClusterRoleBinding"
                    | "ValidatingWebhookConfiguration"
            );
            let namespace = document["metadata"]["namespace"].as_str();
            assert_eq!(namespace, namespaced.then_some("on"), "{}", document["metadata"]["name"]);
        }
        let image =
            |kind, name| &find(&documents, kind, name)["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(image("Deployment", "controller"), "registry.example/lb/controller:9.9");
        assert_eq!(image("DaemonSet", "speaker"), "registry.example/lb/speaker:9.9");
        let definition = find(&documents, "CustomResourceDefinition", "bgppeers.metallb.io");
        let service = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
        assert_eq!(service["namespace"], "on");
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        for name in ["", "A", "a_b", "-a", "a-", "a.b", &"a".repeat(64)] {
            assert!(Installation::new(name, Images::default()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn every_role_is_bound_to_the_account_of_its_daemon_and_pods_run_under_it() {
        let documents = documents();
        for role in rights::ROLES {
            let (kind, name) = match role.scope {
                rights::Scope::Cluster => ("ClusterRole", format!("metallb-system:{}", role.name)),
                rights::Scope::Namespace => ("Role", role.name.to_owned()),
            };
            let rules = find(&documents, kind, &name)["rules"].as_array().unwrap();
            assert_eq!(rules.len(), role.rules.len(), "{name}");
            let binding = find(&documents, &format!("{kind}Binding"), &name);
            assert_eq!(binding["roleRef"]["kind"], kind);
            assert_eq!(binding["roleRef"]["name"], name);
            let subjects = serde_json::json!([{
                "kind": "ServiceAccount", "name": role.daemon.name(), "namespace": "metallb-system",
            }]);
            assert_eq!(binding["subjects"], subjects);
        }
        for (kind, name) in [("Deployment", "controller"), ("DaemonSet", "speaker")] {
            let pod = &find(&documents, kind, name)["spec"]["template"]["spec"];
            assert_eq!(pod["serviceAccountName"], name);
            find(&documents, "ServiceAccount", name);
        }
    }

    #[test]
    fn no_pod_waits_for_a_secret_that_the_controller_has_to_make() {
        let documents = documents();
        let volumes = &find(&documents, "DaemonSet", "speaker")["spec"]["template"]["spec"]["volumes"];
        let secret =
            &volumes.as_array().unwrap().iter().find(|v| v["name"] == "memberlist").unwrap()["secret"];
        assert_eq!((&secret["secretName"], &secret["optional"]), (&"memberlist".into(), &true.into()));
    }

    #[test]
    fn va_10_selectors_match_the_pods_that_they_are_for_and_no_others() {
        let documents = documents();
        for (kind, name) in [("Deployment", "controller"), ("DaemonSet", "speaker")] {
            let spec = &find(&documents, kind, name)["spec"];
            let labels = serde_json::json!({"app": "metallb", "component": name});
            assert_eq!(spec["selector"]["matchLabels"], labels);
            assert_eq!(spec["template"]["metadata"]["labels"], labels);
        }
        let service = find(&documents, "Service", "metallb-webhook-service");
        let labels = serde_json::json!({"app": "metallb", "component": "controller"});
        assert_eq!(service["spec"]["selector"], labels);
    }
}
