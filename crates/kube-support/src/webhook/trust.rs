// SPDX-License-Identifier: Apache-2.0
//! The places where the API server looks up whom to trust, and what has to stand there.
//!
//! A new CA comes in beside the old one: for an hour after a CA was made, what a place holds besides it stays, and a
//! replica goes on with its former certificate until every place that trusts that one trusts the new one too. So no
//! moment of a rotation is without an accepted certificate, in whatever order replicas and API servers learn of it.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use super::certificates::{Material, certificates, is_authority, pem};
use super::objects::{Definition, WebhookConfiguration};

/// The field manager of the one field that is applied.
pub const FIELD_MANAGER: &str = "ferrolb-ca";
/// How long CAs are kept beside a new one.
pub(crate) const OVERLAP: Duration = Duration::from_secs(3600);

/// An object that names CAs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// The webhooks' configuration.
    Webhooks(WebhookConfiguration),
    /// A definition whose versions are converted.
    Definition(Definition),
}

/// A server-side apply of CAs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Apply {
    pub(crate) path: String,
    pub(crate) body: Value,
}

impl Target {
    /// What has to be applied so that the CA is trusted; `None` if it is already, by all and no others.
    pub(crate) fn missing(&self, material: &Material, now: SystemTime) -> Option<Apply> {
        let ca = material.authority().ok()?;
        let overlap = material.made().is_some_and(|made| now < made + OVERLAP);
        let places = self.places();
        let wanted: Vec<Vec<CertificateDer<'static>>> = places
            .iter()
            .map(|place| {
                let others =
                    place.iter().filter(|other| **other != ca && overlap && is_authority(other, now));
                std::iter::once(&ca).chain(others).cloned().collect()
            })
            .collect();
        if wanted == places {
            return None;
        }
        // All places in one request: what is left out of an apply is given up.
        let bundles = wanted.iter().map(|cas| cas.iter().map(|ca| pem(ca)).collect::<String>());
        Some(self.apply(bundles.map(|bundle| super::objects::encode(bundle.as_bytes()))))
    }

    /// Whether to wait: somewhere `former` is trusted and `next` is not yet.
    pub(crate) fn holds_back(&self, former: &Material, next: &Material, dns: &str, now: SystemTime) -> bool {
        self.places().iter().any(|trusted| {
            former.is_accepted_by(trusted, dns, now) && !next.is_accepted_by(trusted, dns, now)
        })
    }

    /// Whether the server is accepted everywhere.
    pub(crate) fn accepts(&self, material: &Material, dns: &str, now: SystemTime) -> bool {
        self.places().iter().all(|trusted| material.is_accepted_by(trusted, dns, now))
    }

    /// The CAs of each place.
    fn places(&self) -> Vec<Vec<CertificateDer<'static>>> {
        match self {
            Self::Webhooks(configuration) => configuration
                .webhooks
                .iter()
                .map(|webhook| certificates(&webhook.client_config.bundle()))
                .collect(),
            Self::Definition(definition) => {
                definition.client_config().map(|config| certificates(&config.bundle())).into_iter().collect()
            }
        }
    }

    fn apply(&self, mut bundles: impl Iterator<Item = String>) -> Apply {
        // The uid keeps the request from making an object where this one is gone.
        let metadata = |object: &kube::core::ObjectMeta| json!({ "name": object.name, "uid": object.uid });
        match self {
            Self::Webhooks(configuration) => {
                let webhooks: Vec<Value> = configuration
                    .webhooks
                    .iter()
                    .zip(bundles)
                    .map(|(webhook, bundle)| json!({ "name": webhook.name, "clientConfig": { "caBundle": bundle } }))
                    .collect();
                Apply {
                    path: path(configuration),
                    body: json!({
                        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                        "metadata": metadata(&configuration.metadata), "webhooks": webhooks,
                    }),
                }
            }
            Self::Definition(definition) => {
                let config = json!({ "caBundle": bundles.next() });
                Apply {
                    path: path(definition),
                    body: json!({
                        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                        "metadata": metadata(&definition.metadata),
                        "spec": { "conversion": { "webhook": { "clientConfig": config } } },
                    }),
                }
            }
        }
    }
}

