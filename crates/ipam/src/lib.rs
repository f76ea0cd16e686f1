// SPDX-License-Identifier: Apache-2.0
//! Which address a Service gets, and why.
