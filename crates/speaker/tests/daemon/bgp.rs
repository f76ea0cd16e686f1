// SPDX-License-Identifier: Apache-2.0
//! From objects in the API to bytes at a router, on loopback.

use std::net::SocketAddr;
use std::time::Duration;

use ferrolb_api::{BGPAdvertisement, BGPPeer, ServiceBGPStatus};
use ferrolb_bgp::wire::{
    Code, Community, Context, Detail, Families, HoldTime, Message, Open, Reader, RouterId, Update, keepalive,
};
use ferrolb_linux::tcp;
use ferrolb_net_types::{Asn, Prefix};
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::cable::{Bench, soon};
use crate::{NAMESPACE, Speaker, cluster, create, service};

/// A router's end of a session.
struct Session {
    stream: TcpStream,
    reader: Reader,
    unread: Vec<u8>,
}

impl Session {
    async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = soon("the speaker connects", listener.accept()).await.unwrap();
        let mut session = Self { stream, reader: Reader::new(), unread: Vec::new() };
        assert!(matches!(session.read().await, Some(Message::Open(_))));
        let id = RouterId::new("192.0.2.1".parse().unwrap()).unwrap();
        let hold = HoldTime::seconds(90).unwrap();
        let open = Open::new(Asn::new(64_513).unwrap(), hold, id, Families::V4, Vec::new());
        session.stream.write_all(&[open.encode(), keepalive()].concat()).await.unwrap();
        session
    }

    async fn read(&mut self) -> Option<Message> {
        let context = Context { four_octet_as: true, internal: false, families: Families::V4 };
        loop {
            let mut rest = &self.unread[..];
            let message = self.reader.read(&mut rest, &context).unwrap();
            self.unread = rest.to_vec();
            if message.is_some() {
                return message;
            }
            let mut buffer = [0; 4096];
            let count =
                soon("the speaker says something", self.stream.read(&mut buffer)).await.unwrap_or_default();
            if count == 0 {
                return None;
            }
            self.unread.extend(&buffer[..count]);
        }
    }

    /// Waits until this prefix is announced, or withdrawn.
    async fn told(&mut self, prefix: &str, announced: bool) {
        let prefix: Prefix = prefix.parse().unwrap();
        loop {
            let message = self.read().await;
            let Some(Message::Update(received)) = message else {
                assert!(matches!(message, Some(Message::Keepalive)), "{message:?}");
                continue;
            };
            let is = |update: &Update| match update {
                Update::Announce(some) => announced && some.prefixes().contains(&prefix),
                Update::Withdraw(some) => !announced && some.as_slice().contains(&prefix),
                Update::EndOfRib(_) => false,
            };
            if received.updates.iter().any(is) {
                return;
            }
        }
    }

    /// Waits until this prefix is announced as being about to go (RFC 8326).
    async fn about_to_go(&mut self, prefix: &str) {
        let prefix: Prefix = prefix.parse().unwrap();
        let is = |update: &Update| match update {
            Update::Announce(some) => {
                let marked = some.attributes().communities.contains(&Community::GRACEFUL_SHUTDOWN);
                some.prefixes().contains(&prefix) && marked
            }
            Update::Withdraw(some) => panic!("{some:?} without a mark"),
            Update::EndOfRib(_) => false,
        };
        loop {
            match self.read().await {
                Some(Message::Update(received)) if received.updates.iter().any(is) => return,
                Some(Message::Update(_) | Message::Keepalive) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn last_word(&mut self) -> (Code, Detail) {
        loop {
            match self.read().await {
                Some(Message::Notification(last)) => return (last.code, last.detail()),
                Some(_) => {}
                None => panic!("there is no last word"),
            }
        }
    }
}

async fn advertise(bench: &Bench) {
    let advertisement = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "BGPAdvertisement", "metadata": {"name": "bgp"}, "spec": {},
    });
    create::<BGPAdvertisement>(bench, NAMESPACE, advertisement).await;
}

async fn peer(bench: &Bench, router: SocketAddr, extra: serde_json::Value) {
    named_peer(bench, "router", router, extra).await;
}

async fn named_peer(bench: &Bench, name: &str, router: SocketAddr, extra: serde_json::Value) {
    let mut spec = json!({
        "myASN": 64512, "peerASN": 64513, "peerAddress": router.ip().to_string(), "peerPort": router.port(),
    });
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let peer = json!({
        "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer", "metadata": {"name": name}, "spec": spec,
    });
    create::<BGPPeer>(bench, NAMESPACE, peer).await;
}

/// A port that a BGPPeer can name: 16384 at most.
async fn listen(address: &str) -> TcpListener {
    for port in 9000..9100 {
        if let Ok(listener) = TcpListener::bind((address, port)).await {
            return listener;
        }
    }
    panic!("no port is free at {address}");
}

#[tokio::test]
async fn a_service_is_told_to_the_router_and_gone_with_it_and_the_end_is_told_with_its_reason() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let router = listen("127.12.0.1").await;
    advertise(&bench).await;
    peer(&bench, router.local_addr().unwrap(), json!({})).await;
    let speaker = Speaker::start(&bench);
    let mut session = Session::accept(&router).await;
    service(&bench, "hello-lb", "192.168.10.200").await;
    session.told("192.168.10.200/32", true).await;
    let services: Api<Service> = Api::namespaced(bench.direct.clone(), "demo");
    services.delete("hello-lb", &DeleteParams::default()).await.unwrap();
    session.told("192.168.10.200/32", false).await;

    let last = async {
        let last = session.last_word().await;
        drop(session);
        last
    };
    let (_, last) = tokio::join!(speaker.stop(), last);
    let text = "node node-1: the speaker is stopped".to_owned();
    assert_eq!(last, (Code::ADMINISTRATIVE_SHUTDOWN, Detail::Text(text)));
}

