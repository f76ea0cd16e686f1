// SPDX-License-Identifier: Apache-2.0
//! The bench: network namespaces, stand-ins, scenarios, measurements.
