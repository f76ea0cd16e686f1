// SPDX-License-Identifier: Apache-2.0
//! The routers: of which make, for which case, at which address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};

use crate::bench_handle::Bench;
use crate::host::Host;
use crate::routers::Site;
use crate::tools::{self, Tool};

/// Who made a router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Make {
    Frr,
    Bird,
    GoBgp,
    ExaBgp,
}

/// What a router is there for. One speaks with the nodes as one case asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// A router of another system, with sessions to both workers. The others have one, to k8s-node-1.
    Ebgp,
    /// Of the nodes' own system.
    Ibgp,
    /// Over IPv6.
    Ipv6,
    /// Two systems whose numbers need four octets.
    FourOctet,
    /// One that knows two octets only.
    TwoOctet,
    /// One that takes two prefixes.
    Limit,
    /// One with a password.
    Password,
    /// Behind another router.
    Multihop,
}

impl Make {
    pub(super) const ALL: [Self; 4] = [Self::Frr, Self::Bird, Self::GoBgp, Self::ExaBgp];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Frr => "FRR",
            Self::Bird => "BIRD",
            Self::GoBgp => "GoBGP",
            Self::ExaBgp => "ExaBGP",
        }
    }

    /// How the names of its peers begin.
    const fn word(self) -> &'static str {
        match self {
            Self::Frr => "frr",
            Self::Bird => "bird",
            Self::GoBgp => "gobgp",
            Self::ExaBgp => "exabgp",
        }
    }

    const fn tools(self) -> &'static [Tool] {
        match self {
            Self::Frr => &[tools::BGPD, tools::ZEBRA, tools::VTYSH],
            Self::Bird => &[tools::BIRD, tools::BIRDC],
            Self::GoBgp => &[tools::GOBGPD, tools::GOBGP],
            Self::ExaBgp => &[tools::EXABGP],
        }
    }

    /// Whether it is installed; the error says what is missing.
    pub(super) fn installed(self) -> Result<()> {
        tools::require(self.tools())
    }

    /// Its version, in its own words.
    pub(super) async fn version(self, bench: &Bench) -> Result<String> {
        let [daemon, ..] = self.tools() else { unreachable!("each has a daemon") };
        let said = bench.run(Host::Router, &[daemon.program, "--version"]).await?;
        // BIRD says it on standard error.
        let said = format!("{} {}", said.stdout, said.stderr);
        version(&said).map(str::to_owned).with_context(|| format!("{} tells no version: {said}", self.name()))
    }

    /// The cases that it can be asked for.
    pub(super) fn cases(self) -> impl Iterator<Item = Case> {
        Case::ALL.into_iter().filter(move |case| self.serves(*case))
    }

    /// Whether it has what a case needs.
    pub(super) const fn serves(self, case: Case) -> bool {
        !matches!(
            (self, case),
            // GoBGP always offers four octets; ExaBGP counts nothing.
            (Self::GoBgp, Case::TwoOctet) | (Self::ExaBgp, Case::Limit)
        )
    }
}

/// The first word that begins with a digit.
fn version(said: &str) -> Option<&str> {
    said.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))
}

impl Case {
    pub(super) const ALL: [Self; 8] = [
        Self::Ebgp,
        Self::Ibgp,
        Self::Ipv6,
        Self::FourOctet,
        Self::TwoOctet,
        Self::Limit,
        Self::Password,
        Self::Multihop,
    ];

