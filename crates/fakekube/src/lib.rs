// SPDX-License-Identifier: Apache-2.0
//! An in-memory Kubernetes API server for tests and the lab.
