// SPDX-License-Identifier: Apache-2.0
//! A process as a container runtime would start it.

use std::ffi::OsString;
use std::process::{Command, Output};

use ferrolb_linux::container::{Capability, Content, Mount, Spec, enter_and_exec};

use crate::support::{Bench, is_root};

const HELPER: &str = "containers::helper_process_that_becomes_the_program";

/// Not a test of its own: the process that [`run`] starts.
#[test]
fn helper_process_that_becomes_the_program() {
    let Ok(spec) = std::env::var("FERROLB_TEST_SPEC") else { return };
    let spec: Spec = serde_json::from_str(&spec).unwrap();
    let script = std::env::var_os("FERROLB_TEST_SCRIPT").unwrap();
    let argv = ["/bin/sh".into(), "-c".into(), script];
    panic!("{}", enter_and_exec(&spec, &argv.map(|part: OsString| part)));
}

/// Runs a shell script as the specification says.
fn run(spec: &Spec, script: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", HELPER, "--nocapture", "--test-threads=1"])
        .env("FERROLB_TEST_SPEC", serde_json::to_string(spec).unwrap())
        .env("FERROLB_TEST_SCRIPT", format!("echo; {script}")) // ends the line that the harness began
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // What the test harness prints before it is replaced.
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with("running ") && !line.starts_with("test "))
        .map(str::to_owned)
        .collect()
}

/// A shell and the programs it needs, in a container that is otherwise empty.
fn with_shell(mut spec: Spec) -> Spec {
    for path in ["/bin", "/usr/bin"] {
        spec.mounts.push(Mount {
            target: path.into(),
            content: Content::Bind { source: path.into(), read_only: true },
        });
    }
    spec
}

#[test]
fn a_speaker_has_net_raw_and_nothing_else() {
    if !is_root("a_speaker_has_net_raw_and_nothing_else") {
        return;
    }
    let mut bench = Bench::new();
    let host = bench.host("host");
    let mut spec = with_shell(Spec::container(host.name()));
    spec.capabilities = vec![Capability::NET_RAW];
    let output =
        run(&spec, "grep -E '^(Uid|Cap|NoNewPrivs)' /proc/self/status; cat /proc/sys/net/ipv4/ip_forward");
    assert_eq!(
        lines(&output),
        [
            "Uid:\t0\t0\t0\t0",
            "CapInh:\t0000000000000000",
            "CapPrm:\t0000000000002000",
            "CapEff:\t0000000000002000",
            "CapBnd:\t0000000000002000",
            "CapAmb:\t0000000000000000",
            "NoNewPrivs:\t1",
            "0",
        ]
    );
}

#[test]
fn a_controller_is_nobody_with_nothing() {
    if !is_root("a_controller_is_nobody_with_nothing") {
        return;
    }
    let mut bench = Bench::new();
    let host = bench.host("host");
    let mut spec = with_shell(Spec::container(host.name()));
    (spec.user, spec.group) = (65534, 65534);
    let script = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs)' /proc/self/status";
    let nothing = |user: &str| {
        vec![
            format!("Uid:\t{user}\t{user}\t{user}\t{user}"),
            format!("Gid:\t{user}\t{user}\t{user}\t{user}"),
            "Groups:\t ".to_owned(),
            "CapInh:\t0000000000000000".to_owned(),
            "CapPrm:\t0000000000000000".to_owned(),
            "CapEff:\t0000000000000000".to_owned(),
            "CapBnd:\t0000000000000000".to_owned(),
            "CapAmb:\t0000000000000000".to_owned(),
            "NoNewPrivs:\t1".to_owned(),
        ]
    };
    assert_eq!(lines(&run(&spec, script)), nothing("65534"));

    // Any user but 0 keeps a capability over exec only as an ambient one.
    spec.capabilities = vec![Capability::NET_RAW];
    let kept = lines(&run(&spec, "grep -E '^Cap(Eff|Bnd)' /proc/self/status"));
    assert_eq!(kept, ["CapEff:\t0000000000002000", "CapBnd:\t0000000000002000"]);
}

#[test]
fn a_container_sees_its_own_files_interfaces_and_name_and_leaves_nothing_behind() {
    if !is_root("a_container_sees_its_own_files_interfaces_and_name_and_leaves_nothing_behind") {
        return;
    }
    let mut bench = Bench::new();
    let (host, _other) = bench.pair(true);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("token"), "secret").unwrap();
    let mut spec = with_shell(Spec::container(host.name()));
    spec.hostname = Some("speaker-abcde".to_owned());
    spec.environment =
        Some(vec![("POD".to_owned(), "speaker".to_owned()), ("PATH".to_owned(), "/bin".to_owned())]);
    let directory = "/var/run/secrets/kubernetes.io/serviceaccount";
    spec.mounts.push(Mount {
        target: directory.into(),
        content: Content::Bind { source: outside.path().into(), read_only: true },
    });
    spec.mounts.push(Mount {
        target: "/etc/ferrolb".into(),
        content: Content::Files(vec![("config.yaml".to_owned(), "a: 1".to_owned())]),
    });
    spec.mounts.push(Mount { target: "/scratch".into(), content: Content::Scratch(1 << 20) });
    let script = format!(
        "cat {directory}/token; echo; cat /etc/ferrolb/config.yaml; echo; ls /sys/class/net; hostname; echo $POD
         ls /etc; echo x > /scratch/x && cat /scratch/x
         for f in /etc/ferrolb/x /x {directory}/x /proc/sys/net/ipv4/ip_forward; do
           (echo 1 > $f) 2>/dev/null && echo \"$f can be written\"
         done; true"
    );
    let seen = lines(&run(&spec, &script));
    assert_eq!(seen, ["secret", "a: 1", "ens18", "lo", "speaker-abcde", "speaker", "ferrolb", "x"]);
    assert!(!std::path::Path::new("/scratch").exists());
    assert!(!std::path::Path::new("/etc/ferrolb").exists());
}

#[test]
fn a_helper_without_its_program_or_namespace_says_which() {
    if !is_root("a_helper_without_its_program_or_namespace_says_which") {
        return;
    }
    let error = |spec: &Spec| String::from_utf8_lossy(&run(spec, "true").stderr).into_owned();
    let missing = error(&Spec::host("flt-no-such-namespace"));
    assert!(missing.contains("open the network namespace flt-no-such-namespace: No such file"), "{missing}");
    let mut bench = Bench::new();
    let host = bench.host("host");
    let empty = error(&Spec::container(host.name()));
    assert!(empty.contains("start /bin/sh: No such file"), "{empty}");
}
