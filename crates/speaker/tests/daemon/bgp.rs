// SPDX-License-Identifier: Apache-2.0
//! From objects in the API to bytes at a router, on loopback.

use std::net::SocketAddr;

use ferrolb_api::{BGPAdvertisement, BGPPeer};
use ferrolb_bgp::wire::{
    Code, Context, Detail, Families, HoldTime, Message, Open, Reader, RouterId, Update, keepalive,
};
use ferrolb_linux::tcp;
use ferrolb_net_types::{Asn, Prefix};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{Api, DeleteParams};
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
    let mut spec = json!({
        "myASN": 64512, "peerASN": 64513, "peerAddress": router.ip().to_string(), "peerPort": router.port(),
    });
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let peer = json!({
        "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer", "metadata": {"name": "router"}, "spec": spec,
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
