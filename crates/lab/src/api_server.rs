// SPDX-License-Identifier: Apache-2.0
//! The Kubernetes API of the bench, at 192.168.10.17:6443 in the control plane's network.
//!
//! It is the in-memory one as a process of its own; or one that a script brings up there; or one that runs anywhere,
//! given by a kubeconfig, to which connections are passed on. In all cases the state directory has a kubeconfig with
//! full rights that is valid inside the bench's network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use ferrolb_linux::Namespace;
use ferrolb_linux::container::Spec;
use ferrolb_linux::process::{Identity, Pid};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::net::{TcpListener, TcpStream};

use crate::host::Host;
use crate::launch::{self, Launch, Process};
use crate::ledger::{Ledger, PID_FILES};
use crate::progress::Progress;
use crate::tools;
use crate::topology::Topology;

/// Which API server a bench uses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ApiSource {
    /// The project's own, in memory.
    #[default]
    Fakekube,
    /// What the script named by `FERROLB_KAPI` brings up: `SCRIPT up DIRECTORY`, with `KAPI_NETNS`, `KAPI_BIND`,
    /// `KAPI_PORT` and `KAPI_FLAGS` in its environment, starts an API server and writes `DIRECTORY/kubeconfig`.
    Kapi,
    /// One that runs already.
    Kubeconfig(PathBuf),
}

/// Where Services get their own addresses: two families, so that a Service can ask for both. IPv4 comes first: it is what
/// a Service gets that asks for nothing.
pub(crate) const SERVICE_RANGES: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];

/// Where nodes and Pods find it.
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Host::Master1.address()), 6443);

/// A running API server, or the way to one.
pub(crate) struct ApiServer {
    /// The in-memory server.
    process: Option<Process>,
    relay: Option<tokio::task::JoinHandle<()>>,
    /// Whether somebody collects objects whose owner is gone.
    pub(crate) collects: bool,
    pub(crate) client: Client,
    /// Its authority, in PEM.
    pub(crate) ca: String,
}

impl ApiServer {
    /// Starts it and waits until it answers. The calling thread is in the control plane's namespace; `home` is the
    /// one the lab was called in.
    pub(crate) async fn start(
        source: &ApiSource,
        ledger: &Arc<Ledger>,
        topology: &Topology,
        home: Arc<Namespace>,
        progress: &Progress,
    ) -> Result<Self> {
        let (mut process, mut relay) = (None, None);
        match source {
            ApiSource::Fakekube => process = Some(fakekube(ledger, topology)?),
            ApiSource::Kapi => kapi(ledger, topology.namespace(Host::Master1), ADDRESS, progress).await?,
            ApiSource::Kubeconfig(path) => relay = Some(elsewhere(path, ledger, home).await?),
        }
        let answer = wait(ledger, process.as_mut());
        let (client, ca) = progress.during("waiting for the API server", answer).await?;
        Ok(Self { process, relay, collects: *source != ApiSource::Fakekube, client, ca })
    }

    /// Ends what was started here. What a script brought up is in the ledger, and ends with everything else.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        if let Some(relay) = self.relay.take() {
            relay.abort();
        }
        if let Some(mut process) = self.process.take() {
            process.stop(Duration::from_secs(2)).await?;
        }
        Ok(())
    }
}

/// A client by a kubeconfig, for a thread inside the bench's network.
///
/// # Errors
/// The file cannot be read or makes no sense.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let context = || format!("use the kubeconfig {}", kubeconfig.display());
    let parsed = Kubeconfig::read_from(kubeconfig).with_context(context)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(parsed, &options).await.with_context(context)?;
    // The caller's way to the internet does not lead into the bench.
    config.proxy_url = None;
    Client::try_from(config).with_context(context)
}

