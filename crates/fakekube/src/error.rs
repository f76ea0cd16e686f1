// SPDX-License-Identifier: Apache-2.0
//! Refusals as the API server words them: a `Status` object with code, reason, message and causes.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};

use crate::kinds::Resource;

/// Why a request was refused; becomes a `Status` object and its HTTP code.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    /// HTTP status code.
    pub(crate) code: u16,
    /// Machine-readable reason (`NotFound`, `Conflict`, …).
    pub(crate) reason: Cow<'static, str>,
    /// What a person reads.
    pub(crate) message: String,
    /// `details` of the Status, or null for none.
    pub(crate) details: Value,
}

/// Result of everything that handles a request.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// The resource of an error message: `services`, `ipaddresspools.metallb.io`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// API group, empty for the core group.
    pub(crate) group: &'a str,
    /// Plural resource name, or the kind for `Invalid`.
    pub(crate) resource: &'a str,
    /// Object name, possibly empty.
    pub(crate) name: &'a str,
}

impl Named<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Value {
        let mut details = json!({ "kind": self.resource });
        if !self.name.is_empty() {
            details["name"] = self.name.into();
        }
        if !self.group.is_empty() {
            details["group"] = self.group.into();
        }
        details
    }
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: Value::Null }
    }

    /// 400: the request itself makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the credentials are unknown.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 with a message of one's own.
    pub(crate) fn forbidden(named: Named<'_>, why: impl fmt::Display) -> Self {
        let message = match (named.resource, named.name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", named.qualified()),
            (_, name) => format!("{} {name:?} is forbidden: {why}", named.qualified()),
        };
        let details = if named.resource.is_empty() { json!({}) } else { named.details() };
        Self { details, ..Self::new(403, "Forbidden", message) }
    }

    /// 404: no such object.
    pub(crate) fn not_found(named: Named<'_>) -> Self {
        let message = format!("{} {:?} not found", named.qualified(), named.name);
        Self { details: named.details(), ..Self::new(404, "NotFound", message) }
    }

    /// 404: no such resource.
    pub(crate) fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: json!({}), ..Self::new(404, "NotFound", message) }
    }

    /// 405: the resource exists but not with this verb.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: json!({}), ..Self::new(405, "MethodNotAllowed", message) }
    }

    /// 406: no representation that the client accepts.
    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::new(406, "NotAcceptable", message)
    }

    /// 409: the name is taken.
    pub(crate) fn already_exists(named: Named<'_>) -> Self {
        let message = format!("{} {:?} already exists", named.qualified(), named.name);
        Self { details: named.details(), ..Self::new(409, "AlreadyExists", message) }
    }

    /// 409: a precondition does not hold.
    pub(crate) fn conflict(named: Named<'_>, why: impl fmt::Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {:?}: {why}", named.qualified(), named.name);
        Self { details: named.details(), ..Self::new(409, "Conflict", message) }
    }

    /// 409: somebody else changed the object meanwhile.
    pub(crate) fn modified(named: Named<'_>) -> Self {
        Self::conflict(
            named,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of server-side apply: fields owned by others.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        Self { details: json!({ "causes": causes }), ..Self::new(409, "Conflict", message) }
    }

    /// 410: the resourceVersion is older than what is kept.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is too large.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 415: the body is in a form the server does not read.
    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422 with the field errors found.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let kind_named = Named { group, resource: kind, name };
        let listed = match errors {
            [one] => one.to_string(),
            many => format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {listed}", kind_named.qualified());
        let mut details = kind_named.details();
        details["causes"] = errors.iter().map(FieldError::cause).collect();
        Self { details, ..Self::new(422, "Invalid", message) }
    }

    /// 422: the patch or the request cannot be carried out as written.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self { details: json!({}), ..Self::new(422, "Invalid", message) }
    }

    /// 429: a budget or limit does not allow it now.
    pub(crate) fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message)
    }

    /// 429: objects of this version cannot be made, because their conversion fails.
    pub(crate) fn no_storage(resource: &Resource, why: &Self) -> Self {
        let (version, kind) = (resource.api_version(), &resource.kind);
        let message = format!("storage is (re)initializing: failed to list {version}, Kind={kind}: {why}");
        Self { details: json!({ "retryAfterSeconds": 1 }), ..Self::new(429, "TooManyRequests", message) }
    }

    /// 500 as the API server answers some client errors: a message without a reason.
    pub(crate) fn unexplained(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 500: something that should not happen.
    pub(crate) fn internal(message: impl fmt::Display) -> Self {
        let cause = json!({ "causes": [{ "message": message.to_string() }] });
        Self {
            details: cause,
            ..Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
        }
    }

    /// A webhook's refusal, with the code, reason and details that it gave.
    pub(crate) fn denied(webhook: &str, status: &Value) -> Self {
        let member = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default();
        let why = match (member("message"), member("reason")) {
            ("", "") => " without explanation".to_owned(),
            ("", reason) => format!(": {reason}"),
            (message, _) => format!(": {message}"),
        };
        let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        Self {
            // A code of success makes no refusal.
            code: code.filter(|&code| code >= 400).unwrap_or(400),
            reason: member("reason").to_owned().into(),
            message: format!("admission webhook {webhook:?} denied the request{why}"),
            details: status.get("details").cloned().unwrap_or(Value::Null),
        }
    }

    /// A refusal made up for a test; an empty reason is the usual one of the code.
    pub(crate) fn on_request(code: u16, reason: &str, message: String, retry_after: Option<u32>) -> Self {
        let usual = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "",
        };
        let seconds = retry_after.or_else(|| matches!(code, 429 | 503).then_some(1));
        Self {
            code,
            reason: if reason.is_empty() { usual.into() } else { reason.to_owned().into() },
            message,
            details: seconds.map_or(Value::Null, |seconds| json!({ "retryAfterSeconds": seconds })),
        }
    }

    /// How long the client is asked to wait, in seconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        let seconds = self.details.get("retryAfterSeconds").and_then(Value::as_u64);
        seconds.or_else(|| (self.code == 429).then_some(1))
    }

    /// The Status object.
    pub(crate) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.as_ref().into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldError {
    kind: FieldErrorKind,
    field: String,
    value: Option<Value>,
    detail: String,
}