#[tokio::test]
async fn x14_x15_peers_that_swallow_are_mute_read_nothing_or_make_no_sense_hold_up_nothing() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    advertise(&bench).await;
    let [good, mute, full] =
        [listen("127.12.3.1").await, listen("127.12.3.2").await, listen("127.12.3.3").await];
    // A queue that is full, so that SYNs are dropped.
    let swallows = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let nowhere: SocketAddr = "127.12.3.4:9000".parse().unwrap();
    swallows.bind(&nowhere.into()).unwrap();
    swallows.listen(0).unwrap();
    let connect = || std::net::TcpStream::connect_timeout(&nowhere, Duration::from_millis(200));
    let _queue: Vec<_> = std::iter::from_fn(|| connect().ok()).collect();
    for (name, address, extra) in [
        ("a-nowhere", nowhere, json!({})),
        (
            "b-silenced",
            "127.12.3.5:9000".parse().unwrap(),
            json!({"password": "unsigned refusals are dropped"}),
        ),
        ("c-mute", mute.local_addr().unwrap(), json!({})),
        ("d-full", full.local_addr().unwrap(), json!({})),
        ("e-nonsense", "127.12.3.6:9000".parse().unwrap(), json!({"routerID": "fd00::1"})),
    ] {
        named_peer(&bench, name, address, extra).await;
    }
    let speaker = Speaker::start(&bench);
    let _mute = soon("the mute one is dialled", mute.accept()).await.unwrap();
    let _full = Session::accept(&full).await;
    // All of that goes on while the good one comes, and layer 2 is decided.
    peer(&bench, good.local_addr().unwrap(), json!({})).await;
    let mut session = Session::accept(&good).await;
    service(&bench, "hello-lb", "192.168.10.200").await;
    session.told("192.168.10.200/32", true).await;
    let (reason, message) = crate::no_interface("192.168.10.200");
    crate::told(&bench, "hello-lb", (reason, &message)).await;
    // Those that were never up are not said to be told.
    let statuses: Api<ServiceBGPStatus> = Api::namespaced(bench.direct.clone(), NAMESPACE);
    crate::cable::until("the status lists whom there are sessions with", || async {
        let all = statuses.list(&ListParams::default()).await.unwrap().items;
        let status = serde_json::to_value(all.first()?).unwrap();
        (status["status"]["peers"] == json!(["d-full", "router"])).then_some(())
    })
    .await;
    let last = async {
        let last = session.last_word().await;
        drop(session);
        last
    };
    let (_, last) = tokio::join!(speaker.stop(), last);
    assert_eq!(last.0, Code::ADMINISTRATIVE_SHUTDOWN);
}

#[tokio::test]
async fn a_drained_node_says_so_and_where_there_is_time_its_routes_are_told_to_be_about_to_go() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let router = listen("127.12.2.1").await;
    advertise(&bench).await;
    peer(&bench, router.local_addr().unwrap(), json!({})).await;
    let speaker =
        Speaker::start_with(&bench, |options| options.graceful_shutdown = Duration::from_millis(50));
    let mut session = Session::accept(&router).await;
    service(&bench, "hello-lb", "192.168.10.200").await;
    session.told("192.168.10.200/32", true).await;
    // A drain begins with this; that it was heard of shows by what comes after it in the same watch.
    let nodes: Api<Node> = Api::all(bench.direct.clone());
    let patch = async |patch: serde_json::Value| {
        nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    patch(json!({"spec": {"unschedulable": true}})).await;
    let excluded = "node.kubernetes.io/exclude-from-external-load-balancers";
    for (value, announced) in [(json!(""), false), (json!(null), true)] {
        patch(json!({"metadata": {"labels": {excluded: value}}})).await;
        session.told("192.168.10.200/32", announced).await;
    }
    let last = async {
        session.about_to_go("192.168.10.200/32").await;
        session.told("192.168.10.200/32", false).await;
        let last = session.last_word().await;
        drop(session);
        last
    };
    let (_, last) = tokio::join!(speaker.stop(), last);
    let text = "node node-1: the speaker is stopped, and the node is cordoned".to_owned();
    assert_eq!(last, (Code::ADMINISTRATIVE_SHUTDOWN, Detail::Text(text)));
}

#[tokio::test]
async fn a_password_comes_from_a_secret_and_only_that_one_is_read() {
    let bench = Bench::new().await;
    cluster(&bench).await;
    let router = listen("127.12.1.1").await;
    let source = "127.12.1.2".parse().unwrap();
    tcp::set_password(&router, source, b"opensesame").unwrap();
    advertise(&bench).await;
    let secret = json!({"passwordSecret": {"name": "router-password"}, "sourceAddress": "127.12.1.2"});
    peer(&bench, router.local_addr().unwrap(), secret).await;
    for (name, password) in [("another", "b3RoZXI="), ("router-password", "b3BlbnNlc2FtZQ==")] {
        let secret = json!({
            "metadata": {"name": name}, "type": "kubernetes.io/basic-auth", "data": {"password": password},
        });
        create::<Secret>(&bench, NAMESPACE, secret).await;
    }
    let speaker = Speaker::start(&bench);
    let mut session = Session::accept(&router).await;
    service(&bench, "hello-lb", "192.168.10.200").await;
    session.told("192.168.10.200/32", true).await;
    let stopped = speaker.stop();
    let last = async {
        let last = session.last_word().await;
        drop(session);
        last
    };
    let (_, last) = tokio::join!(stopped, last);
    assert_eq!(last.0, Code::ADMINISTRATIVE_SHUTDOWN);
}
