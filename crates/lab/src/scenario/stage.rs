// SPDX-License-Identifier: Apache-2.0
//! Where a story is played: the bench, the API server, the tools a person would use, and the record of it all.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ferrolb_linux::Namespace;
use serde_json::{Value, json};

use super::cluster::{Cluster, Kind, NODE, POD, SERVICE, eventually, ingress, text};
use super::story::{Seen, Story};
use super::{table, wire};
use crate::bench_handle::{Bench, Daemon, SYSTEM};
use crate::host::Host;
use crate::launch::{self, Outcome};
use crate::seed::documents;

/// How long any tool may take.
const TOOL_LIMIT: Duration = Duration::from_secs(60);

/// How long an effect may take that comes within a second or two on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The story's place.
pub(crate) struct Stage<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) story: Story,
    pub(crate) cluster: Cluster,
    kubectl: bool,
}

/// A manifest of `docs/l2`, which a reader can apply as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Example {
    /// Path from the root of the repository.
    pub(crate) file: &'static str,
    /// Its content.
    pub(crate) yaml: &'static str,
}

/// The manifest of this name in `docs/l2`.
macro_rules! example {
    ($name:literal) => {
        $crate::scenario::stage::Example {
            file: concat!("docs/l2/", $name),
            yaml: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/l2/", $name)),
        }
    };
}
pub(crate) use example;

/// One of the daemons, as it runs now.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// Its Pod.
    pub(crate) pod: String,
    pub(crate) daemon: Daemon,
    /// The node its Pod is on.
    pub(crate) node: Host,
    /// Its process.
    pub(crate) pid: u32,
}

/// What a tool said, and how it ended.
pub(crate) fn told(outcome: &Outcome) -> String {
    let said = [outcome.stdout.trim(), outcome.stderr.trim()].join(" ");
    let end = outcome.code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
    format!("{end}: {}", said.trim())
}

impl<'a> Stage<'a> {
    pub(crate) fn new(bench: &'a Bench, story: Story) -> Self {
        let kubectl = bench.has_kubectl();
        let cluster = Cluster::new(bench.client().clone());
        if !kubectl {
            anstream::eprintln!(
                "\nNOTE: kubectl is not installed. Its part is played through the API by the lab itself;\n\
                 install kubectl 1.30 or newer to see the commands below run as they are printed.\n"
            );
        }
        Self { bench, story, cluster, kubectl }
    }

    /// Plays one step and records it. Returns whether it was as expected.
    pub(crate) async fn step(
        &mut self,
        name: &str,
        expected: &str,
        play: impl AsyncFnOnce(&mut Self) -> Seen,
    ) -> bool {
        let began = Instant::now();
        let seen = play(self).await;
        self.story.step(name, expected, began, seen)
    }

    /// Applies a manifest.
    pub(crate) async fn apply(&mut self, example: Example) -> Result<()> {
        self.story.command(format!("kubectl apply -f {}", example.file));
        if self.kubectl {
            return self.run_kubectl(&["apply", "-f", "-"], Some(example.yaml)).await.map(drop);
        }
        for document in documents(example.yaml)? {
            self.cluster.apply(&document).await?;
        }
        Ok(())
    }

    /// Applies a manifest that is to be refused: what the API server says.
    pub(crate) async fn apply_refused(&mut self, example: Example) -> Result<String> {
        if let Some(outcome) =
            self.kubectl_on(&["apply", "-f", example.file], &["apply", "-f", "-"], example.yaml).await?
        {
            ensure!(!outcome.ok(), "kubectl applies it: {}", told(&outcome));
            return Ok(outcome.stderr);
        }
        for document in documents(example.yaml)? {
            if let Err(error) = self.cluster.apply(&document).await {
                return Ok(format!("{error:#}"));
            }
        }
        bail!("the API server admits it")
    }

    /// Runs `kubectl` with a manifest as its input, and shows the command as one would type it with the file. `None`
    /// where it is not installed.
    pub(crate) async fn kubectl_on(
        &mut self,
        shown: &[&str],
        arguments: &[&str],
        manifest: &str,
    ) -> Result<Option<Outcome>> {
        self.story.command(format!("kubectl {}", shell_words(shown)));
        if !self.kubectl {
            return Ok(None);
        }
        self.bench.kubectl_quietly(arguments, Some(manifest)).await.map(Some)
    }

