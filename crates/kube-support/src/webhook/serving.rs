// SPDX-License-Identifier: Apache-2.0
//! The certificate that the webhook port presents: none at first, exchanged under way.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificates::Material;
use crate::tls::load;

/// How often mounted files are looked at, at most, when somebody connects.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What is presented to whoever connects. Without a certificate, handshakes fail.
#[derive(Debug, Default)]
pub struct Serving {
    current: ArcSwapOption<CertifiedKey>,
    /// Where it came from, if from a Secret.
    material: Mutex<Option<Material>>,
}

impl Serving {
    /// Nothing yet.
    pub fn nothing() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Presents this from now on.
    pub fn set(&self, key: Arc<CertifiedKey>) {
        self.current.store(Some(key));
    }

    /// Presents what this material comes to from now on.
    pub(crate) fn present(&self, material: Material, key: Arc<CertifiedKey>) {
        self.set(key);
        // Nothing panics while it holds the lock, so the lock is never poisoned.
        if let Ok(mut kept) = self.material.lock() {
            *kept = Some(material);
        }
    }

    pub(crate) fn material(&self) -> Option<Material> {
        self.material.lock().ok()?.clone()
    }

    /// What is presented.
    pub fn presented(&self) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.presented()
    }
}

/// `tls.crt` and `tls.key` of a directory, as somebody else puts them there and replaces them.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    serving: Arc<Serving>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    read: Option<(SystemTime, SystemTime)>,
    complaint: Option<String>,
}

impl Mounted {
    /// Files of this directory are to be presented by `serving`.
    pub fn new(directory: PathBuf, serving: Arc<Serving>) -> Self {
        Self { directory, serving, state: Mutex::new(State::default()) }
    }

    /// Reads the files if they changed; at most once a second. Files that do not fit leave what is presented as it
    /// is, since they may be replaced one after the other.
    pub fn refresh(&self, now: Instant) {
        // Nothing panics while it holds the lock, so the lock is never poisoned.
        let Ok(mut state) = self.state.lock() else { return };
        if state.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_AGAIN) {
            return;
        }
        state.looked = Some(now);
        let found = self.modified();
        if found.is_some() && found == state.read {
            return;
        }
        match load(&self.directory) {
            Ok(key) => {
                self.serving.set(Arc::new(key));
                state.read = found;
                state.complaint = None;
                tracing::info!(
                    op = "certificate",
                    directory = %self.directory.display(),
                    "webhook certificate read from files"
                );
            }
            Err(error) => {
                let error = error.to_string();
                if state.complaint.as_ref() != Some(&error) {
                    tracing::warn!(
                        op = "certificate",
                        error = error.as_str(),
                        "the webhook certificate cannot be read from files, trying again; --disable-cert-rotation \
                         leaves it to somebody else to put tls.crt and tls.key there"
                    );
                    state.complaint = Some(error);
                }
            }
        }
    }

    fn modified(&self) -> Option<(SystemTime, SystemTime)> {
        let time = |name| std::fs::metadata(self.directory.join(name)).and_then(|data| data.modified()).ok();
        Some((time("tls.crt")?, time("tls.key")?))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn write(directory: &Path) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed(vec!["webhook".to_owned()]).unwrap();
        std::fs::write(directory.join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        made.cert.der().to_vec()
    }

    #[test]
    fn files_are_taken_when_they_come_and_when_they_change_and_never_half() {
        let directory = tempfile::tempdir().unwrap();
        let serving = Serving::nothing();
        let mounted = Mounted::new(directory.path().to_owned(), Arc::clone(&serving));
        let current = || serving.current.load_full().map(|key| key.cert[0].to_vec());
        let start = Instant::now();
        mounted.refresh(start);
        assert_eq!(current(), None);
        let first = write(directory.path());
        mounted.refresh(start);
        assert_eq!(current(), None, "looked at too often");
        mounted.refresh(start + LOOK_AGAIN);
        assert_eq!(current(), Some(first.clone()));

        std::fs::write(directory.path().join("tls.key"), "half written").unwrap();
        mounted.refresh(start + 2 * LOOK_AGAIN);
        assert_eq!(current(), Some(first));
        let second = write(directory.path());
        mounted.refresh(start + 3 * LOOK_AGAIN);
        assert_eq!(current(), Some(second));
    }
}
