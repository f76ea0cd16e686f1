// SPDX-License-Identifier: Apache-2.0
//! The only crate that touches the operating system below std: packet sockets, netlink, namespaces, privileges.