    /// A merge patch whose content is nobody's business; the story shows that there is one.
    pub(crate) async fn patch_secretly(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<()> {
        self.story.command(format!(
            "kubectl -n {namespace} patch {} {name} --type merge --patch-file FILE",
            kind.singular()
        ));
        self.cluster.merge(kind, namespace, name, false, patch).await
    }

    /// Deletes what a manifest made.
    pub(crate) async fn remove(&mut self, examples: &[Example]) -> Result<()> {
        let files: Vec<_> = examples.iter().map(|example| format!(" -f {}", example.file)).collect();
        self.story.command(format!("kubectl delete{}", files.concat()));
        let objects: Vec<Value> = examples
            .iter()
            .map(|example| documents(example.yaml))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        if self.kubectl {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
            return self
                .run_kubectl(&["delete", "--ignore-not-found", "-f", "-"], Some(&list))
                .await
                .map(drop);
        }
        for object in objects {
            self.cluster.remove(&object).await?;
        }
        Ok(())
    }

    /// Runs `kubectl` for what has no other way: only where it is installed. `None` where it is not.
    pub(crate) async fn kubectl(&mut self, arguments: &[&str]) -> Result<Option<String>> {
        self.story.command(format!("kubectl {}", shell_words(arguments)));
        if !self.kubectl {
            return Ok(None);
        }
        self.run_kubectl(arguments, None).await.map(Some)
    }

    /// A merge patch, of the status with `status`.
    pub(crate) async fn patch(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        status: bool,
        patch: Value,
    ) -> Result<()> {
        let body = patch.to_string();
        let mut arguments =
            vec!["-n", namespace, "patch", kind.singular(), name, "--type", "merge", "-p", &body];
        if status {
            arguments.extend(["--subresource", "status"]);
        }
        match self.kubectl(&arguments).await? {
            Some(_) => Ok(()),
            None => self.cluster.merge(kind, namespace, name, status, &patch).await,
        }
    }

    /// Sets a label of a node, or removes it with `None`.
    pub(crate) async fn label_node(&mut self, node: Host, key: &str, value: Option<&str>) -> Result<()> {
        let word = value.map_or_else(|| format!("{key}-"), |value| format!("{key}={value}"));
        match self.kubectl(&["label", "node", node.name(), &word]).await? {
            Some(_) => Ok(()),
            None => {
                let patch = json!({"metadata": {"labels": {key: value}}});
                self.cluster.merge(NODE, "", node.name(), false, &patch).await
            }
        }
    }

    /// Cordons a node, or lifts that.
    pub(crate) async fn cordon(&mut self, node: Host, cordoned: bool) -> Result<()> {
        let verb = if cordoned { "cordon" } else { "uncordon" };
        match self.kubectl(&[verb, node.name()]).await? {
            Some(_) => Ok(()),
            None => {
                let patch = json!({"spec": {"unschedulable": cordoned}});
                self.cluster.merge(NODE, "", node.name(), false, &patch).await
            }
        }
    }

    /// Drains a node. Without `kubectl`, the Pods of `namespace` on it are deleted.
    pub(crate) async fn drain(&mut self, node: Host, namespace: &str) -> Result<()> {
        if self
            .kubectl(&[
                "drain",
                node.name(),
                "--ignore-daemonsets",
                "--delete-emptydir-data",
                "--timeout",
                "30s",
            ])
            .await?
            .is_some()
        {
            return Ok(());
        }
        for pod in self.cluster.list(POD, namespace).await? {
            if text(&pod, "/spec/nodeName") == node.name() {
                self.cluster.delete(POD, namespace, text(&pod, "/metadata/name")).await?;
            }
        }
        Ok(())
    }

    /// Runs a tool on a host, as `ferrolb lab exec` does.
    pub(crate) async fn exec(&mut self, host: Host, command: &[&str]) -> Result<Outcome> {
        self.story.command(format!("ferrolb lab exec {host} -- {}", shell_words(command)));
        self.on_host(host, command).await
    }

    /// Runs a tool on a host without showing it: the story shows a wording of its own.
    pub(crate) async fn on_host(&self, host: Host, command: &[&str]) -> Result<Outcome> {
        self.bench.run(host, command).await
    }

    /// Runs a tool where a daemon's sockets are, without showing it.
    pub(crate) async fn beside(&self, running: &Running, command: &[&str]) -> Result<Outcome> {
        match running.daemon {
            Daemon::Speaker => self.bench.run(running.node, command).await,
            Daemon::Controller => {
                let namespace = self.bench.pod_namespace(&running.pod)?;
                launch::run(Some(&namespace), command, &[], None, TOOL_LIMIT).await
            }
        }
    }

    /// The daemons that run and are not about to end.
    pub(crate) async fn daemons(&self) -> Result<Vec<Running>> {
        let mut running = Vec::new();
        for daemon in [Daemon::Controller, Daemon::Speaker] {
            for pod in self.bench.pods(SYSTEM, daemon.name()).await?.into_iter().filter(|pod| !pod.ending) {
                let node = pod.node.with_context(|| format!("{} is on no node", pod.name))?;
                let pid = self.bench.process(&pod.name)?.pid.0;
                running.push(Running { pod: pod.name, daemon, node, pid });
            }
        }
        // Names of Pods are random; the order is not.
        running.sort_by_key(|running| (running.daemon == Daemon::Speaker, running.node));
        Ok(running)
    }

    /// Waits until a Pod answers a host's HTTP request: what it says.
    pub(crate) async fn answer(&self, host: Host, address: impl Into<IpAddr>, port: u16) -> Result<String> {
        let (namespace, address) = (self.namespace(host), address.into());
        eventually(SOON, async || wire::body(namespace, (address, port)).await)
            .await
            .with_context(|| format!("ask {address}:{port} from {host}"))
    }

    /// Applies the definitions of the custom resources.
    pub(crate) async fn apply_definitions(&mut self, documents: &[Value]) -> Result<()> {
        self.story.command("ferrolb crds | kubectl apply --server-side -f -");
        if self.kubectl {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": documents}).to_string();
            return self.run_kubectl(&["apply", "--server-side", "-f", "-"], Some(&list)).await.map(drop);
        }
        for document in documents {
            self.cluster.apply(document).await?;
        }
        Ok(())
    }

    /// A JSON patch (RFC 6902).
    pub(crate) async fn patch_json(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<()> {
        let body = patch.to_string();
        let arguments = ["-n", namespace, "patch", kind.singular(), name, "--type", "json", "-p", &body];
        match self.kubectl(&arguments).await? {
            Some(_) => Ok(()),
            None => self.cluster.patch_json(kind, namespace, name, patch).await,
        }
    }

    /// What `kubectl get` prints for all objects of these kinds: one row per line, cells between bars, headings
    /// included. The random ends of generated names are left out.
    pub(crate) async fn tables(&mut self, namespace: &str, kinds: &[Kind]) -> Result<Vec<String>> {
        let words = kinds.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(",");
        let rows = match self.kubectl(&["-n", namespace, "get", &words]).await? {
            Some(printed) => table::rows(&printed),
            None => {
                let mut rows = Vec::new();
                for kind in kinds {
                    rows.extend(self.cluster.table(*kind, namespace).await?);
                }
                rows
            }
        };
        Ok(rows.iter().map(|row| table::line(row)).collect())
    }

    /// The network namespace of a host.
    pub(crate) fn namespace(&self, host: Host) -> &'a Namespace {
        self.bench.namespace(host)
    }

    async fn run_kubectl(&self, arguments: &[&str], input: Option<&str>) -> Result<String> {
        self.bench.kubectl_quietly(arguments, input).await?.success()
    }

    /// The addresses of a Service's load balancer, once there are any.
    pub(crate) async fn addresses(&self, namespace: &str, service: &str) -> Result<Vec<String>> {
        eventually(SOON, async || {
            let service = self.cluster.read(SERVICE, namespace, service).await?;
            let addresses = ingress(&service);
            if addresses.is_empty() {
                bail!("{} has no address", text(&service, "/metadata/name"));
            }
            Ok(addresses)
        })
        .await
    }

    /// Waits for an Event about a Service of the namespace `demo`.
    pub(crate) async fn event(&self, service: &str, kind: &str, reason: &str, message: &str) -> Result<()> {
        let component = match reason {
            "nodeAssigned" | "announceFailed" => "metallb-speaker",
            _ => "metallb-controller",
        };
        eventually(SOON, async || {
            let events = self.cluster.events_on("demo", service).await?;
            let found = events.iter().any(|event| {
                event.kind == kind
                    && event.reason == reason
                    && event.message == message
                    && event.component == component
            });
            if !found {
                let seen: Vec<_> = events
                    .iter()
                    .map(|e| format!("{} {} {:?} from {}", e.kind, e.reason, e.message, e.component))
                    .collect();
                bail!("no event {kind} {reason} {message:?} from {component}, but [{}]", seen.join("; "));
            }
            Ok(())
        })
        .await
    }
}

/// Words as one would type them into a shell.
fn shell_words(words: &[&str]) -> String {
    words.iter().map(|word| launch::quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_may_hold_several_documents() {
        let documents = documents(example!("hello.yaml").yaml).unwrap();
        let kinds: Vec<_> = documents.iter().map(|document| text(document, "/kind")).collect();
        assert_eq!(kinds, ["Namespace", "Deployment"]);
    }
}
