// SPDX-License-Identifier: Apache-2.0
//! Webhooks: servers elsewhere that judge writes and convert between versions of custom resources. They are
//! called as a real API server calls them, and what goes wrong is told in its words.

pub(crate) mod admission;
mod call;
pub(crate) mod conversion;
mod rules;
mod service;

pub(crate) use call::certificates;
pub(crate) use service::Routes;
