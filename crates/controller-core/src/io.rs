// SPDX-License-Identifier: Apache-2.0
//! What goes into the core and what comes out.

use ferrolb_api::event::Event;
use ferrolb_api::request::{ApiRequest, WriteResult};
use ferrolb_api::{Change, Community, ConfigurationState, IPAddressPool};
use ferrolb_config::{BgpType, Undecodable};
use ferrolb_ipam::Counters;
use ferrolb_net_types::PoolName;
use k8s_openapi::api::core::v1::{Namespace, Service};

/// What does not change while the controller runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the configuration objects. Objects of other namespaces are ignored.
    pub namespace: String,
    /// Whose rules of validation hold.
    pub bgp_type: BgpType,
    /// Only Services of this `loadBalancerClass`; empty means only those without one.
    pub lb_class: String,
    /// Name of the controller's own Pod, owner of its ConfigurationState.
    pub pod_name: String,
    /// Uid of that Pod.
    pub pod_uid: String,
    /// The name under which the controller's writes appear in `managedFields`: the first word of the client's
    /// User-Agent. It tells its own writes to a status from those of others.
    pub field_manager: String,
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Services of all namespaces.
    Services(Change<Service>),
    /// IPAddressPools.
    Pools(Change<IPAddressPool>),
    /// Communities.
    Communities(Change<Community>),
    /// Namespaces.
    Namespaces(Change<Namespace>),
    /// The configuration objects that exist and whose content does not fit their type, all of them.
    Undecodable(Vec<Undecodable>),
    /// ConfigurationStates; only the controller's own matters.
    ConfigurationStates(Change<ConfigurationState>),
    /// A write that the core asked for has ended.
    Written {
        /// The id of the [`Effect::Write`].
        id: WriteId,
        /// What the API server answered.
        result: WriteResult,
    },
}

/// Names one write of one core, to match its result. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send this request, once, and bring its result back as [`Input::Written`]. Requests for one object are
    /// never outstanding together, so they may run in parallel.
    Write {
        /// Its id.
        id: WriteId,
        /// The request.
        request: ApiRequest,
    },
    /// Record this event. Its loss is tolerable.
    Event(Event),
    /// The figures of a pool for the metrics; `None` when the pool is gone.
    PoolCounters {
        /// The pool.
        pool: PoolName,
        /// How full it is.
        counters: Option<Counters>,
    },
    /// The configuration was evaluated.
    Configuration {
        /// A good one was seen since the start.
        loaded: bool,
        /// The objects as they are would be refused as a whole, so (part of) an older one is in force.
        stale: bool,
    },
    /// A Service or the configuration was looked at.
    Reconciled {
        /// It did not end well.
        failed: bool,
    },
}
