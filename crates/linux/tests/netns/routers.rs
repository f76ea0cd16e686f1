// SPDX-License-Identifier: Apache-2.0
//! What TCP to a router needs: passwords, hops, source addresses, and what stands beside them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ferrolb_linux::{Namespace, Netlink, inspect, tcp};
use ferrolb_net_types::IpFamily;
use socket2::{Domain, Socket, Type};

use crate::support::{Bench, eventually, is_root};

/// Long enough for one retransmission of a SYN, so that a connection that can be has every chance.
const IN_VAIN: Duration = Duration::from_millis(1500);

fn connect(
    from: &Namespace,
    to: SocketAddr,
    prepare: impl FnOnce(&Socket) + Send,
) -> std::io::Result<TcpStream> {
    from.run(|| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        prepare(&socket);
        socket.connect_timeout(&to.into(), IN_VAIN)?;
        Ok(socket.into())
    })
    .unwrap()
}

fn listen(on: &Namespace, address: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = on.run(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn add_ipv6(bench: &(Namespace, Namespace)) -> (IpAddr, IpAddr) {
    let addresses = ["fd00:10::1", "fd00:10::2"].map(|text| text.parse::<IpAddr>().unwrap());
    for (namespace, address) in [(&bench.0, addresses[0]), (&bench.1, addresses[1])] {
        let mut netlink = Netlink::open_in(namespace).unwrap();
        netlink.add_address("ens18", address, 64).unwrap();
        eventually("the address can be used", || {
            let interfaces = inspect::interfaces(&mut netlink).unwrap();
            let own = interfaces.into_iter().find(|interface| interface.name.as_str() == "ens18")?;
            (!own.tentative.contains(&address) && own.link_local().is_some()).then_some(())
        });
    }
    (addresses[0], addresses[1])
}

#[test]
fn only_the_same_password_connects_and_it_is_changed_on_the_way() {
    if !is_root("only_the_same_password_connects_and_it_is_changed_on_the_way") {
        return;
    }
    let mut bench = Bench::new();
    let hosts = bench.pair(true);
    let v6 = add_ipv6(&hosts);
    let v4 = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
    for (a, b) in [(v4[0], v4[1]), v6] {
        let (listener, to) = listen(&hosts.1, b);
        tcp::set_password(&listener, a, b"secret").unwrap();
        for wrong in [&b"guess"[..], b""] {
            let outcome = connect(&hosts.0, to, |socket| {
                if !wrong.is_empty() {
                    tcp::set_password(socket, b, wrong).unwrap();
                }
            });
            assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::TimedOut, "{wrong:?} to {b}");
        }
        let mut ours =
            connect(&hosts.0, to, |socket| tcp::set_password(socket, b, b"secret").unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 4];
        ours.write_all(b"one.").unwrap();
        theirs.read_exact(&mut buffer).unwrap();

        // One side first: what it says is lost until the other has followed, and then comes.
        tcp::set_password(&ours, b, b"new").unwrap();
        ours.write_all(b"two.").unwrap();
        tcp::set_password(&theirs, a, b"new").unwrap();
        theirs.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"two.");
        tcp::set_password(&theirs, a, b"").unwrap();
        tcp::set_password(&ours, b, b"").unwrap();
        ours.write_all(b"free").unwrap();
        theirs.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"free");
    }
}

#[test]
fn a_peer_that_checks_the_distance_takes_only_what_says_that_it_is_near() {
    if !is_root("a_peer_that_checks_the_distance_takes_only_what_says_that_it_is_near") {
        return;
    }
    let mut bench = Bench::new();
    let hosts = bench.pair(true);
    let (_, v6) = add_ipv6(&hosts);
    for to in [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), v6] {
        let family = IpFamily::of(to);
        let (listener, address) = listen(&hosts.1, to);
        tcp::set_least_hops(&listener, family, 255).unwrap();
        let with =
            |hops: u8| connect(&hosts.0, address, move |socket| tcp::set_hops(socket, family, hops).unwrap());
        assert_eq!(with(254).unwrap_err().kind(), std::io::ErrorKind::TimedOut, "{to}");
        with(255).unwrap();

        // And the other way round: whoever says less is not heard.
        let (listener, address) = listen(&hosts.1, to);
        tcp::set_hops(&listener, family, 64).unwrap();
        let least = |least: u8| {
            connect(&hosts.0, address, move |socket| tcp::set_least_hops(socket, family, least).unwrap())
        };
        assert_eq!(least(65).unwrap_err().kind(), std::io::ErrorKind::TimedOut, "{to}");
        least(64).unwrap();
    }
}

#[test]
fn an_interface_tells_its_addresses() {
    if !is_root("an_interface_tells_its_addresses") {
        return;
    }
    let mut bench = Bench::new();
    let hosts = bench.pair(true);
    let (a, _) = add_ipv6(&hosts);
    let mut netlink = Netlink::open_in(&hosts.0).unwrap();
    let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let beside = inspect::beside(&mut netlink, a, None).unwrap();
    assert!(beside.contains(&v4) && beside.contains(&a), "{beside:?}");
    assert_eq!(inspect::beside(&mut netlink, v4, None).unwrap(), beside);
    let loopback = inspect::beside(&mut netlink, IpAddr::V6(Ipv6Addr::LOCALHOST), None).unwrap();
    assert_eq!(loopback, [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    assert_eq!(inspect::beside(&mut netlink, elsewhere, None).unwrap(), [IpAddr::V4(Ipv4Addr::LOCALHOST); 0]);
}
