// SPDX-License-Identifier: Apache-2.0
//! Custom resources in, one consistent configuration out.

mod model;
mod selector;

pub use model::{Config, L2Advertisement, Pool, ServiceAllocation};
pub use selector::{Labels, Selector};
