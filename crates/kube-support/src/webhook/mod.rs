// SPDX-License-Identifier: Apache-2.0
//! Being asked by the API server: an HTTPS server for reviews, and a certificate that the API server trusts.
//!
//! ```text
//!  API server ──review──► server ──► Webhooks (the daemon's answers)
//!       │                    │ certificate
//!       │                 Serving ◄── rotation ◄──watch── Secret, webhook configuration, definition
//!       └──────────────◄── CA, by server-side apply of one field ──┘
//! ```
//!
//! The certificate is served from the Secret as it is read from the API, not from files, unless somebody else makes
//! it.

mod certificates;
mod decision;
mod objects;
mod rotation;
mod server;
mod serving;
mod trust;

pub use certificates::{AHEAD, IssueError, Material, Renewal, Verdict};
pub use rotation::Rotation;
pub use server::{BODY_LIMIT, Body, Reply, WebhookServer, Webhooks};
pub use serving::{Mounted, Serving};
pub use trust::FIELD_MANAGER;
