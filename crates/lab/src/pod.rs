// SPDX-License-Identifier: Apache-2.0
//! The application in a Pod of the bench: a small server that says who it is and whom it sees.
//!
//! HTTP on one TCP port, an echo on one UDP port. Every answer is `POD CLIENT-ADDRESS\n`, and every request adds a
//! line `{"protocol":"tcp","peer":"192.168.10.50:40000"}` to the log file, so that a scenario can tell whether the
//! client's address survived the way. `GET /readyz` is the readiness probe: 200 or 503; `POST /ready` and
//! `POST /unready` switch it.

use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::http;

/// What the hidden subcommand `__pod` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct PodArgs {
    /// Name of the Pod, as answers give it; by default what the environment variable POD_NAME says.
    #[arg(long)]
    name: Option<String>,
    /// TCP port of the HTTP server.
    #[arg(long, default_value_t = 8080)]
    http: u16,
    /// UDP port of the echo.
    #[arg(long, default_value_t = 8081)]
    udp: u16,
    /// File that gets one line per request.
    #[arg(long)]
    log: Option<PathBuf>,
}

/// One request as the log file has it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Seen {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Address and port the request came from, as the Pod saw them.
    pub peer: SocketAddr,
}

/// Serves until the process is told to end.
///
/// # Errors
/// A port is taken, or the log file cannot be opened.
pub(crate) async fn serve(args: PodArgs) -> Result<()> {
    // Of both families.
    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let tcp = TcpListener::bind((any, args.http))
        .await
        .with_context(|| format!("listen on TCP port {}", args.http))?;
    let udp =
        UdpSocket::bind((any, args.udp)).await.with_context(|| format!("listen on UDP port {}", args.udp))?;
    let name = args.name.or_else(|| std::env::var("POD_NAME").ok());
    let name = name.context("neither --name nor POD_NAME says the Pod's name")?;
    let app = Arc::new(App::new(name, args.log)?);
    let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut datagram = [0u8; 2048];
    loop {
        tokio::select! {
            accepted = tcp.accept() => {
                // A failed accept concerns one connection only; the next one is welcome.
                if let Ok((stream, peer)) = accepted {
                    tokio::spawn(connection(stream, canonical(peer), Arc::clone(&app)));
                }
            }
            received = udp.recv_from(&mut datagram) => {
                if let Ok((_, peer)) = received {
                    app.note("udp", canonical(peer));
                    let _ = udp.send_to(app.answer(canonical(peer)).as_bytes(), peer).await;
                }
            }
            _ = end.recv() => return Ok(()),
        }
    }
}

/// An IPv4 address as such, not within one of IPv6.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

struct App {
    name: String,
    ready: AtomicBool,
    log: Option<std::fs::File>,
}

impl App {
    fn new(name: String, log: Option<PathBuf>) -> Result<Self> {
        let open = |path: PathBuf| {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .with_context(|| format!("open {}", path.display()))
        };
        Ok(Self { name, ready: AtomicBool::new(true), log: log.map(open).transpose()? })
    }

    fn note(&self, protocol: &str, peer: SocketAddr) {
        if let Some(mut file) = self.log.as_ref() {
            let seen = Seen { protocol: protocol.to_owned(), peer };
            // One write per line: lines of concurrent requests do not mix. A full disk must not stop the answers.
            let line = serde_json::to_string(&seen).unwrap_or_default() + "\n";
            let _ = file.write_all(line.as_bytes());
        }
    }

    fn answer(&self, peer: SocketAddr) -> String {
        format!("{} {}\n", self.name, peer.ip())
    }

    /// Status and body for one request.
    fn respond(&self, request: &http::Request, peer: SocketAddr) -> (u16, String) {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/readyz") => {
                if self.ready.load(Ordering::Relaxed) {
                    (200, "ok\n".to_owned())
                } else {
                    (503, "switched off\n".to_owned())
                }
            }
            ("POST", "/ready") => self.switch(true),
            ("POST", "/unready") => self.switch(false),
            _ => {
                self.note("tcp", peer);
                (200, self.answer(peer))
            }
        }
    }

    fn switch(&self, ready: bool) -> (u16, String) {
        self.ready.store(ready, Ordering::Relaxed);
        (200, format!("ready: {ready}\n"))
    }
}

async fn connection(mut stream: TcpStream, peer: SocketAddr, app: Arc<App>) {
    let _ = converse(&mut stream, peer, &app).await;
}

/// Answers requests until the other side is done.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    peer: SocketAddr,
    app: &App,
) -> std::io::Result<()> {
    let mut unread = Vec::new();
    loop {
        let (request, consumed) = loop {
            if let Some(found) = http::Request::parse(&unread) {
                break found;
            }
            if unread.len() > 16 * 1024 || stream.read_buf(&mut unread).await? == 0 {
                return Ok(());
            }
        };
        unread.drain(..consumed);
        let (status, body) = app.respond(&request, peer);
        let mut headers = vec![("Content-Type", "text/plain")];
        if request.last {
            headers.push(("Connection", "close"));
        }
        stream.write_all(&http::response(status, &headers, body.as_bytes())).await?;
        if request.last {
            return stream.shutdown().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn talk(app: &App, requests: &str) -> String {
        let (mut ours, mut theirs) = tokio::io::duplex(4096);
        ours.write_all(requests.as_bytes()).await.unwrap();
        ours.shutdown().await.unwrap();
        converse(&mut theirs, "192.168.10.50:40000".parse().unwrap(), app).await.unwrap();
        drop(theirs);
        let mut answer = String::new();
        ours.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn answers_with_its_name_and_the_client_it_sees_and_logs_that() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("seen");
        let app = App::new("hello-1".to_owned(), Some(log.clone())).unwrap();
        let requests = "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\nGET /3 HTTP/1.1\r\n\r\n";
        let answer = talk(&app, requests).await;
        assert_eq!(answer.matches("hello-1 192.168.10.50\n").count(), 2, "{answer}");
        let lines: Vec<Seen> = std::fs::read_to_string(log)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let seen = Seen { protocol: "tcp".to_owned(), peer: "192.168.10.50:40000".parse().unwrap() };
        assert_eq!(lines, [seen.clone(), seen]);
    }

    #[tokio::test]
    async fn its_readiness_can_be_switched_off_and_on() {
        let app = App::new("hello-1".to_owned(), None).unwrap();
        let answer = talk(
            &app,
            "POST /unready HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\n\r\nPOST /ready HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n",
        )
        .await;
        let codes: Vec<_> =
            answer.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")).map(|rest| &rest[..3]).collect();
        assert_eq!(codes, ["200", "503", "200", "200"]);
    }
}
