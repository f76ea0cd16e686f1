// SPDX-License-Identifier: Apache-2.0
//! The story of an installation: an empty cluster, `ferrolb manifests | kubectl apply -f -`, and what it is worth.
//!
//! The daemons run under the ServiceAccounts, and with the rights, of exactly that text. On an API server that checks
//! rights, one that is missing shows in a daemon's log and fails the story. Then MetalLB's manifests are applied over it and
//! ours again, which is the way of an existing cluster, there and back.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolb_manifests::{Images, Installation};
use serde_json::{Value, json};

use super::cluster::{CONFIGURATION_STATE, POD, SERVICE, eventually, ingress, text};
use super::stage::{SOON, Stage, example};
use super::story::{Report, Seen, Show, Story};
use crate::bench_handle::{Bench, DEMO, Daemon, SYSTEM};
use crate::host::Host;
use crate::seed;

/// Plays the story on a bench without daemons, definitions or anything of an installation.
pub(super) async fn play(bench: &Bench, api: &str, show: Show) -> Report {
    let mut stage = Stage::new(bench, Story::new("install", api, show));
    stage.story.chapter("Installation");
    let up = stage.step("apply", "everything is created by one command", apply).await
        && stage
            .step("daemons", "two controllers on two nodes, a speaker on each of three, all Ready", daemons)
            .await;
    if up {
        stage.step("settings", "each daemon has the environment of its manifest", settings).await;
        stage
            .step(
                "certificate",
                "one authority, in the Secret, in all webhooks and in the conversion of BGPPeer",
                certificate,
            )
            .await;
        stage.step("admission", "a bad pool is refused, a good one is stored", admission).await;
        stage.step("Service", "it gets an address that answers", service).await;
        stage.step("metrics", "they are for who may read them", metrics).await;
        stage.step("rights", "nothing that a daemon asked for was refused", rights).await;
        stage.step("no more rights", "what no daemon needs is refused", no_more).await;

        stage.story.chapter("Again, and the other manifests");
        stage.step("apply again", "nothing changes, no Pod is replaced", again).await;
        stage.step("MetalLB's manifests", "the address stays, no object of ours is left", to_metallb).await;
        stage
            .step("swap", "the README's commands turn an installation of MetalLB into one of ferrolb", swap)
            .await;
        stage.step("and back", "the address stays, the rights are ours again", back).await;
    }
    stage.story.finish()
}

/// The text that `ferrolb manifests` prints.
fn manifests() -> Result<String> {
    Ok(Installation::default().yaml()?)
}

async fn apply(stage: &mut Stage<'_>) -> Seen {
    let printed = applied(stage, COMMAND, &manifests()?).await?;
    for line in printed.lines() {
        ensure!(line.ends_with(" created"), "{line}");
    }
    Ok(format!("{} objects created", printed.lines().count()))
}

/// Applies a text as a person would, showing `command`; gives what `kubectl` prints.
async fn applied(stage: &mut Stage<'_>, command: &str, yaml: &str) -> Result<String> {
    stage.story.command(command);
    ensure!(stage.bench.has_kubectl(), "this story needs kubectl");
    stage.bench.kubectl_quietly(&["apply", "-f", "-"], Some(yaml)).await?.success()
}

async fn daemons(stage: &mut Stage<'_>) -> Seen {
    stage.story.command("kubectl -n metallb-system rollout status deployment/controller daemonset/speaker");
    stage.bench.daemons_ready(ROLLOUT).await?;
    let nodes = |daemon: Daemon| stage.bench.pods(SYSTEM, daemon.name());
    let controllers = nodes(Daemon::Controller).await?;
    let behind: BTreeSet<_> = controllers.iter().map(|pod| pod.node).collect();
    ensure!(controllers.len() == 2 && behind.len() == 2, "controllers on {behind:?}");
    let speakers: BTreeSet<_> = nodes(Daemon::Speaker).await?.iter().map(|pod| pod.node).collect();
    ensure!(speakers.len() == Host::NODES.len(), "speakers on {speakers:?}");
    Ok("2 controllers on two nodes, 3 speakers on three, Ready".into())
}

async fn settings(stage: &mut Stage<'_>) -> Seen {
    for daemon in stage.daemons().await? {
        let path = format!("/proc/{}/environ", daemon.pid);
        let environment = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let set: BTreeSet<&str> = environment.split('\0').collect();
        ensure!(set.contains("FERROLB_LEVEL=B"), "{} lacks FERROLB_LEVEL=B", daemon.pod);
    }
    Ok("FERROLB_LEVEL=B in all five".into())
}

