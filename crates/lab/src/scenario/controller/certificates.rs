// SPDX-License-Identifier: Apache-2.0
//! Third chapter: the certificate of the webhooks comes near its end, and is renewed without anybody noticing.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use super::super::cluster::{POOL, SECRET, SERVICE, eventually, text};
use super::super::l2;
use super::super::stage::{SOON, Stage};
use super::super::story::Seen;
use super::SYSTEM;
use super::installation::bundles;
use crate::host::Host;
use crate::seed::documents;

const SECRET_NAME: &str = "metallb-webhook-cert";
const SERVICE_NAME: &str = "metallb-webhook-service";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Less than the 90 days at which a certificate is renewed.
const LEFT: u32 = 30;

pub(super) async fn chapter(stage: &mut Stage<'_>) {
    stage.story.chapter("The certificate of the webhooks");
    stage
        .step(
            "near its end",
            "a Secret whose certificate ends in 30 days gets a new one that is served at once; meanwhile no request is \
             refused for lack of trust, and the controller is not restarted",
            rotation,
        )
        .await;
    stage
        .step("deleted content", "a Secret that was emptied is filled again, and admission goes on", emptied)
        .await;
}

async fn rotation(stage: &mut Stage<'_>) -> Seen {
    let before = stage.bench.controller().await?;
    let secret = stage.cluster.read(SECRET, SYSTEM, SECRET_NAME).await?;
    let near = near_its_end(&secret["data"], LEFT * DAY)?;
    stage.patch_secretly(SECRET, SYSTEM, SECRET_NAME, &json!({"data": near})).await?;
    // As somebody who goes on working meanwhile.
    let (admitted, took) = admitting_until(stage, async |stage| {
        let secret = stage.cluster.read(SECRET, SYSTEM, SECRET_NAME).await?;
        let certificate = text(&secret, "/data/tls.crt");
        ensure!(!certificate.is_empty() && Some(certificate) != near["tls.crt"].as_str(), "not renewed yet");
        ensure!(text(&secret, "/data/ca.crt") == near["ca.crt"], "the authority was replaced, too");
        Ok(())
    })
    .await?;
    stage
        .story
        .measured(format!("renewed after {} ms; {admitted} requests admitted meanwhile", took.as_millis()));
    stage.story.command(format!(
        "kubectl -n {SYSTEM} get secret {SECRET_NAME} -o 'jsonpath={{.data.tls\\.crt}}' | base64 -d | openssl x509 -noout -checkend 7776000"
    ));
    let secret = stage.cluster.read(SECRET, SYSTEM, SECRET_NAME).await?;
    let encoded = text(&secret, "/data/tls.crt");
    let check = format!("base64 -d <<<{encoded} | openssl x509 -noout -checkend 7776000");
    stage.on_host(Host::Client, &["bash", "-c", &check]).await?.success().context("90 days ahead")?;
    served(stage, encoded).await?;
    trusted(stage, &near["ca.crt"]).await?;
    let after = stage.bench.controller().await?;
    ensure!(
        (&after.uid, after.restarts) == (&before.uid, before.restarts),
        "the controller was restarted: {before:?} -> {after:?}"
    );
    Ok(format!(
        "a certificate with {LEFT} days left was renewed by the same authority and served; every request was admitted; \
         no restart"
    ))
}

async fn emptied(stage: &mut Stage<'_>) -> Seen {
    let nothing = json!({"data": {"ca.crt": null, "ca.key": null, "tls.crt": null, "tls.key": null}});
    stage.patch(SECRET, SYSTEM, SECRET_NAME, false, nothing).await?;
    let (admitted, took) = admitting_until(stage, async |stage| {
        let secret = stage.cluster.read(SECRET, SYSTEM, SECRET_NAME).await?;
        ensure!(!text(&secret, "/data/tls.crt").is_empty(), "empty still");
        trusted(stage, &secret["data"]["ca.crt"]).await
    })
    .await?;
    let secret = stage.cluster.read(SECRET, SYSTEM, SECRET_NAME).await?;
    served(stage, text(&secret, "/data/tls.crt")).await?;
    stage
        .story
        .measured(format!("filled after {} ms; {admitted} requests admitted meanwhile", took.as_millis()));
    Ok("a new authority and certificate, trusted and served; every request was admitted".into())
}

