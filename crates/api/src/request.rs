// SPDX-License-Identifier: Apache-2.0
//! Requests to the Kubernetes API, as values.
//!
//! A core builds them, so that tests can compare them with what MetalLB sends; the daemon sends them and brings
//! the [`WriteResult`] back.

use std::time::Duration;

use serde_json::{Value, json};

/// One writing request.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiRequest {
    /// What to do.
    pub verb: Verb,
    /// The kind of object.
    pub resource: Resource,
    /// The object's namespace.
    pub namespace: Option<String>,
    /// The object's name; `None` for [`Verb::Create`].
    pub name: Option<String>,
    /// `Some("status")` to write the status.
    pub subresource: Option<&'static str>,
    /// The body; `None` for [`Verb::Delete`].
    pub body: Option<Value>,
    /// For [`Verb::Delete`]: only if the object still has this uid.
    pub precondition_uid: Option<String>,
}

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST to the collection.
    Create,
    /// PUT of the whole object.
    Put,
    /// PATCH by JSON merge patch (RFC 7396).
    MergePatch {
        /// The field manager; the client's name if `None`.
        manager: Option<&'static str>,
    },
    /// PATCH by server-side apply.
    Apply {
        /// The field manager.
        manager: &'static str,
        /// Take over fields that others manage.
        force: bool,
    },
    /// DELETE of one object.
    Delete,
}

/// The kinds of objects that the daemons write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// core/v1 Services.
    Services,
    /// metallb.io/v1beta1 IPAddressPools.
    IPAddressPools,
    /// metallb.io/v1beta1 ConfigurationStates.
    ConfigurationStates,
    /// metallb.io/v1beta1 ServiceL2Statuses.
    ServiceL2Statuses,
    /// metallb.io/v1beta1 ServiceBGPStatuses.
    ServiceBGPStatuses,
    /// ferrolb.io/v1 BGPSessions.
    BGPSessions,
}

/// What a write came to: the object as the API server now has it, or why not.
pub type WriteResult = Result<Value, WriteError>;

/// A write that was refused, or whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// The HTTP status code; 0 if there was no answer.
    pub code: u16,
    /// The `reason` of the Status object, such as `Conflict`; may be empty.
    pub reason: String,
    /// What the API server, or the connection, said.
    pub message: String,
    /// How long the API server asks to wait before the next attempt (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl Resource {
    /// The API group; empty for the core group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Services => "",
            Self::BGPSessions => crate::OWN_GROUP,
            _ => crate::GROUP,
        }
    }

    /// The version within the group.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Services | Self::BGPSessions => "v1",
            _ => "v1beta1",
        }
    }

    /// The plural, as it stands in paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::IPAddressPools => "ipaddresspools",
            Self::ConfigurationStates => "configurationstates",
            Self::ServiceL2Statuses => "servicel2statuses",
            Self::ServiceBGPStatuses => "servicebgpstatuses",
            Self::BGPSessions => "bgpsessions",
        }
    }

    /// The kind, as it stands in objects.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Services => "Service",
            Self::IPAddressPools => "IPAddressPool",
            Self::ConfigurationStates => "ConfigurationState",
            Self::ServiceL2Statuses => "ServiceL2Status",
            Self::ServiceBGPStatuses => "ServiceBGPStatus",
            Self::BGPSessions => "BGPSession",
        }
    }

    /// `v1`, or `group/version`.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }
}