    /// How the names of its peers end.
    const fn word(self) -> &'static str {
        match self {
            Self::Ebgp => "ebgp",
            Self::Ibgp => "ibgp",
            Self::Ipv6 => "ipv6",
            Self::Multihop => "multihop",
            Self::FourOctet => "four",
            Self::TwoOctet => "two",
            Self::Limit => "limit",
            Self::Password => "md5",
        }
    }

    /// The name of the BGPPeer of a router.
    pub(super) fn peer(self, make: Make) -> String {
        format!("{}-{}", make.word(), self.word())
    }

    /// The router's system.
    pub(super) const fn router_as(self) -> u32 {
        match self {
            Self::Ibgp => self.node_as(),
            Self::FourOctet => 4_200_000_002,
            _ => 64_513,
        }
    }

    /// The nodes' system.
    pub(super) const fn node_as(self) -> u32 {
        match self {
            Self::FourOctet | Self::TwoOctet => 4_200_000_001,
            _ => 64_512,
        }
    }

    /// The host that its routers are on.
    const fn host(self) -> Host {
        match self {
            Self::Multihop => Host::Outside,
            _ => Host::Router,
        }
    }

    /// The nodes that have sessions.
    pub(super) const fn nodes(self) -> &'static [Host] {
        match self {
            Self::Ebgp => &[Host::Node1, Host::Node2],
            _ => &[Host::Node1],
        }
    }

    /// The address by which a router knows a node.
    pub(super) const fn address_of(self, node: Host) -> IpAddr {
        match self {
            Self::Ipv6 => IpAddr::V6(node.address6()),
            _ => IpAddr::V4(node.address()),
        }
    }

    /// The address of a router, as `peers.yaml` has it.
    pub(super) fn address(self, make: Make) -> IpAddr {
        let (make, case) = (make as u8, self as u8);
        match self {
            Self::Multihop => Ipv4Addr::new(192, 168, 30, 10 + make).into(),
            Self::Ipv6 => {
                let last = 0x113 + 0x10 * u16::from(make);
                Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, last).into()
            }
            _ => Ipv4Addr::new(192, 168, 10, 111 + 10 * make + case).into(),
        }
    }

    /// Its BGP Identifier: an address of every router's own.
    pub(super) fn identifier(self, make: Make) -> Ipv4Addr {
        Ipv4Addr::new(192, 168, 10, 111 + 10 * make as u8 + self as u8)
    }

    /// Where a router is.
    pub(super) fn site(self, make: Make) -> Site {
        let label = format!("{}-{}", self.host(), self.word());
        Site { host: self.host(), label, listen: Some(self.address(make)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cluster::text;
    use super::*;
    use crate::seed::documents;

    #[test]
    fn a_version_is_found_in_what_each_says_of_itself() {
        for (said, expected) in [
            ("bgpd version 8.4.4\nCopyright 1996-2005 Kunihiro Ishiguro, et al.", "8.4.4"),
            ("BIRD version 2.0.12\n", "2.0.12"),
            ("gobgpd version 3.10.0\n", "3.10.0"),
            ("ExaBGP : 4.2.21\nPython : 3.11.2", "4.2.21"),
        ] {
            assert_eq!(version(said), Some(expected));
        }
        assert_eq!(version("none"), None);
    }

    #[test]
    fn there_is_a_peer_for_every_router_with_its_address_and_systems() {
        let peers = documents(super::super::PEERS.yaml).unwrap();
        let routers = Make::ALL.into_iter().flat_map(|make| make.cases().map(move |case| (make, case)));
        let mut known = 0;
        for (make, case) in routers {
            let name = case.peer(make);
            let peer = peers.iter().find(|peer| text(peer, "/metadata/name") == name);
            let spec = &peer.unwrap_or_else(|| panic!("no peer {name}"))["spec"];
            assert_eq!(text(spec, "/peerAddress"), case.address(make).to_string(), "{name}");
            assert_eq!(spec["peerASN"], case.router_as(), "{name}");
            assert_eq!(spec["myASN"], case.node_as(), "{name}");
            known += 1;
        }
        // And the one of the listener.
        assert_eq!(peers.len(), known + 1);
    }

    #[test]
    fn the_peers_that_are_far_away_differ_by_what_says_so_alone() {
        let peers = documents(super::super::PEERS.yaml).unwrap();
        let far = documents(super::super::distance::MULTIHOP.yaml).unwrap();
        let near = documents(super::super::distance::DIRECT.yaml).unwrap();
        assert_eq!((far.len(), near.len()), (Make::ALL.len(), Make::ALL.len()));
        for (make, (far, mut near)) in Make::ALL.into_iter().zip(far.into_iter().zip(near)) {
            assert_eq!(text(&far, "/metadata/name"), Case::Multihop.peer(make));
            assert!(peers.contains(&far), "{far}");
            assert!(near["spec"]["ebgpMultiHop"].is_null(), "{near}");
            near["spec"]["ebgpMultiHop"] = true.into();
            assert_eq!(near, far);
        }
    }
}