fn fakekube(ledger: &Arc<Ledger>, topology: &Topology) -> Result<Process> {
    let directory = ledger.directory("fakekube")?;
    let launch = Launch {
        role: "api-server".to_owned(),
        spec: Spec::host(topology.namespace(Host::Master1).name()),
        argv: vec![
            path_text(&launch::program()?)?.to_owned(),
            "__fakekube".to_owned(),
            "--bind".to_owned(),
            ADDRESS.to_string(),
            "--dir".to_owned(),
            path_text(&directory)?.to_owned(),
        ],
    };
    std::os::unix::fs::symlink("fakekube/kubeconfig", ledger.kubeconfig()).context("link the kubeconfig")?;
    Process::start(ledger, &launch, &ledger.log("api-server")?)
}

/// What the hidden subcommand `__fakekube` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct FakekubeArgs {
    /// Address and port to serve on.
    #[arg(long)]
    bind: SocketAddr,
    /// Where to write the kubeconfig and the certificates.
    #[arg(long)]
    dir: PathBuf,
}

/// Serves the in-memory API until SIGTERM.
///
/// # Errors
/// It cannot be set up.
pub(crate) async fn serve_fakekube(args: FakekubeArgs) -> Result<()> {
    let options = ferrolb_fakekube::Options {
        bind: args.bind,
        service_cidrs: SERVICE_RANGES.map(str::to_owned).to_vec(),
        dir: Some(args.dir),
        sans: vec![IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1))],
        graceful_pod_deletion: true,
        ..ferrolb_fakekube::Options::default()
    };
    Ok(ferrolb_fakekube::run(options).await?)
}

/// Brings the server of the script up in a namespace of the lab.
///
/// # Errors
/// No script is named, or it fails.
pub(crate) async fn kapi(
    ledger: &Ledger,
    namespace: &Namespace,
    address: SocketAddr,
    progress: &Progress,
) -> Result<()> {
    let named = std::env::var_os("FERROLB_KAPI").map(PathBuf::from).context(
        "FERROLB_KAPI is not set: it names the script that brings up an API server (`SCRIPT up DIRECTORY`)",
    )?;
    let script = if named.is_dir() { named.join("kapi") } else { named };
    tools::require(&[tools::OPENSSL, tools::CURL, tools::IP])?;
    let directory = ledger.directory(PID_FILES)?;
    let environment = [
        ("KAPI_NETNS", Path::new(namespace.name()).to_owned()),
        ("KAPI_BIND", PathBuf::from(address.ip().to_string())),
        ("KAPI_PORT", PathBuf::from(address.port().to_string())),
        ("KAPI_FLAGS", PathBuf::from(format!("--service-cluster-ip-range={}", SERVICE_RANGES.join(",")))),
    ];
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_path())).collect();
    let words = [path_text(&script)?, "up", path_text(&directory)?];
    let up = launch::run(None, &words, &environment, None, Duration::from_secs(120));
    progress.during("bringing the API server up", up).await?.success()?;
    for name in ["etcd", "apiserver"] {
        let text = std::fs::read_to_string(directory.join(format!("{name}.pid"))).unwrap_or_default();
        let identity = text.trim().parse().ok().and_then(|pid| Identity::of(Pid(pid)));
        if let Some(identity) = identity {
            ledger.note_process(identity, name)?;
        }
    }
    std::os::unix::fs::symlink(directory.join("kubeconfig"), ledger.kubeconfig())
        .context("link the kubeconfig")
}

