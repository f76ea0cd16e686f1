// SPDX-License-Identifier: Apache-2.0
//! What goes into the core and what comes out.

use ferrolb_api::event::Event;
use ferrolb_api::request::{ApiRequest, WriteError, WriteResult};
use ferrolb_api::{Change, Community, ConfigurationState, IPAddressPool, ServiceBGPStatus, ServiceL2Status};
use ferrolb_config::{BgpType, Undecodable};
use ferrolb_ipam::Counters;
use ferrolb_net_types::PoolName;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};

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
    /// Who else may be there, and how the controllers agree on who decides.
    pub replicas: Replicas,
    /// Whether the conditions `ferrolb.io/Allocated` and `ferrolb.io/Announced` of Services are written. Where they
    /// are, [`Input::L2Statuses`] and [`Input::BgpStatuses`] have to be delivered too.
    pub conditions: bool,
}

/// How several controllers keep out of each other's way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Replicas {
    /// There is no other controller, ever: for tests and simulations that are about something else.
    #[default]
    Alone,
    /// No Lease may be written. The core looks for other controllers' Pods before each batch of writes.
    Rivals,
    /// One of several leads: the holder of the Lease [`LEASE`](crate::LEASE) in [`Settings::namespace`].
    Lease {
        /// What the holder calls itself there: the Pod's name and uid, with `_` between. No two processes that
        /// live at the same time may have the same one.
        identity: String,
    },
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
    /// ServiceL2Statuses, if [`Settings::conditions`].
    L2Statuses(Change<ServiceL2Status>),
    /// ServiceBGPStatuses, if [`Settings::conditions`].
    BgpStatuses(Change<ServiceBGPStatus>),
    /// How an [`Effect::Lease`] ended: the Lease as it is stored now.
    Lease(Result<Box<Lease>, WriteError>),
    /// What an [`Effect::ListServices`] found: every Service of the cluster.
    ServicesListed(Result<Vec<Service>, WriteError>),
    /// What an [`Effect::FindRivals`] found.
    RivalsFound(Result<Neighbours, WriteError>),
    /// The API server answers again, after somebody had not been answered.
    ApiAnswers,
    /// The process is about to end: the core decides nothing more, and a leader gives up the Lease.
    Stopping,
    /// A write that the core asked for has ended.
    Written {
        /// The id of the [`Effect::Write`].
        id: WriteId,
        /// What the API server answered.
        result: WriteResult,
    },
}

/// The Pods among which another controller would be, and the nodes they may run on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Neighbours {
    /// All Pods of the own namespace that carry the labels of the own Pod, the own one included.
    pub pods: Vec<Pod>,
    /// The cluster's nodes. May be left empty if [`needs_nodes`](crate::needs_nodes) says so of the Pods.
    pub nodes: Vec<Node>,
}

/// One request about the Lease [`LEASE`](crate::LEASE).
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseRequest {
    /// Reads it, not from a cache (no `resourceVersion` in the query).
    Read,
    /// Creates it.
    Create(Box<Lease>),
    /// Replaces it, provided that its `resourceVersion` still is that of this one.
    Replace(Box<Lease>),
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
    /// Send this request about the Lease, once, and bring its result back as [`Input::Lease`]: within three seconds,
    /// with an error of code 0 if there is no answer. Never two at a time.
    Lease(LeaseRequest),
    /// List all Services by a quorum read (no `resourceVersion` in the query) that starts now, and bring the result
    /// back as [`Input::ServicesListed`]. Never two at a time.
    ListServices,
    /// List the Pods that may be rivals, and the nodes, and bring the result back as [`Input::RivalsFound`]. Never
    /// two at a time.
    FindRivals,
    /// Whether this controller is the one that decides; at the start it is not.
    Leads(bool),
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
