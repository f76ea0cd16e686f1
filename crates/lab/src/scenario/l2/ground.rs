// SPDX-License-Identifier: Apache-2.0
//! First chapter: what the story stands on. Hosts, daemons, their privileges and sockets.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};

use super::super::cluster::{DEPLOYMENT, ENDPOINT_SLICE, SERVICE, eventually, text};
use super::super::stage::{Running, SOON, Stage};
use super::super::story::Seen;
use super::super::wire;
use super::SYSTEM;
use crate::bench_handle::Daemon;
use crate::host::{Host, SECOND_INTERFACE};

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("The bench");
    stage.step("hosts", "every host has its interface, hardware address and addresses", hosts).await;
    stage
        .step(
            "daemons",
            "the controllers of the Deployment (uid 65534, no capability), one speaker per node (uid 0, NET_RAW alone)",
            daemons,
        )
        .await;
    stage
        .step(
            "webhook address",
            "the cluster IP of metallb-webhook-service leads to every controller's Pod",
            webhook_address,
        )
        .await;
    stage.step("sockets", "the ports that MetalLB's daemons listen on", sockets).await;
    stage.step("health", "all of them answer /healthz with 200", health).await;
}

async fn hosts(stage: &mut Stage<'_>) -> Seen {
    for host in Host::ALL {
        let interfaces = wire::interfaces(stage.namespace(host))?;
        let own = interfaces.iter().find(|interface| interface.name.as_str() == host.interface());
        let own = own.with_context(|| format!("{host} has no {}", host.interface()))?;
        ensure!(own.up && own.carrier, "{} of {host} is down", host.interface());
        ensure!(
            own.mac == Some(host.mac()),
            "{} of {host} has the hardware address {:?}",
            host.interface(),
            own.mac
        );
        for address in host.addresses() {
            ensure!(own.addresses.contains(&(address.into(), 24)), "{host} lacks {address}/24");
        }
        let Some((mac, address)) = host.second() else { continue };
        let second = interfaces.iter().find(|interface| interface.name.as_str() == SECOND_INTERFACE);
        let second = second.with_context(|| format!("{host} has no {SECOND_INTERFACE}"))?;
        ensure!(
            second.mac == Some(mac) && second.addresses.contains(&(address.into(), 24)),
            "{SECOND_INTERFACE} of {host} is {second:?}"
        );
    }
    Ok("client, k8s-master-1, k8s-node-1, k8s-node-2 and router on one segment; client and nodes on a second one; \
        outside behind the router"
        .into())
}

/// A process is there a moment before it is what it will be: namespaces first, then the program.
async fn daemons(stage: &mut Stage<'_>) -> Seen {
    eventually(SOON, async || confined(stage).await).await
}

async fn confined(stage: &Stage<'_>) -> Seen {
    // CAP_NET_RAW is bit 13.
    const NET_RAW: u64 = 1 << 13;
    let daemons = stage.daemons().await?;
    let own_mounts = fs::read_link("/proc/self/ns/mnt")?;
    let mut speakers = BTreeSet::new();
    let mut controllers = 0;
    let mut mounts = BTreeSet::from([own_mounts]);
    for daemon in &daemons {
        let (uid, capabilities) = match daemon.daemon {
            Daemon::Controller => {
                controllers += 1;
                (65534, 0)
            }
            Daemon::Speaker => {
                speakers.insert(daemon.node);
                (0, NET_RAW)
            }
        };
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid))
            .with_context(|| format!("{} does not run", daemon.pod))?;
        for (field, expected) in [
            ("Uid", uid.to_string()),
            ("CapPrm", format!("{capabilities:016x}")),
            ("CapEff", format!("{capabilities:016x}")),
            ("CapBnd", format!("{capabilities:016x}")),
            ("NoNewPrivs", "1".to_owned()),
        ] {
            let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            let value = value.and_then(|value| value.split_whitespace().next()).unwrap_or_default();
            ensure!(value == expected, "{} has {field} {value}, not {expected}", daemon.pod);
        }
        for file in ["token", "ca.crt", "namespace"] {
            let path =
                format!("/proc/{}/root/var/run/secrets/kubernetes.io/serviceaccount/{file}", daemon.pid);
            ensure!(fs::metadata(&path).is_ok_and(|file| file.len() > 0), "{} has no {file}", daemon.pod);
        }
        let own = fs::read_link(format!("/proc/{}/ns/mnt", daemon.pid))?;
        ensure!(mounts.insert(own), "{} shares its mounts with another process", daemon.pod);
    }
    let kubeconfig = fs::read_to_string(stage.bench.kubeconfig())?;
    ensure!(kubeconfig.contains("https://"), "the API server is not reached by TLS");
    let deployment = stage.cluster.read(DEPLOYMENT, SYSTEM, "controller").await?;
    let wanted = deployment["spec"]["replicas"].as_u64().context("the Deployment does not say how many")?;
    ensure!(controllers == wanted, "{controllers} controllers, not {wanted}");
    ensure!(
        speakers.len() == 3 && daemons.len() as u64 == wanted + 3,
        "speakers on {speakers:?}, {} daemons",
        daemons.len()
    );
    let plural = if wanted == 1 { "" } else { "s" };
    Ok(format!(
        "{wanted} controller{plural}: uid 65534, no capability; 3 speakers: uid 0, NET_RAW; all with no_new_privs, a root file system and a token of their own"
    ))
}

