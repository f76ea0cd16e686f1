// SPDX-License-Identifier: Apache-2.0
//! The cluster that cases are played in: an API server, what an installation has, and a way from it to the webhooks.
//!
//! ```text
//!  namespace NAME-cluster: lo alone
//!    API server 127.0.0.1:6443 ──► cluster IP of metallb-webhook-service:443 ── on lo, nftables ──► controller :9443
//! ```
//!
//! With `--kubeconfig` the API server is where it is, and the same translation is made in the caller's own network for
//! as long as the run lasts: it serves an API server of this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ferrolb_linux::{Namespace, Netlink};

use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::api::{Api, Place, type_of};
use super::case::Kind;
use super::daemon::{Daemon, POD, Settings};
use crate::api_server::{self, ApiSource};
use crate::bench_handle::SYSTEM;
use crate::ledger::Ledger;
use crate::progress::Progress;
use crate::{launch, seed, tools};

/// A cluster that is ready for a controller.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) api: Api,
    ledger: Arc<Ledger>,
    namespace: Option<Arc<Namespace>>,
    scraper: String,
    in_memory: Option<ferrolb_fakekube::Server>,
    _way: Way,
}

impl Cluster {
    /// Brings one up. The calling thread is in the namespace that is given, if one is.
    ///
    /// # Errors
    /// The API server does not come up, or refuses what an installation has.
    pub(crate) async fn start(
        source: &ApiSource,
        ledger: &Arc<Ledger>,
        namespace: Option<Arc<Namespace>>,
        progress: &Progress,
    ) -> Result<Self> {
        progress.step("starting the API server");
        let mut in_memory = None;
        match (source, &namespace) {
            (ApiSource::Kubeconfig(path), _) => {
                std::fs::copy(path, ledger.kubeconfig())
                    .with_context(|| format!("read the kubeconfig {}", path.display()))?;
            }
            (ApiSource::Kapi, Some(namespace)) => {
                api_server::kapi(ledger, namespace, ADDRESS, progress).await?;
            }
            (ApiSource::Kapi, None) => bail!("this API server runs in a namespace of the lab only"),
            (ApiSource::Fakekube, _) => {
                let server = ferrolb_fakekube::Server::start(ferrolb_fakekube::Options {
                    bind: ADDRESS,
                    service_cidrs: api_server::SERVICE_RANGES.map(str::to_owned).to_vec(),
                    ..ferrolb_fakekube::Options::default()
                });
                let server = server.await.context("start the in-memory API server")?;
                std::fs::write(ledger.kubeconfig(), server.kubeconfig()).context("write the kubeconfig")?;
                in_memory = Some(server);
            }
        }
        let client = api_server::client(&ledger.kubeconfig()).await?;
        client.apiserver_version().await.context("reach the API server")?;
        let api = Api::new(client.clone());
        progress.during("filling the cluster", install(&client, &api)).await?;
        write_kubeconfig(ledger, &api).await?;
        let scraper = token(&api, "scraper").await?;
        let way = Way::make(&api).await?;
        Ok(Self { client, api, ledger: Arc::clone(ledger), namespace, scraper, in_memory, _way: way })
    }

    /// Starts a controller of this BGP type, and waits until its webhooks refuse what is wrong.
    ///
    /// # Errors
    /// It does not start, or nothing is ever refused.
    pub(crate) async fn controller(&self, bgp_type: Option<&str>) -> Result<Daemon> {
        let (metrics_port, health_port) = match self.namespace {
            Some(_) => (9120, 17472),
            None => (free_port()?, free_port()?),
        };
        let settings = Settings {
            namespace: self.namespace.as_ref().map(|namespace| namespace.name().to_owned()),
            kubeconfig: self.ledger.path().join(CONTROLLER_KUBECONFIG),
            bgp_type: bgp_type.map(str::to_owned),
            scraper: self.scraper.clone(),
            metrics_port,
            health_port,
        };
        let mut daemon = Daemon::new(&self.ledger, settings)?;
        daemon.start().await?;
        self.webhooks_answer(&daemon).await?;
        Ok(daemon)
    }

