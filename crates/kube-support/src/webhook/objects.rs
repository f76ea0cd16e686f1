// SPDX-License-Identifier: Apache-2.0
//! Of three kinds of objects, the few fields that certificates are about. A definition is large, and watched for one
//! field of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope, ObjectMeta};
use serde::Deserialize;

use super::certificates::Material;

/// core/v1 Secret.
#[derive(Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Secret {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) data: Option<BTreeMap<String, String>>,
}

/// admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct WebhookConfiguration {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) webhooks: Vec<Webhook>,
}

/// One of its webhooks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Webhook {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) client_config: ClientConfig,
}

/// How a webhook is reached.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientConfig {
    #[serde(default)]
    ca_bundle: Option<String>,
}

/// apiextensions.k8s.io/v1 CustomResourceDefinition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Definition {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: DefinitionSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct DefinitionSpec {
    #[serde(default)]
    conversion: Option<Conversion>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Conversion {
    #[serde(default)]
    webhook: Option<ConversionWebhook>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionWebhook {
    #[serde(default)]
    client_config: Option<ClientConfig>,
}

impl Secret {
    /// What its data comes to; an entry that is no base64 counts as missing.
    pub(crate) fn material(&self) -> Material {
        let data = self.data.iter().flatten().map(|(key, value)| (key.clone(), decode(value)));
        Material::from_data(&data.collect())
    }
}

/// Its data is nobody's business.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl ClientConfig {
    /// The bundle, PEM.
    pub(crate) fn bundle(&self) -> Vec<u8> {
        self.ca_bundle.as_deref().map(decode).unwrap_or_default()
    }
}

impl Definition {
    /// How its conversion is reached, if a webhook converts.
    pub(crate) fn client_config(&self) -> Option<&ClientConfig> {
        self.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()
    }
}

/// Bytes as the API has them.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn decode(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

macro_rules! resource {
    ($kind:ty, $name:literal, $group:literal, $plural:literal, $scope:ty) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $name.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(Secret, "Secret", "", "secrets", NamespaceResourceScope);
resource!(
    WebhookConfiguration,
    "ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io",
    "validatingwebhookconfigurations",
    ClusterResourceScope
);
resource!(
    Definition,
    "CustomResourceDefinition",
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    ClusterResourceScope
);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_read_entry_by_entry_and_never_shown() {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "metallb-webhook-cert" },
            "data": { "ca.crt": "Y2E=", "tls.key": "a2V5", "ca.key": "no base64!", "other": "eA==" },
        }))
        .unwrap();
        let material = secret.material();
        assert_eq!((material.ca.as_slice(), material.server_key.as_slice()), (&b"ca"[..], &b"key"[..]));
        assert!(material.ca_key.is_empty() && material.server.is_empty());
        assert!(!format!("{secret:?}").contains("a2V5"));
        for empty in [json!({}), json!({ "data": null }), json!({ "data": {} })] {
            let secret: Secret = serde_json::from_value(empty).unwrap();
            assert_eq!(secret.material(), Material::default());
        }
    }

    #[test]
    fn the_kinds_are_found_where_the_api_server_has_them() {
        assert_eq!(Secret::url_path(&(), Some("ns")), "/api/v1/namespaces/ns/secrets");
        let webhooks = WebhookConfiguration::url_path(&(), None);
        assert_eq!(webhooks, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations");
        let definitions = Definition::url_path(&(), None);
        assert_eq!(definitions, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    }
}
