// SPDX-License-Identifier: Apache-2.0
//! What a lab has made, on disk: who owns it, every namespace, every process.
//!
//! ```text
//! /run/ferrolb-lab/NAME/
//!   owner               the process that holds the lab: pid and start time
//!   namespaces/NS       one empty file per namespace, written before the namespace is made
//!   processes/PID       one file per process: its start time and what it is; written by the process itself before
//!                       it becomes the program it is for
//!   kubeconfig, logs/, pods/, …
//! ```
//!
//! A lab whose owner is gone is swept by whoever comes next. A process is ended only if its pid still belongs to the
//! process that was written down, and a lab whose owner lives is left alone.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ferrolb_linux::process::{Identity, Pid};
use ferrolb_linux::{Namespace, netns};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::host::LabName;

/// The state directory of one lab.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    lab: LabName,
    path: PathBuf,
}

/// Another lab of this name lives.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "a lab named {lab} is up already, held by process {pid}; end it with `ferrolb lab down --name {lab}`, or choose another --name"
)]
pub struct Taken {
    /// Its name.
    pub lab: String,
    /// The process that holds it.
    pub pid: u32,
}

/// One process as its file has it.
#[derive(Serialize, Deserialize)]
struct Entry {
    started: u64,
    role: String,
}

impl Ledger {
    /// Makes the calling process the owner of the lab `lab`, after sweeping what dead labs left.
    ///
    /// # Errors
    /// [`Taken`] if a lab of this name lives; any error of the file system.
    pub(crate) fn claim(lab: &LabName) -> Result<Self> {
        sweep_the_dead(lab)?;
        let ledger = Self::at(lab);
        let owner = Identity::own()?;
        ledger.locked(|| {
            if let Some(other) = ledger.owner().filter(Identity::is_alive) {
                return Err(Taken { lab: lab.to_string(), pid: other.pid.0 }.into());
            }
            ledger.sweep()?;
            fs::create_dir_all(ledger.path.join(NAMESPACES))?;
            fs::create_dir_all(ledger.path.join(PROCESSES))?;
            let entry = Owner { pid: owner.pid.0, started: owner.started };
            write(&ledger.path.join(OWNER), &serde_json::to_vec(&entry)?)
        })?;
        Ok(ledger)
    }

    /// The state directory of the lab of this name, whether it is there or not.
    pub(crate) fn at(lab: &LabName) -> Self {
        Self { lab: lab.clone(), path: Path::new(BASE).join(lab.as_str()) }
    }

    /// The names of all labs that have a state directory, in order.
    pub(crate) fn labs() -> Vec<LabName> {
        let entries = fs::read_dir(BASE).into_iter().flatten().flatten();
        let mut labs: Vec<LabName> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        labs.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        labs
    }

    /// The lab's name.
    pub(crate) const fn lab(&self) -> &LabName {
        &self.lab
    }

