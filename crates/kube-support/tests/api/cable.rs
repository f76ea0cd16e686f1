// SPDX-License-Identifier: Apache-2.0
//! A cable between a client and the in-memory API server that can be pulled and plugged in again, and the
//! helpers that go with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ferrolb_fakekube::{Options, Server};
use ferrolb_kube_support::client::{Source, client};
use kube::Client;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// An API server, a cable to it, and a client at the other end.
pub(crate) struct Bench {
    pub(crate) server: Server,
    /// A client that needs no cable: the test's own hands.
    pub(crate) direct: Client,
    /// A client behind the cable.
    pub(crate) client: Client,
    plugged: watch::Sender<bool>,
    /// How often connections died without a word.
    silences: watch::Sender<u32>,
    _directory: tempfile::TempDir,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let server = Server::start(Options::default()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = listener.local_addr().unwrap();
        let (plugged, state) = watch::channel(true);
        let (silences, silence) = watch::channel(0);
        tokio::spawn(carry(listener, server.addr(), state, silence));

        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| -> PathBuf {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let direct = write("direct", server.kubeconfig());
        let far = server.addr().to_string();
        let behind = write("behind", server.kubeconfig().replace(&far, &near.to_string()));
        let open =
            async |file| client(&Source { flag: Some(file), ..Source::default() }, "test").await.unwrap();
        let (direct, client) = (open(direct).await, open(behind).await);
        Self { server, direct, client, plugged, silences, _directory: directory }
    }

    /// Breaks all connections and refuses new ones.
    pub(crate) fn pull(&self) {
        self.plugged.send_replace(false);
    }

    /// Nothing passes any more on the connections that there are, and neither end notices. New ones work.
    #[allow(dead_code, reason = "not every test that includes this file cuts so")]
    pub(crate) fn fall_silent(&self) {
        self.silences.send_modify(|count| *count += 1);
    }

    /// Connections work again.
    pub(crate) fn plug_in(&self) {
        self.plugged.send_replace(true);
    }
}

async fn carry(
    listener: TcpListener,
    far: SocketAddr,
    state: watch::Receiver<bool>,
    silence: watch::Receiver<u32>,
) {
    while let Ok((mut near, _)) = listener.accept().await {
        let (mut state, mut silence) = (state.clone(), silence.clone());
        silence.mark_unchanged();
        tokio::spawn(async move {
            if !*state.borrow() {
                return;
            }
            let Ok(mut far) = TcpStream::connect(far).await else { return };
            let silent = tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => false,
                _ = state.wait_for(|plugged| !plugged) => false,
                silent = silence.changed() => silent.is_ok(),
            };
            if silent {
                // Both ends stay open, and nobody carries anything between them.
                std::future::pending::<()>().await;
            }
        });
    }
}

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("this did not happen: {what}"),
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    soon(what, async {
        loop {
            if let Some(value) = ask().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}