async fn webhook_address(stage: &mut Stage<'_>) -> Seen {
    let service = stage.cluster.read(SERVICE, SYSTEM, "metallb-webhook-service").await?;
    let address: Ipv4Addr = text(&service, "/spec/clusterIP").parse().context("no cluster IP")?;
    let mut controllers = Vec::new();
    for pod in stage.bench.pods(SYSTEM, Daemon::Controller.name()).await? {
        controllers.push(pod.address.context("a controller's Pod has no address")?);
    }
    controllers.sort();
    eventually(SOON, async || {
        let slices = stage.cluster.list(ENDPOINT_SLICE, SYSTEM).await?;
        let endpoints = slices
            .iter()
            .filter(|slice| {
                text(slice, "/metadata/labels/kubernetes.io~1service-name") == "metallb-webhook-service"
            })
            .flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let mut addresses: Vec<&str> = endpoints.map(|endpoint| text(endpoint, "/addresses/0")).collect();
        addresses.sort_unstable();
        ensure!(addresses == controllers, "it leads to {addresses:?}, the controllers are {controllers:?}");
        // A refusal comes from the Pod as well: it says that the way there is open.
        let reached = wire::reaches(stage.namespace(Host::Master1), (address, 443)).await?;
        ensure!(reached, "nothing answers at port 443 of the cluster IP");
        Ok(())
    })
    .await?;
    Ok(match controllers.len() {
        1 => "port 443 of metallb-webhook-service reaches the controller's Pod".to_owned(),
        count => format!("port 443 of metallb-webhook-service reaches the Pods of {count} controllers"),
    })
}

async fn sockets(stage: &mut Stage<'_>) -> Seen {
    let daemons = stage.daemons().await?;
    let mut told = BTreeSet::new();
    for daemon in daemons {
        let expected: &[&str] = match daemon.daemon {
            Daemon::Controller => {
                &["17472 on every address", "9120 on every address", "9443 on every address"]
            }
            Daemon::Speaker => &["17472 on 127.0.0.1", "7946 on the node's address", "9120 on every address"],
        };
        let own = daemon.node.address().to_string();
        eventually(SOON, async || {
            let seen = listening(stage, &daemon).await?;
            let seen: Vec<_> = seen.iter().map(|port| port.replace(&own, "the node's address")).collect();
            ensure!(seen == expected, "{} listens on {}", daemon.pod, seen.join(", "));
            Ok(())
        })
        .await?;
        told.insert(format!("{}: {}", daemon.daemon.name(), expected.join(", ")));
    }
    Ok(told.into_iter().collect::<Vec<_>>().join("; "))
}

/// The TCP ports a process listens on, in order.
async fn listening(stage: &Stage<'_>, running: &Running) -> Result<Vec<String>> {
    let listed = stage.beside(running, &["ss", "-Hltnp"]).await?.success()?;
    let mark = format!("pid={},", running.pid);
    let mut ports: Vec<String> = listed
        .lines()
        .filter(|line| line.contains(&mark))
        .filter_map(|line| line.split_whitespace().nth(3)?.rsplit_once(':'))
        .map(|(address, port)| match address {
            "*" | "0.0.0.0" | "[::]" => format!("{port} on every address"),
            _ => format!("{port} on {address}"),
        })
        .collect();
    ports.sort();
    ports.dedup();
    Ok(ports)
}

async fn health(stage: &mut Stage<'_>) -> Seen {
    let daemons = stage.daemons().await?;
    let url = "http://127.0.0.1:17472/healthz";
    for daemon in &daemons {
        if daemon.daemon == Daemon::Speaker {
            stage.story.command(format!("ferrolb lab exec {} -- curl -sS {url}", daemon.node));
        }
        eventually(SOON, async || {
            let said = stage.beside(daemon, &["curl", "-sS", "--max-time", "2", url]).await?.success()?;
            ensure!(said.trim() == "ok", "{} answers {said:?}", daemon.pod);
            Ok(())
        })
        .await?;
    }
    Ok(format!("{} daemons say ok", daemons.len()))
}
