// SPDX-License-Identifier: Apache-2.0
//! How long a new Service waits for its address, and how often the daemons write for it.
//!
//! ```text
//!  crew: N connections ── create ──► API server ── watch ──► controller ── status ──► API server
//!        moment of each answer                                                          │
//!                                   observer: moment of each address ◄── watch ─────────┘
//! ```
//!
//! All daemons run, and every Service has a ready endpoint, so that it is announced as well. EndpointSlices are there before
//! the Services; nothing forwards traffic.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Request};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::bench::ground::{self, NAMESPACE};
use crate::bench_handle::{Bench, Daemon};

pub(super) mod crew;
mod figures;
mod observer;
mod writes;

pub use figures::{AddressFigures, Round, Setting};
pub use writes::{Count, Kind, Writes};

use crew::{Crew, Whole};
use observer::Observer;
pub(in crate::bench) use writes::{Aim, Auditor};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Services of the first round, created at once.
    pub(super) few: usize,
    /// Services that are there when one more comes.
    pub(super) crowd: usize,
    /// How many more come, one after the other.
    pub(super) single: usize,
    /// Services of the last round, created at once.
    pub(super) many: usize,
    /// Connections that create.
    pub(super) connections: usize,
    /// How long nothing happens.
    pub(super) idle: Duration,
}

impl Plan {
    pub(super) const FULL: Self =
        Self { few: 100, crowd: 1000, single: 50, many: 2000, connections: 8, idle: Duration::from_secs(60) };
    pub(super) const QUICK: Self =
        Self { crowd: 200, single: 20, many: 500, idle: Duration::from_secs(5), ..Self::FULL };
}

pub(super) async fn measure(bench: &Bench, api: &str, level: &str, plan: Plan) -> Result<AddressFigures> {
    let progress = bench.progress();
    bench.apply(&ground::manifest("L2Advertisement")).await?;
    let crew = Crew::start(bench, plan.connections).await?;
    let most = plan.few.max(plan.crowd).max(plan.many);
    progress.step(&format!("{most} EndpointSlices for the Services to come"));
    crew.send((0..most).map(slice).collect::<Result<_>>()?).await?;
    let observer = Observer::start(bench, NAMESPACE).await?;
    let place = Place { bench, crew, observer, auditor: Auditor::of(bench), replicas: level == "B" };
    let (mut rounds, mut writes) = (Vec::new(), Vec::new());

    for connections in [1, plan.connections] {
        rounds.push(place.at_once(plan.few, connections, AIM_FEW, &mut writes).await?);
        place.clear(plan.few).await?;
    }
    place.at_once(plan.crowd, plan.connections, AIM_MANY, &mut writes).await?;
    rounds.push(place.one_by_one(plan.crowd, plan.single).await?);
    place.undisturbed(plan, &mut writes).await?;
    place.clear(plan.crowd).await?;
    rounds.push(place.at_once(plan.many, plan.connections, AIM_MANY, &mut writes).await?);

    let ok = rounds.iter().all(Round::tolerable) && writes.iter().all(Writes::tolerable);
    Ok(AddressFigures { api: api.to_owned(), level: level.to_owned(), rounds, writes, ok })
}

/// Where it is measured.
struct Place<'a> {
    bench: &'a Bench,
    crew: Crew,
    observer: Observer,
    auditor: Auditor<'a>,
    /// Whether there are several controllers, which write conditions as well.
    replicas: bool,
}

