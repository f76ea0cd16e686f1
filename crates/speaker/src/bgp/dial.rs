// SPDX-License-Identifier: Apache-2.0
//! A connection to a peer: from where, with which password, how far; and what the own end of it says of this node.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ferrolb_bgp::Local;
use ferrolb_linux::{Netlink, inspect, tcp};
use ferrolb_net_types::{IfIndex, IpFamily, NodeName};
use ferrolb_speaker_core::bgp::{Hops, PeerPlan};
use tokio::net::{TcpSocket, TcpStream};

use super::ends::{Holder, Taken, chosen};

/// A connection that is there.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) stream: TcpStream,
    /// Its own end.
    pub(super) address: SocketAddr,
    pub(super) local: Local,
}

/// Why there is no connection. Prints a sentence.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotDialled {
    /// The operating system's words, or what is wrong with the plan.
    #[error("{0}")]
    Words(String),
    /// Another peer of this node has its two addresses.
    #[error(transparent)]
    Excluded(#[from] Taken),
}

impl From<String> for NotDialled {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

/// Connects by a plan, for the holder of its two addresses. How long that may take is the caller's business.
///
/// # Errors
///
/// Why there is no connection.
pub(super) async fn dial(plan: PeerPlan, node: NodeName, end: Arc<Holder>) -> Result<Dialled, NotDialled> {
    // What cannot be reached has no such address, and connecting says why.
    let source = plan.source.or_else(|| chosen(plan.remote).ok());
    dial_from(source, plan, node, end).await
}

/// Connects by a plan, from this address as far as is known before.
async fn dial_from(
    source: Option<IpAddr>,
    plan: PeerPlan,
    node: NodeName,
    end: Arc<Holder>,
) -> Result<Dialled, NotDialled> {
    // Whether or not there can be a connection now, what the one before had is free.
    end.keep_only(plan.remote, source);
    let socket = open(&plan)?;
    if let Some(source) = source {
        end.take((plan.remote, source)).await?;
    }
    let stream = socket.connect(plan.remote).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let address = stream.local_addr().map_err(|error| error.to_string())?;
    // Addresses and routes may have changed since.
    if source != Some(address.ip()) {
        end.take((plan.remote, address.ip())).await?;
    }
    // A node may have thousands of interfaces; others do not wait until they are read.
    let beside = tokio::task::spawn_blocking(move || beside(address)).await.unwrap_or_default();
    let local = Local::new(address.ip(), &beside, plan.router_id, node.as_str());
    Ok(Dialled { stream, address, local })
}

/// A socket that is ready to connect.
fn open(plan: &PeerPlan) -> Result<TcpSocket, String> {
    let family = IpFamily::of(plan.remote.ip());
    if let SocketAddr::V6(remote) = plan.remote
        && remote.ip().is_unicast_link_local()
        && remote.scope_id() == 0
    {
        return Err(format!(
            "{} is a link-local address, which may be on any interface, and none is named: a peerAddress of the router's that \
             is not link-local is needed",
            remote.ip()
        ));
    }
    let socket = match family {
        IpFamily::V4 => TcpSocket::new_v4(),
        IpFamily::V6 => TcpSocket::new_v6(),
    };
    let socket = socket.map_err(|error| error.to_string())?;
    if let Some(source) = plan.source {
        if IpFamily::of(source) != family {
            return Err(format!("address {:?} is of another IP family than the peer's", source.to_string()));
        }
        socket.bind((source, 0).into()).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrNotAvailable => {
                format!("address {:?} doesn't exist on this host", source.to_string())
            }
            _ => format!("connect from {source}: {error}"),
        })?;
    }
    if let Some(password) = &plan.password {
        let set = tcp::set_password(&socket, plan.remote.ip(), password.bytes());
        set.map_err(|error| no_password(&error))?;
    }
    let limits = match plan.hops {
        Hops::Unlimited => Ok(()),
        Hops::Direct => tcp::set_hops(&socket, family, 1),
        Hops::Multihop => tcp::set_hops(&socket, family, u8::MAX),
        Hops::Gtsm(hops) => tcp::set_hops(&socket, family, u8::MAX)
            .and_then(|()| tcp::set_least_hops(&socket, family, u8::MAX - hops.saturating_sub(1))),
    };
    limits.map_err(|error| error.to_string())?;
    Ok(socket)
}

/// Why a socket takes no password.
fn no_password(error: &ferrolb_linux::Error) -> String {
    match error.os_error() {
        // Without CONFIG_TCP_MD5SIG there is no such option, and no way to such a router.
        Some(ENOPROTOOPT) => {
            format!("TCPMD5Unsupported: the kernel of this node has no TCP passwords (RFC 2385): {error}")
        }
        _ => error.to_string(),
    }
}

/// "Protocol not available", on every architecture that Kubernetes runs on.
const ENOPROTOOPT: i32 = 92;

