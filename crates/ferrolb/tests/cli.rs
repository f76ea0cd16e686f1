// SPDX-License-Identifier: Apache-2.0
//! The programs as a person or a manifest calls them: names, exit codes, what goes to which stream.
#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test")]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What images hold.
const BINARY: &str = env!("CARGO_BIN_EXE_ferrolb-daemons");
/// What a developer has: the same, and more.
const WHOLE: &str = env!("CARGO_BIN_EXE_ferrolb");

/// What the daemons need before anything else is looked at.
const NEEDED: &[&str] = &["--namespace=metallb-system", "--pod-name=p"];

fn call(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env.iter().copied());
    command.output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn ferrolb(args: &[&str], env: &[(&str, &str)]) -> Output {
    call(Path::new(BINARY), args, env)
}

#[test]
fn images_hold_no_bench_and_the_whole_program_has_everything_that_they_hold() {
    for word in ["lab", "sim", "__fakekube", "__metallb-speaker"] {
        let refused = ferrolb(&[word], &[]);
        assert_eq!(code(&refused), 2, "{word}");
        assert!(
            stderr(&refused).contains(&format!("unrecognized subcommand '{word}'")),
            "{}",
            stderr(&refused)
        );
    }
    let whole = |args: &[&str]| call(Path::new(WHOLE), args, &[]);
    assert!(stdout(&whole(&["lab", "--help"])).contains("ferrolb lab"));
    for args in [
        &["crds"][..],
        &["manifests", "-o", "json"],
        &["version"],
        &["controller", "-h"],
        &["speaker", "--no-such-flag"],
    ] {
        assert_eq!(whole(args), ferrolb(args, &[]), "{args:?}");
    }
    let help = stdout(&whole(&["--help"]));
    for line in stdout(&ferrolb(&["--help"], &[])).lines().filter(|line| line.starts_with("  ferrolb ")) {
        assert!(help.contains(line), "{line:?} is not in {help}");
    }
}

#[test]
fn help_shows_examples_and_a_wrong_subcommand_ends_with_two() {
    let help = ferrolb(&["--help"], &[]);
    assert_eq!(code(&help), 0);
    assert!(stdout(&help).contains("ferrolb crds | kubectl apply -f -"), "{}", stdout(&help));
    let wrong = ferrolb(&["fly"], &[]);
    assert_eq!(code(&wrong), 2);
    assert!(stderr(&wrong).contains("fly"));
}

#[test]
fn crds_are_printed_in_both_forms() {
    let yaml = ferrolb(&["crds"], &[]);
    assert_eq!(code(&yaml), 0);
    assert_eq!(stdout(&yaml).matches("\nkind: CustomResourceDefinition\n").count(), 9);
    let json = ferrolb(&["crds", "-o", "json"], &[]);
    let list: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 9);
}

#[test]
fn the_version_is_printed_for_people_and_for_programs() {
    assert_eq!(stdout(&ferrolb(&["version"], &[])), format!("ferrolb {}\n", env!("CARGO_PKG_VERSION")));
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&ferrolb(&["version", "-o", "json"], &[]))).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_link_named_as_a_daemon_is_that_daemon_with_go_s_flags() {
    let directory = tempfile::tempdir().unwrap();
    for (name, of) in [("controller", BINARY), ("speaker", BINARY), ("controller", WHOLE), ("speaker", WHOLE)]
    {
        let program = directory.path().join(name);
        let _ = std::fs::remove_file(&program);
        symlink(of, &program).unwrap();
        let help = call(&program, &["-h"], &[]);
        assert_eq!(code(&help), 0, "{name}");
        assert!(stderr(&help).starts_with(&format!("Usage of {name}:\n  -")), "{}", stderr(&help));
        let unknown = call(&program, &["-no-such-flag"], &[]);
        assert_eq!(code(&unknown), 2, "{name}");
        let text = stderr(&unknown);
        assert!(
            text.starts_with(&format!("flag provided but not defined: -no-such-flag\nUsage of {name}:\n"))
        );
        assert_eq!(ferrolb(&[name, "-no-such-flag"], &[]), unknown, "the subcommand is the same");
    }
}

#[test]
fn what_a_daemon_cannot_start_with_is_named_and_ends_with_one() {
    let bad_config = [("KUBECONFIG", "/nowhere/config")];
    for (daemon, args, env, text) in [
        ("controller", &["--log-level=loud"][..], &[][..], "failed to parse log level: loud"),
        ("controller", &["--webhook-mode=maybe"], &[], "invalid webhookmode value: --webhook-mode=maybe"),
        ("controller", &[], &[("FERROLB_LEVEL", "C")], "FERROLB_LEVEL"),
        ("controller", &[], &bad_config, "kubeconfig /nowhere/config (KUBECONFIG): cannot be read"),
        (
            "controller",
            &["--kubeconfig=/nowhere/flag"],
            &bad_config,
            "kubeconfig /nowhere/flag (--kubeconfig)",
        ),
        ("controller", &["--tls-cipher-suites=X"], &[], "cipher suites cannot be configured with TLS 1.3"),
        ("speaker", &[], &[], "must specify --node-name or METALLB_NODE_NAME"),
        (
            "speaker",
            &["--node-name=n"],
            &[("FERROLB_ML_KEY_RULE", "md5")],
            "environment variable FERROLB_ML_KEY_RULE=md5: not a rule",
        ),
        (
            "speaker",
            &["--node-name=n"],
            &[("METALLB_BGP_TYPE", "bird")],
            "unsupported BGP implementation type: bird (environment variable METALLB_BGP_TYPE)",
        ),
        ("controller", &["--namespace=a/b"], &[], "flag --namespace=a/b: not the name of a namespace"),
        (
            "speaker",
            &["--node-name=n", "--ml-labels=a"],
            &[("METALLB_ML_BIND_ADDR", "here")],
            "environment variable METALLB_ML_BIND_ADDR=here: not an IP address",
        ),
        (
            "speaker",
            &["--node-name=n"],
            &[("FERROLB_BGP_GRACEFUL_SHUTDOWN", "soon")],
            "FERROLB_BGP_GRACEFUL_SHUTDOWN",
        ),
        ("speaker", &["--node-name=n"], &[], "no Kubernetes API server is configured"),
    ] {
        let all: Vec<&str> =
            [daemon].into_iter().chain(NEEDED.iter().copied()).chain(args.iter().copied()).collect();
        let output = ferrolb(&all, env);
        assert_eq!(code(&output), 1, "{all:?}");
        assert!(stderr(&output).starts_with(&format!("{daemon}: ")), "{}", stderr(&output));
        assert!(stderr(&output).contains(text), "{text:?} is not in {}", stderr(&output));
    }
}

