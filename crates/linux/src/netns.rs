// SPDX-License-Identifier: Apache-2.0
//! Named network namespaces, in the place where `ip netns` keeps them.
//!
//! A namespace is made by a thread that leaves the old one and mounts its own over a file in `/run/netns`: no
//! process is forked. setns(2) moves a thread, not a process, and a socket stays in the namespace it was
//! opened in; so one process can hold sockets in all hosts of a lab.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Attempt, Error, Result};
use crate::process;

/// Where named namespaces live.
pub const DIRECTORY: &str = "/run/netns";

/// An open network namespace. Holding it keeps the namespace alive.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes a namespace of this name, empty but for a loopback interface that is down.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the name is taken; without CAP_SYS_ADMIN, `PermissionDenied`.
    pub fn create(name: &str) -> Result<Self> {
        let path = path_of(name)?;
        fs::create_dir_all(DIRECTORY).attempting(|| format!("create {DIRECTORY}"))?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)
            .attempting(|| format!("create the network namespace {name}"))?;
        let made = on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let own = Path::new("/proc/thread-self/ns/net");
            mount(Some(own), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        });
        if let Err(cause) = made {
            let _ = fs::remove_file(&path); // The first error is the one to tell.
            return Err(Error::new(format!("create the network namespace {name}"), cause));
        }
        Self::open(name)
    }

    /// Opens a namespace that exists.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none of this name.
    pub fn open(name: &str) -> Result<Self> {
        let path = path_of(name)?;
        let file = File::open(path).attempting(|| format!("open the network namespace {name}"))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// The namespace of the calling thread, under no name.
    ///
    /// # Errors
    ///
    /// If /proc is not mounted.
    pub fn current() -> Result<Self> {
        let file = File::open("/proc/thread-self/ns/net").attempting(|| "open the own network namespace")?;
        Ok(Self { name: String::new(), file })
    }

    /// Moves the calling thread, and it alone, into the namespace.
    ///
    /// # Errors
    ///
    /// Without CAP_SYS_ADMIN, `PermissionDenied`.
    pub fn enter(&self) -> Result<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .attempting(|| format!("enter the network namespace {}", self.name))
    }

    /// Runs a closure in the namespace, on a thread of its own, and waits for it.
    ///
    /// A process spawned by the closure starts in the namespace. A panic of the closure goes on in the caller.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter); the closure has not run then.
    pub fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T> {
        on_a_thread(|| {
            self.enter()?;
            Ok(closure())
        })
    }

    /// The name; empty for [`current`](Self::current).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for the namespace.
    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    /// The processes that have a thread in the namespace, ascending. Those that end meanwhile are left out.
    ///
    /// # Errors
    ///
    /// If /proc cannot be read.
    pub fn processes(&self) -> Result<Vec<process::Pid>> {
        let own = self.file.metadata().attempting(|| format!("stat the network namespace {}", self.name))?;
        let same = |entry: &Path| {
            fs::metadata(entry.join("ns/net"))
                .is_ok_and(|theirs| theirs.dev() == own.dev() && theirs.ino() == own.ino())
        };
        let mut pids = process::all()?;
        pids.retain(|pid| {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            tasks.map(|task| task.path()).any(|task| same(&task))
        });
        Ok(pids)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes the name away. The namespace itself lives on while a process or a socket is in it.
///
/// A name that does not exist, or a file that a killed process left without a namespace, is no error.
///
/// # Errors
///
/// Without CAP_SYS_ADMIN, `PermissionDenied`.
pub fn delete(name: &str) -> Result<()> {
    let path = path_of(name)?;
    match umount2(&path, MntFlags::MNT_DETACH) {
        // Not a mount: a creation that was interrupted left the bare file.
        Ok(()) | Err(nix::Error::EINVAL) => {}
        Err(nix::Error::ENOENT) => return Ok(()),
        Err(cause) => return Err(Error::new(format!("unmount the network namespace {name}"), cause)),
    }
    match fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(Error::new(format!("remove the network namespace {name}"), cause))
        }
        _ => Ok(()),
    }
}

/// Whether the name is taken.
pub fn exists(name: &str) -> bool {
    path_of(name).is_ok_and(|path| path.exists())
}

/// The names that start with `prefix`, in order; none where no namespace was ever made.
///
/// # Errors
///
/// If the directory cannot be read.
pub fn list(prefix: &str) -> Result<Vec<String>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(Error::new(format!("list {DIRECTORY}"), cause)),
    };
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    Ok(names)
}

/// A name is one component of a path.
fn path_of(name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, "not a file name");
        return Err(Error::new(format!("name a network namespace '{name}'"), cause));
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// Runs a closure on a thread that ends with it, so that a changed namespace never leaks into the caller.
fn on_a_thread<T: Send>(closure: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(closure).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_one_file_name_is_refused() {
        for name in ["", ".", "..", "a/b", "/"] {
            assert_eq!(Namespace::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(!exists(name));
        }
    }

    #[test]
    fn the_own_namespace_holds_the_own_process() {
        let pids = Namespace::current().unwrap().processes().unwrap();
        assert!(pids.contains(&process::Pid(std::process::id())));
    }
}
