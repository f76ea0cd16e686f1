// SPDX-License-Identifier: Apache-2.0
//! One cluster of ours and of serf's agents (memberlist 0.2.2 in Debian), the second witness of the wire: an older encoder
//! of messages, payloads in acknowledgements, metadata, user messages, an application's state in every exchange.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring};
use ferrolb_gossip::{Name, Settings};

use super::shell::{Ask, Shell};
use super::{SECRET, address, names, wait_for};

/// What `KeyRule::Truncated` makes of the secret, in base64.
const KEY: &str = "Wm05dlltRnlZbUY2Y1hWNFptOXZZZ+OwxEKY/BwUmvs=";

struct Agent {
    process: Child,
    rpc: String,
}

impl Agent {
    fn start(name: &str, number: u8) -> Option<Self> {
        let rpc = format!("127.0.0.1:{}", 17_300 + u16::from(number));
        let process = Command::new("serf")
            .args([
                "agent",
                "-node",
                name,
                "-bind",
                &address(number).to_string(),
                "-rpc-addr",
                &rpc,
                "-encrypt",
                KEY,
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some(Self { process: process.ok()?, rpc })
    }

    fn join(&self, number: u8) {
        let ip = address(number).ip().to_string();
        wait_for("its agent answers and joins", || {
            Command::new("serf")
                .args(["join", "-rpc-addr", &self.rpc, &ip])
                .output()
                .is_ok_and(|output| output.status.success())
        });
    }

    /// Who is alive by its word.
    fn members(&self) -> BTreeSet<Name> {
        let output =
            Command::new("serf").args(["members", "-rpc-addr", &self.rpc, "-status", "alive"]).output();
        let text = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(Name::from)
            .collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn ours_and_serfs_agents_share_one_cluster() {
    let Some(one) = Agent::start("agent-11", 11) else {
        crate::skipped("serf is not installed");
        return;
    };
    let key = Key::of_secret(SECRET, KeyRule::Truncated).unwrap();
    let codec = Codec::new(Some(Keyring::new(key, Vec::new())));
    // Its application has versions, and refuses who has none.
    let settings =
        Settings { versions: [1, 5, 2, 2, 5, 5], ..Settings::plain("our-12".into(), address(12), codec) };
    let two = Shell::start(settings);
    one.join(12);
    let pair = names(&["agent-11", "our-12"]);
    wait_for("an agent joins ours", || two.members() == pair && one.members() == pair);
    let three = Agent::start("agent-13", 13).unwrap();
    wait_for("an agent is there", || !three.members().is_empty());
    let all = names(&["agent-11", "our-12", "agent-13"]);
    wait_for("ours joins an agent", || {
        // An agent answers its command line before its port is open.
        if !two.members().contains(&Name::from("agent-13")) {
            two.ask(Ask::Join(vec![address(13)]));
        }
        two.members() == all && one.members() == all && three.members() == all
    });

    two.ask(Ask::Isolate(true));
    let agents = names(&["agent-11", "agent-13"]);
    wait_for("they give each other up", || {
        two.members() == names(&["our-12"]) && one.members() == agents && three.members() == agents
    });
    two.ask(Ask::Isolate(false));
    wait_for("they are one again", || {
        // As memberlist has it, one exchange makes each side overrule what the other holds, the next one tells it.
        two.ask(Ask::Join(vec![address(11), address(13)]));
        two.members() == all && one.members() == all && three.members() == all
    });

    drop(three);
    wait_for("ours misses an agent that died", || two.members() == pair);
    two.ask(Ask::Leave);
    wait_for("ours leaves", || one.members() == names(&["agent-11"]));
    two.ask(Ask::Stop);
}
