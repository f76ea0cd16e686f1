// SPDX-License-Identifier: Apache-2.0
//! An in-memory Kubernetes API server for tests and the lab.
//!
//! It serves HTTPS (HTTP/1.1 and h2) with its own certificate authority, and what `kubectl`, `kube` clients
//! and controllers use: the verbs, watches, patches and server-side apply, custom resources with their
//! schemas, Services with addresses and ports, tables. What it does not support it refuses by name.
//!
//! ```text
//!  connection ── tls, auth ── routes ─┬─ verbs::read ── store ── watch
//!                                     ├─ verbs::write ─ patch ─ managed_fields ─ builtin | crd ─ store
//!                                     ├─ discovery, openapi
//!                                     └─ reviews
//!  gc ── an API client of its own: serves this server or any other
//! ```
//!
//! Objects are JSON values; kinds are rows in a table. Everything a request needs to decide is computed from
//! one snapshot of the object and committed against its revision, so nothing waits inside a lock.
//!
//! It can misbehave on request ([`Server::faults`], and [`control`] for other processes): slow, refused, held
//! back and unheard requests, watches that break or expire, outages. [`Server::audit`] tells what was asked of it.
//!
//! Known simplifications: unless [`Options::authorize`] says RBAC, every authenticated user may do everything;
//! the history of changes is kept in memory only.

mod api;
mod attributes;
mod audit;
mod auth;
mod builtin;
pub mod control;
mod crd;
mod discovery;
mod error;
mod faults;
pub mod gc;
mod kinds;
mod listen;
mod managed_fields;
mod object;
mod openapi;
mod patch;
mod random;
mod rbac;
mod request;
mod respond;
mod reviews;
mod routes;
mod schema;
mod selector;
mod server;
mod store;
mod table;
mod tls;
mod verbs;
mod watch;
mod webhook;

pub use audit::{Audit, RequestCount, RequestEntry, RequestKind};
pub use faults::{Effect, Fault, Faults, HeldRequest, InstalledFault, RequestMatch};
pub use rbac::Authorize;
pub use server::{Error, Options, Server, run};