fn path<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    let name = object.meta().name.as_deref().unwrap_or_default();
    let url = K::url_path(&(), None);
    format!("{url}/{name}?fieldManager={FIELD_MANAGER}&force=true")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::certificates::tests::{DNS, OTHER, OURS, days, start};
    use super::super::objects::encode;
    use super::*;

    /// A configuration whose webhooks have these bundles.
    pub(crate) fn webhooks(bundles: &[&str]) -> Target {
        let webhooks: Vec<Value> = bundles
            .iter()
            .enumerate()
            .map(|(i, bundle)| {
                let config = json!({ "caBundle": encode(bundle.as_bytes()), "service": { "name": "s" } });
                json!({ "name": format!("w{i}.metallb.io"), "clientConfig": config, "sideEffects": "None" })
            })
            .collect();
        let object = json!({ "metadata": { "name": "c", "uid": "u" }, "webhooks": webhooks });
        Target::Webhooks(serde_json::from_value(object).unwrap())
    }

    fn definition(conversion: Value) -> Target {
        let object = json!({ "metadata": { "name": "d", "uid": "u" }, "spec": { "conversion": conversion } });
        Target::Definition(serde_json::from_value(object).unwrap())
    }

    pub(crate) fn text(pem: &[u8]) -> &str {
        std::str::from_utf8(pem).unwrap()
    }

    /// The bundles that would be applied.
    fn applied(target: &Target, now: SystemTime) -> Option<Vec<String>> {
        let apply = target.missing(&OURS, now)?;
        let bundles = apply.body["webhooks"].as_array().unwrap().iter().map(|webhook| {
            let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap();
            let one = json!({ "name": "x", "clientConfig": { "caBundle": bundle } });
            let webhook: super::super::objects::Webhook = serde_json::from_value(one).unwrap();
            String::from_utf8(webhook.client_config.bundle()).unwrap()
        });
        Some(bundles.collect())
    }

    #[test]
    fn a_bundle_becomes_the_ca_and_for_an_hour_keeps_those_before_it() {
        let (ours, other) = (text(&OURS.ca), text(&OTHER.ca));
        let both = format!("{ours}{other}");
        let early = start() + OVERLAP / 2;
        let late = start() + OVERLAP;
        for (name, bundle, now, expected) in [
            ("right", ours, early, None),
            ("right, later", ours, late, None),
            ("right but for a blank line", &format!("\n{ours}\n"), early, None),
            ("none", "", early, Some(ours)),
            ("a newline, as some manifests have it", "\n", early, Some(ours)),
            ("no PEM", "garbage", early, Some(ours)),
            ("another", other, early, Some(both.as_str())),
            ("another, later", other, late, Some(ours)),
            ("both", &both, early, None),
            ("both, later", &both, late, Some(ours)),
            ("a certificate of no authority", text(&OTHER.server), early, Some(ours)),
        ] {
            let target = webhooks(&[bundle]);
            assert_eq!(applied(&target, now), expected.map(|bundle| vec![bundle.to_owned()]), "{name}");
        }
    }

    #[test]
    fn one_field_of_every_webhook_is_applied_and_nothing_else() {
        let apply = webhooks(&[text(&OURS.ca), ""]).missing(&OURS, start()).unwrap();
        assert_eq!(
            apply.path,
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/c?fieldManager=ferrolb-ca&force=true"
        );
        let bundle = encode(&OURS.ca);
        let config = json!({ "caBundle": bundle });
        assert_eq!(
            apply.body,
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": { "name": "c", "uid": "u" },
                "webhooks": [
                    { "name": "w0.metallb.io", "clientConfig": config },
                    { "name": "w1.metallb.io", "clientConfig": config },
                ],
            })
        );
        let webhook =
            json!({ "strategy": "Webhook", "webhook": { "clientConfig": { "service": { "name": "s" } } } });
        let apply = definition(webhook).missing(&OURS, start()).unwrap();
        assert_eq!(
            apply.path,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/d?fieldManager=ferrolb-ca&force=true"
        );
        assert_eq!(
            apply.body,
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": { "name": "d", "uid": "u" },
                "spec": { "conversion": { "webhook": { "clientConfig": config } } },
            })
        );
    }

    #[test]
    fn a_definition_that_no_webhook_converts_is_left_alone() {
        for conversion in [json!(null), json!({ "strategy": "None" })] {
            assert_eq!(definition(conversion).missing(&OURS, start()), None);
        }
        assert_eq!(webhooks(&[]).missing(&OURS, start()), None);
    }

    #[test]
    fn a_material_without_a_ca_asks_for_nothing() {
        assert_eq!(webhooks(&[""]).missing(&Material::default(), start()), None);
    }

    #[test]
    fn a_place_that_trusts_only_the_former_certificate_holds_the_next_one_back() {
        let (ours, other) = (text(&OURS.ca), text(&OTHER.ca));
        let both = format!("{other}{ours}");
        for (bundle, holds_back, accepts) in
            [(other, true, false), (ours, false, true), (&both, false, true), ("", false, false)]
        {
            let target = webhooks(&[ours, bundle]);
            assert_eq!(target.holds_back(&OTHER, &OURS, DNS, start()), holds_back, "{bundle}");
            assert_eq!(target.accepts(&OURS, DNS, start()), accepts, "{bundle}");
        }
        let expired = start() + days(400);
        assert!(!webhooks(&[other]).holds_back(&OTHER, &OURS, DNS, expired));
    }
}