impl Place<'_> {
    /// So many Services at once, none being there; then everything comes to rest.
    async fn at_once(
        &self,
        count: usize,
        connections: usize,
        aim_ms: f64,
        writes: &mut Vec<Writes>,
    ) -> Result<Round> {
        let mark = self.auditor.mark().await?;
        self.bench.progress().step(&format!("{count} Services at once, connections: {connections}"));
        let names: Vec<String> = (0..count).map(name).collect();
        let requests = names.iter().map(|name| service(name)).collect::<Result<_>>()?;
        let answered = self.crew.send_over(connections, requests).await?;
        let addressed = self.observer.addressed(&names, LIMIT).await?;
        let title = format!("{count} at once");
        let setting = Setting { among: 0, connections };
        self.auditor
            .settled(
                &title,
                Aim::New { services: count, statuses: if self.replicas { 2 } else { 1 } },
                mark,
                writes,
            )
            .await?;
        Round::of(&title, setting, aim_ms, &answered, &addressed)
    }

    /// One Service after the other, each gone before the next, beside those that are there.
    async fn one_by_one(&self, among: usize, count: usize) -> Result<Round> {
        self.bench.progress().step(&format!("one Service among {among}, {count} times"));
        let (mut answered, mut addressed) = (Vec::new(), Vec::new());
        for index in 0..count {
            let name = format!("single-{index}");
            answered.extend(self.crew.send_over(1, vec![service(&name)?]).await?);
            addressed.extend(self.observer.addressed(std::slice::from_ref(&name), LIMIT).await?);
            self.crew.send(vec![deletion(&name)?]).await?;
        }
        self.auditor.settled("", Aim::Nothing, self.auditor.mark().await?, &mut Vec::new()).await?;
        let setting = Setting { among, connections: 1 };
        Round::of(&format!("one among {among}, {count} times"), setting, AIM_SINGLE, &answered, &addressed)
    }

    /// Nothing changes for any Service: an idle while, a restart of the controller, two changes of the pool.
    async fn undisturbed(&self, plan: Plan, writes: &mut Vec<Writes>) -> Result<()> {
        let (bench, progress) = (self.bench, self.bench.progress());
        let seconds = plan.idle.as_secs();
        progress.step(&format!("nothing, for {seconds} s"));
        let mark = self.auditor.mark().await?;
        tokio::time::sleep(plan.idle).await;
        self.auditor.settled(&format!("nothing, for {seconds} s"), Aim::Nothing, mark, writes).await?;

        progress.step("a restart of the controller");
        let mark = self.auditor.mark().await?;
        let pod = bench.controller().await?.name;
        let former = bench.process(&pod)?;
        bench.signal(&pod, Signal::SIGTERM)?;
        let restarted = async {
            while bench.process(&pod).map_or(true, |process| process == former) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            bench.settled(Daemon::Controller, LIMIT).await
        };
        tokio::time::timeout(LIMIT, restarted).await.context("the controller is not restarted")??;
        self.auditor
            .settled("a controller restart", Aim::Restart { replicas: self.replicas }, mark, writes)
            .await?;

        for (what, aim, patch) in [
            (
                "a label on the pool",
                Aim::Nothing,
                json!({"metadata": {"labels": {"example.com/touched": "yes"}}}),
            ),
            (
                "a range added to the pool",
                Aim::Counters,
                json!({"spec": {"addresses": ["10.200.0.0/16", "10.201.0.0/16"]}}),
            ),
        ] {
            progress.step(what);
            let mark = self.auditor.mark().await?;
            let path = "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools/wide";
            let mut change = request(Method::PATCH, path, &patch)?;
            change.headers_mut().insert("content-type", "application/merge-patch+json".parse()?);
            self.crew.send(vec![change]).await?;
            self.auditor.settled(what, aim, mark, writes).await?;
        }
        Ok(())
    }

    /// Removes the Services.
    async fn clear(&self, count: usize) -> Result<()> {
        self.crew.send((0..count).map(|index| deletion(&name(index))).collect::<Result<_>>()?).await?;
        // What is written for their end is no part of what follows.
        self.auditor.settled("", Aim::Nothing, self.auditor.mark().await?, &mut Vec::new()).await
    }
}

fn name(index: usize) -> String {
    format!("service-{index}")
}

fn request(method: Method, path: &str, body: &Value) -> Result<Whole> {
    let body = serde_json::to_vec(body)?;
    Ok(Request::builder().method(method).uri(path).header("content-type", "application/json").body(body)?)
}

fn service(name: &str) -> Result<Whole> {
    request(
        Method::POST,
        &format!("/api/v1/namespaces/{NAMESPACE}/services"),
        &json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE},
            // The range of node ports has room for fewer Services than are created.
            "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{"port": 80, "protocol": "TCP"}]},
        }),
    )
}

fn deletion(name: &str) -> Result<Whole> {
    request(Method::DELETE, &format!("/api/v1/namespaces/{NAMESPACE}/services/{name}"), &json!({}))
}

/// What the EndpointSlice controller would write for a Service with one ready Pod.
fn slice(index: usize) -> Result<Whole> {
    let service = name(index);
    request(
        Method::POST,
        &format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"),
        &json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": service, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["172.20.1.99"], "conditions": {"ready": true}, "nodeName": "k8s-node-1"}],
            "ports": [{"port": 8080, "protocol": "TCP"}],
        }),
    )
}

/// Milliseconds that the median of 100 Services at once should not exceed.
const AIM_FEW: f64 = 10.0;
/// … of one Service among many.
const AIM_SINGLE: f64 = 5.0;
/// … of 2,000 at once.
const AIM_MANY: f64 = 100.0;

/// After this time an address does not come any more.
const LIMIT: Duration = Duration::from_secs(120);
