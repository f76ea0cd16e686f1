// SPDX-License-Identifier: Apache-2.0
//! Second chapter: advertisements choose nodes and Services, and follow labels of both.

use std::net::Ipv4Addr;

use anyhow::Result;
use serde_json::{Value, json};

use super::super::cluster::{POOL as POOLS, SERVICE};
use super::super::stage::{Example, Stage};
use super::super::story::Seen;
use super::{
    DATA, DEMO, MISC, SHOP, SYSTEM, Segment, WORKERS, advertise, as_by_formula, manifest, names, owned_by,
};
use crate::host::Host;
use crate::scenario::l2::leader;

const FOR_NODE_1: Example = manifest!("node-advertisement.yaml");

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("Selectors");
    stage
        .step(
            "E09: one node at a time",
            "the address follows the advertisement's node selector",
            one_at_a_time,
        )
        .await;
    stage
        .step(
            "E11: a label that no node has",
            "silence, until a node gets it; the address follows it from node to node",
            nobody_then_labelled,
        )
        .await;
    stage
        .step(
            "E10, E13: two advertisements for a node each",
            "one of both nodes announces: the formula's",
            union,
        )
        .await;
    stage
        .step(
            "E12: Services by label, pools by label",
            "only what both selectors take is announced; labels that flip withdraw and restore",
            services,
        )
        .await;
    stage
        .step(
            "E15: one selector or the other",
            "the first and the second Service are announced, the third is not",
            either,
        )
        .await;
    stage
        .step(
            "E14: one for a Service and a node that do not exist",
            "nobody announces; without selectors everything is as before",
            ghosts,
        )
        .await;
}

fn hostname(node: Host) -> Value {
    json!([{"matchLabels": {"kubernetes.io/hostname": node.name()}}])
}

async fn one_at_a_time(stage: &mut Stage<'_>) -> Seen {
    for node in [Host::Node2, Host::Node1] {
        advertise(stage, json!({"nodeSelectors": hostname(node)})).await?;
        for address in [SHOP, DATA, MISC] {
            owned_by(stage, Segment::First, address, &[node]).await?;
        }
    }
    Ok("all three addresses to k8s-node-2, then to k8s-node-1".to_owned())
}

async fn nobody_then_labelled(stage: &mut Stage<'_>) -> Seen {
    advertise(stage, json!({"nodeSelectors": [{"matchLabels": {"rack": "a"}}]})).await?;
    owned_by(stage, Segment::First, SHOP, &[]).await?;
    stage.label_node(Host::Node2, "rack", Some("a")).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node2]).await?;
    stage.label_node(Host::Node1, "rack", Some("a")).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node1]).await?;
    stage.label_node(Host::Node1, "rack", None).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node2]).await?;
    stage.label_node(Host::Node2, "rack", None).await?;
    owned_by(stage, Segment::First, SHOP, &[]).await?;
    Ok(format!("{SHOP}: nobody, k8s-node-2, k8s-node-1 which precedes it, k8s-node-2, nobody"))
}

async fn union(stage: &mut Stage<'_>) -> Seen {
    advertise(stage, json!({"nodeSelectors": hostname(Host::Node2)})).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node2]).await?;
    stage.apply(FOR_NODE_1).await?;
    let seen = as_by_formula(stage).await?;
    stage.remove(&[FOR_NODE_1]).await?;
    owned_by(stage, Segment::First, SHOP, &[Host::Node2]).await?;
    advertise(stage, json!({"nodeSelectors": null})).await?;
    as_by_formula(stage).await?;
    Ok(seen)
}

/// Waits until these addresses are announced and no other.
async fn announced(stage: &Stage<'_>, addresses: &[Ipv4Addr]) -> Result<()> {
    for address in [SHOP, DATA, MISC] {
        let owner = leader(address, &WORKERS).filter(|_| addresses.contains(&address));
        owned_by(stage, Segment::First, address, &owner.into_iter().collect::<Vec<_>>()).await?;
    }
    Ok(())
}

async fn services(stage: &mut Stage<'_>) -> Seen {
    advertise(
        stage,
        json!({
            "ipAddressPools": null,
            "ipAddressPoolSelectors": [{"matchLabels": {"zone": "a"}}],
            "serviceSelectors": [{"matchLabels": {"tier": "front"}}],
        }),
    )
    .await?;
    announced(stage, &[SHOP]).await?;
    let tier = |tier: Value| json!({"metadata": {"labels": {"tier": tier}}});
    stage.patch(SERVICE, DEMO, "shop", false, tier("rear".into())).await?;
    announced(stage, &[]).await?;
    stage.patch(SERVICE, DEMO, "shop", false, tier("front".into())).await?;
    stage.patch(SERVICE, DEMO, "misc", false, tier("front".into())).await?;
    announced(stage, &[SHOP, MISC]).await?;
    stage.patch(SERVICE, DEMO, "misc", false, tier(Value::Null)).await?;
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    stage.patch(POOLS, SYSTEM, "web", false, zone("b")).await?;
    announced(stage, &[]).await?;
    stage.patch(POOLS, SYSTEM, "web", false, zone("a")).await?;
    announced(stage, &[SHOP]).await?;
    Ok("demo/shop alone; nobody when its label or the pool's is another; both again".to_owned())
}

async fn either(stage: &mut Stage<'_>) -> Seen {
    advertise(
        stage,
        json!({
            "ipAddressPools": ["web"], "ipAddressPoolSelectors": null,
            "serviceSelectors": [{"matchLabels": {"tier": "front"}}, {"matchLabels": {"tier": "back"}}],
        }),
    )
    .await?;
    announced(stage, &[SHOP, DATA]).await?;
    Ok(format!("{SHOP} and {DATA} announced, {MISC} not"))
}

async fn ghosts(stage: &mut Stage<'_>) -> Seen {
    advertise(
        stage,
        json!({"serviceSelectors": [{"matchLabels": {"tier": "ghost"}}], "nodeSelectors": [{"matchLabels": {"kubernetes.io/hostname": "ghost"}}]}),
    )
    .await?;
    announced(stage, &[]).await?;
    advertise(stage, json!({"serviceSelectors": null, "nodeSelectors": null})).await?;
    as_by_formula(stage).await?;
    Ok(format!("{}; then all three again", names(&[])))
}
