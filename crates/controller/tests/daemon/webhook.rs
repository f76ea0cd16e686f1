// SPDX-License-Identifier: Apache-2.0
//! Webhooks of the running controller, asked by the API server and by hand.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ferrolb_config::admission::Target;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;

const DNS: &str = "metallb-webhook-service.metallb-system.svc";

/// A cluster with MetalLB's webhook configuration and Secret, and a controller that serves it.
struct Cluster {
    bench: Bench,
    controller: Controller,
    address: SocketAddr,
}

impl Cluster {
    async fn new(adjust: impl FnOnce(&mut Options)) -> Self {
        let bench = Bench::new().await;
        cluster(&bench).await;
        pod(&bench).await;
        let node =
            json!({ "metadata": { "name": "node1", "labels": { "kubernetes.io/hostname": "node1" } } });
        let nodes: Api<Node> = Api::all(bench.direct.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        create::<Secret>(&bench, NAMESPACE, json!({ "metadata": { "name": "metallb-webhook-cert" } })).await;
        let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(bench.direct.clone());
        webhooks.create(&PostParams::default(), &configuration()).await.unwrap();

        // A port that was free a moment ago.
        let free =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free));
        bench.server.route_webhooks("metallb-system/metallb-webhook-service", address);
        let mut options = options(None);
        options.webhook_mode = WebhookMode::Enabled;
        options.webhook.port = free;
        adjust(&mut options);
        let controller = Controller::with(&bench, options);
        Self { bench, controller, address }
    }

    /// … once its webhooks are trusted.
    async fn serving() -> Self {
        let cluster = Self::new(|_| {}).await;
        cluster.until_trusted().await;
        cluster
    }

    async fn until_trusted(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.bench.direct.clone());
        until("the CA stands in the definition", || async {
            let definition = definitions.get("bgppeers.metallb.io").await.unwrap();
            definition.spec.conversion?.webhook?.client_config?.ca_bundle
        })
        .await;
    }

    /// Creates an object, or replaces it, through the API server; code, message and warnings come back.
    async fn store(&self, target: Target, version: &str, mut object: Value) -> (u16, String) {
        let kind = target.kind();
        object["apiVersion"] = json!(format!("metallb.io/{version}"));
        object["kind"] = json!(kind);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE).to_owned();
        let api = self.dynamic(target, version, &namespace);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let name = object.metadata.name.clone().unwrap();
        let outcome = match api.get_opt(&name).await.unwrap() {
            None => api.create(&PostParams::default(), &object).await.map(|_| 201),
            Some(stored) => {
                let mut object = object;
                object.metadata.resource_version = stored.metadata.resource_version;
                api.replace(&name, &PostParams::default(), &object).await.map(|_| 200)
            }
        };
        answer(outcome)
    }

    fn dynamic(&self, target: Target, version: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "metallb.io".to_owned(),
            version: version.to_owned(),
            api_version: format!("metallb.io/{version}"),
            kind: target.kind().to_owned(),
            plural: target.plural().to_owned(),
        };
        Api::namespaced_with(self.bench.direct.clone(), namespace, &resource)
    }

    async fn authority(&self) -> CertificateDer<'static> {
        let secrets: Api<Secret> = Api::namespaced(self.bench.direct.clone(), NAMESPACE);
        let data = secrets.get("metallb-webhook-cert").await.unwrap().data.unwrap();
        CertificateDer::from_pem_slice(&data["ca.crt"].0).unwrap()
    }

    /// Sends bytes to the webhook port and reads until it closes.
    async fn send(&self, request: &[u8]) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority().await).unwrap();
        let trust = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        soon("an answer of the webhook port", async {
            let tcp = TcpStream::connect(self.address).await.unwrap();
            let name = ServerName::try_from(DNS).unwrap();
            let mut tls = TlsConnector::from(Arc::new(trust)).connect(name, tcp).await.unwrap();
            tls.write_all(request).await.unwrap();
            let mut answer = Vec::new();
            // The server may close without TLS's farewell, which is no matter after a whole answer.
            let _ = tls.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        })
        .await
    }

    async fn post(&self, path: &str, content_type: &str, body: &str) -> (u16, String) {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = self.send(request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

fn answer(outcome: kube::Result<u16>) -> (u16, String) {
    match outcome {
        Ok(code) => (code, String::new()),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// As MetalLB's manifests have it.
fn configuration() -> ValidatingWebhookConfiguration {
    let webhooks = Target::ALL.map(|target| {
        let operations: Vec<&str> = target.operations().iter().map(|operation| operation.as_str()).collect();
        json!({
            "name": target.webhook_name(), "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "sideEffects": "None",
            "clientConfig": { "service": {
                "name": "metallb-webhook-service", "namespace": NAMESPACE, "path": target.path(),
            } },
            "rules": [{ "apiGroups": ["metallb.io"], "apiVersions": [target.version()], "operations": operations,
                "resources": [target.plural()] }],
        })
    });
    let object = json!({ "metadata": { "name": "metallb-webhook-configuration" }, "webhooks": webhooks });
    serde_json::from_value(object).unwrap()
}

fn pool(name: &str, addresses: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "addresses": [addresses] } })
}

fn denied(target: Target, message: &str) -> (u16, String) {
    (403, format!("admission webhook \"{}\" denied the request: {message}", target.webhook_name()))
}

#[tokio::test]
async fn recorded_cases_get_their_recorded_answers_through_the_api_server() {
    let recorded: Value =
        serde_json::from_str(include_str!("../../../config/tests/data/webhook.json")).unwrap();
    let cluster = Cluster::serving().await;
    let mut played = 0;
    for case in [
        "pool-overlap",
        "pool-elsewhere",
        "pool-bad-cidr",
        "bfd-in-use",
        "adv-duplicates",
        "comm-values",
        "pool-priority-odd",
    ] {
        let cases = recorded["cases"].as_array().unwrap();
        let case = cases.iter().find(|found| found["id"] == case).unwrap();
        let mut stored = Vec::new();
        for step in case["steps"].as_array().unwrap() {
            let (verb, argument) = step["do"].as_object().unwrap().iter().next().unwrap();
            if verb == "get" {
                continue;
            }
            let ours = if verb == "delete" {
                let (verb, name) = argument.as_object().unwrap().iter().next().unwrap();
                let api = cluster.dynamic(target(verb), target(verb).version(), NAMESPACE);
                answer(api.delete(name.as_str().unwrap(), &DeleteParams::default()).await.map(|_| 200))
            } else {
                let target = target(verb);
                let mut spec = argument["spec"].clone();
                if spec.is_null() {
                    spec = argument.clone();
                    for metadata in ["name", "labels", "in"] {
                        spec.as_object_mut().unwrap().remove(metadata);
                    }
                }
                let mut metadata = json!({ "name": argument["name"], "labels": argument["labels"] });
                if argument["in"] == "$ns" {
                    metadata["namespace"] = json!("demo");
                }
                stored.push((target, argument["name"].as_str().unwrap().to_owned()));
                let object = json!({ "metadata": metadata, "spec": spec });
                cluster.store(target, target.version(), object).await
            };
            let theirs = &step["answer"];
            if theirs["code"] == 422 {
                assert_eq!(ours.0, 422, "{step}");
                continue;
            }
            let message = theirs["message"].as_str().unwrap_or_default();
            let code = theirs["code"].as_u64().unwrap();
            assert_eq!((u64::from(ours.0), ours.1.as_str()), (code, message), "{step}");
            played += 1;
        }
        for (target, name) in stored.into_iter().rev() {
            let api = cluster.dynamic(target, target.version(), NAMESPACE);
            // Many a one was refused.
            let _ = api.delete(&name, &DeleteParams::default()).await;
        }
    }
    assert!(played > 25, "only {played}");
    cluster.controller.stop().await;
}

fn target(verb: &str) -> Target {
    match verb {
        "pool" => Target::IPAddressPool,
        "l2" => Target::L2Advertisement,
        "adv" => Target::BGPAdvertisement,
        "peer" => Target::BGPPeer,
        "bfd" => Target::BFDProfile,
        "comm" => Target::Community,
        other => panic!("no such verb: {other}"),
    }
}

#[tokio::test]
async fn peers_are_converted_on_their_way_in_and_out() {
    let cluster = Cluster::serving().await;
    let peer = json!({
        "metadata": { "name": "p", "labels": { "a": "b" } },
        "spec": { "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1", "holdTime": "0s" },
    });
    assert_eq!(cluster.store(Target::BGPPeer, "v1beta1", peer).await, (201, String::new()));
    let stored = cluster.dynamic(Target::BGPPeer, "v1beta2", NAMESPACE).get("p").await.unwrap();
    assert_eq!(stored.metadata.labels.as_ref().unwrap()["a"], "b");
    assert_eq!(stored.data["spec"]["myASN"], 64512);
    assert_eq!(stored.data["spec"].get("holdTime"), None, "a zero counts as absent there");
    let old = cluster.dynamic(Target::BGPPeer, "v1beta1", NAMESPACE).get("p").await.unwrap();
    assert_eq!(old.types.unwrap().api_version, "metallb.io/v1beta1");
    assert_eq!(old.metadata.uid, stored.metadata.uid);
    cluster.controller.stop().await;
}

#[tokio::test]
async fn whatever_is_sent_gets_the_measured_answer() {
    let cluster = Cluster::serving().await;
    let pools = "/validate-metallb-io-v1beta1-ipaddresspool";
    let json = "application/json";
    let refused = |message: &str| {
        format!(
            "{{\"response\":{{\"allowed\":false,\"status\":{{\"code\":400,\"message\":{},\"metadata\":{{}}}},\"uid\":\"\"}}}}\n",
            Value::from(message)
        )
    };
    let large = format!("\"{}\"", "x".repeat(7 * 1024 * 1024));
    for (name, path, content_type, body, code, expected) in [
        ("no body", pools, json, "", 200, refused("request body is empty")),
        (
            "another type",
            pools,
            "text/plain",
            "{}",
            200,
            refused("contentType=text/plain, expected application/json"),
        ),
        (
            "too large",
            pools,
            json,
            &large,
            200,
            refused("request entity is too large; limit is 7340032 bytes").replace(":400,", ":413,"),
        ),
        ("another path", "/validate", json, "{}", 404, "404 page not found\n".to_owned()),
        ("the root", "/", json, "{}", 404, "404 page not found\n".to_owned()),
        ("nothing to convert", "/convert", json, "", 400, String::new()),
        ("no JSON to convert", "/convert", json, "not json", 400, String::new()),
        ("no review to convert", "/convert", json, "{}", 400, String::new()),
    ] {
        let (found, text) = cluster.post(path, content_type, body).await;
        assert_eq!((found, parsed(&text)), (code, parsed(&expected)), "{name}");
    }
    let get = format!("GET {pools} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let get = cluster.send(get.as_bytes()).await;
    assert!(get.contains("content-type: text/plain; charset=utf-8\r\n"), "{get}");
    assert_eq!(parsed(get.split_once("\r\n\r\n").unwrap().1), parsed(&refused("request body is empty")));

    // What is a review, or nearly, is answered with its version and uid.
    let object = pool("p", "192.168.10.0/33");
    for (name, review, version, code) in [
        ("no JSON", json!("text").to_string(), "v1", 400),
        ("no request", json!({}).to_string(), "v1", 400),
        ("garbage for an object", review("v1", json!({ "spec": 7 })), "v1", 400),
        ("no object", review("v1", Value::Null), "v1", 400),
        ("another kind", review("v1", json!({ "kind": "BGPPeer" })), "v1", 400),
        ("a pool at fault", review("v1", object.clone()), "v1", 403),
        ("the older version", review("v1beta1", object), "v1beta1", 403),
    ] {
        let (found, text) = cluster.post(pools, json, &review).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found, 200, "{name}");
        assert_eq!(answer["response"]["allowed"], false, "{name}");
        assert_eq!(answer["response"]["status"]["code"], code, "{name}: {text}");
        assert_eq!(answer["apiVersion"], format!("admission.k8s.io/{version}"), "{name}");
        assert!(text.ends_with('\n'), "{name}");
        let uid = if review.contains("u-1") { "u-1" } else { "" };
        assert_eq!(answer["response"]["uid"], uid, "{name}");
    }
    cluster.controller.stop().await;
}

/// The JSON of a body, or the text.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

fn review(version: &str, mut object: Value) -> String {
    if object.is_object() {
        object["metadata"]["namespace"] = json!(NAMESPACE);
    }
    json!({
        "apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview",
        "request": { "uid": "u-1", "operation": "CREATE", "namespace": NAMESPACE, "object": object },
    })
    .to_string()
}

#[tokio::test]
async fn a_list_that_cannot_be_read_refuses_with_its_cause_and_keeps_no_other_question_waiting() {
    let cluster = Cluster::serving().await;
    let faults = cluster.bench.server.faults();
    let lists = |resource| RequestMatch::new(&["list"], &[resource]);
    let fail = Effect::Fail {
        code: 403,
        reason: String::new(),
        message: "no nodes for you".into(),
        retry_after: None,
    };
    let rule = faults.add(Fault::new(lists("nodes"), fail));
    let peer = |name: &str| {
        json!({ "metadata": { "name": name },
            "spec": { "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" } })
    };
    assert_eq!(
        cluster.store(Target::BGPPeer, "v1beta2", peer("p")).await,
        denied(Target::BGPPeer, "failed to get existing Node objects: no nodes for you")
    );
    faults.remove(rule);

    // A list that hangs: others are answered meanwhile, and it ends before the API server gives up, which is after
    // as long as the configuration says.
    let patience = json!([{ "op": "add", "path": "/webhooks/0/timeoutSeconds", "value": 4 }]);
    let patience = Patch::Json::<()>(serde_json::from_value(patience).unwrap());
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(cluster.bench.direct.clone());
    webhooks.patch("metallb-webhook-configuration", &PatchParams::default(), &patience).await.unwrap();
    faults.add(Fault::new(lists("nodes"), Effect::Hold));
    let hanging = cluster.store(Target::BGPPeer, "v1beta2", peer("p"));
    let (hanging, others) = tokio::join!(hanging, async {
        until("the list hangs", || async { (!faults.held().is_empty()).then_some(()) }).await;
        let others = cluster.store(Target::IPAddressPool, "v1beta1", pool("p", "192.168.10.200/30")).await;
        assert!(!faults.held().is_empty(), "the list still hangs");
        others
    });
    assert_eq!(others, (201, String::new()));
    let expected = "failed to get existing Node objects: no answer within 2 s";
    assert_eq!(hanging, denied(Target::BGPPeer, expected));
    faults.clear();

    // What only warnings need may hang without harm.
    faults.add(Fault::new(lists("bgpadvertisements.metallb.io"), Effect::Hold));
    let admitted = cluster.store(Target::IPAddressPool, "v1beta1", pool("q", "192.168.11.0/30")).await;
    assert_eq!(admitted, (201, String::new()));
    faults.clear();
    cluster.controller.stop().await;
}

#[tokio::test]
async fn only_webhooks_means_no_addresses() {
    let cluster = Cluster::new(|options| options.webhook_mode = WebhookMode::OnlyWebhook).await;
    cluster.until_trusted().await;
    let addresses = pool("p", "192.168.10.0/33");
    assert_eq!(cluster.store(Target::IPAddressPool, "v1beta1", addresses).await.0, 403);
    let audit = cluster.bench.server.audit();
    let watched = |resource| audit.count(|kind| kind.verb == "watch" && kind.resource == resource) > 0;
    assert!(
        watched("customresourcedefinitions") && !watched("ipaddresspools") && !watched("configurationstates")
    );
    cluster.controller.stop().await;
}

#[tokio::test]
async fn s20_without_rotation_the_mounted_files_are_served_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec![DNS.to_owned()]).unwrap();
    let path = directory.path().to_owned();
    let cluster = Cluster::new(|options| {
        options.webhook.rotate = false;
        options.webhook.directory = path;
    })
    .await;
    std::fs::write(directory.path().join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(directory.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(cluster.bench.direct.clone());
    let mut trusting = webhooks.get("metallb-webhook-configuration").await.unwrap();
    for webhook in trusting.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(k8s_openapi::ByteString(made.cert.pem().into_bytes()));
    }
    webhooks.replace("metallb-webhook-configuration", &PostParams::default(), &trusting).await.unwrap();
    until("the files are served", || async {
        let (code, message) =
            cluster.store(Target::IPAddressPool, "v1beta1", pool("p", "192.168.10.0/33")).await;
        (code == 403 && message.contains("invalid CIDR")).then_some(())
    })
    .await;
    let secrets: Api<Secret> = Api::namespaced(cluster.bench.direct.clone(), NAMESPACE);
    assert_eq!(secrets.get("metallb-webhook-cert").await.unwrap().data, None);
    cluster.controller.stop().await;
}

