// SPDX-License-Identifier: Apache-2.0
//! What requests to resources do.

pub(crate) mod decode;
pub(crate) mod delete;
pub(crate) mod form;
pub(crate) mod parts;
pub(crate) mod read;
pub(crate) mod write;
