// SPDX-License-Identifier: Apache-2.0
//! What each daemon may do: one table, a reason for every rule.
//!
//! The roles have MetalLB's names, so that applying one installation over the other narrows or restores them and leaves
//! nothing behind. A right that is not here is a feature that is off; a right that nobody uses does not belong here.

use crate::release::Daemon;

/// Where a role holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces, and for objects that have none.
    Cluster,
    /// In the namespace of the installation.
    Namespace,
}

/// A Role or ClusterRole and the ServiceAccount that it is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Where it holds.
    pub scope: Scope,
    /// Its name; that of a ClusterRole gets the namespace in front.
    pub name: &'static str,
    /// Whose it is.
    pub daemon: Daemon,
    /// What it allows.
    pub rules: &'static [Rule],
}

/// A rule of a role.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What a daemon does with it.
    pub why: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// Plurals, subresources with their kind.
    pub resources: &'static [&'static str],
    /// The only objects it holds for; empty for all. Lists and watches then have to select one by its name.
    pub names: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [&'static str],
}

/// Lists and watches.
const WATCH: &[&str] = &["list", "watch"];

/// What both daemons ask when somebody reads their metrics.
const REVIEWS: [Rule; 2] = [
    Rule {
        why: "Metrics are for who may read them: whose token is it …",
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        names: &[],
        verbs: &["create"],
    },
    Rule {
        why: "… and may that user get /metrics? MetalLB's plain manifest grants neither, so its metrics cannot be read.",
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        names: &[],
        verbs: &["create"],
    },
];

const EVENTS: Rule = Rule {
    why: "Events on Services, in their namespaces; one that is repeated is counted.",
    group: "",
    resources: &["events"],
    names: &[],
    verbs: &["create", "patch"],
};

