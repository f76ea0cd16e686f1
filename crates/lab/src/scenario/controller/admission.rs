// SPDX-License-Identifier: Apache-2.0
//! Second chapter: what gets in, what is refused and with which words, what is admitted with a warning, and the two
//! versions of BGPPeer.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::super::cluster::{BGP_PEER, BGP_PEER_V1BETA1, CONFIGURATION_STATE, Kind, POOL, eventually, text};
use super::super::l2;
use super::super::stage::{Example, SOON, Stage};
use super::super::story::Seen;
use super::{SYSTEM, manifest};

const WRONG_PEER: Example = manifest!("wrong-peer.yaml");
const LOOSE: Example = manifest!("loose-advertisement.yaml");
const OLD_PEER: Example = manifest!("old-peer.yaml");
const NEW_PEER: Example = manifest!("new-peer.yaml");

/// Returns whether the story can go on.
pub(super) async fn chapter(stage: &mut Stage<'_>) -> bool {
    stage.story.chapter("What is admitted");
    let ok = stage.step("a pool and an advertisement", "admitted, and used", configuration).await;
    stage
        .step(
            "a pool whose range runs backwards",
            "refused with MetalLB's words, and not stored",
            async |stage: &mut Stage<'_>| {
                let why = "parsing address pool reversed: invalid CIDR \"192.168.10.250-192.168.10.240\" in pool \
                           \"reversed\": invalid IP range \"192.168.10.250-192.168.10.240\": start IP \
                           \"192.168.10.250\" is after the end IP \"192.168.10.240\"";
                refused(stage, l2::REVERSED, POOL, "reversed", "ipaddresspoolvalidationwebhook", why).await
            },
        )
        .await;
    stage
        .step(
            "overlapping pools",
            "refused with MetalLB's words, and not stored",
            async |stage: &mut Stage<'_>| {
                let why = "CIDR \"192.168.10.216/30\" in pool \"overlapping\" overlaps with already defined CIDR \
                           \"192.168.10.216/30\"";
                refused(stage, l2::OVERLAPPING, POOL, "overlapping", "ipaddresspoolvalidationwebhook", why).await
            },
        )
        .await;
    stage
        .step(
            "a router without an address",
            "refused with MetalLB's words, and not stored",
            async |stage: &mut Stage<'_>| {
                let why = "parsing peer nowhere peer has no Address or Interface specified";
                refused(stage, WRONG_PEER, BGP_PEER, "nowhere", "bgppeersvalidationwebhook", why).await
            },
        )
        .await;
    stage.step("a reference to nothing", "admitted with a warning that kubectl shows", warned).await;
    stage
        .step(
            "a BGPPeer in v1beta1",
            "read as v1beta2: fields converted, labels and annotations kept",
            async |stage: &mut Stage<'_>| {
                let spec = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.1", "holdTime": "30s"});
                converted(stage, OLD_PEER, "old", BGP_PEER, &spec).await
            },
        )
        .await;
    stage
        .step(
            "a BGPPeer in v1beta2",
            "read as v1beta1: fields converted, labels and annotations kept",
            async |stage: &mut Stage<'_>| {
                let spec = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "192.168.10.2",
                    "nodeSelectors": [{"matchLabels": {"kubernetes.io/hostname": "k8s-node-1"}}]});
                converted(stage, NEW_PEER, "new", BGP_PEER_V1BETA1, &spec).await
            },
        )
        .await;
    stage
        .step("clean up", "the advertisement and the routers are gone", async |stage: &mut Stage<'_>| {
            stage.remove(&[LOOSE, OLD_PEER, NEW_PEER]).await?;
            valid(stage).await?;
            Ok("deleted; ConfigurationState controller is Valid".into())
        })
        .await;
    ok
}

async fn configuration(stage: &mut Stage<'_>) -> Seen {
    stage.apply(l2::POOL).await?;
    stage.apply(l2::ADVERTISEMENT).await?;
    valid(stage).await?;
    Ok("admitted; ConfigurationState controller is Valid".into())
}

async fn valid(stage: &Stage<'_>) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let state = stage.cluster.read(CONFIGURATION_STATE, SYSTEM, "controller").await?;
        let result = text(&state, "/status/result");
        ensure!(result == "Valid", "ConfigurationState controller is {result:?}");
        Ok(())
    })
    .await
}

/// The API server refuses the manifest with what the webhook says, and nothing of it is stored.
async fn refused(
    stage: &mut Stage<'_>,
    example: Example,
    kind: Kind,
    name: &str,
    webhook: &str,
    why: &str,
) -> Seen {
    let said = stage.apply_refused(example).await?;
    let expected = format!("admission webhook \"{webhook}.metallb.io\" denied the request: {why}");
    ensure!(said.contains(&expected), "{said}");
    ensure!(stage.cluster.find(kind, SYSTEM, name).await?.is_none(), "{name} is stored all the same");
    Ok(expected)
}

async fn warned(stage: &mut Stage<'_>) -> Seen {
    let said = stage.kubectl_on(&["apply", "-f", LOOSE.file], &["apply", "-f", "-"], LOOSE.yaml).await?;
    let expected = "spec.ipAddressPools[0]: there is no IPAddressPool \"nowhere\"";
    match said {
        Some(said) => {
            ensure!(said.ok(), "{}", super::super::stage::told(&said));
            ensure!(said.stderr.contains(&format!("Warning: {expected}")), "{}", said.stderr);
        }
        None => stage.apply(LOOSE).await?,
    }
    Ok(format!("Warning: {expected}"))
}

/// A peer is applied in one version and read in another.
async fn converted(stage: &mut Stage<'_>, example: Example, name: &str, other: Kind, spec: &Value) -> Seen {
    stage.apply(example).await?;
    let stored = stage.cluster.read(other, SYSTEM, name).await?;
    let word = format!("{}.{}.metallb.io", other.word(), other.version());
    let printed = stage.kubectl(&["-n", SYSTEM, "get", &word, name, "-o", "json"]).await?;
    let seen = match printed {
        Some(printed) => serde_json::from_str(&printed).context("what kubectl prints")?,
        None => stored,
    };
    let given = crate::seed::documents(example.yaml)?;
    let given = given.first().context("an empty manifest")?;
    let read = &seen["spec"];
    for (field, value) in spec.as_object().into_iter().flatten() {
        let same = match field.as_str() {
            // The two versions write selectors alike where only labels are matched.
            "nodeSelectors" => read[field][0]["matchLabels"] == value[0]["matchLabels"],
            _ => read[field] == *value,
        };
        ensure!(same, "{field} is {}, not {value}", read[field]);
    }
    for kept in ["labels", "annotations"] {
        for (key, value) in given["metadata"][kept].as_object().into_iter().flatten() {
            ensure!(
                seen["metadata"][kept][key] == *value,
                "{kept}: {key} is {}",
                seen["metadata"][kept][key]
            );
        }
    }
    Ok(format!("{} {name}: {}", text(&seen, "/apiVersion"), spec))
}
