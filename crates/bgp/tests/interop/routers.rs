// SPDX-License-Identifier: Apache-2.0
//! Other people's BGP speakers as the router: GoBGP, BIRD and FRR, on loopback, each in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the story asks of a router.
pub(crate) trait Router {
    fn name(&self) -> &'static str;
    /// Where it listens.
    fn port(&self) -> u16;
    /// How many routes it has of a family.
    fn count(&self, ipv6: bool) -> usize;
    /// All that it says of a route; empty if it has none.
    fn route(&self, prefix: &str) -> String;
    /// All that it says of its peer.
    fn peer(&self) -> String;
    /// Asks for all routes again; `false` if it never does.
    fn refresh(&self) -> bool;
    /// Ends the session with this text.
    fn shut_down(&self, text: &str);
    /// What it has logged last.
    fn log(&self) -> String;
}

/// A port of this process's own, so that two runs do not meet.
fn port(number: u16) -> u16 {
    let process = u16::try_from(std::process::id() % 10_000).unwrap();
    20_000 + process * 4 + number
}

/// A daemon that ends with its owner, and its files with it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) directory: PathBuf,
}

impl Daemon {
    fn start(name: &str, config: &str, command: impl Fn(&Path) -> Command) -> Self {
        let directory = std::env::temp_dir().join(format!("ferrolb-bgp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("config"), config).unwrap();
        let log = || std::fs::File::options().append(true).create(true).open(directory.join("log")).unwrap();
        let mut command = command(&directory);
        let child = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn().unwrap();
        Self { child, directory }
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        log[log.floor_char_boundary(log.len().saturating_sub(4000))..].to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What a program says, on either output.
fn say(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn is_there(program: &str) -> bool {
    let probe = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok()
}

pub(crate) struct GoBgp(Daemon);

impl GoBgp {
    pub(crate) fn start() -> Option<Self> {
        let config = r#"
[global.config]
  as = 64513
  router-id = "127.0.0.1"
  port = PORT
  local-address-list = ["127.0.0.1"]
[[neighbors]]
  [neighbors.config]
    neighbor-address = "127.0.0.2"
    peer-as = 64512
  [neighbors.transport.config]
    passive-mode = true
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv6-unicast"
"#;
        let daemon = |directory: &Path| {
            let mut command = Command::new("gobgpd");
            command.args(["-f"]).arg(directory.join("config"));
            command.args(["--api-hosts", &format!("127.0.0.1:{}", port(3)), "--pprof-disable"]);
            command
        };
        let config = config.replace("PORT", &port(0).to_string());
        is_there("gobgpd").then(|| Self(Daemon::start("gobgp", &config, daemon)))
    }

    fn ask(arguments: &[&str]) -> String {
        say(Command::new("gobgp").args(["-u", "127.0.0.1", "-p", &port(3).to_string()]).args(arguments))
    }

    fn table(ipv6: bool) -> String {
        Self::ask(&["neighbor", "127.0.0.2", "adj-in", "-a", if ipv6 { "ipv6" } else { "ipv4" }])
    }
}

impl Router for GoBgp {
    fn name(&self) -> &'static str {
        "GoBGP"
    }

    fn port(&self) -> u16 {
        port(0)
    }

    fn count(&self, ipv6: bool) -> usize {
        Self::table(ipv6).lines().filter(|line| line.contains('/')).count()
    }

    fn route(&self, prefix: &str) -> String {
        let table = Self::table(prefix.contains(':'));
        table.lines().find(|line| line.contains(prefix)).unwrap_or_default().to_owned()
    }

    fn peer(&self) -> String {
        Self::ask(&["neighbor", "127.0.0.2"])
    }

    /// It remembers what it was told, and does not ask.
    fn refresh(&self) -> bool {
        false
    }

    fn shut_down(&self, text: &str) {
        Self::ask(&["neighbor", "127.0.0.2", "shutdown", "--reason", text]);
    }

    fn log(&self) -> String {
        self.0.log()
    }
}

pub(crate) struct Bird(Daemon);

impl Bird {
    pub(crate) fn start() -> Option<Self> {
        let config = r#"
log stderr all;
router id 127.0.0.1;
protocol device { }
protocol bgp tor {
  local 127.0.0.1 port PORT as 64513;
  neighbor 127.0.0.2 as 64512;
  multihop; strict bind on; passive on; error wait time 1, 2;
  ipv4 { import all; export none; };
  ipv6 { import all; export none; };
}
"#;
        let daemon = |directory: &Path| {
            let mut command = Command::new("bird");
            command
                .arg("-f")
                .arg("-c")
                .arg(directory.join("config"))
                .arg("-s")
                .arg(directory.join("control"));
            command
        };
        let config = config.replace("PORT", &port(1).to_string());
        is_there("bird").then(|| Self(Daemon::start("bird", &config, daemon)))
    }

    fn ask(&self, command: &str) -> String {
        say(Command::new("birdc").arg("-s").arg(self.0.directory.join("control")).args(command.split(' ')))
    }
}

impl Router for Bird {
    fn name(&self) -> &'static str {
        "BIRD"
    }

    fn port(&self) -> u16 {
        port(1)
    }

    fn count(&self, ipv6: bool) -> usize {
        let table = self.ask(&format!("show route protocol tor table master{}", if ipv6 { 6 } else { 4 }));
        table.lines().filter(|line| line.contains("[tor")).count()
    }

    fn route(&self, prefix: &str) -> String {
        let all = self.ask(&format!("show route {prefix} all"));
        if all.contains("[tor") { all } else { String::new() }
    }

    fn peer(&self) -> String {
        self.ask("show protocols all tor")
    }

    fn refresh(&self) -> bool {
        self.ask("reload in tor");
        true
    }

    fn shut_down(&self, text: &str) {
        self.ask(&format!("disable tor \"{text}\""));
    }

    fn log(&self) -> String {
        self.0.log()
    }
}

pub(crate) struct Frr(Daemon);

impl Frr {
    const DAEMON: &'static str = "/usr/lib/frr/bgpd";

    /// Needs root: the daemon wants its own user, and a socket for its shell.
    pub(crate) fn start() -> Option<Self> {
        let config = "
router bgp 64513
 bgp router-id 127.0.0.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 bgp log-neighbor-changes
 neighbor 127.0.0.2 remote-as 64512
 neighbor 127.0.0.2 passive
 neighbor 127.0.0.2 ebgp-multihop 2
 neighbor 127.0.0.2 disable-connected-check
 address-family ipv4 unicast
  neighbor 127.0.0.2 activate
  neighbor 127.0.0.2 maximum-prefix 1500
 exit-address-family
 address-family ipv6 unicast
  neighbor 127.0.0.2 activate
 exit-address-family
";
        let daemon = |directory: &Path| {
            let mut command = Command::new(Self::DAEMON);
            command
                .args(["-S", "-n", "-Z", "-l", "127.0.0.1", "-A", "127.0.0.1", "-P", "0", "-p"])
                .arg(port(2).to_string());
            command.arg("-f").arg(directory.join("config"));
            command.arg("--vty_socket").arg(directory).arg("-i").arg(directory.join("pid"));
            command.args(["--log", "stdout"]);
            command
        };
        let root = nix::unistd::geteuid().is_root();
        (root && is_there(Self::DAEMON)).then(|| Self(Daemon::start("frr", config, daemon)))
    }

    fn ask(&self, commands: &[&str]) -> String {
        let mut vtysh = Command::new("vtysh");
        vtysh.arg("--vty_socket").arg(&self.0.directory);
        vtysh.args(commands.iter().flat_map(|command| ["-c", command]));
        say(&mut vtysh)
    }
}

impl Router for Frr {
    fn name(&self) -> &'static str {
        "FRR"
    }

    fn port(&self) -> u16 {
        port(2)
    }

    fn count(&self, ipv6: bool) -> usize {
        let table = self.ask(&[&format!("show bgp {} unicast", if ipv6 { "ipv6" } else { "ipv4" })]);
        table.lines().filter(|line| line.contains("64512 i")).count()
    }

    fn route(&self, prefix: &str) -> String {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        let all = self.ask(&[&format!("show bgp {family} unicast {prefix}")]);
        if all.contains("64512") { all } else { String::new() }
    }

    fn peer(&self) -> String {
        self.ask(&["show bgp neighbors 127.0.0.2"])
    }

    fn refresh(&self) -> bool {
        self.ask(&["clear bgp 127.0.0.2 soft in"]);
        self.ask(&["clear bgp ipv6 127.0.0.2 soft in"]);
        true
    }

    fn shut_down(&self, text: &str) {
        let message = format!("neighbor 127.0.0.2 shutdown message {text}");
        self.ask(&["configure terminal", "router bgp 64513", &message]);
    }

    fn log(&self) -> String {
        self.0.log()
    }
}