async fn certificate(stage: &mut Stage<'_>) -> Seen {
    const WEBHOOKS: &str = "{range .webhooks[*]}{.clientConfig.caBundle}{\"\\n\"}{end}";
    stage.story.command("kubectl -n metallb-system get secret metallb-webhook-cert -o yaml");
    stage.story.command("kubectl get validatingwebhookconfiguration metallb-webhook-configuration -o yaml");
    stage.story.command("kubectl get crd bgppeers.metallb.io -o yaml");
    eventually(SOON, async || {
        let secret =
            get(stage, &["-n", SYSTEM, "get", "secret", "metallb-webhook-cert", "-o", "json"]).await?;
        let secret: Value = serde_json::from_str(&secret)?;
        for key in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
            ensure!(secret["data"][key].is_string(), "the Secret has no {key}");
        }
        let authority = text(&secret, "/data/ca.crt").to_owned();
        let mut bundles: Vec<String> = Vec::new();
        for (kind, name, path) in [
            ("validatingwebhookconfiguration", "metallb-webhook-configuration", WEBHOOKS),
            ("crd", "bgppeers.metallb.io", "{.spec.conversion.webhook.clientConfig.caBundle}"),
        ] {
            let found = get(stage, &["get", kind, name, "-o", &format!("jsonpath={path}")]).await?;
            bundles.extend(found.lines().map(ToOwned::to_owned));
        }
        ensure!(bundles.len() == 7, "{} places hold a certificate", bundles.len());
        ensure!(bundles.iter().all(|bundle| *bundle == authority), "they do not hold the Secret's ca.crt");
        Ok(())
    })
    .await?;
    Ok("the Secret's ca.crt stands in six webhooks and in the conversion".into())
}

async fn admission(stage: &mut Stage<'_>) -> Seen {
    let bad = example!("reversed-pool.yaml");
    stage.story.command(format!("kubectl apply -f {}", bad.file));
    let refused = stage.bench.kubectl_quietly(&["apply", "-f", "-"], Some(bad.yaml)).await?;
    ensure!(!refused.ok(), "it was stored");
    let expected = "ipaddresspoolvalidationwebhook.metallb.io\" denied the request: ";
    let (_, denial) =
        refused.stderr.split_once(expected).with_context(|| format!("kubectl said {:?}", refused.stderr))?;
    let denial = denial.trim().to_owned();
    for good in [example!("pool.yaml"), example!("advertisement.yaml")] {
        stage.apply(good).await?;
    }
    Ok(format!("denied: {denial}"))
}

async fn service(stage: &mut Stage<'_>) -> Seen {
    for example in [example!("hello.yaml"), example!("hello-lb.yaml")] {
        stage.apply(example).await?;
    }
    let address = answers(stage).await?;
    eventually(SOON, async || {
        let states = stage.cluster.list(CONFIGURATION_STATE, SYSTEM).await?;
        ensure!(states.len() == 4, "{} ConfigurationStates", states.len());
        for state in &states {
            ensure!(text(state, "/status/result") == "Valid", "{}", text(state, "/metadata/name"));
        }
        let secrets = get(stage, &["-n", SYSTEM, "get", "secrets", "-o", "name"]).await?;
        ensure!(secrets.lines().any(|line| line == "secret/memberlist"), "there is no Secret memberlist");
        Ok(())
    })
    .await?;
    Ok(format!(
        "{address} answers the client; every ConfigurationState is Valid; the Secret memberlist is there"
    ))
}

/// The Service's address, once a Pod behind it has answered the client.
async fn answers(stage: &Stage<'_>) -> Result<String> {
    let addresses = stage.addresses(DEMO, SERVICE_NAME).await?;
    let [address] = addresses.as_slice() else { bail!("{SERVICE_NAME} has {addresses:?}") };
    stage.answer(Host::Client, address.parse::<std::net::Ipv4Addr>()?, 80).await?;
    Ok(address.clone())
}

