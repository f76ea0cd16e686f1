// SPDX-License-Identifier: Apache-2.0
//! When something from the API server reaches a node: the moment at which a watch event is on its way to the speaker
//! there, whatever the API server needed until then and whoever else it told first.
//!
//! Nothing but the speaker talks to the API server from a node of the bench. What is said is encrypted; that something
//! is said, and when, is not. So it tells when an event comes only if nothing else does at that time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::packet::Frames;
use ferrolb_linux::{Netlink, PacketSocket, Poller, inspect};

use super::peers::Moment;
use crate::api_server;
use crate::bench_handle::Bench;
use crate::host::Host;

/// A look at what comes to a node, until it is dropped.
#[derive(Debug)]
pub(super) struct Arrivals {
    seen: Seen,
    end: Arc<AtomicBool>,
}

/// When data came from the API server, since 1970; the first ones are forgotten.
type Seen = Arc<Mutex<Vec<Duration>>>;

impl Arrivals {
    /// Begins to look.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub(super) fn at(bench: &Bench, node: Host) -> Result<Self> {
        let namespace = bench.namespace(node);
        let found = inspect::interfaces(&mut Netlink::open_in(namespace)?)?;
        let index = found
            .into_iter()
            .find(|own| own.name.as_str() == node.interface())
            .with_context(|| format!("{node} has no {}", node.interface()))?
            .index;
        let socket = namespace.run(|| PacketSocket::open(index, Frames::ObservedTcp))??;
        let mut poller = Poller::new()?;
        poller.add(&socket, 0)?;
        let (seen, end) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let (notes, stop) = (Arc::clone(&seen), Arc::clone(&end));
        let look = move || {
            let mut buffer = vec![0; 1 << 17];
            while !stop.load(Ordering::Relaxed) {
                // What fails here fails for good; the measurement then finds that nothing arrives.
                if poller.wait(Some(Instant::now() + GLANCE)).is_err() {
                    return;
                }
                while let Ok(Some(received)) = socket.receive(&mut buffer) {
                    let frame = buffer.get(..received.length).unwrap_or_default();
                    if !received.outgoing && is_data_from(frame, api_server::ADDRESS.port()) == Some(true) {
                        lock(&notes).extend(received.at);
                    }
                }
            }
        };
        std::thread::Builder::new().name("arrivals".to_owned()).spawn(look)?;
        Ok(Self { seen, end })
    }

    /// Waits until nothing has come for so long.
    ///
    /// # Errors
    /// Something comes all the time.
    pub(super) async fn quiet(&self, time: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let now = Moment::now().wall;
            let last = lock(&self.seen).last().copied().unwrap_or_default();
            let Some(left) = (last + time).checked_sub(now).filter(|left| !left.is_zero()) else {
                return Ok(());
            };
            ensure!(begun.elapsed() < LIMIT, "the API server has something to say all the time");
            tokio::time::sleep(left).await;
        }
    }

    /// The first arrival after a moment. What came before is forgotten.
    ///
    /// # Errors
    /// Nothing came.
    pub(super) async fn first_after(&self, moment: Moment) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            {
                let mut seen = lock(&self.seen);
                seen.retain(|at| *at > moment.wall);
                if let Some(first) = seen.first() {
                    return Ok(*first);
                }
            }
            ensure!(begun.elapsed() < LIMIT, "no word of the API server was seen on its way to the node");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// Whether a frame is of TCP over IPv4 from this port, with something in it; `None` if it is cut short.
fn is_data_from(frame: &[u8], port: u16) -> Option<bool> {
    if frame.get(12..14)? != [0x08, 0x00] {
        return Some(false);
    }
    let packet = frame.get(14..)?;
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let length = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    let tcp = packet.get(header..)?;
    let from = u16::from_be_bytes(tcp.get(..2)?.try_into().ok()?);
    let data = usize::from(tcp.get(12)? >> 4) * 4;
    Some(from == port && length > header + data)
}

fn lock(seen: &Seen) -> MutexGuard<'_, Vec<Duration>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

const GLANCE: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: [u8; 2], port: u16, data: usize) -> Vec<u8> {
        let mut frame = [&[0; 12][..], &kind].concat();
        frame.extend([0x45, 0]);
        frame.extend(u16::try_from(40 + data).unwrap().to_be_bytes());
        frame.extend([0; 16]);
        frame.extend(port.to_be_bytes());
        frame.extend([0; 10]);
        frame.extend([0x50, 0x18, 0, 0, 0, 0, 0, 0]);
        // Short frames are padded.
        frame.extend(vec![7; data.max(6)]);
        frame
    }

    #[test]
    fn data_from_the_port_counts_and_nothing_else() {
        let v4 = [0x08, 0x00];
        assert_eq!(is_data_from(&frame(v4, 6443, 100), 6443), Some(true));
        assert_eq!(is_data_from(&frame(v4, 6443, 0), 6443), Some(false), "an acknowledgement");
        assert_eq!(is_data_from(&frame(v4, 179, 100), 6443), Some(false));
        assert_eq!(is_data_from(&frame([0x86, 0xdd], 6443, 100), 6443), Some(false));
        assert_eq!(is_data_from(&frame(v4, 6443, 100)[..40], 6443), None);
    }
}
