// SPDX-License-Identifier: Apache-2.0
//! Eighth chapter: bad input. Each mistake is named where a user looks, and everything else goes on working.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::cluster::{SERVICE, eventually, ingress};
use super::super::stage::{Example, SOON, Stage, example};
use super::super::story::Seen;
use super::configuration::all_states;
use super::requests::{gets, refused};
use super::segment::owner_is;
use super::{ADDRESS, DEMO};
use crate::host::Host;

pub(in crate::scenario) const REVERSED: Example = example!("reversed-pool.yaml");
pub(in crate::scenario) const OVERLAPPING: Example = example!("overlapping-pool.yaml");
const MALFORMED: Example = example!("malformed.yaml");
const MEANWHILE: Example = example!("meanwhile.yaml");

/// The first address that is free in this chapter.
const NEXT: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 201);

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Mistakes");
    stage
        .step(
            "a pool whose range runs backwards",
            "all ConfigurationStates turn Invalid and say why, so do the logs; Services go on getting addresses",
            async |stage: &mut Stage<'_>| {
                let why = "parsing address pool reversed: invalid CIDR \"192.168.10.250-192.168.10.240\" in pool \
                           \"reversed\": invalid IP range \"192.168.10.250-192.168.10.240\": start IP \
                           \"192.168.10.250\" is after the end IP \"192.168.10.240\"";
                bad_pool(stage, REVERSED, why).await
            },
        )
        .await;
    stage
        .step(
            "overlapping pools",
            "the same: the younger pool is refused by name, the older goes on serving",
            async |stage: &mut Stage<'_>| {
                let why = "CIDR \"192.168.10.216/30\" in pool \"overlapping\" overlaps with already defined CIDR \
                           \"192.168.10.216/30\"";
                bad_pool(stage, OVERLAPPING, why).await
            },
        )
        .await;
    stage
        .step(
            "a malformed annotation on a new Service",
            "no address; event AllocationFailed quotes it",
            async |stage: &mut Stage<'_>| {
                let seen = refused(
                    stage,
                    MALFORMED,
                    "malformed",
                    r#"invalid metallb.io/loadBalancerIPs: "192.168.10.300""#,
                )
                .await?;
                stage.remove(&[MALFORMED]).await?;
                Ok(seen)
            },
        )
        .await;
    stage
        .step(
            "a malformed annotation on a Service with an address",
            "it keeps its address; event LoadBalancerFailed quotes it",
            malformed_later,
        )
        .await;
    stage
        .step(
            "a status full of nonsense",
            "the controller puts it right; event ClearAssignment says what was wrong",
            nonsense,
        )
        .await;
}

/// A bad pool is named in every ConfigurationState and log, harms nobody, and leaves no trace once it is gone.
async fn bad_pool(stage: &mut Stage<'_>, pool: Example, why: &str) -> Seen {
    let daemons = stage.daemons().await?;
    let logs: Vec<_> =
        daemons.iter().map(|running| (&running.pod, stage.bench.log(&running.pod).len())).collect();
    stage.apply(pool).await?;
    let summary = format!("configuration error: {why}");
    all_states(stage, "Invalid", Some(&summary)).await?;
    for (pod, before) in logs {
        eventually(SOON, async || logged(stage, pod, before, why)).await?;
    }
    owner_is(stage, ADDRESS, Host::Node1).await?;
    stage.answer(Host::Client, ADDRESS, 80).await?;
    gets(stage, MEANWHILE, "meanwhile", NEXT).await?;
    stage.remove(&[pool, MEANWHILE]).await?;
    all_states(stage, "Valid", None).await?;
    Ok(format!("{summary}; meanwhile demo/meanwhile gets {NEXT}; Valid again without the pool"))
}

/// Whether a line of level error with this text in its `error` was added to the Pod's log.
fn logged(stage: &Stage<'_>, pod: &str, before: usize, error: &str) -> Result<()> {
    let log = stage.bench.log(pod);
    let added = log.get(before..).unwrap_or_default();
    let found = added.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(|line| {
        line["level"] == "error" && line["error"].as_str().is_some_and(|text| text.contains(error))
    });
    ensure!(found, "{pod} logs no error about it, but: {added}");
    Ok(())
}

async fn malformed_later(stage: &mut Stage<'_>) -> Seen {
    let annotate = |value: Value| json!({"metadata": {"annotations": {"metallb.io/loadBalancerIPs": value}}});
    stage.patch(SERVICE, DEMO, "hello-lb", false, annotate("192.168.10.200,".into())).await?;
    let message =
        r#"invalid requested loadbalancer IPs: invalid metallb.io/loadBalancerIPs: "192.168.10.200,""#;
    stage.event("hello-lb", "Warning", "LoadBalancerFailed", message).await?;
    let service = stage.cluster.read(SERVICE, DEMO, "hello-lb").await?;
    ensure!(ingress(&service) == [ADDRESS.to_string()], "{:?}", ingress(&service));
    owner_is(stage, ADDRESS, Host::Node1).await?;
    stage.patch(SERVICE, DEMO, "hello-lb", false, annotate(Value::Null)).await?;
    Ok(format!("LoadBalancerFailed: {message}; {ADDRESS} stays"))
}

async fn nonsense(stage: &mut Stage<'_>) -> Seen {
    let nonsense = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.1.2.3"}, {"hostname": "nonsense.example"}]}}});
    stage.patch(SERVICE, DEMO, "hello-lb", true, nonsense).await?;
    let expected = json!([{"ip": ADDRESS.to_string(), "ipMode": "VIP"}]);
    eventually(SOON, async || {
        let service = stage.cluster.read(SERVICE, DEMO, "hello-lb").await?;
        let ingress = service.pointer("/status/loadBalancer/ingress").cloned().unwrap_or_default();
        ensure!(ingress == expected, "{ingress}");
        Ok(())
    })
    .await?;
    let message = r#"current IP for "demo/hello-lb" not allowed by config, will attempt for new IP assignment: ["10.1.2.3"] is not allowed in config"#;
    stage.event("hello-lb", "Normal", "ClearAssignment", message).await?;
    owner_is(stage, ADDRESS, Host::Node1).await?;
    stage.answer(Host::Client, ADDRESS, 80).await?;
    Ok(format!("ClearAssignment; the ingress is {expected} again"))
}
