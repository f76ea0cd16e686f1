// SPDX-License-Identifier: Apache-2.0
//! The public handle: options, start and end, and what an embedder can do with a running server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::api::Cluster;
use crate::audit::Audit;
use crate::auth::User;
use crate::faults::Faults;
use crate::rbac::Authorize;
use crate::tls::Authority;
use crate::{gc, listen};

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Ranges of cluster IPs, at most one per family; the first one's family is the default of Services.
    /// `10.96.0.0/16` alone is a single-stack cluster, `10.96.0.0/16` and `fd00:10:96::/112` a dual-stack one.
    pub service_cidrs: Vec<String>,
    /// How long the collector waits after an owner is gone before it removes what it owned; `None` runs no
    /// collector, and nothing empties deleted namespaces either.
    pub gc_delay: Option<Duration>,
    /// Directory in which `kubeconfig`, `ca.crt`, `admin.crt` and `admin.key` are written (it is made if
    /// missing); `None` writes nothing.
    pub dir: Option<PathBuf>,
    /// More addresses that the server's certificate is valid for, besides the one it listens on and loopback.
    pub sans: Vec<IpAddr>,
    /// How many changes per kind a watch can go back; older ones are answered with 410.
    pub history: usize,
    /// Whether deleting a Pod that is bound to a node leaves it, with a deletionTimestamp, until it is deleted
    /// with a grace period of 0 (as a kubelet does). Off, a Pod is gone at once.
    pub graceful_pod_deletion: bool,
    /// Addresses that are dialled for webhooks of Services, by `NAMESPACE/NAME`, instead of the Service's cluster
    /// IP: for setups in which nothing routes cluster IPs. The certificate must be valid for the Service's name in
    /// either case. [`Server::route_webhooks`] adds to them later.
    pub webhook_routes: BTreeMap<String, SocketAddr>,
    /// Who may do what.
    pub authorize: Authorize,
    /// How many single requests [`Server::audit`] keeps, besides the counts.
    pub audit: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            service_cidrs: vec!["10.96.0.0/16".into()],
            gc_delay: Some(Duration::from_millis(100)),
            dir: None,
            sans: Vec::new(),
            history: 10_000,
            graceful_pod_deletion: false,
            webhook_routes: BTreeMap::new(),
            authorize: Authorize::Everyone,
            audit: 10_000,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listener could not be made.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address of [`Options::bind`].
        address: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file of [`Options::dir`] could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// An option makes no sense.
    #[error("{0}")]
    Options(String),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// The collector's own client could not be made.
    #[error("cannot start the collector: {0}")]
    Collector(#[from] kube::Error),
}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error.to_string())
    }
}

