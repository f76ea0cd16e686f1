// SPDX-License-Identifier: Apache-2.0
//! Benches without the daemons: what the stand-ins do, what is refused, and that nothing stays.
//!
//! A bench starts its parts by starting its own program again; so this file has a `main` that is either a part or
//! runs the tests. It needs root and `nft`; without them it says so and passes.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use ferrolb_lab::{
    Bench, DEMO, Host, Interrupted, LabName, Options, PodView, Progress, Taken, cli, play, wait,
};
use ferrolb_linux::netns;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use nix::sys::signal::Signal;
use serde_json::json;

type Test = fn() -> Result<()>;

const TESTS: [(&str, Test); 4] = [
    ("traffic_reaches_the_pods_as_the_policy_says_and_nothing_stays_behind", traffic),
    ("a_pod_is_restarted_replaced_and_taken_for_lost_with_its_node", pods),
    ("a_second_lab_of_the_same_name_is_refused_and_a_story_that_fails_leaves_nothing", refused),
    ("a_signal_takes_the_bench_down", signals),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|argument| argument.starts_with("__")) {
        #[derive(clap::Parser)]
        struct Part {
            #[command(subcommand)]
            part: cli::Hidden,
        }
        return cli::run_hidden(Part::parse().part).unwrap_or_else(|error| {
            eprintln!("{error:#}");
            ExitCode::from(2)
        });
    }
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if !nix::unistd::geteuid().is_root() || !PathBuf::from("/usr/sbin/nft").exists() {
        eprintln!("SKIPPED: the benches of this file need root and nft");
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    let mut failed = false;
    for (name, test) in
        TESTS.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())))
    {
        let started = Instant::now();
        match test() {
            Ok(()) => println!("test {name} ... ok ({} ms)", started.elapsed().as_millis()),
            Err(error) => {
                println!("test {name} ... FAILED\n{error:?}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn traffic() -> Result<()> {
    let name = lab("traffic");
    play(&options(&name), async |bench| {
        let pods = hello(bench).await?;
        expose(bench, "Cluster", Host::Node1).await?;
        let names = ask(bench, Host::Client, 40).await?;
        for pod in &pods {
            ensure!(
                names.iter().any(|answer| answer.0 == pod.name),
                "{} never answered: {names:?}",
                pod.name
            );
        }
        let node = ["192.168.10.20", "172.20.1.1"];
        ensure!(
            names.iter().all(|(_, seen)| node.contains(&seen.as_str())),
            "not the node's address: {names:?}"
        );
        ensure!(!ask(bench, Host::Outside, 1).await?.is_empty(), "no answer outside");
        let other = bench.run(Host::Client, &["curl", "-sS", "-m", "2", "http://192.168.10.200:81/"]).await?;
        ensure!(other.code == Some(28), "a port of no Service: {other:?}");

        expose(bench, "Local", Host::Node2).await?;
        let there: Vec<&PodView> = pods.iter().filter(|pod| pod.node == Some(Host::Node2)).collect();
        for (name, seen) in ask(bench, Host::Client, 10).await? {
            ensure!(seen == "192.168.10.50" && there.iter().any(|pod| pod.name == name), "{name} saw {seen}");
        }
        let local = bench.requests(there.first().context("no Pod on k8s-node-2")?)?;
        ensure!(
            local.iter().any(|request| request.peer.ip() == Ipv4Addr::new(192, 168, 10, 50)),
            "{local:?}"
        );
        // The control plane has no Pod of the Service: who asks there gets nothing, those inside everything.
        point_at(bench, Host::Master1).await?;
        let dropped = bench.run(Host::Client, &["curl", "-sS", "-m", "1", "http://192.168.10.200/"]).await?;
        ensure!(dropped.code == Some(28), "without a Pod on the node: {dropped:?}");
        ensure!(ask(bench, Host::Master1, 1).await?.len() == 1, "no answer inside the cluster");

        let service = Api::<Service>::namespaced(bench.client().clone(), DEMO).get("hello-lb").await?;
        let port =
            service.spec.and_then(|spec| spec.health_check_node_port).context("no health check port")?;
        for (host, status, count) in
            [(Host::Master1, "503", "0"), (Host::Node1, "200", "1"), (Host::Node2, "200", "2")]
        {
            let url = format!("http://{}:{port}/", host.address());
            let told = bench.run(Host::Client, &["curl", "-si", "-m", "2", &url]).await?.success()?;
            ensure!(told.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {told}");
            ensure!(
                told.contains(&format!("X-Load-Balancing-Endpoint-Weight: {count}\r\n")),
                "{host}: {told}"
            );
        }
        Ok(())
    })?;
    nothing_of(&name)
}

fn pods() -> Result<()> {
    let name = lab("pods");
    play(&options(&name), async |bench| {
        let pods = hello(bench).await?;
        let [first, second, ..] = pods.as_slice() else { bail!("{pods:?}") };
        let api = Api::<Pod>::namespaced(bench.client().clone(), DEMO);
        let restarts = |pod: &Pod| {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            containers.into_iter().map(|container| container.restart_count).sum::<i32>()
        };
        bench.signal(&first.name, Signal::SIGKILL)?;
        let again = wait::until(&api, &first.name, |pod| restarts(pod) == 1 && ready(pod));
        within("the container starts again in the same Pod", again).await?;

        api.delete(&second.name, &DeleteParams::default()).await?;
        let replaced = wait::all(&api, |pods| {
            let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
            pods.len() == 3 && !names.contains(&second.name) && pods.iter().all(|pod| ready(pod))
        });
        within("another Pod takes its place", replaced).await?;
        // The API forgets a Pod before its host has taken its network down.
        let network = format!("{}-{}", bench.name(), second.name);
        let gone = async {
            while netns::exists(&network) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        within("its network goes", gone).await?;

        expose(bench, "Cluster", Host::Node1).await?;
        bench.set_node_ready(Host::Node2, false).await?;
        let slices = Api::<EndpointSlice>::namespaced(bench.client().clone(), DEMO);
        let lost = wait::until(&slices, "hello-lb-ipv4", |slice| {
            slice.endpoints.iter().all(|endpoint| {
                let there = endpoint.node_name.as_deref() == Some("k8s-node-2");
                endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(!there)
            })
        });
        within("endpoints of a node that is not ready are not", lost).await
    })?;
    nothing_of(&name)
}

fn refused() -> Result<()> {
    let name = lab("refused");
    let options = options(&name);
    let failed = play(&options, async |bench| -> Result<()> {
        let second =
            Options { name: bench.name().clone(), progress: Progress::silent(), ..Options::default() };
        let error = std::thread::scope(|scope| {
            let second = scope.spawn(|| play(&second, async |_| Ok(())));
            second.join().expect("the second lab does not panic")
        });
        let taken = error.err().context("a second lab of the same name came up")?;
        let taken = taken.downcast::<Taken>()?;
        ensure!(taken.pid == std::process::id(), "{taken}");
        bail!("as stories fail")
    });
    ensure!(failed.is_err_and(|error| error.to_string() == "as stories fail"), "another end");
    nothing_of(&name)
}

fn signals() -> Result<()> {
    let name = lab("signals");
    for signal in ["INT", "TERM", "HUP"] {
        let mut held = Command::new(std::env::current_exe()?)
            .args(["__lab-supervisor", "--no-daemons", "--name", name.as_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = held.stdout.take().context("no output")?;
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(said));
        ensure!(lines.any(|line| line.is_ok_and(|line| line.starts_with("ready"))), "it does not come up");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(held.id())?);
        nix::sys::signal::kill(pid, format!("SIG{signal}").parse::<Signal>()?)?;
        ensure!(held.wait()?.success(), "SIG{signal} is no clean end");
        nothing_of(&name)?;
    }
    // The error type is the caller's way to tell a signal from a failure.
    ensure!(Interrupted("SIGINT").to_string().contains("SIGINT"), "the signal is not named");
    Ok(())
}

/// The application, ready.
async fn hello(bench: &Bench) -> Result<Vec<PodView>> {
    bench.apply(include_str!("../../../docs/l2/hello.yaml")).await?;
    let api = Api::<Pod>::namespaced(bench.client().clone(), DEMO);
    let up = wait::all(&api, |pods| pods.len() == 3 && pods.iter().all(|pod| ready(pod)));
    within("three ready Pods", up).await?;
    bench.pods(DEMO, "hello").await
}

/// The Service, with the address that a controller would have given it, led to `announcer` as a speaker would.
async fn expose(bench: &Bench, policy: &str, announcer: Host) -> Result<()> {
    bench.apply(include_str!("../../../docs/l2/hello-lb.yaml")).await?;
    let api = Api::<Service>::namespaced(bench.client().clone(), DEMO);
    let merge = |value: serde_json::Value| Patch::Merge(value);
    let parameters = PatchParams::default();
    api.patch("hello-lb", &parameters, &merge(json!({"spec": {"externalTrafficPolicy": policy}}))).await?;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.168.10.200"}]}}});
    api.patch_status("hello-lb", &parameters, &merge(status)).await?;
    point_at(bench, announcer).await?;
    let written = async {
        loop {
            let text =
                bench.run(announcer, &["nft", "list", "table", "ip", "kube-proxy"]).await?.success()?;
            let masked = text
                .split_once("chain external-demo/hello-lb/tcp/http {")
                .and_then(|(_, rest)| rest.split_once('}'))
                .map(|(chain, _)| chain.lines().any(|line| line.trim() == "jump mark-for-masquerade"));
            if masked == Some(policy == "Cluster") {
                return Ok(());
            }
        }
    };
    within("rules on the node", written).await
}

/// Makes the node answer for the address, where a speaker would.
async fn point_at(bench: &Bench, node: Host) -> Result<()> {
    for (host, interface) in [(Host::Client, "ens18"), (Host::Router, "eth1")] {
        let mac = node.mac().to_string();
        let words = ["ip", "neigh", "replace", "192.168.10.200", "lladdr", &mac, "dev", interface];
        bench.run(host, &words).await?.success()?;
    }
    Ok(())
}

/// Answers to `count` requests, each on a connection of its own: who answered, and whom it saw.
async fn ask(bench: &Bench, host: Host, count: usize) -> Result<Vec<(String, String)>> {
    let url = format!("http://192.168.10.200/?[1-{count}]");
    let words = ["curl", "-sS", "-m", "10", "-H", "Connection: close", &url];
    let text = bench.run(host, &words).await?.success()?;
    let answers = text.lines().filter_map(|line| line.split_once(' '));
    Ok(answers.map(|(name, seen)| (name.to_owned(), seen.to_owned())).collect())
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn within<T>(what: &str, future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .with_context(|| format!("{what}: not in 30 s"))?
}

fn lab(test: &str) -> LabName {
    format!("t{}-{test}", std::process::id() % 100_000).parse().expect("digits, a hyphen and a word")
}

fn options(name: &LabName) -> Options {
    Options { name: name.clone(), daemons: false, progress: Progress::silent(), ..Options::default() }
}

/// Nothing of a lab may be left.
fn nothing_of(name: &LabName) -> Result<()> {
    let namespaces = netns::list(&format!("{name}-"))?;
    ensure!(namespaces.is_empty(), "namespaces stayed: {namespaces:?}");
    let state = PathBuf::from("/run/ferrolb-lab").join(name.as_str());
    ensure!(!state.exists(), "{} stayed", state.display());
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let command = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let ours = command.contains(&format!("\0{name}\0")) || command.contains(&format!("/{name}/"));
        ensure!(!ours, "a process stayed: {}", command.replace('\0', " "));
    }
    Ok(())
}