    /// Waits until an object of each kind that is wrong in itself is refused for that.
    pub(crate) async fn webhooks_answer(&self, daemon: &Daemon) -> Result<()> {
        let deadline = Instant::now() + WEBHOOKS_WITHIN;
        for (kind, namespace, spec) in WRONG {
            let place = Place::of(kind, namespace, "wrong");
            let (version, word) = type_of(kind);
            let spec: Value = serde_json::from_str(spec).context("an object that is wrong on purpose")?;
            let object = json!({
                "apiVersion": version, "kind": word, "metadata": { "name": place.name }, "spec": spec,
            });
            loop {
                let answer = self.api.create(&place, &object).await?;
                let message = answer.body["message"].as_str().unwrap_or_default().to_owned();
                // Lists of a definition that was just made, or changed, may be put off.
                let judged =
                    message.starts_with("admission webhook") && !message.contains("failed to get existing");
                if answer.code == 403 && judged {
                    break;
                }
                if answer.is_success() {
                    self.api.delete(&place).await?.accepted("delete an object that was not refused")?;
                }
                if Instant::now() > deadline {
                    bail!(
                        "no webhook refuses a wrong {word} after {} s; the last answer was {} {message}\n{}",
                        WEBHOOKS_WITHIN.as_secs(),
                        answer.code,
                        daemon.log_end()
                    );
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Ends what was started here.
    pub(crate) async fn stop(self) {
        if let Some(server) = self.in_memory {
            server.shutdown().await;
        }
    }
}

/// What an installation has, and the nodes of the recordings.
async fn install(client: &Client, api: &Api) -> Result<()> {
    for definition in ferrolb_api::manifests(ferrolb_api::DEFAULT_NAMESPACE) {
        seed::put(client, &definition).await?;
    }
    let documents = seed::documents(seed::METALLB)?.into_iter().chain(seed::documents(RECORDED)?);
    for document in documents.filter(|document| !seed::is_workload(document)) {
        seed::put(client, &document).await?;
    }
    // A controller that looks for others like itself finds that it is alone, and alive.
    let status = json!({ "status": {
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    let pod = format!("/api/v1/namespaces/{SYSTEM}/pods/{POD}/status");
    api.send(Method::PATCH, &pod, "application/merge-patch+json", Some(&status)).await?.accepted(&pod)?;
    for node in ["master1", "node1", "node2"] {
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }] } });
        let path = format!("/api/v1/nodes/{node}/status");
        api.send(Method::PATCH, &path, "application/merge-patch+json", Some(&status))
            .await?
            .accepted(&path)?;
    }
    Ok(())
}

/// A kubeconfig with the rights that the manifests give to the controller.
async fn write_kubeconfig(ledger: &Ledger, api: &Api) -> Result<()> {
    let kubeconfig = kube::config::Kubeconfig::read_from(ledger.kubeconfig())?;
    let current = kubeconfig.current_context.as_deref();
    let context = kubeconfig.contexts.iter().find(|context| Some(context.name.as_str()) == current);
    let name = context.and_then(|context| context.context.as_ref()).map(|context| &context.cluster);
    let cluster = kubeconfig.clusters.iter().find(|cluster| Some(&cluster.name) == name);
    let cluster =
        cluster.and_then(|cluster| cluster.cluster.as_ref()).context("the kubeconfig has no cluster")?;
    let written = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "controller",
        "contexts": [{ "name": "controller", "context": { "cluster": "cluster", "user": "controller" } }],
        "clusters": [{ "name": "cluster", "cluster": cluster }],
        "users": [{ "name": "controller", "user": { "token": token(api, "controller").await? } }],
    });
    std::fs::write(ledger.path().join(CONTROLLER_KUBECONFIG), written.to_string())
        .context("write the controller's kubeconfig")
}

/// A token of a service account.
async fn token(api: &Api, account: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 86_400 },
    });
    let answer = api.send(Method::POST, &path, "application/json", Some(&request)).await?.accepted(&path)?;
    let token = answer.body.pointer("/status/token").and_then(Value::as_str);
    Ok(token.with_context(|| format!("{path} gives no token"))?.to_owned())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port())
}

/// The way from the cluster IP of the webhooks' Service to the controller. Dropping it takes it away.
struct Way {
    address: IpAddr,
}

impl Way {
    async fn make(api: &Api) -> Result<Self> {
        let place = Place::of(Kind::Service, SYSTEM, "metallb-webhook-service");
        let service = api.read(&place).await?.accepted("read the Service of the webhooks")?;
        let address = service.body.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default();
        let address: IpAddr = address.parse().with_context(|| format!("the cluster IP {address:?}"))?;
        let family = if address.is_ipv4() { "ip" } else { "ip6" };
        // What a run left that was killed goes first.
        let rules = format!(
            "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n  chain output {{\n    type nat hook output priority -100;\n    {family} daddr {address} tcp dport 443 redirect to :9443\n  }}\n}}\n"
        );
        launch::run(None, &["nft", "-f", "-"], &[], Some(&rules), Duration::from_secs(30))
            .await?
            .success()?;
        let way = Self { address };
        match Netlink::open()?.add_address("lo", address, way.length()) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        Ok(way)
    }

    const fn length(&self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // In a namespace of the lab it goes with the namespace; elsewhere this is all that can be done.
        if let Ok(mut link) = Netlink::open() {
            let _ = link.delete_address("lo", self.address, self.length());
        }
        if let Some(nft) = tools::find("nft") {
            let _ = std::process::Command::new(nft).args(["delete", "table", "inet", TABLE]).status();
        }
    }
}

/// The nodes, webhooks and rights of the recordings.
const RECORDED: &str = include_str!("../../manifests/recorded.yaml");
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);
const CONTROLLER_KUBECONFIG: &str = "controller.kubeconfig";
/// Of each kind, an object that its webhook refuses whatever else is stored: kind, namespace, spec.
const WRONG: [(Kind, &str, &str); 6] = [
    (Kind::IPAddressPool, SYSTEM, r#"{"addresses": []}"#),
    (Kind::L2Advertisement, SYSTEM, r#"{"ipAddressPools": ["a", "a"]}"#),
    (Kind::BGPAdvertisement, SYSTEM, r#"{"ipAddressPools": ["a", "a"]}"#),
    (Kind::BGPPeer, SYSTEM, r#"{"myASN": 64512, "peerASN": 64513, "peerAddress": "nowhere"}"#),
    (Kind::Community, SYSTEM, r#"{"communities": [{"name": "a", "value": "x"}]}"#),
    (Kind::BFDProfile, "default", "{}"),
];
const WEBHOOKS_WITHIN: Duration = Duration::from_secs(60);
const TABLE: &str = "ferrolb-conformance";
