// SPDX-License-Identifier: Apache-2.0
//! `healthCheckNodePort`: what a node says of a Service with `externalTrafficPolicy: Local` to whoever asks there.
//!
//! 200 with the number of the node's own ready endpoints, also as the weight; 503 when it has none.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::port::ServicePort;
use crate::host::Host;
use crate::http;
use crate::topology::Topology;

/// What one health check port says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    port: u16,
    namespace: String,
    service: String,
    /// Ready endpoints by node, of the port that has most.
    endpoints: BTreeMap<String, usize>,
}

impl Check {
    /// The check of a Service, if it has one.
    pub(super) fn of(service: &Service, ports: &[ServicePort]) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let port = u16::try_from(spec.health_check_node_port?).ok().filter(|port| *port != 0)?;
        if spec.external_traffic_policy.as_deref() != Some("Local") {
            return None;
        }
        let mut endpoints = BTreeMap::new();
        for host in Host::NODES {
            let most = ports.iter().map(|port| port.backends_on(host.name()).len()).max().unwrap_or(0);
            endpoints.insert(host.name().to_owned(), most);
        }
        Some(Self {
            port,
            namespace: service.namespace().unwrap_or_default(),
            service: service.name_any(),
            endpoints,
        })
    }

    /// The answer of one node.
    fn answer(&self, node: &str) -> Vec<u8> {
        let count = self.endpoints.get(node).copied().unwrap_or(0);
        let body = json!({
            "service": {"namespace": self.namespace, "name": self.service},
            "localEndpoints": count,
            "serviceProxyHealthy": true,
        });
        let weight = count.to_string();
        http::response(
            if count == 0 { 503 } else { 200 },
            &[
                ("Content-Type", "application/json"),
                ("X-Content-Type-Options", "nosniff"),
                ("X-Load-Balancing-Endpoint-Weight", &weight),
                ("Connection", "close"),
            ],
            body.to_string().as_bytes(),
        )
    }
}

/// The ports that are served now.
#[derive(Default)]
pub(super) struct Checks {
    open: BTreeMap<u16, Open>,
}

struct Open {
    check: Arc<Mutex<Check>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Checks {
    /// Opens, updates and closes ports until they are exactly `wanted`.
    pub(super) fn serve(&mut self, topology: &Topology, wanted: Vec<Check>) -> Result<()> {
        self.open.retain(|port, _| wanted.iter().any(|check| check.port == *port));
        for check in wanted {
            if let Some(open) = self.open.get(&check.port) {
                *open.check.lock().unwrap_or_else(PoisonError::into_inner) = check;
                continue;
            }
            let port = check.port;
            let shared = Arc::new(Mutex::new(check));
            let mut open = Open { check: Arc::clone(&shared), tasks: Vec::new() };
            for host in Host::NODES {
                let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
                let listener = topology
                    .namespace(host)
                    .run(|| std::net::TcpListener::bind(address))?
                    .with_context(|| format!("open the health check port {port} on {host}"))?;
                listener.set_nonblocking(true)?;
                let listener = TcpListener::from_std(listener)?;
                open.tasks.push(tokio::spawn(listen(listener, host, Arc::clone(&shared))));
            }
            self.open.insert(port, open);
        }
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn listen(listener: TcpListener, host: Host, check: Arc<Mutex<Check>>) {
    loop {
        // A failed accept concerns one connection only.
        if let Ok((stream, _)) = listener.accept().await {
            let answer = check.lock().unwrap_or_else(PoisonError::into_inner).answer(host.name());
            tokio::spawn(converse(stream, answer));
        }
    }
}

/// Waits for the request's head, whatever it asks for, and answers.
async fn converse(mut stream: TcpStream, answer: Vec<u8>) {
    let mut head = Vec::new();
    while http::Request::parse(&head).is_none() && head.len() < 16 * 1024 {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_endpoints_says_200_and_how_many_and_one_without_503() {
        let check = Check {
            port: 30999,
            namespace: "demo".to_owned(),
            service: "hello-lb".to_owned(),
            endpoints: [("k8s-node-2".to_owned(), 2)].into(),
        };
        let with = String::from_utf8(check.answer("k8s-node-2")).unwrap();
        assert!(with.starts_with("HTTP/1.1 200 OK\r\n"), "{with}");
        assert!(with.contains("\r\nX-Load-Balancing-Endpoint-Weight: 2\r\n"), "{with}");
        assert!(with.ends_with(r#"{"localEndpoints":2,"service":{"name":"hello-lb","namespace":"demo"},"serviceProxyHealthy":true}"#), "{with}");
        let without = String::from_utf8(check.answer("k8s-node-1")).unwrap();
        assert!(without.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{without}");
        assert!(without.contains("\"localEndpoints\":0"), "{without}");
    }

    #[test]
    fn only_policy_local_has_a_check() {
        let service = |policy: &str, port: Option<i32>| -> Service {
            serde_json::from_value(json!({
                "metadata": {"name": "hello-lb", "namespace": "demo"},
                "spec": {"externalTrafficPolicy": policy, "healthCheckNodePort": port},
            }))
            .unwrap()
        };
        assert!(Check::of(&service("Local", Some(30999)), &[]).is_some());
        assert!(Check::of(&service("Cluster", Some(30999)), &[]).is_none());
        assert!(Check::of(&service("Local", None), &[]).is_none());
    }
}
