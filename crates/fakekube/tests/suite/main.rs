// SPDX-License-Identifier: Apache-2.0
//! The server over a real socket: raw requests, the `kube` client and `kubectl`. What a real API server answers
//! is recorded beside this suite; where one can be started (`FERROLB_KAPI` names the directory of the `kapi`
//! script) the scenarios run against it too, and a difference is a failure.

mod access;
mod collector;
mod conversion;
mod custom;
mod faults;
mod hook;
mod kubectl;
mod objects;
mod real;
mod recorded;
mod services;
mod target;
mod watches;
mod webhooks;
