// SPDX-License-Identifier: Apache-2.0
//! The speaker's Pod of MetalLB's manifest for FRR, without its image of FRR: every command of the image that is ours, under
//! the name, with the arguments and the variables of that manifest.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test")]

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ferrolb_linux::netns::{self, Namespace};

const BINARY: &str = env!("CARGO_BIN_EXE_ferrolb-daemons");

/// Far beyond every bound.
const PATIENCE: Duration = Duration::from_secs(20);

/// The network of the Pod: its ports are the manifest's, and may be in use outside.
struct Network(Namespace);

impl Network {
    /// `None` where no network can be made.
    fn make() -> Option<Self> {
        let network = match Namespace::create(&format!("frr-pod-{}", std::process::id())) {
            Ok(namespace) => Self(namespace),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            Err(error) => panic!("{error}"),
        };
        let up = network.spawn(Command::new("ip").args(["link", "set", "lo", "up"])).wait();
        assert!(up.unwrap().success());
        Some(network)
    }

    fn spawn(&self, command: &mut Command) -> Child {
        self.0.run(|| command.spawn()).unwrap().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = netns::delete(self.0.name());
    }
}

/// A container that runs; it ends with this.
struct Container(Child);

impl Container {
    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Ends it as the kubelet does; the exit code.
    fn stop(mut self) -> Option<i32> {
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.0.id())]).status();
        assert!(sent.unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The root of the speaker's image, with these names for its program.
fn image(root: &Path) -> PathBuf {
    let image = root.join("image");
    std::fs::create_dir(&image).unwrap();
    std::fs::copy(BINARY, image.join("ferrolb")).unwrap();
    for name in ["speaker", "cp-tool", "frr-metrics", "frr-reloader.sh"] {
        symlink("ferrolb", image.join(name)).unwrap();
    }
    image
}

/// An API server at which nobody serves, as a kubeconfig.
fn nobody(directory: &Path) -> PathBuf {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    });
    let path = directory.join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

#[test]
fn every_helper_of_metallbs_frr_manifest_answers_in_its_container() {
    let Some(network) = Network::make() else {
        // Not eprintln, which the harness keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED frr_pod: needs root (network namespaces)");
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let (image, kubeconfig) = (image(root.path()), nobody(root.path()));
    let volume = |name: &str| {
        let path = root.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (reloader, metrics) = (volume("frr_reloader"), volume("frr_metrics"));

    // Init containers cp-reloader and cp-metrics, of the speaker's image.
    for (tool, volume) in [("frr-reloader.sh", &reloader), ("frr-metrics", &metrics)] {
        let copied = Command::new(image.join("cp-tool"))
            .args([image.join(tool), volume.join(tool)])
            .env_clear()
            .status();
        assert!(copied.unwrap().success(), "{tool}");
    }
    // The containers of FRR's image have the volumes alone.
    let hidden = root.path().join("elsewhere");
    std::fs::rename(&image, &hidden).unwrap();
    let mut command = Command::new(reloader.join("frr-reloader.sh"));
    let mut reloads = Container(network.spawn(command.env_clear()));
    let mut command = Command::new(metrics.join("frr-metrics"));
    command.args(["--metrics-port=9121", "--metrics-bind-address=0.0.0.0"]);
    command.env_clear().env("VTYSH_HISTFILE", "/dev/null").env("KUBECONFIG", &kubeconfig);
    let mut counts = Container(network.spawn(&mut command));

    // As the kubelet asks: over TLS, whoever has signed the certificate, without a name.
    let ask = |path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sk", "--max-time", "5", "-o", "/dev/null", "-w", "%{http_code}"]);
        curl.arg(format!("https://127.0.0.1:9121{path}")).stdout(Stdio::piped());
        let said = network.spawn(&mut curl).wait_with_output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let end = Instant::now() + PATIENCE;
    while ask("/livez") != "200" {
        assert!(counts.runs() && Instant::now() < end, "the startup probe fails: {}", ask("/livez"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(ask("/metrics"), "401", "counters are for those alone who may read them");
    assert!(reloads.runs() && counts.runs());

    // Container speaker, which waits for the API server.
    let mut command = Command::new(hidden.join("speaker"));
    command.args(["--port=9120", "--log-level=info"]).env_clear().envs([
        ("METALLB_NODE_NAME", "n"),
        ("METALLB_POD_NAME", "speaker-0"),
        ("METALLB_NAMESPACE", "metallb-system"),
        ("METALLB_BGP_TYPE", "frr"),
        ("FRR_CONFIG_FILE", "/etc/frr_reloader/frr.conf"),
        ("FRR_RELOADER_PID_FILE", "/etc/frr_reloader/reloader.pid"),
    ]);
    let mut speaks = network.spawn(command.env("KUBECONFIG", &kubeconfig).stdout(Stdio::piped()));
    let mut log = BufReader::new(speaks.stdout.take().unwrap()).lines().map(Result::unwrap);
    let speaks = Container(speaks);
    assert!(log.any(|line| line.contains("Starting Manager")), "the speaker does not start");

    for (name, container) in [("speaker", speaks), ("reloader", reloads), ("frr-metrics", counts)] {
        assert_eq!(container.stop(), Some(0), "{name}");
    }
}
