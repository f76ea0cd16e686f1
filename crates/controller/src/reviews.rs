// SPDX-License-Identifier: Apache-2.0
//! The answers of the webhook port: admission and conversion.
//!
//! What an answer needs is read from the API server there and then, each list for itself and all at once, so that a
//! slow one costs its own question only. Lists that are required have until shortly before the API server gives up;
//! those that only warnings need have less, and are done without.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ferrolb_config::admission::{Answer, List, Review, Setup, Stored, Target, judge};
use ferrolb_kube_support::request::{RequestError, send_accepting};
use ferrolb_kube_support::webhook::{Body, Reply, Webhooks};
use futures::future::join_all;
use http::request::Parts;
use http::{Method, StatusCode};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

/// Where BGPPeers are converted.
pub(crate) const CONVERT: &str = "/convert";
/// Bytes that the body of an AdmissionReview may have, as in MetalLB.
const REVIEW_LIMIT: usize = 7 * 1024 * 1024;
/// Bytes that the body of a ConversionReview may have. It carries all objects of a list.
const CONVERSION_LIMIT: usize = 48 * 1024 * 1024;
/// How long an API server waits for an answer when it does not say.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is left of that for the way and for judging.
const MARGIN: Duration = Duration::from_secs(2);
/// How long lists are waited for that only warnings need.
const HELPFUL_LIMIT: Duration = Duration::from_secs(2);
/// How long to wait with a list that the API server puts off.
const PUT_OFF: Duration = Duration::from_millis(250);
/// Lists of which the metadata is enough need not be sent whole.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The webhooks of the controller.
pub(crate) struct Reviews {
    client: Client,
    setup: Setup,
}

impl Webhooks for Reviews {
    fn limit(&self, path: &str) -> Option<usize> {
        match path {
            CONVERT => Some(CONVERSION_LIMIT),
            path => Target::from_path(path).map(|_| REVIEW_LIMIT),
        }
    }

    async fn answer(&self, head: &Parts, body: Body) -> Reply {
        match Target::from_path(head.uri.path()) {
            Some(target) => {
                let answer = self.admit(target, head, &body).await;
                let mut body = answer.to_json().to_string().into_bytes();
                // As the reference ends it.
                body.push(b'\n');
                // HTTP says 200 whatever the answer says, and calls it text.
                Reply { code: StatusCode::OK, content_type: Some("text/plain; charset=utf-8"), body }
            }
            None => convert(&body),
        }
    }
}

impl Reviews {
    /// Reads through `client`.
    pub(crate) const fn new(client: Client, setup: Setup) -> Self {
        Self { client, setup }
    }

    async fn admit(&self, target: Target, head: &Parts, body: &Body) -> Answer {
        let Body::Whole(bytes) = body else {
            return Answer::too_large(REVIEW_LIMIT);
        };
        let content_type = head.headers.get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !bytes.is_empty() && content_type != "application/json" {
            return Answer::malformed(&format!("contentType={content_type}, expected application/json"));
        }
        let review = match Review::decode(target, bytes) {
            Ok(review) => review,
            Err(answer) => {
                let error = answer.message.as_str();
                tracing::error!(webhook = webhook(target), error, "a review cannot be read");
                return answer;
            }
        };
        let stored = self.read(&review, patience(head.uri.query())).await;
        let answer = judge(&review, &stored, &self.setup);
        let (action, name, namespace) = (action(&review), review.name(), review.namespace());
        if answer.allowed {
            tracing::debug!(webhook = webhook(target), action, name, namespace);
        } else {
            let error = answer.message.as_str();
            tracing::error!(webhook = webhook_that_refuses(target), action, name, namespace, error);
        }
        answer
    }

    /// Reads every list that the answer needs.
    async fn read(&self, review: &Review, patience: Duration) -> Stored {
        let reads = review.reads(&self.setup);
        let required = reads.required.iter().map(|list| (*list, true));
        let helpful = reads.helpful.iter().map(|list| (*list, false));
        let answers = join_all(required.chain(helpful).map(async |(list, required)| {
            // What is required is read from the store; a cache of the API server will do for the rest.
            let (limit, version) = match required {
                true => (patience, ""),
                false => (patience.min(HELPFUL_LIMIT), "?resourceVersion=0"),
            };
            let path = format!("{}{version}", list.path(&self.setup.namespace));
            let accept = match list {
                List::Nodes | List::Namespaces => METADATA,
                _ => "application/json",
            };
            (list, items(read_list(accept, &self.client, &path, limit).await))
        }))
        .await;
        let mut stored = Stored::new();
        for (list, answer) in answers {
            match answer {
                Ok(items) => stored.insert(list, items),
                Err(cause) => {
                    tracing::debug!(
                        op = "webhook",
                        list = list.kind(),
                        error = cause.as_str(),
                        "list not read"
                    );
                    stored.fail(list, cause);
                }
            }
        }
        stored
    }
}

