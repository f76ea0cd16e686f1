// SPDX-License-Identifier: Apache-2.0
//! The controller's decisions over time, without I/O.
