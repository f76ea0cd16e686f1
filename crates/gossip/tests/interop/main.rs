// SPDX-License-Identifier: Apache-2.0
//! One cluster of ours and of hashicorp/memberlist 0.5.1 itself, the version within MetalLB v0.16.1, or of serf's agents,
//! encrypted, over loopback addresses: join, kill, restart, leave, reading, metadata, partition and heal, in both directions.
//!
//! Needs a Go toolchain (1.20 or newer) that has or can get the module, whose sums are pinned; skipped loudly without.

// The engine has no sockets, clock or threads; whoever tests it against a stranger needs them.
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)]

mod peer;
mod serf;
mod shell;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring};
use ferrolb_gossip::{Change, Name, Role, Settings};
use peer::build;
use shell::{Ask, Shell};

const SECRET: &[u8] = b"Zm9vYmFyYmF6cXV4Zm9vYg";
/// What `KeyRule::Truncated` makes of it.
const KEY: &str = "5a6d3976596d4679596d4636635856345a6d39765967e3b0c44298fc1c149afb";
/// Far beyond every bound of the protocol: what is asserted is that it happens, not how fast.
const PATIENCE: Duration = Duration::from_secs(120);

fn address(number: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 79, 46, number)), 7946)
}

fn names(names: &[&str]) -> BTreeSet<Name> {
    names.iter().map(|name| Name::from(*name)).collect()
}

#[track_caller]
fn wait_for(what: &str, holds: impl FnMut() -> bool) {
    assert!(wait(holds), "in vain: {what}");
}

fn wait(mut holds: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn ours(name: &str, number: u8, role: Role) -> Shell {
    let key = Key::of_secret(SECRET, KeyRule::Truncated).unwrap();
    let codec = Codec::new(Some(Keyring::new(key, Vec::new())));
    Shell::start(Settings { role, ..Settings::speaker(name.into(), address(number), codec) })
}

/// A process of theirs.
struct Theirs {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    events: Vec<String>,
}

impl Theirs {
    fn start(program: &PathBuf, name: &str, number: u8) -> Self {
        let mut process = Command::new(program)
            .args([name, &address(number).ip().to_string(), KEY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut theirs = Self { process, input, lines, events: Vec::new() };
        theirs.answer("ready");
        theirs
    }

    /// The next line that starts with this word; events in between are kept.
    fn answer(&mut self, word: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            match line.strip_prefix(word) {
                Some(rest) => return rest.trim().to_owned(),
                None => self.events.push(line),
            }
        }
    }

    fn ask(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    fn members(&mut self) -> BTreeSet<Name> {
        self.ask("members");
        self.answer("members").split_whitespace().map(Name::from).collect()
    }

    fn join(&mut self, number: u8) {
        self.ask(&format!("join {}", address(number).ip()));
        assert_eq!(self.answer("joined"), "1");
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // It may have left by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Says that a test was not run, where it is seen though the test passes: what `eprintln!` says then is not.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

#[test]
fn ours_and_memberlists_members_share_one_cluster() {
    let Some(program) = build() else {
        skipped("no Go toolchain here can build tests/peers/memberlist");
        return;
    };

    // Joining, in both directions.
    let mut one = Theirs::start(&program, "their-1", 1);
    let two = ours("our-2", 2, Role::Member);
    two.ask(Ask::Join(vec![address(1)]));
    let pair = names(&["their-1", "our-2"]);
    wait_for("ours joins theirs", || two.members() == pair && one.members() == pair);
    let mut three = Theirs::start(&program, "their-3", 3);
    three.join(2);
    let all = names(&["their-1", "our-2", "their-3"]);
    wait_for("theirs joins ours", || two.members() == all && one.members() == all && three.members() == all);

    // A reader sees and is not seen; then it is.
    let four = ours("our-4", 4, Role::Reader);
    four.ask(Ask::Join(vec![address(1)]));
    wait_for("a reader reads", || four.members() == all);
    assert_eq!((one.members(), three.members()), (all.clone(), all.clone()));
    four.ask(Ask::Participate);
    four.ask(Ask::Join(vec![address(1)]));
    four.ask(Ask::Metadata(b"eth0".to_vec()));
    let with_four = names(&["their-1", "our-2", "their-3", "our-4"]);
    wait_for("it participates", || one.members() == with_four && two.members() == with_four);
    wait_for("its metadata arrives", || {
        one.ask("meta our-4");
        one.answer("meta") == "65746830"
    });

    // A death, in both directions, and coming back under the same name.
    four.ask(Ask::Stop);
    wait_for("theirs miss ours that died", || one.members() == all && three.members() == all);
    drop(three);
    wait_for("ours miss theirs that died", || two.members() == pair);
    assert!(
        two.view.lock().unwrap().changes.iter().any(|(change, name)| {
            matches!(change, Change::Died { .. }) && *name == Name::from("their-3")
        })
    );
    let mut three = Theirs::start(&program, "their-3", 3);
    three.join(1);
    wait_for("theirs comes back", || two.members() == all && one.members() == all && three.members() == all);

    // Apart and together again: theirs never try again by themselves, ours do.
    two.ask(Ask::Candidates(vec![address(1), address(2), address(3)]));
    two.ask(Ask::Isolate(true));
    wait_for("they give each other up", || {
        two.members() == names(&["our-2"]) && one.members() == names(&["their-1", "their-3"])
    });
    two.ask(Ask::Isolate(false));
    wait_for("they are one again", || two.members() == all && one.members() == all && three.members() == all);

    // Leaving, in both directions.
    three.ask("leave");
    wait_for("theirs leaves", || two.members() == pair);
    assert!(two.view.lock().unwrap().changes.contains(&(Change::Left, "their-3".into())));
    two.ask(Ask::Leave);
    wait_for("ours leaves", || one.members() == names(&["their-1"]));
    wait_for("and knows when it may go", || two.view.lock().unwrap().left);
    two.ask(Ask::Stop);
}
