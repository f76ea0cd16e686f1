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
//! Known simplifications: every authenticated user may do everything; the history of changes is kept in
//! memory only; conversion between versions of a custom resource rewrites `apiVersion` and nothing else.

mod api;
mod auth;
mod builtin;
mod crd;
mod discovery;
mod error;
pub mod gc;
mod kinds;
mod managed_fields;
mod object;
mod openapi;
mod patch;
mod random;
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

pub use server::{Error, Options, Server, run};