/// A list, asked for again while the API server puts it off: it does so while it gets ready for a definition that was just
/// made or changed, by which nobody's object becomes a bad one.
async fn read_list(
    accept: &'static str,
    client: &Client,
    path: &str,
    limit: Duration,
) -> Result<Bytes, RequestError> {
    let started = Instant::now();
    let mut put_off = None;
    loop {
        let left = if put_off.is_none() { limit } else { limit.saturating_sub(started.elapsed()) };
        match send_accepting(accept, client, Method::GET, path, None, left).await {
            Err(error) if error.code == 429 && started.elapsed() + PUT_OFF < limit => {
                put_off = Some(error);
                tokio::time::sleep(PUT_OFF).await;
            }
            // That time is over is no news; why is.
            Err(error) if error.code == 0 => return Err(put_off.unwrap_or(error)),
            answer => return answer,
        }
    }
}

/// The objects of a list.
fn items(answer: Result<Bytes, RequestError>) -> Result<Vec<Value>, String> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        items: Option<Vec<Value>>,
    }
    let bytes = answer.map_err(|error| error.message)?;
    let page: Page =
        serde_json::from_slice(&bytes).map_err(|error| format!("the list cannot be read: {error}"))?;
    Ok(page.items.unwrap_or_default())
}

/// How long lists may take: less than the API server waits, which says so in the query (`timeout=10s`).
fn patience(query: Option<&str>) -> Duration {
    let said = query.unwrap_or_default().split('&').find_map(|pair| {
        let seconds: u64 = pair.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok()?;
        // Thirty seconds are the most that can be configured.
        (1..=30).contains(&seconds).then(|| Duration::from_secs(seconds))
    });
    let all = said.unwrap_or(PATIENCE);
    all.saturating_sub(MARGIN).max(all / 2)
}

/// The converted objects; what is no ConversionReview is refused without a word.
fn convert(body: &Body) -> Reply {
    let bytes = match body {
        Body::Whole(bytes) => bytes,
        Body::TooLarge => return refuse(StatusCode::PAYLOAD_TOO_LARGE),
    };
    let review: Value = match serde_json::from_slice(bytes) {
        Ok(review) => review,
        Err(error) => {
            tracing::error!(op = "convert", error = %error, "failed to read conversion request");
            return refuse(StatusCode::BAD_REQUEST);
        }
    };
    match ferrolb_api::conversion::review(&review) {
        Ok(answer) => {
            let failed = &answer["response"]["result"]["message"];
            if let Some(error) = failed.as_str() {
                tracing::error!(op = "convert", error, "BGPPeers cannot be converted");
            }
            let body = answer.to_string().into_bytes();
            Reply { code: StatusCode::OK, content_type: Some("application/json"), body }
        }
        Err(error) => {
            tracing::error!(op = "convert", error = %error, "failed to read conversion request");
            refuse(StatusCode::BAD_REQUEST)
        }
    }
}

const fn refuse(code: StatusCode) -> Reply {
    Reply { code, content_type: None, body: Vec::new() }
}

/// What MetalLB's log calls the webhook.
const fn webhook(target: Target) -> &'static str {
    match target {
        Target::BGPPeer => "bgppeer",
        Target::IPAddressPool => "ipaddresspool",
        Target::BGPAdvertisement => "bgpadvertisement",
        Target::L2Advertisement => "v1beta1.L2Advertisement",
        Target::Community => "community",
        Target::BFDProfile => "bfdprofile",
    }
}

/// The same where something is refused: people search for what MetalLB writes then.
const fn webhook_that_refuses(target: Target) -> &'static str {
    match target {
        Target::IPAddressPool => "ipAddress",
        other => webhook(other),
    }
}

/// What MetalLB's log calls the operation.
fn action(review: &Review) -> &'static str {
    use ferrolb_config::admission::Operation;
    match review.operation() {
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Delete => "delete",
        Operation::Connect => "connect",
    }
}

#[cfg(test)]
mod tests {
    use ferrolb_fakekube::{Effect, Fault, RequestMatch, Server};
    use kube::config::{KubeConfigOptions, Kubeconfig};

    use super::*;

    #[test]
    fn webhooks_have_the_names_of_metallbs_log() {
        let names = Target::ALL.map(|target| (webhook(target), webhook_that_refuses(target)));
        for name in ["bgppeer", "bgpadvertisement", "v1beta1.L2Advertisement", "community", "bfdprofile"]
            .map(|n| (n, n))
        {
            assert!(names.contains(&name), "{name:?}: {names:?}");
        }
        assert!(names.contains(&("ipaddresspool", "ipAddress")), "{names:?}");
    }

    #[tokio::test]
    async fn a_list_that_is_put_off_is_asked_for_again_for_as_long_as_there_is_time() {
        let server = Server::start(ferrolb_fakekube::Options::default()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        // As the daemon's own: what is tried again, and for how long, is decided here.
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let too_many = |count| Fault {
            requests: RequestMatch::new(&["list"], &["nodes"]),
            effect: Effect::Fail {
                code: 429,
                reason: String::new(),
                message: "not yet".into(),
                retry_after: None,
            },
            skip: 0,
            count,
        };
        let read = async |limit| read_list("application/json", &client, "/api/v1/nodes", limit).await;
        server.faults().add(too_many(Some(2)));
        assert!(items(read(Duration::from_secs(60)).await).is_ok());
        server.faults().add(too_many(None));
        assert_eq!(items(read(Duration::from_secs(2)).await), Err("not yet".to_owned()));
    }
}