/// The addresses of the interface that has this one.
fn beside(address: SocketAddr) -> Vec<IpAddr> {
    let on = match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(IfIndex(v6.scope_id())),
        _ => None,
    };
    let read = Netlink::open().and_then(|mut netlink| inspect::beside(&mut netlink, address.ip(), on));
    read.unwrap_or_else(|error| {
        tracing::warn!(op = "connect", %error, "the addresses of the interface of {} are not known", address.ip());
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpListener;

    use ferrolb_bgp::{PeerAs, Settings};
    use ferrolb_net_types::Asn;
    use socket2::SockRef;

    use super::super::ends::Ends;
    use super::*;

    fn plan(remote: SocketAddr, hops: Hops) -> PeerPlan {
        let asn = |number| Asn::new(number).unwrap();
        PeerPlan {
            settings: Settings::native(asn(64_512), PeerAs::Exactly(asn(64_513))),
            remote,
            source: None,
            password: None,
            hops,
            router_id: None,
        }
    }

    /// With how many hops left packets of the socket go out, as the kernel has it.
    fn hops_left(socket: SockRef<'_>, family: IpFamily) -> u32 {
        match family {
            IpFamily::V4 => socket.ttl_v4().unwrap(),
            IpFamily::V6 => socket.unicast_hops_v6().unwrap(),
        }
    }

    #[tokio::test]
    async fn what_is_held_is_the_address_that_the_connection_comes_from() {
        let listener = TcpListener::bind("127.10.40.2:0").unwrap();
        let remote = listener.local_addr().unwrap();
        let own: IpAddr = "127.0.0.1".parse().unwrap();
        let ends = Arc::new(Ends::default());
        let (first, second) =
            (Arc::new(ends.holder(&"first".into())), Arc::new(ends.holder(&"second".into())));
        for (expected, source) in [(own, "127.10.40.3".parse().ok()), (own, None)] {
            let node = NodeName::from("n1");
            let dialled =
                dial_from(source, plan(remote, Hops::Unlimited), node, first.clone()).await.unwrap();
            assert_eq!(dialled.address.ip(), expected);
            assert!(second.take((remote, own)).await.is_err(), "foreseen {source:?}");
            assert_eq!(second.take((remote, source.unwrap_or(remote.ip()))).await.map_err(|_| ()), Ok(()));
        }
        // Nor is a connection made of what another peer has.
        second.take((remote, own)).await.unwrap_err();
        first.keep_only(remote, Some(remote.ip()));
        second.take((remote, own)).await.unwrap();
        let plan = plan(remote, Hops::Unlimited);
        let refused = dial_from("127.10.40.3".parse().ok(), plan, NodeName::from("n1"), first).await;
        assert!(matches!(refused, Err(NotDialled::Excluded(_))));
    }

    #[tokio::test]
    async fn bg_41_the_kernel_has_the_hops_of_the_plan_before_and_after_it_connects() {
        for (address, family) in [("127.10.40.1", IpFamily::V4), ("::1", IpFamily::V6)] {
            let listener = TcpListener::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap();
            let remote = listener.local_addr().unwrap();
            let untouched = match family {
                IpFamily::V4 => TcpSocket::new_v4().unwrap(),
                IpFamily::V6 => TcpSocket::new_v6().unwrap(),
            };
            let default = hops_left(SockRef::from(&untouched), family);
            assert!(default != 1 && default != 255, "the kernel's own value tells nothing: {default}");
            for (hops, expected) in [
                (Hops::Unlimited, default),
                (Hops::Direct, 1),
                (Hops::Multihop, 255),
                (Hops::Gtsm(1), 255),
                (Hops::Gtsm(254), 255),
            ] {
                let plan = plan(remote, hops);
                let socket = open(&plan).unwrap();
                assert_eq!(hops_left(SockRef::from(&socket), family), expected, "{hops:?} to {address}");
                // The other end of a connection on loopback has the kernel's own value, which is too far for GTSM.
                if !matches!(hops, Hops::Gtsm(1)) {
                    let end = Arc::new(Arc::new(Ends::default()).holder(&"router".into()));
                    let dialled = dial(plan, NodeName::from("n1"), end).await.unwrap();
                    assert_eq!(hops_left(SockRef::from(&dialled.stream), family), expected, "{hops:?}");
                }
            }
        }
    }

    #[test]
    fn a_link_local_address_of_no_interface_is_named() {
        let plan = plan("[fe80::1]:179".parse().unwrap(), Hops::Unlimited);
        let error = open(&plan).unwrap_err();
        assert!(
            error.starts_with("fe80::1 is a link-local address, which may be on any interface"),
            "{error}"
        );
    }

    #[test]
    fn bg_17_a_kernel_without_passwords_is_named() {
        let refused = |number| {
            let cause = io::Error::from_raw_os_error(number);
            no_password(&ferrolb_linux::Error::new("set the TCP password for 192.168.10.1", cause))
        };
        let text = refused(ENOPROTOOPT);
        assert!(
            text.starts_with("TCPMD5Unsupported: the kernel of this node has no TCP passwords"),
            "{text}"
        );
        assert!(text.contains("192.168.10.1: Protocol not available"), "{text}");
        assert!(!refused(12).contains("TCPMD5Unsupported"));
    }
}
