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
