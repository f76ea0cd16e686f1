// SPDX-License-Identifier: Apache-2.0
//! The bench: a small cluster and its network on one Linux machine, in network namespaces of its own.
//!
//! Hosts are network namespaces joined by a bridge. The daemons run in them as separate processes, with the mounts and
//! privileges a container runtime gives them, and talk TLS with a Kubernetes API. What a cluster has besides is played
//! by stand-ins: for kubelet, kube-proxy, scheduler, and the controllers of Deployments, DaemonSets and
//! EndpointSlices.
//!
//! ```text
//!              ┌────────────────────────── stand-ins (one thread) ─────────────────────────┐
//!  Kubernetes ─┤ workloads + placement ─► Pods ─► kubelet ─► processes in mount namespaces │
//!     API      │ endpoints ─► EndpointSlices ─► kube_proxy ─► nftables on every node       │
//!              └────────────────────────────────────────────────────────────────────────────┘
//!       ▲                                                        │
//!     Bench (the story's hands: kubectl, commands, signals) ─────┘
//!
//!  topology: the wires     ledger: what exists, for the end     launch: processes     stage: up, story, down
//! ```
//!
//! [`play`] builds a bench, runs a story on it and takes it down, whatever happens; [`cli`] is the command line.

mod api_server;
pub mod bench;
mod bench_handle;
pub mod cli;
pub mod conformance;
mod endpoints;
mod host;
mod http;
pub mod kube_proxy;
mod kubelet;
mod launch;
mod ledger;
mod metallb_speaker;
mod outage;
mod placement;
mod pod;
mod progress;
mod routers;
pub mod scenario;
mod seed;
mod stage;
mod supervisor;
mod tools;
mod topology;
mod view;
pub mod wait;
mod workloads;

pub use api_server::ApiSource;
pub use bench_handle::{Bench, DEMO, Daemon, Held, PodView, SYSTEM};
pub use host::{BadLabName, Host, LabName, SECOND_INTERFACE, UnknownHost};
pub use launch::Outcome;
pub use ledger::Taken;
pub use outage::Outage;
pub use pod::Seen;
pub use progress::{Line, Progress};
pub use seed::Manifests;
pub use stage::{Interrupted, Options, play};