#[test]
fn arguments_and_variables_that_are_no_text_are_named() {
    use std::os::unix::ffi::OsStrExt as _;
    let raw = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    let all = |daemon: &'static str| [daemon, NEEDED[0], NEEDED[1], "--node-name=n"].map(OsStr::new).to_vec();
    let refused = |args: &[&OsStr], env: &[(&str, &OsStr)], expected: i32, text: &str| {
        let mut command = Command::new(BINARY);
        let output = command.args(args).env_clear().envs(env.iter().copied()).output().unwrap();
        assert_eq!(code(&output), expected, "{args:?} {env:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(text), "{text:?} is not in {}", stderr(&output));
    };
    for first in ["speaker", "controller", "lab", "crds", "version"] {
        let args = [OsStr::new(first), raw(b"--namespace=\xff")];
        refused(&args, &[], 2, "argument 2 is not UTF-8: \"--namespace=\\xFF\"");
    }
    // Those that stand in for a flag are the command line's, the others settings.
    for (daemon, name, expected) in [
        ("speaker", "METALLB_NODE_NAME", 2),
        ("speaker", "METALLB_NAMESPACE", 2),
        ("speaker", "METALLB_POD_NAME", 2),
        ("speaker", "METALLB_ML_BIND_ADDR", 2),
        ("speaker", "METALLB_ML_BIND_PORT", 2),
        ("speaker", "METALLB_ML_LABELS", 2),
        ("speaker", "METALLB_ML_SECRET_KEY_PATH", 2),
        ("speaker", "METALLB_HOST", 2),
        ("speaker", "METALLB_BGP_DEBOUNCE_TIMEOUT", 2),
        ("speaker", "FRRK8S_NAMESPACE", 2),
        ("speaker", "METALLB_BGP_TYPE", 1),
        ("speaker", "FERROLB_ML_KEY_RULE", 1),
        ("speaker", "FERROLB_LEVEL", 1),
        ("speaker", "FERROLB_BGP_GRACEFUL_SHUTDOWN", 1),
        ("controller", "METALLB_NAMESPACE", 2),
        ("controller", "METALLB_POD_NAME", 2),
        ("controller", "METALLB_DEPLOYMENT", 2),
        ("controller", "METALLB_ML_SECRET_NAME", 2),
        ("controller", "METALLB_BGP_TYPE", 1),
        ("controller", "FERROLB_LEVEL", 1),
    ] {
        let args = if daemon == "speaker" { all(daemon) } else { all(daemon)[..3].to_vec() };
        let text = format!("environment variable {name} is not UTF-8: \"a\\xFF\"");
        refused(&args, &[(name, raw(b"a\xff"))], expected, &text);
    }
}

#[test]
fn every_line_of_the_log_is_json() {
    let output = ferrolb(&["controller", "--namespace=m", "--pod-name=p"], &[("KUBECONFIG", "/nowhere")]);
    let log = stdout(&output);
    assert!(log.lines().count() >= 2, "{log}");
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(["caller", "level", "msg", "ts"].iter().all(|key| line[key].is_string()), "{line}");
    }
    assert!(log.contains("MetalLB controller starting version "), "{log}");
}

#[test]
fn a_type_of_bgp_that_is_served_is_not_advised_against() {
    for daemon in ["controller", "speaker"] {
        let args = [daemon, NEEDED[0], NEEDED[1]];
        let env = [("KUBECONFIG", "/nowhere"), ("METALLB_NODE_NAME", "n"), ("METALLB_BGP_TYPE", "frr")];
        let log = stdout(&ferrolb(&args, &env));
        assert!(log.contains(" starting version "), "{log}");
        assert!(!log.contains("deprecated") && !log.contains("migrate"), "{log}");
    }
}

#[test]
fn each_signal_to_stop_ends_a_daemon_cleanly() {
    // Nobody serves there: the daemons wait for it, and would for ever.
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), kubeconfig.to_string()).unwrap();
    for (daemon, signal) in
        [("controller", "TERM"), ("speaker", "TERM"), ("speaker", "INT"), ("speaker", "QUIT")]
    {
        let mut child = Command::new(BINARY)
            .arg(daemon)
            .args(NEEDED)
            .args(["--port=0", "--health-probe-port=0"])
            .env_clear()
            .env("METALLB_NODE_NAME", "n")
            .env("KUBECONFIG", file.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut without_metrics = false;
        let started = log.any(|line| {
            let line = line.unwrap();
            without_metrics |= line.contains("metrics are not served");
            line.contains("Starting Manager")
        });
        assert!(started, "{daemon} does not start");
        assert!(without_metrics, "{daemon}: --port=0 turns the metrics off");
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status();
        assert!(sent.unwrap().success());
        let rest: Vec<String> = log.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{daemon}, SIG{signal}: {rest:?}");
    }
}
