// SPDX-License-Identifier: Apache-2.0
//! The custom resources of metallb.io as Rust types, and their definitions.
