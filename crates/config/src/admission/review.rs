// SPDX-License-Identifier: Apache-2.0
//! AdmissionReviews: the question as the API server sends it, the answer as MetalLB's webhooks form it.

use serde_json::{Value, json};

use super::incoming::Incoming;
use super::{Operation, Reads, Setup, Target};

/// The question of one AdmissionReview, version `admission.k8s.io/v1` (or v1beta1, which has the same form).
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    pub(super) target: Target,
    pub(super) operation: Operation,
    pub(super) envelope: Envelope,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The object as it is to be; none for a deletion.
    pub(super) object: Option<Incoming>,
    /// The object as it is, if it could be decoded.
    pub(super) former: Option<Incoming>,
}

/// What an answer repeats of its question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Envelope {
    /// Absent where the question was no review.
    api_version: Option<&'static str>,
    uid: String,
}

impl Review {
    /// Decodes a request's body. What cannot be decoded has its answer already.
    pub fn decode(target: Target, body: &[u8]) -> Result<Self, Answer> {
        if body.is_empty() {
            return Err(Answer::malformed("request body is empty"));
        }
        let review: Value =
            serde_json::from_slice(body).map_err(|error| Answer::malformed(&error.to_string()))?;
        let api_version = match review["apiVersion"].as_str() {
            Some("admission.k8s.io/v1beta1") => "admission.k8s.io/v1beta1",
            _ => "admission.k8s.io/v1",
        };
        let request = &review["request"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let envelope = Envelope { api_version: Some(api_version), uid: text(&request["uid"]) };
        let undecodable = |message: &str| Answer::undecodable(envelope.clone(), message);

        if !request.is_object() {
            return Err(undecodable("the review has no request"));
        }
        let operation = text(&request["operation"]);
        let operation = Operation::parse(&operation)
            .ok_or_else(|| undecodable(&format!("unknown operation {operation:?}")))?;
        let object = match operation {
            Operation::Create | Operation::Update => {
                Some(Incoming::decode(target, &request["object"]).map_err(|error| undecodable(&error))?)
            }
            Operation::Delete | Operation::Connect => None,
        };
        let former = Incoming::decode(target, &request["oldObject"]).ok();
        let metadata = object.as_ref().or(former.as_ref()).map(Incoming::metadata);
        let field = |value: Option<&String>, fallback| value.cloned().unwrap_or_else(|| text(fallback));
        Ok(Self {
            target,
            operation,
            namespace: field(metadata.and_then(|m| m.namespace.as_ref()), &request["namespace"]),
            name: field(metadata.and_then(|m| m.name.as_ref()), &request["name"]),
            object,
            former,
            envelope,
        })
    }

    /// The lists to read before the answer: none if it is clear without.
    pub fn reads(&self, setup: &Setup) -> Reads {
        let elsewhere = self.namespace != setup.namespace && self.operation != Operation::Update;
        if elsewhere || self.is_leaving() { Reads::default() } else { self.target.reads(self.operation) }
    }

    /// The kind of object it is about.
    pub const fn target(&self) -> Target {
        self.target
    }

    /// What is to be done to the object.
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// The object's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An object that is being deleted and of which only the metadata changes: a finalizer goes, usually.
    pub(super) fn is_leaving(&self) -> bool {
        let (Some(object), Some(former)) = (&self.object, &self.former) else { return false };
        object.metadata().deletion_timestamp.is_some() && object.same_spec(former)
    }
}

/// What the API server is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    envelope: Envelope,
    /// Whether the object may be stored, or deleted.
    pub allowed: bool,
    /// 200, 403 if it is refused, 400 if it could not be judged.
    pub code: u16,
    /// `Forbidden` if it is refused.
    pub reason: Option<&'static str>,
    /// Why not; empty if it is allowed.
    pub message: String,
    /// For the user, one line each.
    pub warnings: Vec<String>,
}

impl Answer {
    /// The answer to what is no review at all: another content type, no body, no JSON. HTTP says 200 all the same.
    pub fn malformed(message: &str) -> Self {
        Self::undecodable(Envelope::default(), message)
    }

    /// The answer to a body of more than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("request entity is too large; limit is {limit} bytes");
        Self { code: 413, ..Self::malformed(&message) }
    }

    /// The body of the HTTP response.
    pub fn to_json(&self) -> Value {
        let mut status = json!({ "metadata": {} });
        if !self.message.is_empty() {
            status["message"] = json!(self.message);
        }
        if let Some(reason) = self.reason {
            status["reason"] = json!(reason);
        }
        status["code"] = json!(self.code);
        let mut response = json!({ "uid": self.envelope.uid, "allowed": self.allowed, "status": status });
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        match self.envelope.api_version {
            Some(api_version) => {
                json!({ "kind": "AdmissionReview", "apiVersion": api_version, "response": response })
            }
            None => json!({ "response": response }),
        }
    }

    pub(super) fn allowed(review: &Review, warnings: Vec<String>) -> Self {
        Self {
            envelope: review.envelope.clone(),
            allowed: true,
            code: 200,
            reason: None,
            message: String::new(),
            warnings,
        }
    }

    pub(super) fn denied(review: &Review, message: String, warnings: Vec<String>) -> Self {
        Self {
            envelope: review.envelope.clone(),
            allowed: false,
            code: 403,
            reason: Some("Forbidden"),
            message,
            warnings,
        }
    }

    fn undecodable(envelope: Envelope, message: &str) -> Self {
        let message = message.to_owned();
        Self { envelope, allowed: false, code: 400, reason: None, message, warnings: Vec::new() }
    }
}
