// SPDX-License-Identifier: Apache-2.0
//! The beginning of an HTTPS connection: the handshake, within a time, and a word for those who come without TLS.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A client has this long for the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// The first byte of a TLS record that carries a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The encrypted stream, unless the client did not come that far. `op` stands in the log.
pub(crate) async fn handshake(
    acceptor: TlsAcceptor,
    mut stream: TcpStream,
    op: &'static str,
) -> Option<TlsStream<TcpStream>> {
    let attempt = async {
        let mut first = [0_u8; 1];
        if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
            let text = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown().await?;
            return Ok(None);
        }
        acceptor.accept(stream).await.map(Some)
    };
    match tokio::time::timeout(HANDSHAKE_LIMIT, attempt).await {
        Ok(Ok(stream)) => stream,
        Err(_) => None,
        Ok(Err(error)) => {
            let error: std::io::Error = error;
            tracing::debug!(op, error = %error, "TLS handshake failed");
            None
        }
    }
}
