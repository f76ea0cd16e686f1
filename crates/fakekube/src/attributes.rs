// SPDX-License-Identifier: Apache-2.0
//! What a request is about, in the words of authorizers: who does what with which resource.

use serde_json::Value;

use crate::auth::User;
use crate::error::{ApiError, Named};
use crate::request::{Request, Target};

/// Who does what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for paths that are no
    /// resource the method in lower case.
    pub(crate) verb: String,
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Plural name; empty for paths that are no resource.
    pub(crate) resource: String,
    /// Subresource, or "".
    pub(crate) subresource: String,
    /// Namespace, or "".
    pub(crate) namespace: String,
    /// Object name, or "".
    pub(crate) name: String,
    /// Path, for what is no resource.
    pub(crate) path: String,
    /// Who.
    pub(crate) user: String,
}

impl Attributes {
    /// Reads a request.
    pub(crate) fn of(request: &Request, target: Option<&Target>) -> Self {
        let user = request.user.name.clone();
        let Some(target) = target else {
            let verb = request.method.as_str().to_lowercase();
            return Self { verb, path: request.path.clone(), user, ..Self::default() };
        };
        let watch = request.query.flag("watch");
        let verb = match (request.method.as_str(), &target.name) {
            ("GET" | "HEAD", _) if watch => "watch",
            ("GET" | "HEAD", Some(_)) => "get",
            ("GET" | "HEAD", None) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            (_, Some(_)) => "delete",
            (_, None) => "deletecollection",
        };
        // A Namespace is its own place.
        let own = target.group.is_empty() && target.plural == "namespaces";
        let mut name = target.name.clone().unwrap_or_default();
        if name.is_empty() && verb != "create" {
            // A list of one object is a request for that object.
            let fields = request.query.text("fieldSelector").split(',');
            name = fields
                .filter_map(|field| field.strip_prefix("metadata.name="))
                .next()
                .unwrap_or_default()
                .into();
        }
        Self {
            verb: verb.into(),
            group: target.group.clone(),
            resource: target.plural.clone(),
            subresource: target.subresource.clone().unwrap_or_default(),
            namespace: if own { name.clone() } else { target.namespace.clone().unwrap_or_default() },
            name,
            path: String::new(),
            user,
        }
    }

    /// Reads the `spec` of an access review.
    pub(crate) fn of_review(spec: &Value, user: &User) -> Self {
        let user = user.name.clone();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        match spec.get("resourceAttributes").filter(|attributes| !attributes.is_null()) {
            Some(asked) => Self {
                verb: text(asked, "verb"),
                group: text(asked, "group"),
                resource: text(asked, "resource"),
                subresource: text(asked, "subresource"),
                namespace: text(asked, "namespace"),
                name: text(asked, "name"),
                path: String::new(),
                user,
            },
            None => {
                let asked = &spec["nonResourceAttributes"];
                Self { verb: text(asked, "verb"), path: text(asked, "path"), user, ..Self::default() }
            }
        }
    }

    /// Resource and subresource as rules name them: `services`, `services/status`.
    pub(crate) fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// The object, as messages name it.
    pub(crate) fn named(&self) -> Named<'_> {
        Named { group: &self.group, resource: &self.resource, name: &self.name }
    }

    /// The refusal of an authorizer.
    pub(crate) fn forbidden(&self) -> ApiError {
        let (user, verb) = (&self.user, &self.verb);
        if self.resource.is_empty() {
            let what = format!("User {user:?} cannot {verb} path {:?}", self.path);
            return ApiError::forbidden(Named { group: "", resource: "", name: "" }, what);
        }
        let place = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        let named = self.named();
        let what = format!(
            "User {user:?} cannot {verb} resource {:?} in API group {:?} {place}",
            self.full_resource(),
            self.group
        );
        ApiError::forbidden(named, what)
    }
}
