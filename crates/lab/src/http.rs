// SPDX-License-Identifier: Apache-2.0
//! As much of HTTP/1.1 as the bench's own small servers and probes need: requests without a body, whole answers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A request's first line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// `GET`, `POST`, …
    pub(crate) method: String,
    /// Path and query as sent.
    pub(crate) path: String,
    /// Whether the client wants no further answer on this connection.
    pub(crate) last: bool,
}

impl Request {
    /// The first request in `bytes` and its length, once its head is complete. A body is not expected.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(bytes.get(..end)?);
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, path) = (word(), word());
        let last = lines.any(|line| {
            let (name, value) = line.split_once(':').unwrap_or_default();
            name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close")
        });
        Some((Self { method, path, last }, end + 4))
    }
}

/// A complete answer.
pub(crate) fn response(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        503 => "Service Unavailable",
        _ => "",
    };
    let mut bytes = format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {}\r\n", body.len()).into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Sends one request without a body and gives the status code of the answer, within `timeout`. It blocks.
pub(crate) fn status_of(
    method: &str,
    address: SocketAddr,
    path: &str,
    timeout: Duration,
) -> std::io::Result<u16> {
    let deadline = Instant::now() + timeout;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        .as_bytes(),
    )?;
    let mut head = Vec::new();
    let mut buffer = [0u8; 512];
    // "HTTP/1.1 200" is all that is looked at.
    while head.len() < 12 {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
    String::from_utf8_lossy(&head)
        .split(' ')
        .nth(1)
        .and_then(|code| code.get(..3)?.parse().ok())
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "not an HTTP answer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_only_when_its_head_is_complete() {
        let bytes = b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\nGET";
        let whole = bytes.len() - 3;
        for length in 0..whole {
            assert_eq!(Request::parse(&bytes[..length]), None, "{length}");
        }
        let request = Request { method: "GET".to_owned(), path: "/a?b".to_owned(), last: false };
        assert_eq!(Request::parse(bytes), Some((request, whole)));
    }

    #[test]
    fn a_client_says_when_it_wants_no_further_answer() {
        for (header, last) in
            [("Connection: close", true), ("connection:CLOSE", true), ("Connection: keep-alive", false)]
        {
            let text = format!("GET / HTTP/1.1\r\nHost: close\r\n{header}\r\n\r\n");
            assert_eq!(Request::parse(text.as_bytes()).unwrap().0.last, last, "{header}");
        }
    }

    #[test]
    fn the_status_of_an_answer_is_read_over_a_real_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(&response(503, &[], b"no")).unwrap();
            Request::parse(&request[..count]).unwrap().0.path
        });
        assert_eq!(status_of("GET", address, "/readyz", Duration::from_secs(5)).unwrap(), 503);
        assert_eq!(server.join().unwrap(), "/readyz");
    }
}
