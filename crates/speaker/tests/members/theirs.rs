// SPDX-License-Identifier: Apache-2.0
//! Members that are not ours, as processes in a host's namespace.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use ferrolb_gossip::VERSIONS;

use crate::bench::{Bench, PATIENCE, ip, skipped, wait_for};
use crate::peer::build;

/// What `KeyRule::Truncated` makes of the secret: in hexadecimal, and in base64.
const KEY: &str = "5a6d3976596d4679596d4636635856345a6d39765967e3b0c44298fc1c149afb";
const KEY_BASE64: &str = "Wm05dlltRnlZbUY2Y1hWNFptOXZZZ+OwxEKY/BwUmvs=";

pub(crate) enum Kind {
    Memberlist,
    Serf,
}

/// A kind of theirs that can be had here.
pub(crate) enum Available {
    Memberlist(PathBuf),
    Serf,
}

impl Kind {
    pub(crate) fn available(self, test: &str) -> Option<Available> {
        match self {
            Self::Memberlist => {
                let program = build();
                if program.is_none() {
                    skipped(test, "no Go toolchain here can build tests/peers/memberlist");
                }
                program.map(Available::Memberlist)
            }
            Self::Serf => {
                let there = Command::new("serf").arg("version").output().is_ok();
                if !there {
                    skipped(test, "serf is not installed");
                }
                there.then_some(Available::Serf)
            }
        }
    }
}

impl Available {
    /// The versions that they want a member to have: serf's application has some of its own.
    pub(crate) const fn versions(&self) -> [u8; 6] {
        match self {
            Self::Memberlist(_) => VERSIONS,
            Self::Serf => [1, 5, 2, 2, 5, 5],
        }
    }
}

/// One of theirs. Dropping it kills it.
pub(crate) struct Theirs {
    process: Mutex<Child>,
    talk: Talk,
}

enum Talk {
    Lines {
        input: Mutex<ChildStdin>,
        lines: Mutex<Receiver<String>>,
    },
    /// By commands in the namespace of this name.
    Serf {
        namespace: String,
    },
}

impl Theirs {
    /// Starts one on a host; its name is `their-` and the host's number.
    pub(crate) fn start(bench: &Bench, kind: &Available, host: usize) -> Self {
        let name = format!("their-{host}");
        let address = ip(host).to_string();
        let mut command = match kind {
            Available::Memberlist(program) => {
                let mut command = Command::new(program);
                command.args([&name, &address, KEY]).stdin(Stdio::piped()).stdout(Stdio::piped());
                command
            }
            Available::Serf => {
                let mut command = Command::new("serf");
                let bind = format!("{address}:7946");
                command.args(["agent", "-node", &name, "-bind", &bind, "-encrypt", KEY_BASE64]);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command
            }
        };
        // A child is where the thread is that starts it.
        let mut process = bench.hosts[host].run(|| command.spawn().unwrap()).unwrap();
        let talk = match kind {
            Available::Memberlist(_) => {
                let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
                let (sender, lines) = channel();
                std::thread::spawn(move || {
                    for line in BufReader::new(output).lines().map_while(Result::ok) {
                        if sender.send(line).is_err() {
                            return;
                        }
                    }
                });
                Talk::Lines { input: Mutex::new(input), lines: Mutex::new(lines) }
            }
            Available::Serf => Talk::Serf { namespace: bench.hosts[host].name().to_owned() },
        };
        let theirs = Self { process: Mutex::new(process), talk };
        match &theirs.talk {
            Talk::Lines { .. } => {
                theirs.answer("ready");
            }
            Talk::Serf { .. } => wait_for("an agent is there", || !theirs.members().is_empty()),
        }
        theirs
    }

    /// Who is alive by its word.
    pub(crate) fn members(&self) -> BTreeSet<String> {
        match &self.talk {
            Talk::Lines { .. } => {
                self.ask("members");
                self.answer("members").split_whitespace().map(str::to_owned).collect()
            }
            Talk::Serf { .. } => self.serf_members("alive"),
        }
    }

    /// Whether it holds somebody for dead. memberlist by itself only tells that it is no member; serf tells it from one
    /// that has left.
    pub(crate) fn calls_dead(&self, name: &str) -> bool {
        match &self.talk {
            Talk::Lines { .. } => !self.members().contains(name),
            Talk::Serf { .. } => self.serf_members("failed").contains(name),
        }
    }

    /// Those that have this status by serf's word.
    fn serf_members(&self, status: &str) -> BTreeSet<String> {
        let said = self.serf(&["members", "-status", status]).unwrap_or_default();
        said.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    }

    pub(crate) fn join(&self, _bench: &Bench, host: usize) {
        let address = ip(host).to_string();
        match &self.talk {
            Talk::Lines { .. } => {
                self.ask(&format!("join {address}"));
                assert_eq!(self.answer("joined"), "1");
            }
            Talk::Serf { .. } => wait_for("its agent joins", || self.serf(&["join", &address]).is_some()),
        }
    }

    pub(crate) fn leave(&self) {
        match &self.talk {
            Talk::Lines { .. } => {
                self.ask("leave");
                self.answer("left");
            }
            Talk::Serf { .. } => assert!(self.serf(&["leave"]).is_some()),
        }
    }

    fn ask(&self, command: &str) {
        if let Talk::Lines { input, .. } = &self.talk {
            writeln!(input.lock().unwrap(), "{command}").unwrap();
        }
    }

    /// The rest of the next line that starts with this word; events in between are passed over.
    fn answer(&self, word: &str) -> String {
        let Talk::Lines { lines, .. } = &self.talk else { return String::new() };
        loop {
            let line = lines.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// What a command of serf's says, if it succeeds.
    fn serf(&self, args: &[&str]) -> Option<String> {
        let Talk::Serf { namespace } = &self.talk else { return None };
        let output =
            Command::new("ip").args(["netns", "exec", namespace, "serf"]).args(args).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap();
        // It may have left by itself.
        process.kill().ok();
        process.wait().ok();
    }
}