/// Asks for admission again and again until `done` holds, and once more then: how often, and how long it took.
async fn admitting_until(
    stage: &Stage<'_>,
    mut done: impl AsyncFnMut(&Stage<'_>) -> Result<()>,
) -> Result<(usize, Duration)> {
    let began = Instant::now();
    let mut pool = documents(l2::POOL.yaml)?.pop().context("no pool")?;
    let mut admitted = 0;
    loop {
        // Every request has to be asked about: one that changes nothing is not.
        pool["metadata"]["annotations"] = json!({"example.com/try": admitted.to_string()});
        stage.cluster.try_apply(POOL, &pool).await.with_context(|| format!("request {admitted}"))?;
        admitted += 1;
        match done(stage).await {
            Ok(()) => break,
            Err(error) if began.elapsed() > SOON => return Err(error),
            Err(_) => {}
        }
    }
    stage.cluster.try_apply(POOL, &pool).await.context("the request after it")?;
    Ok((admitted + 1, began.elapsed()))
}

/// Waits until the webhook presents this certificate (base64 of PEM).
async fn served(stage: &Stage<'_>, encoded: &str) -> Result<()> {
    let service = stage.cluster.read(SERVICE, SYSTEM, SERVICE_NAME).await?;
    let address = text(&service, "/spec/clusterIP");
    let expected = format!("base64 -d <<<{encoded} | openssl x509 -noout -fingerprint -sha256");
    let expected = stage.on_host(Host::Master1, &["bash", "-c", &expected]).await?.success()?;
    let presented = format!(
        "openssl s_client -connect {address}:443 </dev/null 2>/dev/null | openssl x509 -noout -fingerprint -sha256"
    );
    eventually(SOON, async || {
        let seen = stage.on_host(Host::Master1, &["bash", "-c", &presented]).await?.success()?;
        ensure!(seen == expected, "the webhook presents {seen}, not {expected}");
        Ok(())
    })
    .await
}

/// Waits until every webhook and the conversion trust this authority (base64 of PEM).
async fn trusted(stage: &Stage<'_>, authority: &Value) -> Result<()> {
    let authority = STANDARD.decode(authority.as_str().unwrap_or_default())?;
    let authority = String::from_utf8(authority)?;
    let authority = authority.trim();
    ensure!(!authority.is_empty(), "no authority");
    eventually(SOON, async || {
        for bundle in bundles(stage).await? {
            let bundle = String::from_utf8(STANDARD.decode(bundle)?)?;
            ensure!(bundle.contains(authority), "a caBundle lacks the authority");
        }
        Ok(())
    })
    .await
}

/// The Secret's data with a certificate of the same authority that ends after this time.
fn near_its_end(data: &Value, left: Duration) -> Result<Value> {
    let entry = |key: &str| {
        let text = data[key].as_str().with_context(|| format!("the Secret has no {key}"))?;
        Ok::<_, anyhow::Error>(String::from_utf8(STANDARD.decode(text)?)?)
    };
    let authority = KeyPair::from_pem(&entry("ca.key")?)?;
    let issuer = Issuer::from_ca_cert_pem(&entry("ca.crt")?, authority)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![format!("{SERVICE_NAME}.{SYSTEM}.svc")])?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Not before the authority is valid.
    params.not_before = SystemTime::now().into();
    params.not_after = (SystemTime::now() + left).into();
    let certificate = params.signed_by(&key, &issuer)?.pem();
    let mut near = data.clone();
    near["tls.crt"] = STANDARD.encode(certificate).into();
    near["tls.key"] = STANDARD.encode(key.serialize_pem()).into();
    Ok(near)
}