/// Every role.
pub const ROLES: &[Role] = &[
    Role {
        scope: Scope::Cluster,
        name: "controller",
        daemon: Daemon::Controller,
        rules: &[
            Rule {
                why: "Services are what addresses are for; pools may select namespaces by their labels.",
                group: "",
                resources: &["services", "namespaces"],
                names: &[],
                verbs: WATCH,
            },
            Rule {
                why: "The address and the conditions of a Service.",
                group: "",
                resources: &["services/status"],
                names: &[],
                verbs: &["update"],
            },
            Rule {
                why: "Webhooks judge advertisements and peers by the nodes that they select.",
                group: "",
                resources: &["nodes"],
                names: &[],
                verbs: &["list"],
            },
            EVENTS,
            Rule {
                why: "The certificate of the webhooks' authority is put into their configuration; nothing else of it \
                      is changed.",
                group: "admissionregistration.k8s.io",
                resources: &["validatingwebhookconfigurations"],
                names: &["metallb-webhook-configuration"],
                verbs: &["list", "patch", "watch"],
            },
            Rule {
                why: "… and into the conversion of the one kind that has two versions.",
                group: "apiextensions.k8s.io",
                resources: &["customresourcedefinitions"],
                names: &["bgppeers.metallb.io"],
                verbs: &["list", "patch", "watch"],
            },
            REVIEWS[0],
            REVIEWS[1],
        ],
    },
    Role {
        scope: Scope::Namespace,
        name: "controller",
        daemon: Daemon::Controller,
        rules: &[
            Rule {
                why: "The configuration: pools and the names of communities are followed, all of it is read when a \
                      webhook judges a change.",
                group: "metallb.io",
                resources: &[
                    "bfdprofiles",
                    "bgpadvertisements",
                    "bgppeers",
                    "communities",
                    "ipaddresspools",
                    "l2advertisements",
                ],
                names: &[],
                verbs: WATCH,
            },
            Rule {
                why: "How many addresses of a pool are taken.",
                group: "metallb.io",
                resources: &["ipaddresspools/status"],
                names: &[],
                verbs: &["update"],
            },
            Rule {
                why: "Who announces what: from there the condition on the Service.",
                group: "metallb.io",
                resources: &["servicebgpstatuses", "servicel2statuses"],
                names: &[],
                verbs: WATCH,
            },
            Rule {
                why: "Its verdict about the configuration. The right to create cannot be bound to a name.",
                group: "metallb.io",
                resources: &["configurationstates"],
                names: &[],
                verbs: &["create"],
            },
            Rule {
                why: "",
                group: "metallb.io",
                resources: &["configurationstates"],
                names: &["controller"],
                verbs: &["list", "patch", "watch"],
            },
            Rule {
                why: "",
                group: "metallb.io",
                resources: &["configurationstates/status"],
                names: &["controller"],
                verbs: &["patch"],
            },
            Rule {
                why: "Which replica decides, and what it is about to write.",
                group: "coordination.k8s.io",
                resources: &["leases"],
                names: &[],
                verbs: &["create"],
            },
            Rule {
                why: "",
                group: "coordination.k8s.io",
                resources: &["leases"],
                names: &["ferrolb-controller"],
                verbs: &["get", "update"],
            },
            Rule {
                why: "Its own Pod, which owns what it makes; and other controllers, which it waits for where no Lease \
                      decides (FERROLB_LEVEL=A).",
                group: "",
                resources: &["pods"],
                names: &[],
                verbs: &["get", "list"],
            },
            Rule {
                why: "The Deployment, which owns the Secret of the member list.",
                group: "apps",
                resources: &["deployments"],
                names: &["controller"],
                verbs: &["get"],
            },
            Rule {
                why: "The Secret of the member list, made once, and that of the webhooks, should somebody delete it. The right \
                      to create cannot be bound to a name.",
                group: "",
                resources: &["secrets"],
                names: &[],
                verbs: &["create"],
            },
            Rule { why: "", group: "", resources: &["secrets"], names: &["memberlist"], verbs: &["list"] },
            Rule {
                why: "The webhooks' authority and certificate, shared by all replicas and renewed.",
                group: "",
                resources: &["secrets"],
                names: &["metallb-webhook-cert"],
                verbs: &["get", "list", "update", "watch"],
            },
        ],
    },
    Role {
        scope: Scope::Cluster,
        name: "speaker",
        daemon: Daemon::Speaker,
        rules: &[
            Rule {
                why: "What to announce, and which nodes can serve it.",
                group: "",
                resources: &["services", "nodes", "namespaces"],
                names: &[],
                verbs: WATCH,
            },
            Rule {
                why: "",
                group: "discovery.k8s.io",
                resources: &["endpointslices"],
                names: &[],
                verbs: WATCH,
            },
            EVENTS,
            REVIEWS[0],
            REVIEWS[1],
        ],
    },
    Role {
        scope: Scope::Namespace,
        // MetalLB binds the role of this name to both daemons.
        name: "pod-lister",
        daemon: Daemon::Speaker,
        rules: &[
            Rule {
                why: "The configuration.",
                group: "metallb.io",
                resources: &[
                    "bfdprofiles",
                    "bgpadvertisements",
                    "bgppeers",
                    "communities",
                    "ipaddresspools",
                    "l2advertisements",
                ],
                names: &[],
                verbs: WATCH,
            },
            Rule {
                why: "Which node announces a Service, on layer 2 and to which BGP peers: written by the node's speaker, read by \
                      the others.",
                group: "metallb.io",
                resources: &["servicebgpstatuses", "servicel2statuses"],
                names: &[],
                verbs: &["create", "delete", "list", "patch", "watch"],
            },
            Rule {
                why: "",
                group: "metallb.io",
                resources: &["servicebgpstatuses/status", "servicel2statuses/status"],
                names: &[],
                verbs: &["patch"],
            },
            Rule {
                why: "How its sessions with BGP peers are.",
                group: "ferrolb.io",
                resources: &["bgpsessions"],
                names: &[],
                verbs: &["create", "delete", "list", "patch", "watch"],
            },
            Rule {
                why: "",
                group: "ferrolb.io",
                resources: &["bgpsessions/status"],
                names: &[],
                verbs: &["patch"],
            },
            Rule {
                why: "Its verdict about the configuration; every node's has a name of its own.",
                group: "metallb.io",
                resources: &["configurationstates"],
                names: &[],
                verbs: &["create", "list", "patch", "watch"],
            },
            Rule {
                why: "",
                group: "metallb.io",
                resources: &["configurationstates/status"],
                names: &[],
                verbs: &["patch"],
            },
            Rule {
                why: "Its own Pod, which owns what it makes; and the other speakers, who should be members of its list.",
                group: "",
                resources: &["pods"],
                names: &[],
                verbs: &["get", "list"],
            },
            Rule {
                why: "The key of the member list, should the Pod have started before the Secret was there.",
                group: "",
                resources: &["secrets"],
                names: &["memberlist"],
                verbs: &["get"],
            },
            Rule {
                why: "Passwords of BGP peers: the Secrets that BGPPeers name, whose names nobody knows before. No other one is \
                      read; where there are none this rule can go.",
                group: "",
                resources: &["secrets"],
                names: &[],
                verbs: WATCH,
            },
        ],
    },
];
