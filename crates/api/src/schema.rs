// SPDX-License-Identifier: Apache-2.0
//! Schemas of fields that several kinds share, written out where a derived one would not be MetalLB's.

use schemars::{Schema, SchemaGenerator, json_schema};

/// An integer without a format.
pub(crate) fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// An integer with `format: int32`, whatever the Rust type.
pub(crate) fn int32(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32" })
}

/// An integer with `format: int64`, whatever the Rust type.
pub(crate) fn int64(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64" })
}

/// A string without further limits.
pub(crate) fn string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string" })
}

/// The standard `LabelSelector`.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Selects objects by their labels. All conditions must hold; none means every object.",
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels an object must have, with these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "description": "Further conditions on labels.",
                "type": "array",
                "items": {
                    "description": "One condition on one label.",
                    "type": "object",
                    "properties": {
                        "key": { "description": "The label's key.", "type": "string" },
                        "operator": {
                            "description": "In, NotIn, Exists or DoesNotExist.",
                            "type": "string",
                        },
                        "values": {
                            "description": "The values for In and NotIn; none for the others.",
                            "type": "array",
                            "items": { "type": "string" },
                            "x-kubernetes-list-type": "atomic",
                        },
                    },
                    "required": ["key", "operator"],
                },
                "x-kubernetes-list-type": "atomic",
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// A list of `LabelSelector`.
pub(crate) fn label_selectors(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": label_selector(generator) })
}

/// The conclusion of a ConfigurationState.
pub(crate) fn configuration_result(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Valid", "Invalid", "Unknown"] })
}

/// The standard list of conditions, keyed by `type`.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "One aspect of the state.",
            "type": "object",
            "properties": {
                "lastTransitionTime": {
                    "description": "When the condition last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "What happened, for people. May be empty.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "The generation of the object that the condition speaks of.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "reason": {
                    "description": "What happened, for programs: one word in CamelCase.",
                    "type": "string",
                    "maxLength": 1024,
                    "minLength": 1,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {
                    "description": "Whether the condition holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "type": {
                    "description": "Which aspect.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map",
    })
}
