// SPDX-License-Identifier: Apache-2.0
//! Clients of the measurement: a fixed number of connections that send requests at the same time.
//!
//! They live on a thread of their own, so that nothing else the lab does delays them. Each connection sends its next
//! request when the last one was answered.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use http::Request;
use kube::Client;
use tokio::sync::{mpsc, oneshot};

use crate::api_server;
use crate::bench_handle::Bench;
use crate::host::Host;

/// A request with its body.
pub(in crate::bench) type Whole = Request<Vec<u8>>;

/// The connections.
#[derive(Debug)]
pub(in crate::bench) struct Crew {
    jobs: mpsc::UnboundedSender<Job>,
    connections: usize,
}

struct Job {
    /// How many connections are used.
    connections: usize,
    requests: Vec<Whole>,
    done: oneshot::Sender<Result<Vec<Instant>>>,
}

impl Crew {
    /// Opens this many connections to the API server from the client's host, and has each answered once.
    pub(in crate::bench) async fn start(bench: &Bench, connections: usize) -> Result<Self> {
        let (jobs, mut inbox) = mpsc::unbounded_channel::<Job>();
        let (ready, opened) = oneshot::channel();
        let (host, kubeconfig) = (bench.namespace(Host::Client).clone(), bench.kubeconfig());
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            host.enter()?;
            runtime.block_on(async {
                let open = async {
                    let mut clients = Vec::new();
                    for _ in 0..connections {
                        // A client keeps the connection of its last request: one at a time is one connection.
                        let client = api_server::client(&kubeconfig).await?;
                        client.apiserver_version().await?;
                        clients.push(client);
                    }
                    Ok::<_, anyhow::Error>(clients)
                };
                let clients = match open.await {
                    Ok(clients) => clients,
                    Err(error) => {
                        // Whoever asked is gone only when the whole measurement is.
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(()));
                while let Some(Job { connections, requests, done }) = inbox.recv().await {
                    let clients = clients.get(..connections).unwrap_or(&clients);
                    let _ = done.send(send_all(clients, requests).await);
                }
            });
            Ok::<_, anyhow::Error>(())
        };
        std::thread::Builder::new().name("crew".to_owned()).spawn(work)?;
        opened.await.context("the crew's thread ended")??;
        Ok(Self { jobs, connections })
    }

    /// Sends all requests, as many at a time as there are connections, and gives the moment of each answer, in order.
    ///
    /// # Errors
    /// The first request that is refused.
    pub(in crate::bench) async fn send(&self, requests: Vec<Whole>) -> Result<Vec<Instant>> {
        self.send_over(self.connections, requests).await
    }

    /// [`Self::send`] over so many of the connections.
    ///
    /// # Errors
    /// As there.
    pub(in crate::bench) async fn send_over(
        &self,
        connections: usize,
        requests: Vec<Whole>,
    ) -> Result<Vec<Instant>> {
        let (done, answers) = oneshot::channel();
        self.jobs.send(Job { connections, requests, done }).ok().context("the crew's thread ended")?;
        answers.await.context("the crew's thread ended")?
    }
}

async fn send_all(clients: &[Client], requests: Vec<Whole>) -> Result<Vec<Instant>> {
    let mut answers = vec![None; requests.len()];
    let queue = RefCell::new(requests.into_iter().enumerate());
    let answered = try_join_all(clients.iter().map(async |client| {
        let mut answered = Vec::new();
        loop {
            let next = queue.borrow_mut().next();
            let Some((index, request)) = next else { return Ok::<_, anyhow::Error>(answered) };
            let what = format!("{} {}", request.method(), request.uri());
            client.request_text(request).await.with_context(|| what)?;
            answered.push((index, Instant::now()));
        }
    }))
    .await?;
    for (index, moment) in answered.into_iter().flatten() {
        if let Some(answer) = answers.get_mut(index) {
            *answer = Some(moment);
        }
    }
    answers.into_iter().collect::<Option<Vec<Instant>>>().context("a request was never sent")
}
