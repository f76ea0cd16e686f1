// SPDX-License-Identifier: Apache-2.0
//! The one binary.

fn main() {}
