// SPDX-License-Identifier: Apache-2.0
//! A stand-in for a MetalLB v0.16.1 speaker: what the other speakers, the segment and the API notice of one.
//!
//! It is a test tool, made from the description of v0.16.1's behaviour, its faults included: it believes itself alone until
//! it has joined, announces at every pass, says `nodeAssigned` again each time, takes away status objects of others. So a
//! cluster of mixed speakers can be played where MetalLB's image cannot be had. Layer 2 alone: it has no BGP, no metrics,
//! no ConfigurationState.
//!
//! ```text
//!  watches ──► speaker (one pass per event) ──► rule (pure) ──► responder: ARP, NDP, bursts (a thread)
//!  members (gossip's plain role) ──► everything again     └──► status: ServiceL2Status, events
//! ```

mod members;
mod responder;
mod rule;
mod speaker;
mod status;
mod world;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use ferrolb_net_types::NodeName;

/// What the hidden subcommand `__metallb-speaker` takes. Everything else comes from the environment variables of MetalLB's
/// manifests.
#[derive(Clone, Debug, clap::Args)]
pub struct SpeakerArgs {
    /// Accepted and ignored: there are no metrics.
    #[arg(long, default_value_t = 9120)]
    port: u16,
    /// Accepted and ignored.
    #[arg(long, default_value = "info")]
    log_level: String,
    /// Announce from nodes that are labelled as excluded from load balancers, too.
    #[arg(long)]
    ignore_exclude_lb: bool,
}

/// What the environment says.
#[derive(Clone, Debug)]
struct Settings {
    node: NodeName,
    pod: String,
    namespace: String,
    /// Without an address or labels there is no member list.
    members: Option<MemberList>,
    ignore_exclude_lb: bool,
}

/// How the member list is found.
#[derive(Clone, Debug)]
struct MemberList {
    address: SocketAddr,
    labels: String,
    secret: Vec<u8>,
}

impl Settings {
    fn of_process(args: &SpeakerArgs) -> Result<Self> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let needed = |name: &str| text(name).with_context(|| format!("{name} is not set"));
        let members = match (text("METALLB_ML_BIND_ADDR"), text("METALLB_ML_LABELS")) {
            (Some(address), Some(labels)) => {
                let address: IpAddr = address.parse().context("METALLB_ML_BIND_ADDR")?;
                let port = match text("METALLB_ML_BIND_PORT") {
                    Some(port) => port.parse().context("METALLB_ML_BIND_PORT")?,
                    None => 7946,
                };
                let secret = match text("METALLB_ML_SECRET_KEY_PATH") {
                    Some(path) => std::fs::read(format!("{path}/secretkey"))
                        .context("failed to read memberlist secret key file")?,
                    None => Vec::new(),
                };
                Some(MemberList { address: SocketAddr::new(address, port), labels, secret })
            }
            _ => None,
        };
        let account = std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace");
        Ok(Self {
            node: NodeName::from(needed("METALLB_NODE_NAME")?.as_str()),
            pod: needed("METALLB_POD_NAME")?,
            namespace: account.context("read the own namespace")?.trim().to_owned(),
            members,
            ignore_exclude_lb: args.ignore_exclude_lb,
        })
    }
}

/// Speaks until the process is told to end.
///
/// # Errors
/// The API server cannot be reached at the start, which ends MetalLB's speaker too; or a socket cannot be opened.
pub(crate) async fn run(args: &SpeakerArgs) -> Result<()> {
    speaker::run(Settings::of_process(args)?).await
}

/// One line of the log.
fn log(level: &str, message: &str, facts: &serde_json::Value) {
    let mut line = serde_json::json!({
        "level": level, "ts": jiff::Timestamp::now().to_string(), "msg": message, "caller": "stand-in",
    });
    if let (Some(line), Some(facts)) = (line.as_object_mut(), facts.as_object()) {
        line.extend(facts.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    // Nobody reads a log that cannot be written.
    let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), format!("{line}\n").as_bytes());
}
