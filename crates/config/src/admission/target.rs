// SPDX-License-Identifier: Apache-2.0
//! What is admitted, where the API server asks for it, and what must be read to answer.

use std::fmt;

use ferrolb_api::GROUP;

/// A kind of object that is judged before it is stored; one webhook each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// BGPPeer, in version v1beta2; the API server converts what comes as v1beta1.
    BGPPeer,
    /// IPAddressPool.
    IPAddressPool,
    /// BGPAdvertisement.
    BGPAdvertisement,
    /// L2Advertisement.
    L2Advertisement,
    /// Community.
    Community,
    /// BFDProfile. The only kind whose deletion is judged.
    BFDProfile,
}

impl Target {
    /// Every one, in the order of MetalLB's manifests.
    pub const ALL: [Self; 6] = [
        Self::BGPPeer,
        Self::IPAddressPool,
        Self::BGPAdvertisement,
        Self::L2Advertisement,
        Self::Community,
        Self::BFDProfile,
    ];

    /// The target behind a path, such as `/validate-metallb-io-v1beta1-ipaddresspool`.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.path() == path)
    }

    /// The path that the API server posts reviews to.
    pub fn path(self) -> String {
        format!("/validate-{}-{}-{}", GROUP.replace('.', "-"), self.version(), self.kind().to_lowercase())
    }

    /// The webhook's name in MetalLB's manifests.
    pub const fn webhook_name(self) -> &'static str {
        match self {
            Self::BGPPeer => "bgppeersvalidationwebhook.metallb.io",
            Self::IPAddressPool => "ipaddresspoolvalidationwebhook.metallb.io",
            Self::BGPAdvertisement => "bgpadvertisementvalidationwebhook.metallb.io",
            Self::L2Advertisement => "l2advertisementvalidationwebhook.metallb.io",
            Self::Community => "communityvalidationwebhook.metallb.io",
            Self::BFDProfile => "bfdprofilevalidationwebhook.metallb.io",
        }
    }

    /// The kind.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::BGPPeer => "BGPPeer",
            Self::IPAddressPool => "IPAddressPool",
            Self::BGPAdvertisement => "BGPAdvertisement",
            Self::L2Advertisement => "L2Advertisement",
            Self::Community => "Community",
            Self::BFDProfile => "BFDProfile",
        }
    }

    /// The version within the group.
    pub const fn version(self) -> &'static str {
        self.list().version()
    }

    /// The plural, as it stands in paths.
    pub const fn plural(self) -> &'static str {
        self.list().plural()
    }

    /// The operations that the webhook is asked about.
    pub const fn operations(self) -> &'static [Operation] {
        match self {
            Self::BFDProfile => &[Operation::Create, Operation::Delete],
            _ => &[Operation::Create, Operation::Update],
        }
    }

    /// The lists to read before an answer.
    pub const fn reads(self, operation: Operation) -> Reads {
        use List::{
            BFDProfiles, BGPAdvertisements, BGPPeers, Communities, IPAddressPools, L2Advertisements,
            Namespaces, Nodes,
        };
        let (required, helpful): (&[List], &[List]) = match (operation, self) {
            (Operation::Delete, Self::BFDProfile) => (&[BGPPeers], &[]),
            (Operation::Delete | Operation::Connect, _) => (&[], &[]),
            (_, Self::BGPPeer) => (&[BGPPeers, Nodes], &[BFDProfiles, BGPAdvertisements, IPAddressPools]),
            (_, Self::IPAddressPool) => {
                (&[IPAddressPools], &[L2Advertisements, BGPAdvertisements, Namespaces])
            }
            (_, Self::BGPAdvertisement) => {
                (&[BGPAdvertisements, IPAddressPools, Nodes], &[BGPPeers, Communities, BFDProfiles])
            }
            (_, Self::L2Advertisement) => (&[L2Advertisements, IPAddressPools], &[Nodes]),
            (_, Self::Community) => (&[Communities], &[BGPAdvertisements]),
            (_, Self::BFDProfile) => (&[], &[BGPPeers, BGPAdvertisements, IPAddressPools]),
        };
        Reads { required, helpful }
    }

    /// The list of its kind.
    pub(super) const fn list(self) -> List {
        match self {
            Self::BGPPeer => List::BGPPeers,
            Self::IPAddressPool => List::IPAddressPools,
            Self::BGPAdvertisement => List::BGPAdvertisements,
            Self::L2Advertisement => List::L2Advertisements,
            Self::Community => List::Communities,
            Self::BFDProfile => List::BFDProfiles,
        }
    }
}

/// Prints the kind.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// What somebody wants to do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// CREATE.
    Create,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// CONNECT.
    Connect,
}

impl Operation {
    /// The operation, as reviews write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Create, Self::Update, Self::Delete, Self::Connect]
            .into_iter()
            .find(|operation| operation.as_str() == text)
    }
}