async fn metrics(stage: &mut Stage<'_>) -> Seen {
    let reader = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: reader, namespace: demo}\n---\n\
                  apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: demo-metrics}\n\
                  rules: [{nonResourceURLs: [/metrics], verbs: [get]}]\n---\n\
                  apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: demo-metrics}\n\
                  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: demo-metrics}\n\
                  subjects: [{kind: ServiceAccount, name: reader, namespace: demo}]\n";
    stage.bench.kubectl_quietly(&["apply", "-f", "-"], Some(reader)).await?.success()?;
    stage.story.command("kubectl -n demo create token reader");
    // The same request in JSON: the in-memory API server reads no protobuf, in which `kubectl create token` asks.
    let path = "/api/v1/namespaces/demo/serviceaccounts/reader/token";
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).to_string();
    let answer = stage
        .bench
        .kubectl_quietly(&["create", "--raw", path, "-f", "-"], Some(&request))
        .await?
        .success()?;
    let answer: Value = serde_json::from_str(&answer).context("a TokenRequest")?;
    let bearer = format!("Authorization: Bearer {}", text(&answer, "/status/token"));
    let running = stage.daemons().await?;
    for daemon in [Daemon::Controller, Daemon::Speaker] {
        let one = running.iter().find(|one| one.daemon == daemon).context("a daemon is missing")?;
        let mut seen = Vec::new();
        for header in ["Accept: */*", bearer.as_str()] {
            let arguments = [
                "curl",
                "-sSk",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "-H",
                header,
                "https://127.0.0.1:9120/metrics",
            ];
            seen.push(stage.beside(one, &arguments).await?.success()?);
        }
        ensure!(seen == ["401", "200"], "the {} answers {seen:?}", daemon.name());
    }
    Ok("401 without a token, 200 with one that may read them, from both daemons".into())
}

/// No line of a daemon's log is about a refusal.
async fn rights(stage: &mut Stage<'_>) -> Seen {
    let running = stage.daemons().await?;
    for one in &running {
        let log = stage.bench.log(&one.pod);
        ensure!(!log.is_empty(), "{} wrote nothing", one.pod);
        if let Some(line) = log.lines().find(|line| line.contains("orbidden") || line.contains("(403")) {
            bail!("{}: {line}", one.pod);
        }
    }
    Ok(format!("no refusal in the logs of {} daemons", running.len()))
}

async fn no_more(stage: &mut Stage<'_>) -> Seen {
    if may(stage, "demo:default", "delete", "/nodes", "").await? {
        return Ok("this API server checks no rights".into());
    }
    for (account, verb, resource, name) in REFUSED {
        let slash = if name.is_empty() { "" } else { "/" };
        let what = format!("{verb} {}{slash}{name}", resource.trim_start_matches('/'));
        stage.story.command(format!(
            "kubectl auth can-i {what} -n {SYSTEM} --as system:serviceaccount:{SYSTEM}:{account}"
        ));
        let who = format!("{SYSTEM}:{account}");
        ensure!(!may(stage, &who, verb, resource, name).await?, "the {account} may {what}");
    }
    Ok(format!("{} questions, each answered no", REFUSED.len()))
}

/// Whether a ServiceAccount may do `verb` to `GROUP/RESOURCE[/SUBRESOURCE]` in the daemons' namespace.
///
/// `kubectl auth can-i` asks the same, but in protobuf, which the in-memory API server does not read.
async fn may(stage: &Stage<'_>, who: &str, verb: &str, resource: &str, name: &str) -> Result<bool> {
    let mut parts = resource.split('/').map(ToOwned::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{who}"),
            "resourceAttributes": {
                "group": part(), "resource": part(), "subresource": part(),
                "verb": verb, "name": name, "namespace": SYSTEM,
            },
        },
    });
    let arguments = ["create", "-f", "-", "-o", "jsonpath={.status.allowed}"];
    let answer = stage.bench.kubectl_quietly(&arguments, Some(&review.to_string())).await?.success()?;
    answer.trim().parse().with_context(|| format!("a review says {answer:?}"))
}

async fn again(stage: &mut Stage<'_>) -> Seen {
    let before = pods(stage).await?;
    let printed = applied(stage, COMMAND, &manifests()?).await?;
    for line in printed.lines() {
        ensure!(line.ends_with(" unchanged"), "{line}");
    }
    // What the daemons put in is still there.
    certificate(stage).await?;
    let after = pods(stage).await?;
    ensure!(before == after, "Pods were {before:?}, are {after:?}");
    Ok(format!(
        "{} objects unchanged; the certificates stay; the same {} Pods",
        printed.lines().count(),
        after.len()
    ))
}

async fn to_metallb(stage: &mut Stage<'_>) -> Seen {
    let address = answers(stage).await?;
    let ours = roles(stage).await?;
    // What MetalLB's manifest has beside the bench's copy: definitions and webhooks, which are the same.
    applied(stage, "kubectl apply -f metallb-native.yaml    # with the images changed", seed::METALLB)
        .await?;
    stage.bench.daemons_ready(ROLLOUT).await?;
    let theirs = roles(stage).await?;
    ensure!(ours == theirs, "roles were {ours:?}, are {theirs:?}");
    ensure!(answers(stage).await? == address, "another address");
    rights(stage).await?;
    Ok(format!(
        "{address} answers; the same {} roles and bindings, with MetalLB's rights; no refusal",
        theirs.len()
    ))
}