/// Passes connections on to the server of a kubeconfig, and writes a kubeconfig for inside.
async fn elsewhere(
    path: &Path,
    ledger: &Ledger,
    home: Arc<Namespace>,
) -> Result<tokio::task::JoinHandle<()>> {
    let context = || format!("use the kubeconfig {}", path.display());
    std::fs::File::open(path).map_err(|error| {
        anyhow!("the kubeconfig {} cannot be read: {error}. Check what --kubeconfig names", path.display())
    })?;
    let mut kubeconfig = Kubeconfig::read_from(path).with_context(|| {
        format!(
            "{} is no kubeconfig; --kubeconfig takes a file as kubectl does (kind: Config)",
            path.display()
        )
    })?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.with_context(context)?;
    let url = &config.cluster_url;
    if url.scheme_str() != Some("https") {
        bail!("the kubeconfig {} names {url}: an https address is needed", path.display());
    }
    let host = url.host().with_context(|| format!("the server {url} has no host"))?.to_owned();
    let port = url.port_u16().unwrap_or(443);
    for named in &mut kubeconfig.clusters {
        if let Some(cluster) = &mut named.cluster {
            cluster.server = Some(format!("https://{ADDRESS}"));
            // The certificate is still the one of the name it has outside.
            cluster.tls_server_name.get_or_insert_with(|| host.trim_matches(['[', ']']).to_owned());
        }
    }
    std::fs::write(ledger.kubeconfig(), serde_json::to_vec_pretty(&kubeconfig)?)?;
    let listener = TcpListener::bind(ADDRESS).await.with_context(|| format!("listen on {ADDRESS}"))?;
    let target = (host.trim_matches(['[', ']']).to_owned(), port);
    // One connection now: an address that does not answer is better told before anything waits for it.
    connect(&home, &target)
        .await
        .with_context(|| {
            format!(
                "reach the API server {url} of the kubeconfig {} (does it run, and has this machine a way to it?)",
                path.display()
            )
        })?;
    Ok(tokio::spawn(async move {
        loop {
            let Ok((mut inside, _)) = listener.accept().await else { continue };
            let (home, target) = (Arc::clone(&home), target.clone());
            tokio::spawn(async move {
                match connect(&home, &target).await {
                    // Either side ends a connection as it likes.
                    Ok(mut outside) => {
                        let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
                    }
                    Err(error) => tracing::warn!(%error, "the API server is not reached"),
                }
            });
        }
    }))
}

async fn connect(home: &Arc<Namespace>, target: &(String, u16)) -> Result<TcpStream> {
    let (home, target) = (Arc::clone(home), target.clone());
    let dial = move || home.run(|| std::net::TcpStream::connect(target));
    let stream = tokio::task::spawn_blocking(dial).await???;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream)?)
}

/// Waits until the server answers.
async fn wait(ledger: &Ledger, mut process: Option<&mut Process>) -> Result<(Client, String)> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let attempt = async {
            let client = client(&ledger.kubeconfig()).await?;
            client.apiserver_version().await?;
            Ok::<_, anyhow::Error>(client)
        };
        match attempt.await {
            Ok(client) => return Ok((client, authority(&ledger.kubeconfig())?)),
            Err(error) if tokio::time::Instant::now() > deadline => {
                return Err(error.context("the API server does not answer"));
            }
            Err(_) => {}
        }
        // The server says nothing when it is up: asking is the only way to know.
        let pause = tokio::time::sleep(Duration::from_millis(10));
        match &mut process {
            None => pause.await,
            Some(process) => tokio::select! {
                () = pause => {}
                status = process.ended() => {
                    let log = std::fs::read_to_string(ledger.log("api-server")?).unwrap_or_default();
                    bail!("the API server ended with {}:\n{}", status?, log.trim_end());
                }
            },
        }
    }
}

/// The certificate authority that a kubeconfig names, in PEM.
///
/// # Errors
/// It names none, or cannot be read.
pub(crate) fn authority(kubeconfig: &Path) -> Result<String> {
    let parsed = Kubeconfig::read_from(kubeconfig)?;
    let current = parsed.current_context.as_deref();
    let context = parsed.contexts.iter().find(|context| Some(context.name.as_str()) == current);
    let wanted = context.and_then(|context| context.context.as_ref()).map(|context| &context.cluster);
    let cluster = parsed.clusters.iter().find(|cluster| Some(&cluster.name) == wanted);
    let cluster =
        cluster.and_then(|cluster| cluster.cluster.as_ref()).context("the kubeconfig has no cluster")?;
    if let Some(data) = &cluster.certificate_authority_data {
        let pem = base64::engine::general_purpose::STANDARD.decode(data)?;
        return Ok(String::from_utf8(pem)?);
    }
    let path = cluster.certificate_authority.as_ref().context(
        "the kubeconfig names no certificate authority, which the Pods of the bench need: add certificate-authority-data",
    )?;
    std::fs::read_to_string(path).with_context(|| format!("read {path}"))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not text", path.display()))
}
