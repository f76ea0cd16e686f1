// SPDX-License-Identifier: Apache-2.0
//! What goes into the core and what comes out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ferrolb_announce::AddressPlans;
use ferrolb_api::event::Event;
use ferrolb_api::request::{ApiRequest, WriteError, WriteResult};
use ferrolb_api::{
    BFDProfile, BGPAdvertisement, BGPPeer, BGPSession, Change, Community, ConfigurationState, IPAddressPool,
    L2Advertisement, ServiceBGPStatus, ServiceL2Status,
};
use ferrolb_config::Undecodable;
use ferrolb_config::state::OwnPod;
use ferrolb_net_types::{NodeName, PeerName, Prefix, ServiceKey, Time};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::bgp::{PeerPlan, PeerReport};
use crate::peers::SpeakerPod;
use crate::wire::{Counters, Peer, Report};

/// What does not change while the speaker runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The node the speaker runs on.
    pub node: NodeName,
    /// The namespace of the configuration and status objects. Objects of other namespaces are ignored.
    pub namespace: String,
    /// Only Services of this `loadBalancerClass`; empty means only those without one.
    pub lb_class: String,
    /// `--ignore-exclude-lb`.
    pub ignore_exclude_lb: bool,
    /// The value of `METALLB_BGP_TYPE`.
    pub bgp_type: String,
    /// The speaker's own Pod, owner of what it writes. `None` if it is not known yet: then it comes as
    /// [`Input::OwnPod`].
    pub pod: Option<OwnPod>,
    /// The port of the member list; `None` if there is none, so that every node counts as having a speaker.
    pub member_port: Option<u16>,
    /// The label selector that the speakers' Pods are listed with, as it was given.
    pub member_labels: String,
    /// There is a place that outlives the process: ask for snapshots with [`Effect::Save`].
    pub keeps_snapshots: bool,
}

/// Something happened. Nothing is decided before every watched kind had its first [`Change::Reset`].
#[derive(Clone, Debug)]
pub enum Input {
    /// The speaker's own Pod, unless the settings name it: once, and before any change that a watch delivers.
    OwnPod(OwnPod),
    /// Services of all namespaces.
    Services(Change<Service>),
    /// EndpointSlices of all namespaces.
    EndpointSlices(Change<EndpointSlice>),
    /// All Nodes.
    Nodes(Change<Node>),
    /// Namespaces.
    Namespaces(Change<Namespace>),
    /// IPAddressPools.
    Pools(Change<IPAddressPool>),
    /// L2Advertisements.
    L2Advertisements(Change<L2Advertisement>),
    /// BGPAdvertisements.
    BGPAdvertisements(Change<BGPAdvertisement>),
    /// BGPPeers.
    BGPPeers(Change<BGPPeer>),
    /// BFDProfiles.
    BFDProfiles(Change<BFDProfile>),
    /// Communities.
    Communities(Change<Community>),
    /// The configuration objects that exist and whose content does not fit their type, all of them: each keeps its
    /// last good version.
    Undecodable(Vec<Undecodable>),
    /// ServiceL2Statuses, those of other nodes included.
    L2Statuses(Change<ServiceL2Status>),
    /// ServiceBGPStatuses: this node's. Others do no harm.
    BGPStatuses(Change<ServiceBGPStatus>),
    /// BGPSessions: this node's. Others do no harm. Without their first list, none is written.
    BGPSessions(Change<BGPSession>),
    /// A Secret that [`Effect::Secrets`] asked for, as it is now; `None` where there is none, or none may be read.
    Secret {
        /// Its name, in the own namespace.
        name: String,
        /// What it holds.
        secret: Option<Box<Secret>>,
    },
    /// How a BGP session is, whenever its state changes, and at most once per second while only numbers do; `None`
    /// once everything about a session that was to end is over.
    Peer {
        /// Whose session.
        peer: PeerName,
        /// How it is.
        report: Option<Box<PeerReport>>,
    },
    /// ConfigurationStates; only the speaker's own matters.
    ConfigurationStates(Change<ConfigurationState>),
    /// The answer to [`Effect::ListPods`].
    Pods(Result<Vec<SpeakerPod>, WriteError>),
    /// What the wire side says.
    Wire(Report),
    /// The API server answers again, after [`Input::ApiSilent`]: a list or a watch was granted, a watch brought
    /// something, a write was answered, or a question that has no other purpose.
    ApiAnswers,
    /// The API server has not been heard for a while, and did not answer when asked.
    ApiSilent {
        /// When it was heard last; the start of the process if never.
        since: Time,
    },
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

/// How a Service is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// By answering ARP and NDP.
    Layer2,
    /// By BGP.
    Bgp,
}

impl Protocol {
    /// MetalLB's word for it, in events, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Layer2 => "layer2",
            Self::Bgp => "bgp",
        }
    }
}

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
    /// Hand this plan to the wire side. Only the latest counts.
    Plan(Arc<AddressPlans>),
    /// List the Pods with the speakers' labels in the own namespace, once, and bring the answer back as
    /// [`Input::Pods`].
    ListPods,
    /// Tell the wire side who should be members: all other speakers whose Pods run. Only the latest counts.
    Peers(Vec<Peer>),
    /// Tell the wire side whether the API has been there within the last 30 s. It starts as if it were.
    Api {
        /// It has.
        working: bool,
    },
    /// Keep what `Core::snapshot` gives, in place of what was kept before.
    Save,
    /// What `/readyz` says from now on: yes once this speaker knows everything, is eligible, and has taken over what
    /// it leads. It starts with no.
    Ready(bool),
    /// Watch these Secrets of the own namespace, and no others; bring each, and the news of it, as
    /// [`Input::Secret`], once even where it does not exist or may not be read. It starts with none.
    Secrets(BTreeSet<String>),
    /// Keep a session with this peer, by this plan from now on; without one, say goodbye, then forget it. A plan
    /// that differs from the one before only in what the peer does not see leaves the session up.
    Session {
        /// Whose session.
        peer: PeerName,
        /// The plan.
        plan: Option<Box<PeerPlan>>,
    },
    /// Tell a peer that has a plan these routes, or no longer any, for these prefixes. A new session starts with none;
    /// one whose plan changes keeps them.
    Routes {
        /// The peer.
        peer: PeerName,
        /// What changes, in order of prefixes.
        changes: Vec<(Prefix, Option<Arc<ferrolb_bgp::Route>>)>,
    },
    /// `metallb_speaker_announced{service,protocol,node,ip}`: set to 1, or the series removed.
    Announced {
        /// The Service.
        service: ServiceKey,
        /// How it is announced.
        protocol: Protocol,
        /// The address.
        ip: IpAddr,
        /// Set, or removed.
        on: bool,
    },
    /// The `metallb_layer2_*` counters of an address, as totals; `None` removes its series.
    L2Counters {
        /// The address.
        ip: IpAddr,
        /// The totals since the process started.
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