    /// The state directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The kubeconfig with cluster-admin rights, for inside the lab's network.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Where the output of process `name` goes.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(crate) fn log(&self, name: &str) -> Result<PathBuf> {
        let directory = self.directory("logs")?;
        Ok(directory.join(format!("{name}.log")))
    }

    /// A directory inside the state directory, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    /// The file that keeps the daemons' processes from starting on a node while it exists.
    pub(crate) fn held(&self, node: &str) -> PathBuf {
        self.path().join(format!("held-{node}"))
    }

    /// The process that holds the lab, living or not; `None` if there is no lab.
    pub(crate) fn owner(&self) -> Option<Identity> {
        let owner: Owner = serde_json::from_slice(&fs::read(self.path.join(OWNER)).ok()?).ok()?;
        Some(Identity { pid: Pid(owner.pid), started: owner.started })
    }

    /// Writes down a namespace that is about to be made.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note_namespace(&self, name: &str) -> Result<()> {
        write(&self.path.join(NAMESPACES).join(name), b"")
    }

    /// Strikes a namespace out that is gone.
    pub(crate) fn forget_namespace(&self, name: &str) {
        let _ = fs::remove_file(self.path.join(NAMESPACES).join(name));
    }

    /// The namespaces written down, in order.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        file_names(&self.path.join(NAMESPACES))
    }

    /// Writes down a process of this lab.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note_process(&self, process: Identity, role: &str) -> Result<()> {
        let entry = Entry { started: process.started, role: role.to_owned() };
        let path = self.path.join(PROCESSES).join(process.pid.to_string());
        write(&path, &serde_json::to_vec(&entry)?)
    }

    /// Strikes a process out that has ended.
    pub(crate) fn forget_process(&self, pid: Pid) {
        let _ = fs::remove_file(self.path.join(PROCESSES).join(pid.to_string()));
    }

    /// The processes written down that live, with what they are, by pid.
    pub(crate) fn processes(&self) -> Vec<(Identity, String)> {
        let mut found = Vec::new();
        for directory in self.process_directories() {
            found.extend(file_names(&directory).iter().filter_map(|name| {
                let entry: Entry = serde_json::from_slice(&fs::read(directory.join(name)).ok()?).ok()?;
                let identity = Identity { pid: Pid(name.parse().ok()?), started: entry.started };
                identity.is_alive().then_some((identity, entry.role))
            }));
        }
        found.sort();
        found
    }

    /// Ends every process that is written down, removes every namespace and the state directory.
    ///
    /// Processes get SIGTERM, and SIGKILL after two seconds.
    ///
    /// # Errors
    /// The kernel or the file system refuses.
    pub(crate) fn sweep(&self) -> Result<()> {
        self.close()?;
        self.end_processes()?;
        for name in self.namespaces() {
            netns::delete(&name)?;
        }
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.path.display()))
            }
            _ => {
                // Others may have their labs there.
                let _ = fs::remove_dir(BASE);
                Ok(())
            }
        }
    }

    /// [`Self::sweep`] if the owner does not live; otherwise the owner.
    ///
    /// # Errors
    /// As [`Self::sweep`].
    pub(crate) fn sweep_if_dead(&self) -> Result<Option<Identity>> {
        if !self.path.exists() {
            return Ok(None);
        }
        self.locked(|| match self.owner().filter(Identity::is_alive) {
            Some(owner) => Ok(Some(owner)),
            None => self.sweep().map(|()| None),
        })
    }

    /// Lets no further process in: one that is about to write itself down finds no place for it, and ends.
    fn close(&self) -> Result<()> {
        let open = self.path.join(PROCESSES);
        if !open.exists() {
            return Ok(());
        }
        // A sweep that was interrupted has left one already.
        let closed = (1..).map(|n| self.path.join(format!("{PROCESSES}.{n}"))).find(|path| !path.exists());
        let closed = closed.unwrap_or_else(|| self.path.join("closed"));
        fs::rename(&open, &closed).with_context(|| format!("close {}", open.display()))
    }

    fn process_directories(&self) -> Vec<PathBuf> {
        let names = file_names(&self.path).into_iter().filter(|name| name.starts_with(PROCESSES));
        names.map(|name| self.path.join(name)).collect()
    }

    fn end_processes(&self) -> Result<()> {
        let own = std::process::id();
        let others = || {
            let mut processes = self.processes();
            processes.extend(self.strays());
            processes.retain(|(identity, _)| identity.pid.0 != own);
            processes
        };
        for (identity, _) in others() {
            identity.signal(Signal::SIGTERM)?;
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let left = others();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                for (identity, _) in left {
                    identity.signal(Signal::SIGKILL)?;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Processes that a program of ours started on its own account and wrote to a pid file of ours (an API server
    /// brought up by a script): they count only while they are in a namespace of this lab.
    fn strays(&self) -> Vec<(Identity, String)> {
        let files = file_names(&self.path.join(PID_FILES));
        if !files.iter().any(|name| name.ends_with(".pid")) {
            return Vec::new();
        }
        let inside: Vec<Pid> = self
            .namespaces()
            .iter()
            .filter_map(|name| Namespace::open(name).ok()?.processes().ok())
            .flatten()
            .collect();
        files
            .iter()
            .filter(|name| name.ends_with(".pid"))
            .filter_map(|name| {
                let text = fs::read_to_string(self.path.join(PID_FILES).join(name)).ok()?;
                let pid = Pid(text.trim().parse().ok()?);
                inside.contains(&pid).then(|| Identity::of(pid)).flatten().map(|id| (id, name.clone()))
            })
            .collect()
    }

    /// Runs `action` while no other process claims or sweeps this lab.
    fn locked<T>(&self, action: impl FnOnce() -> Result<T>) -> Result<T> {
        loop {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.path)
                .with_context(|| format!("make {}", self.path.display()))?;
            let Ok(directory) = File::open(&self.path) else { continue };
            directory.lock().with_context(|| format!("lock {}", self.path.display()))?;
            // Who held the lock may have removed the directory: then the lock is one on nothing.
            let same = match (directory.metadata(), fs::metadata(&self.path)) {
                (Ok(held), Ok(named)) => held.ino() == named.ino(),
                _ => false,
            };
            if same {
                return action();
            }
        }
    }
}

/// Sweeps every lab but `except` whose owner is dead.
fn sweep_the_dead(except: &LabName) -> Result<()> {
    for lab in Ledger::labs() {
        if lab != *except {
            Ledger::at(&lab)
                .sweep_if_dead()
                .with_context(|| format!("remove what the dead lab {lab} left"))?;
        }
    }
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Owner {
    pid: u32,
    started: u64,
}

/// Writes a file so that a reader sees all of it or nothing.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    let fresh = path.with_extension(format!("new{}", std::process::id()));
    let attempt = || {
        fs::write(&fresh, content)?;
        fs::rename(&fresh, path)
    };
    attempt().with_context(|| format!("write {}", path.display()))
}

fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

const BASE: &str = "/run/ferrolb-lab";
const OWNER: &str = "owner";
const NAMESPACES: &str = "namespaces";
const PROCESSES: &str = "processes";
/// Where an API server brought up by a script keeps its pid files.
pub(crate) const PID_FILES: &str = "kapi";

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger in a directory of its own, for a lab that no other test uses.
    fn ledger(lab: &str) -> (tempfile::TempDir, Ledger) {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger { lab: lab.parse().unwrap(), path: directory.path().join(lab) };
        fs::create_dir_all(ledger.path.join(PROCESSES)).unwrap();
        (directory, ledger)
    }

    fn sleeper() -> (std::process::Child, Identity) {
        let child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let identity = Identity::of(Pid(child.id())).unwrap();
        (child, identity)
    }

    #[test]
    fn a_sweep_ends_what_is_written_down_and_removes_the_directory() {
        let (_directory, ledger) = ledger("sweep");
        let (mut child, identity) = sleeper();
        ledger.note_process(identity, "sleeper").unwrap();
        assert_eq!(ledger.processes(), [(identity, "sleeper".to_owned())]);
        ledger.sweep().unwrap();
        child.wait().unwrap();
        assert!(!ledger.path.exists());
        assert!(ledger.note_process(identity, "late").is_err());
    }

    #[test]
    fn a_pid_that_belongs_to_another_process_by_now_is_left_alone() {
        let (_directory, ledger) = ledger("reused");
        let (mut child, identity) = sleeper();
        ledger.note_process(Identity { started: identity.started + 1, ..identity }, "gone").unwrap();
        assert_eq!(ledger.processes(), []);
        ledger.sweep().unwrap();
        assert!(identity.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn once_a_sweep_has_begun_no_process_gets_in_and_a_second_sweep_finds_the_rest() {
        let (_directory, ledger) = ledger("closed");
        let (mut first, one) = sleeper();
        ledger.note_process(one, "one").unwrap();
        ledger.close().unwrap();
        assert!(ledger.note_process(one, "late").is_err());
        // As after a sweep that was killed: the next owner opened the place again.
        fs::create_dir_all(ledger.path.join(PROCESSES)).unwrap();
        let (mut second, two) = sleeper();
        ledger.note_process(two, "two").unwrap();
        ledger.sweep().unwrap();
        first.wait().unwrap();
        second.wait().unwrap();
        assert!(!one.is_alive() && !two.is_alive());
    }
}
