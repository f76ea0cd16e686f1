// SPDX-License-Identifier: Apache-2.0
//! What both daemons need of Kubernetes, and of a process that Kubernetes runs.
//!
//! ```text
//!  API server ──list, watch──► watch ──Change<K>──► core ──ApiRequest──► writes ──► API server
//!                                                     └────Event───────► events ──►
//!  kubelet ────/healthz────────► health        Prometheus ──/metrics──► metrics server
//!  API server ──AdmissionReview, ConversionReview──► webhook server, with a certificate that keeps itself
//! ```
//!
//! Nothing here decides anything: watches deliver what there is, writes deliver what was decided, and each
//! of them waits for its own stranger only. Everything runs on the one thread of the caller's runtime.

pub mod access;
pub mod backoff;
pub mod client;
pub mod common;
pub mod daemon;
pub mod events;
pub mod flags;
pub mod health;
pub mod level;
pub mod listen;
pub mod logging;
pub mod metrics;
pub mod process;
pub mod pulse;
pub mod reach;
pub mod request;
pub mod tls;
pub mod watch;
pub mod webhook;
pub mod writes;

mod https;
mod lossy;
mod process_metrics;
