// SPDX-License-Identifier: Apache-2.0
//! The CustomResourceDefinitions of all kinds, in the form MetalLB ships them.
//!
//! `kube` generates them from the types; what its generator cannot express is put right here: no `nullable` (MetalLB
//! has none), `spec` required only where MetalLB requires it, the two versions of BGPPeer and their conversion.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool, ServiceReference, WebhookClientConfig, WebhookConversion,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{
    BFDProfile, BGPAdvertisement, BGPPeer, BGPSession, Community, ConfigurationState, IPAddressPool,
    L2Advertisement, ServiceBGPStatus, ServiceL2Status, bgppeer_v1beta1,
};

/// The definitions of all nine kinds, in order of their names, for MetalLB's namespace.
pub fn crds() -> Vec<CustomResourceDefinition> {
    crds_in(crate::DEFAULT_NAMESPACE)
}

/// The definitions, with BGPPeer's conversion webhook in this namespace.
pub fn crds_in(namespace: &str) -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        BFDProfile::crd(),
        BGPAdvertisement::crd(),
        bgp_peers(namespace),
        Community::crd(),
        ConfigurationState::crd(),
        IPAddressPool::crd(),
        L2Advertisement::crd(),
        ServiceBGPStatus::crd(),
        ServiceL2Status::crd(),
    ];
    for crd in &mut all {
        mend(crd);
    }
    all
}

/// The definitions as JSON documents, ready to be printed or applied.
///
/// Whole numbers stand without a fraction, which the typed form cannot express (its limits are floating point).
pub fn manifests(namespace: &str) -> Vec<Value> {
    documents(&crds_in(namespace))
}

/// The definitions of the kinds of our own group, as JSON documents. Whoever lacks them loses what is written there, and
/// nothing else.
pub fn own_manifests() -> Vec<Value> {
    let mut session = BGPSession::crd();
    mend(&mut session);
    documents(&[session])
}

fn documents(crds: &[CustomResourceDefinition]) -> Vec<Value> {
    crds.iter()
        .map(|crd| {
            // The type holds only strings, numbers, lists and maps with string keys, all of which JSON has.
            let mut value = serde_json::to_value(crd).unwrap_or_default();
            whole_numbers(&mut value);
            value
        })
        .collect()
}

/// v1beta2 is stored; v1beta1 is served, deprecated, converted by the controller's webhook.
fn bgp_peers(namespace: &str) -> CustomResourceDefinition {
    let mut crd = BGPPeer::crd();
    let mut versions = bgppeer_v1beta1::BGPPeer::crd().spec.versions;
    versions.append(&mut crd.spec.versions);
    crd.spec.versions = versions;
    crd.spec.conversion = Some(CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig {
                service: Some(ServiceReference {
                    name: "metallb-webhook-service".to_owned(),
                    namespace: namespace.to_owned(),
                    path: Some("/convert".to_owned()),
                    port: None,
                }),
                ..WebhookClientConfig::default()
            }),
            conversion_review_versions: vec!["v1beta1".to_owned(), "v1beta2".to_owned()],
        }),
    });
    crd
}

fn mend(crd: &mut CustomResourceDefinition) {
    let requires_spec = crd.spec.names.kind == "IPAddressPool";
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    // The generator writes these lists even where they are empty; the API server drops them.
    crd.spec.names.short_names = crd.spec.names.short_names.take().filter(|names| !names.is_empty());
    crd.spec.names.categories = crd.spec.names.categories.take().filter(|names| !names.is_empty());
    for version in &mut crd.spec.versions {
        version.selectable_fields = version.selectable_fields.take().filter(|fields| !fields.is_empty());
        version.additional_printer_columns =
            version.additional_printer_columns.take().filter(|c| !c.is_empty());
        let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else {
            continue;
        };
        mend_schema(root);
        root.title = None;
        root.required = requires_spec.then(|| vec!["spec".to_owned()]);
        let properties = root.properties.get_or_insert_default();
        for name in ["spec", "status"] {
            if let Some(property) = properties.get_mut(name) {
                property.default = None;
            }
        }
        let of_type = |name: &str, description: &str| JSONSchemaProps {
            type_: Some(name.to_owned()),
            description: Some(description.to_owned()),
            ..JSONSchemaProps::default()
        };
        properties.insert(
            "apiVersion".to_owned(),
            of_type("string", "The group and version of the object's form."),
        );
        properties.insert("kind".to_owned(), of_type("string", "The object's kind."));
        properties.insert(
            "metadata".to_owned(),
            JSONSchemaProps { type_: Some("object".to_owned()), ..JSONSchemaProps::default() },
        );
    }
}

fn mend_schema(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if schema.required.as_ref().is_some_and(Vec::is_empty) {
        schema.required = None;
    }
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        mend_schema(property);
    }
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(item)) => mend_schema(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(mend_schema),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = schema.additional_properties.as_mut() {
        mend_schema(value);
    }
}

fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // Limits lie far below 2^53, so the conversion is exact where it is made.
            if let Some(float) =
                number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 9.0e15)
            {
                #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
                let whole = float as i64;
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
