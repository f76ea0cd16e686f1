// SPDX-License-Identifier: Apache-2.0
//! ARP: packets, answering and announcing, without I/O.