/// The bench has no images of MetalLB's: those of ours that its manifests name are exchanged for those of the README.
async fn swap(stage: &mut Stage<'_>) -> Seen {
    let address = answers(stage).await?;
    let settings = environment(stage).await?;
    for (workload, container, daemon) in [
        ("deployment/controller", "controller", ferrolb_manifests::Daemon::Controller),
        ("daemonset/speaker", "speaker", ferrolb_manifests::Daemon::Speaker),
    ] {
        let image = format!("{container}={}", Images::default().of(daemon));
        let command = format!("kubectl -n {SYSTEM} set image {workload} {image}");
        ensure!(README.contains(&command), "the README does not say {command}");
        stage.story.command(command);
        get(stage, &["-n", SYSTEM, "set", "image", workload, &image]).await?;
    }
    stage.bench.daemons_ready(ROLLOUT).await?;
    let left = environment(stage).await?;
    ensure!(left == settings && left.contains("METALLB_ML_BIND_ADDR"), "the speaker's settings: {left}");
    ensure!(answers(stage).await? == address, "another address");
    rights(stage).await?;
    Ok(format!("{address} answers; the speaker's settings are MetalLB's, the member list's included"))
}

/// The names of the speaker's environment variables.
async fn environment(stage: &Stage<'_>) -> Result<String> {
    let path = "jsonpath={.spec.template.spec.containers[0].env[*].name}";
    get(stage, &["-n", SYSTEM, "get", "daemonset", "speaker", "-o", path]).await
}

async fn back(stage: &mut Stage<'_>) -> Seen {
    let address = answers(stage).await?;
    applied(stage, COMMAND, &manifests()?).await?;
    stage.bench.daemons_ready(ROLLOUT).await?;
    ensure!(answers(stage).await? == address, "another address");
    rights(stage).await?;
    certificate(stage).await?;
    no_more(stage).await?;
    let service = stage.cluster.read(SERVICE, DEMO, SERVICE_NAME).await?;
    ensure!(ingress(&service) == [address.clone()], "{}", service["status"]);
    Ok(format!("{address} answers; no refusal; the same certificate everywhere"))
}

/// Names and restarts of the daemons' Pods.
async fn pods(stage: &Stage<'_>) -> Result<BTreeSet<String>> {
    let pods = stage.cluster.list(POD, SYSTEM).await?;
    let one = |pod: &Value| {
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        format!("{} ({restarts} restarts)", text(pod, "/metadata/name"))
    };
    Ok(pods.iter().map(one).collect())
}

/// Names of the roles and bindings of an installation.
async fn roles(stage: &Stage<'_>) -> Result<BTreeSet<String>> {
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings";
    let found = get(stage, &["-n", SYSTEM, "get", kinds, "-l", "app=metallb", "-o", "name"]).await?;
    Ok(found.lines().map(ToOwned::to_owned).collect())
}

/// What a `kubectl` command prints, without showing the command.
async fn get(stage: &Stage<'_>, arguments: &[&str]) -> Result<String> {
    stage.bench.kubectl_quietly(arguments, None).await?.success()
}

const README: &str = include_str!("../../../../README.md");
const COMMAND: &str = "ferrolb manifests | kubectl apply -f -";
const SERVICE_NAME: &str = "hello-lb";
const ROLLOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// What no reader of the manifests would expect: account, verb, `GROUP/RESOURCE`, name.
const REFUSED: [(&str, &str, &str, &str); 12] = [
    ("controller", "get", "/secrets", "another"),
    ("controller", "list", "/secrets", ""),
    ("controller", "update", "/secrets", "memberlist"),
    ("controller", "update", "/services", "hello-lb"),
    ("controller", "patch", "/services/status", "hello-lb"),
    ("controller", "update", "coordination.k8s.io/leases", "another"),
    ("controller", "patch", "admissionregistration.k8s.io/validatingwebhookconfigurations", "another"),
    ("controller", "update", "apiextensions.k8s.io/customresourcedefinitions", "bgppeers.metallb.io"),
    ("speaker", "get", "/secrets", "another"),
    ("speaker", "update", "/services/status", "hello-lb"),
    ("speaker", "update", "metallb.io/ipaddresspools", "lan"),
    ("speaker", "create", "/pods", ""),
];