/// The lists that an answer is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Without these the answer is a refusal; the first one that fails is named. To be read live.
    pub required: &'static [List],
    /// Only warnings need these. They may come from a cache.
    pub helpful: &'static [List],
}

impl Reads {
    /// All of them, the required ones first.
    pub fn all(self) -> impl Iterator<Item = List> {
        self.required.iter().chain(self.helpful).copied()
    }
}

/// A list of objects in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// BGPPeers, in version v1beta2.
    BGPPeers,
    /// IPAddressPools.
    IPAddressPools,
    /// BGPAdvertisements.
    BGPAdvertisements,
    /// L2Advertisements.
    L2Advertisements,
    /// Communities.
    Communities,
    /// BFDProfiles.
    BFDProfiles,
    /// Nodes; their metadata is enough.
    Nodes,
    /// Namespaces; their metadata is enough.
    Namespaces,
}

impl List {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::BGPPeers,
        Self::IPAddressPools,
        Self::BGPAdvertisements,
        Self::L2Advertisements,
        Self::Communities,
        Self::BFDProfiles,
        Self::Nodes,
        Self::Namespaces,
    ];

    /// The path of the list; objects of `metallb.io` are those of this namespace.
    pub fn path(self, namespace: &str) -> String {
        match self {
            Self::Nodes | Self::Namespaces => format!("/api/{}/{}", self.version(), self.plural()),
            _ => format!("/apis/{GROUP}/{}/namespaces/{namespace}/{}", self.version(), self.plural()),
        }
    }

    /// The kind of its objects.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::BGPPeers => "BGPPeer",
            Self::IPAddressPools => "IPAddressPool",
            Self::BGPAdvertisements => "BGPAdvertisement",
            Self::L2Advertisements => "L2Advertisement",
            Self::Communities => "Community",
            Self::BFDProfiles => "BFDProfile",
            Self::Nodes => "Node",
            Self::Namespaces => "Namespace",
        }
    }

    const fn version(self) -> &'static str {
        match self {
            Self::BGPPeers => "v1beta2",
            Self::Nodes | Self::Namespaces => "v1",
            _ => "v1beta1",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::BGPPeers => "bgppeers",
            Self::IPAddressPools => "ipaddresspools",
            Self::BGPAdvertisements => "bgpadvertisements",
            Self::L2Advertisements => "l2advertisements",
            Self::Communities => "communities",
            Self::BFDProfiles => "bfdprofiles",
            Self::Nodes => "nodes",
            Self::Namespaces => "namespaces",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_metallbs_manifests() {
        let paths = Target::ALL.map(Target::path);
        assert_eq!(
            paths,
            [
                "/validate-metallb-io-v1beta2-bgppeer",
                "/validate-metallb-io-v1beta1-ipaddresspool",
                "/validate-metallb-io-v1beta1-bgpadvertisement",
                "/validate-metallb-io-v1beta1-l2advertisement",
                "/validate-metallb-io-v1beta1-community",
                "/validate-metallb-io-v1beta1-bfdprofile",
            ]
        );
        for target in Target::ALL {
            assert_eq!(Target::from_path(&target.path()), Some(target));
        }
        assert_eq!(Target::from_path("/convert"), None);
    }

    #[test]
    fn lists_are_read_where_the_api_server_has_them() {
        assert_eq!(List::BGPPeers.path("ns"), "/apis/metallb.io/v1beta2/namespaces/ns/bgppeers");
        assert_eq!(List::Communities.path("ns"), "/apis/metallb.io/v1beta1/namespaces/ns/communities");
        assert_eq!(List::Nodes.path("ns"), "/api/v1/nodes");
        assert_eq!(List::Namespaces.path("ns"), "/api/v1/namespaces");
    }

    #[test]
    fn the_required_reads_are_metallbs() {
        use List::{BGPAdvertisements, BGPPeers, Communities, IPAddressPools, L2Advertisements, Nodes};
        for (target, operation, required) in [
            (Target::BGPPeer, Operation::Create, &[BGPPeers, Nodes][..]),
            (Target::IPAddressPool, Operation::Update, &[IPAddressPools]),
            (Target::BGPAdvertisement, Operation::Create, &[BGPAdvertisements, IPAddressPools, Nodes]),
            (Target::L2Advertisement, Operation::Update, &[L2Advertisements, IPAddressPools]),
            (Target::Community, Operation::Create, &[Communities]),
            (Target::BFDProfile, Operation::Create, &[]),
            (Target::BFDProfile, Operation::Delete, &[BGPPeers]),
            (Target::BGPPeer, Operation::Delete, &[]),
        ] {
            assert_eq!(target.reads(operation).required, required, "{target} {operation:?}");
        }
        for target in Target::ALL {
            let all: Vec<List> = target.reads(Operation::Create).all().collect();
            let mut once = all.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), all.len(), "{target}");
        }
    }
}
