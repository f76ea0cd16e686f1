// SPDX-License-Identifier: Apache-2.0
//! The speaker's decisions over time, without I/O.