/// A cluster whose controller can be asked whether it is ready, at this port.
async fn with_probes() -> (Cluster, u16) {
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    (Cluster::new(|options| options.common.health_port = free).await, free)
}

/// What the controller says; `None` if there is nobody to answer.
async fn is_ready(port: u16) -> Option<bool> {
    let mut probe = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    probe.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.ok()?;
    let mut text = String::new();
    probe.read_to_string(&mut text).await.ok()?;
    Some(text.starts_with("HTTP/1.1 200"))
}

#[tokio::test]
async fn s18_who_is_ready_can_be_asked_though_no_file_is_mounted() {
    let (cluster, port) = with_probes().await;
    until("it is ready", || async { is_ready(port).await.filter(|ready| *ready) }).await;
    let (code, message) = cluster.store(Target::IPAddressPool, "v1beta1", pool("p", "192.168.10.0/24")).await;
    assert_eq!((code, message.as_str()), (201, ""));
    cluster.controller.stop().await;
}

#[tokio::test]
async fn who_is_being_answered_when_the_controller_ends_is_answered_and_it_is_not_ready_any_more() {
    let (cluster, port) = with_probes().await;
    until("it is ready", || async { is_ready(port).await.filter(|ready| *ready) }).await;
    let faults = cluster.bench.server.faults();
    let rule = faults.add(Fault::new(RequestMatch::new(&["list"], &["nodes"]), Effect::Hold));
    let peer = json!({ "metadata": { "name": "p" },
        "spec": { "myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1" } });
    let (outcome, ()) = tokio::join!(cluster.store(Target::BGPPeer, "v1beta2", peer), async {
        until("the question is asked", || async { (!faults.held().is_empty()).then_some(()) }).await;
        cluster.controller.stop.cancel();
        until("it is not ready", || async { is_ready(port).await.filter(|ready| !*ready) }).await;
        assert!(!cluster.controller.ended.is_finished());
        faults.remove(rule);
    });
    assert_eq!(outcome, (201, String::new()));
    soon("the controller ends", cluster.controller.ended).await.unwrap().unwrap();
}
