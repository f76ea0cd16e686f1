// SPDX-License-Identifier: Apache-2.0
//! Which node announces which address, how, and why not.
