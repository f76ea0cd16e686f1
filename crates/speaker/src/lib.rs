// SPDX-License-Identifier: Apache-2.0
//! The speaker daemon: wiring and threads.