/// A running API server. Dropping it ends it too, without waiting.
#[derive(Debug)]
pub struct Server {
    cluster: Arc<Cluster>,
    address: SocketAddr,
    kubeconfig: String,
    ca_pem: String,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on the current runtime; it answers when this returns.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let bind = options.bind;
        let listen = |source| Error::Listen { address: bind, source };
        let listener = TcpListener::bind(bind).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let reachable = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
            IpAddr::V6(ip) if ip.is_unspecified() => {
                SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port()))
            }
            _ => address,
        };

        let authority = Authority::new()?;
        let mut names = vec![reachable.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST)];
        names.extend(&options.sans);
        let cluster = Cluster::new(&options, reachable.to_string())?;
        names.extend(cluster.services.first_addresses());
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config(&names)?));

        let admin = authority.client("admin", &["system:masters"])?;
        cluster.credentials.add_certificate(admin.der.clone(), User::new("admin", &["system:masters"]));
        let kubeconfig = kubeconfig(reachable, authority.pem(), &admin.certificate_pem, &admin.key_pem);
        if let Some(dir) = &options.dir {
            let write = |name: &str, text: &str| {
                let path = dir.join(name);
                std::fs::write(&path, text).map_err(|source| Error::Write { path, source })
            };
            std::fs::create_dir_all(dir).map_err(|source| Error::Write { path: dir.clone(), source })?;
            write("ca.crt", authority.pem())?;
            write("admin.crt", &admin.certificate_pem)?;
            write("admin.key", &admin.key_pem)?;
            write("kubeconfig", &kubeconfig)?;
        }

        let mut tasks = vec![tokio::spawn(listen::serve(listener, acceptor, Arc::clone(&cluster)))];
        if let Some(delay) = options.gc_delay {
            // A user of its own: whoever reads the audit can tell it from people.
            let name = "system:serviceaccount:kube-system:generic-garbage-collector";
            let collector = authority.client(name, &["system:masters"])?;
            let user = User::new(name, &["system:masters"]);
            cluster.credentials.add_certificate(collector.der.clone(), user);
            let config =
                self::kubeconfig(reachable, authority.pem(), &collector.certificate_pem, &collector.key_pem);
            let client = gc::client(&config).await?;
            let stop = cluster.stop.clone();
            tasks.push(tokio::spawn(async move {
                tokio::select! {
                    () = gc::run(client, delay) => {}
                    () = stop.cancelled() => {}
                }
            }));
        }
        Ok(Self { cluster, address: reachable, kubeconfig, ca_pem: authority.pem().to_owned(), tasks })
    }

    /// A kubeconfig of a user who may do everything, with all certificates inside.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// The certificate of the authority that signed the server's.
    pub fn ca_pem(&self) -> String {
        self.ca_pem.clone()
    }

    /// Where it listens (loopback where [`Options::bind`] is the unspecified address).
    pub const fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Forgets the history of changes: a watch from an older resourceVersion is answered with 410, as after
    /// a compaction of etcd. Watches that are up to date go on.
    pub fn compact(&self) {
        self.cluster.store.compact();
    }

    /// From now on webhooks of this Service (`NAMESPACE/NAME`) are dialled at this address, as with
    /// [`Options::webhook_routes`].
    pub fn route_webhooks(&self, service: &str, address: SocketAddr) {
        self.cluster.routes.set(service, address);
    }

    /// Makes the server misbehave.
    pub fn faults(&self) -> Faults {
        Faults::of(Arc::clone(&self.cluster))
    }

    /// What was asked of the server since it started, or since [`Server::reset_audit`].
    pub fn audit(&self) -> Audit {
        self.cluster.audit.read()
    }

    /// Forgets what was asked.
    pub fn reset_audit(&self) {
        self.cluster.audit.reset();
    }

    /// Ends all connections and waits until the server's tasks have ended.
    pub async fn shutdown(mut self) {
        self.cluster.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            // A task that panicked has ended as well.
            let _ = task.await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cluster.stop.cancel();
    }
}

/// Serves until SIGTERM or SIGINT.
pub async fn run(options: Options) -> Result<(), Error> {
    let signals = |kind| tokio::signal::unix::signal(kind).map_err(|error| Error::Options(error.to_string()));
    let mut terminate = signals(tokio::signal::unix::SignalKind::terminate())?;
    let mut interrupt = signals(tokio::signal::unix::SignalKind::interrupt())?;
    let server = Server::start(options).await?;
    tracing::info!(address = %server.addr(), "serving the Kubernetes API");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.shutdown().await;
    Ok(())
}

fn kubeconfig(address: SocketAddr, ca: &str, certificate: &str, key: &str) -> String {
    let (ca, certificate, key) = (STANDARD.encode(ca), STANDARD.encode(certificate), STANDARD.encode(key));
    format!(
        "apiVersion: v1
kind: Config
current-context: fakekube
contexts:
- name: fakekube
  context: {{cluster: fakekube, user: admin}}
clusters:
- name: fakekube
  cluster:
    server: https://{address}
    certificate-authority-data: {ca}
users:
- name: admin
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
    )
}
