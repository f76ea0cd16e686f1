// SPDX-License-Identifier: Apache-2.0
//! Services that are announced, up to ten thousand, each with the address that goes with its number.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolb_linux::probe::Caller;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::bench::address::crew::{Crew, Whole};
use crate::bench::ground::{self, NAMESPACE};
use crate::bench_handle::Bench;
use crate::host::Host;

/// Connections that create Services.
const CONNECTIONS: usize = 4;

/// After this time a Service is not announced any more.
const LIMIT: Duration = Duration::from_secs(180);

/// How long a gain is announced, and a little more.
const ANNOUNCING: Duration = Duration::from_secs(6);

/// How long one request waits for its answer while Services are still on their way.
const PATIENCE: Duration = Duration::from_millis(20);

/// How long it waits once they are all there.
const LIMIT_OF_ONE: Duration = Duration::from_millis(500);

/// The Services that there are.
pub(super) struct Crowd<'a> {
    bench: &'a Bench,
    crew: Crew,
    count: usize,
}

impl<'a> Crowd<'a> {
    /// None yet.
    pub(super) async fn new(bench: &'a Bench) -> Result<Self> {
        bench.apply(&ground::manifest("L2Advertisement")).await?;
        Ok(Self { bench, crew: Crew::start(bench, CONNECTIONS).await?, count: 0 })
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// [`Self::grow`], and waits until nothing is announced any more.
    pub(super) async fn grow_and_rest(&mut self, count: usize) -> Result<()> {
        self.grow(count).await?;
        self.bench.progress().during("until everything was announced", tokio::time::sleep(ANNOUNCING)).await;
        Ok(())
    }

    /// Makes it so many Services, and waits until a node answers for every address.
    pub(super) async fn grow(&mut self, count: usize) -> Result<()> {
        let new = self.count..count.max(self.count);
        if new.is_empty() {
            return Ok(());
        }
        self.bench.progress().step(&format!("{} Services more, {count} in all", new.len()));
        self.crew.send(new.clone().map(slice).collect::<Result<_>>()?).await?;
        self.crew.send(new.clone().map(service).collect::<Result<_>>()?).await?;
        self.count = count;
        let mut caller = self.caller()?;
        tokio::task::spawn_blocking(move || await_answers(&mut caller, new)).await?
    }

    /// Has every Service looked at again, and its status written: the advertisement names its interface, or all of them. Whoever
    /// asks on the segment sees no difference.
    pub(super) async fn reconcile(&self, named: bool) -> Result<()> {
        let interfaces = if named { json!([Host::Client.interface()]) } else { json!(null) };
        let patch = json!({"spec": {"interfaces": interfaces}}).to_string();
        let patched = Request::builder()
            .method(Method::PATCH)
            .uri("/apis/metallb.io/v1beta1/namespaces/metallb-system/l2advertisements/wide")
            .header("content-type", "application/merge-patch+json")
            .body(patch.into_bytes())?;
        self.bench.client().request_text(patched).await.context("edit the advertisement")?;
        Ok(())
    }

    /// So many addresses, or all there are, that a node answers for.
    pub(super) async fn led_by(&self, node: Host, at_most: usize) -> Result<Vec<Ipv4Addr>> {
        let (mut caller, count) = (self.caller()?, self.count);
        tokio::task::spawn_blocking(move || {
            let mut led = Vec::new();
            for address in (0..count).map(address) {
                if caller.ask(address, LIMIT_OF_ONE)? == Some(node.mac()) {
                    led.push(address);
                }
                if led.len() == at_most {
                    break;
                }
            }
            ensure!(!led.is_empty(), "{node} answers for none of {count} addresses");
            Ok(led)
        })
        .await?
    }

    /// Who asks, on the client.
    pub(super) fn caller(&self) -> Result<Caller> {
        let client = Host::Client;
        Ok(self.bench.namespace(client).run(|| Caller::open(client.interface(), client.address()))??)
    }
}

/// The address of a Service.
pub(super) fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 200, 1, 0]).wrapping_add(index as u32)) // at most ten thousand
}

/// An address of no Service.
pub(super) const fn foreign(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 201, 0, 0]) | number & 0xffff)
}

/// Asks for every one of the addresses until it is answered for. Blocks.
fn await_answers(caller: &mut Caller, indices: Range<usize>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    let all = indices.len();
    let mut dark: Vec<usize> = indices.collect();
    while !dark.is_empty() {
        ensure!(Instant::now() < end, "{} of {all} addresses are not answered for", dark.len());
        let mut still = Vec::new();
        for index in dark {
            if caller.ask(address(index), PATIENCE)?.is_none() {
                still.push(index);
                // The others will not be there either, for now.
                std::thread::sleep(PATIENCE);
            }
        }
        dark = still;
    }
    Ok(())
}

fn name(index: usize) -> String {
    format!("service-{index}")
}

fn request(path: &str, body: &Value) -> Result<Whole> {
    let body = serde_json::to_vec(body)?;
    Ok(Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("content-type", "application/json")
        .body(body)?)
}

fn service(index: usize) -> Result<Whole> {
    request(
        &format!("/api/v1/namespaces/{NAMESPACE}/services"),
        &json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": name(index), "namespace": NAMESPACE,
                "annotations": {"metallb.io/loadBalancerIPs": address(index).to_string()},
            },
            // The range of node ports has room for fewer Services than are created.
            "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{"port": 80, "protocol": "TCP"}]},
        }),
    )
}

/// What the EndpointSlice controller would write for a Service with one ready Pod.
fn slice(index: usize) -> Result<Whole> {
    request(
        &format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"),
        &json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name(index), "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name(index)},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["172.20.1.99"], "conditions": {"ready": true}, "nodeName": "k8s-node-1"}],
            "ports": [{"port": 8080, "protocol": "TCP"}],
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_addresses_are_no_services() {
        assert_eq!((address(0), address(9_999)), ([10, 200, 1, 0].into(), [10, 200, 40, 15].into()));
        assert_eq!((foreign(0), foreign(65_536 + 7)), ([10, 201, 0, 0].into(), [10, 201, 0, 7].into()));
    }
}
