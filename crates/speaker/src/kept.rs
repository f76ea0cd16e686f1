// SPDX-License-Identifier: Apache-2.0
//! A file that outlives the process, for a speaker that is started again while the API server is away.
//!
//! It is replaced as a whole or not at all: written beside, brought to the disk, then renamed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ferrolb_kube_support::daemon::Tasks;
use ferrolb_net_types::NodeName;
use tokio::sync::watch;

/// Where a node's snapshot lies.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    directory: PathBuf,
    name: String,
}

impl Kept {
    pub(crate) fn of(directory: &Path, node: &NodeName) -> Self {
        Self { directory: directory.to_owned(), name: format!("speaker-{node}.snapshot") }
    }

    /// What was kept, if anything can be read.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        let path = self.path();
        match read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(
                    op = "startup",
                    file = %path.display(),
                    %error,
                    "what the last process kept cannot be read"
                );
                None
            }
        }
    }

    /// A task that keeps what it is given, the latest first; it says once what does not work.
    pub(crate) fn keep_as_task(self, tasks: &mut Tasks) -> watch::Sender<Vec<u8>> {
        let (sender, mut latest) = watch::channel(Vec::new());
        tasks.spawn(async move {
            let mut complained = false;
            while latest.changed().await.is_ok() {
                let bytes = latest.borrow_and_update().clone();
                let kept = self.clone();
                // A slow disk holds up nothing else.
                let written = tokio::task::spawn_blocking(move || kept.write(&bytes)).await;
                match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    Ok(()) => complained = false,
                    Err(error) if !std::mem::replace(&mut complained, true) => tracing::warn!(
                        op = "snapshot",
                        file = %self.path().display(),
                        %error,
                        "what decides cannot be kept: a start while the API server is away will know nothing"
                    ),
                    Err(_) => {}
                }
            }
            // The control side is gone, and the process with it.
            std::future::pending::<()>().await;
            "snapshot"
        });
        sender
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let beside = self.directory.join(format!(".{}.new", self.name));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, self.path())?;
        File::open(&self.directory)?.sync_all()
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large to be a snapshot"));
    }
    Ok(bytes)
}

/// No snapshot is larger: 100,000 Services take a fifth of it.
const LARGEST: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::of(directory.path(), &"n1".into());
        assert_eq!(kept.read(), None);
        kept.write(b"first").unwrap();
        kept.write(b"second").unwrap();
        assert_eq!(kept.read().as_deref(), Some(&b"second"[..]));
        let names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["speaker-n1.snapshot"]);
        assert_eq!(Kept::of(directory.path(), &"n2".into()).read(), None);
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_kept() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::of(directory.path(), &"n1".into());
        kept.write(b"first").unwrap();
        std::fs::create_dir(directory.path().join(".speaker-n1.snapshot.new")).unwrap();
        assert!(kept.write(b"second").is_err());
        assert_eq!(kept.read().as_deref(), Some(&b"first"[..]));
    }

    #[tokio::test]
    async fn the_latest_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::of(directory.path(), &"n1".into());
        let mut tasks = Tasks::new();
        let sender = kept.clone().keep_as_task(&mut tasks);
        for n in 0..100 {
            sender.send_replace(vec![n]);
        }
        while kept.read() != Some(vec![99]) {
            tokio::task::yield_now().await;
        }
    }
}