impl ApiRequest {
    /// A request to create an object.
    pub fn create(resource: Resource, namespace: &str, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(Verb::Create, resource, namespace, None) }
    }

    /// A request to write the `status` of an object.
    pub fn status(verb: Verb, resource: Resource, namespace: &str, name: &str, body: Value) -> Self {
        let request = Self::new(verb, resource, namespace, Some(name));
        Self { subresource: Some("status"), body: Some(body), ..request }
    }

    /// A request to delete an object, if it still has this uid.
    pub fn delete(resource: Resource, namespace: &str, name: &str, uid: Option<&str>) -> Self {
        let request = Self::new(Verb::Delete, resource, namespace, Some(name));
        Self { precondition_uid: uid.map(ToOwned::to_owned), ..request }
    }

    /// The HTTP method.
    pub const fn method(&self) -> &'static str {
        match self.verb {
            Verb::Create => "POST",
            Verb::Put => "PUT",
            Verb::MergePatch { .. } | Verb::Apply { .. } => "PATCH",
            Verb::Delete => "DELETE",
        }
    }

    /// The path and query, from the leading slash on.
    pub fn path_and_query(&self) -> String {
        let mut path = match self.resource.group() {
            "" => format!("/api/{}", self.resource.version()),
            group => format!("/apis/{group}/{}", self.resource.version()),
        };
        if let Some(namespace) = &self.namespace {
            path = format!("{path}/namespaces/{namespace}");
        }
        path = format!("{path}/{}", self.resource.plural());
        for part in [self.name.as_deref(), self.subresource].into_iter().flatten() {
            path = format!("{path}/{part}");
        }
        match self.verb {
            Verb::MergePatch { manager: Some(manager) } => format!("{path}?fieldManager={manager}"),
            Verb::Apply { manager, force } => format!("{path}?fieldManager={manager}&force={force}"),
            _ => path,
        }
    }

    /// The type of the body.
    pub const fn content_type(&self) -> &'static str {
        match self.verb {
            Verb::Create | Verb::Put | Verb::Delete => "application/json",
            Verb::MergePatch { .. } => "application/merge-patch+json",
            Verb::Apply { .. } => "application/apply-patch+yaml",
        }
    }

    /// The body as it goes out; a delete's preconditions are a body.
    pub fn wire_body(&self) -> Option<Value> {
        match (&self.verb, &self.precondition_uid) {
            (Verb::Delete, Some(uid)) => Some(json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": { "uid": uid },
            })),
            _ => self.body.clone(),
        }
    }

    fn new(verb: Verb, resource: Resource, namespace: &str, name: Option<&str>) -> Self {
        Self {
            verb,
            resource,
            namespace: Some(namespace.to_owned()),
            name: name.map(ToOwned::to_owned),
            subresource: None,
            body: None,
            precondition_uid: None,
        }
    }
}

impl WriteError {
    /// No answer came: the write may or may not have happened.
    pub fn no_answer(message: impl Into<String>) -> Self {
        Self::refused(0, "", message)
    }

    /// The API server said no, in this way.
    pub fn refused(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), retry_after: None }
    }

    /// Nobody knows whether the write happened, or still will: no answer, or one that says that the server, or what
    /// lies before it, is in trouble.
    pub const fn is_unknown(&self) -> bool {
        self.code == 0 || self.code >= 500
    }

    /// The object, or its namespace, does not exist.
    pub const fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// The object was changed by somebody else, or its uid is another one.
    pub fn is_conflict(&self) -> bool {
        self.code == 409 && !self.is_already_exists()
    }

    /// An object of that name exists.
    pub fn is_already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            0 => write!(f, "no answer from the API server: {}", self.message),
            code => write!(f, "the API server refused ({code} {}): {}", self.reason, self.message),
        }
    }
}

impl std::error::Error for WriteError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_paths_of_the_kubernetes_api() {
        let apply = Verb::Apply { manager: "poolReconciler", force: true };
        let request = ApiRequest::status(apply, Resource::ConfigurationStates, "ns", "controller", json!({}));
        assert_eq!(request.method(), "PATCH");
        assert_eq!(
            request.path_and_query(),
            "/apis/metallb.io/v1beta1/namespaces/ns/configurationstates/controller/status\
             ?fieldManager=poolReconciler&force=true"
        );
        assert_eq!(request.content_type(), "application/apply-patch+yaml");

        let put = ApiRequest::status(Verb::Put, Resource::Services, "demo", "web", json!({}));
        assert_eq!(put.path_and_query(), "/api/v1/namespaces/demo/services/web/status");

        let create = ApiRequest::create(Resource::ServiceL2Statuses, "ns", json!({ "spec": {} }));
        assert_eq!(create.path_and_query(), "/apis/metallb.io/v1beta1/namespaces/ns/servicel2statuses");
    }

    #[test]
    fn a_delete_carries_its_precondition() {
        let delete = ApiRequest::delete(Resource::ServiceL2Statuses, "ns", "l2-abc", Some("u1"));
        assert_eq!(delete.wire_body().unwrap()["preconditions"]["uid"], "u1");
        let any = ApiRequest::delete(Resource::ServiceL2Statuses, "ns", "l2-abc", None);
        assert_eq!(any.wire_body(), None);
    }
}
