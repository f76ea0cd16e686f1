// SPDX-License-Identifier: Apache-2.0
//! What both daemons need of Kubernetes: watches, writes, TLS, health, metrics, logs.