/// Classes of field errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value is not allowed.
    Invalid,
    /// A value is none of an enumeration.
    NotSupported,
    /// A value may not be given here.
    Forbidden,
    /// A value stands twice in a list.
    Duplicate,
    /// A value has the wrong JSON type.
    TypeInvalid,
    /// A text is too long.
    TooLong,
    /// A list has too many items.
    TooMany,
}

impl FieldErrorKind {
    const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

impl FieldError {
    /// A required value is missing; the detail may be empty.
    pub(crate) fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Required, field: field.into(), value: None, detail: detail.into() }
    }

    /// A value that is not allowed.
    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind: FieldErrorKind::Invalid,
            field: field.into(),
            value: Some(value.into()),
            detail: detail.into(),
        }
    }

    /// A value of a kind of error chosen by the caller.
    pub(crate) fn of(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), value, detail: detail.into() }
    }

    /// A value that is none of `supported`.
    pub(crate) fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[Value],
    ) -> Self {
        let list = supported.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Self {
            kind: FieldErrorKind::NotSupported,
            field: field.into(),
            value: Some(value.into()),
            detail: format!("supported values: {list}"),
        }
    }

    /// A value that may not be given.
    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Forbidden, field: field.into(), value: None, detail: detail.into() }
    }

    /// The field's path.
    pub(crate) fn field(&self) -> &str {
        &self.field
    }

    /// Whether the value is so wrong that rules over it cannot be evaluated.
    pub(crate) const fn blocks_rules(&self) -> bool {
        use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
        matches!(self.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
    }

    fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    fn cause(&self) -> Value {
        json!({ "reason": self.kind.reason(), "message": self.body(), "field": self.field })
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_refuses_with_the_code_and_reason_that_it_gave() {
        let text = "admission webhook \"h.example.com\" denied the request";
        for (status, code, reason, rest) in [
            (json!({ "code": 403, "reason": "Forbidden", "message": "no" }), 403, "Forbidden", ": no"),
            (json!({ "code": 400, "message": "no" }), 400, "", ": no"),
            (json!({ "code": 200, "message": "no" }), 400, "", ": no"),
            (json!({ "reason": "Because" }), 400, "Because", ": Because"),
            (Value::Null, 400, "", " without explanation"),
        ] {
            let error = ApiError::denied("h.example.com", &status);
            assert_eq!((error.code, error.reason.as_ref()), (code, reason), "{status}");
            assert_eq!(error.message, format!("{text}{rest}"));
        }
    }

    #[test]
    fn one_field_error_stands_alone_and_several_stand_in_brackets() {
        let one = FieldError::required("metadata.name", "name or generateName is required");
        let two = FieldError::invalid("spec.port", 0, "must be positive");
        let error = ApiError::invalid("", "ConfigMap", "", std::slice::from_ref(&one));
        assert_eq!(
            error.message,
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
        );
        let error = ApiError::invalid("metallb.io", "BGPPeer", "p", &[one, two]);
        assert_eq!(
            error.message,
            "BGPPeer.metallb.io \"p\" is invalid: [metadata.name: Required value: name or generateName is \
             required, spec.port: Invalid value: 0: must be positive]"
        );
        assert_eq!(error.to_status()["details"]["causes"][1]["reason"], "FieldValueInvalid");
    }
}
