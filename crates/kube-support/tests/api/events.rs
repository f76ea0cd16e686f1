// SPDX-License-Identifier: Apache-2.0
//! Events as the API server keeps them.

use ferrolb_api::event::{Event, EventKind, ObjectRef};
use ferrolb_kube_support::events::Recorder;
use k8s_openapi::api::core::v1::Event as Stored;
use kube::api::{Api, DeleteParams, ListParams};

use crate::cable::{Bench, until};

fn event(message: &str, version: &str) -> Event {
    Event {
        regarding: ObjectRef {
            api_version: "v1".into(),
            kind: "Service".into(),
            namespace: "default".into(),
            name: "web".into(),
            uid: "u-1".into(),
            resource_version: version.into(),
        },
        kind: EventKind::Normal,
        reason: "IPAllocated",
        message: message.into(),
    }
}

async fn stored(bench: &Bench, ready: impl Fn(&[Stored]) -> bool) -> Vec<Stored> {
    let api: Api<Stored> = Api::namespaced(bench.direct.clone(), "default");
    until("the events are stored", || async {
        let events = api.list(&ListParams::default()).await.unwrap().items;
        ready(&events).then_some(events)
    })
    .await
}

#[tokio::test]
async fn a_repeat_counts_and_another_text_is_another_event() {
    let bench = Bench::new().await;
    let recorder = Recorder::start(bench.client.clone(), "metallb-controller");
    recorder.record(event("Assigned IP [\"192.168.10.200\"]", "1"));
    recorder.record(event("Assigned IP [\"192.168.10.200\"]", "2"));
    recorder.record(event("Assigned IP [\"192.168.10.201\"]", "3"));
    let events = stored(&bench, |events| events.len() == 2).await;
    let first = events.iter().find(|event| event.count == Some(2)).unwrap();
    assert_eq!(first.message.as_deref(), Some("Assigned IP [\"192.168.10.200\"]"));
    assert_eq!(first.reason.as_deref(), Some("IPAllocated"));
    assert_eq!(first.type_.as_deref(), Some("Normal"));
    assert_eq!(first.source.as_ref().unwrap().component.as_deref(), Some("metallb-controller"));
    assert_eq!(first.source.as_ref().unwrap().host, None);
    assert_eq!(first.reporting_component.as_deref(), Some("metallb-controller"));
    assert!(first.metadata.name.as_ref().unwrap().starts_with("web."));
}

#[tokio::test]
async fn an_event_that_expired_is_recorded_anew() {
    let bench = Bench::new().await;
    let recorder = Recorder::start(bench.client.clone(), "metallb-controller");
    recorder.record(event("text", "1"));
    let first = stored(&bench, |events| events.len() == 1).await;
    let api: Api<Stored> = Api::namespaced(bench.direct.clone(), "default");
    api.delete(first[0].metadata.name.as_ref().unwrap(), &DeleteParams::default()).await.unwrap();
    recorder.record(event("text", "2"));
    let second = stored(&bench, |events| events.len() == 1).await;
    assert_ne!(first[0].metadata.name, second[0].metadata.name);
    assert_eq!(second[0].count, Some(1));
}

#[tokio::test]
async fn an_event_survives_a_short_outage() {
    let bench = Bench::new().await;
    let recorder = Recorder::start(bench.client.clone(), "metallb-controller");
    bench.pull();
    recorder.record(event("text", "1"));
    tokio::task::yield_now().await;
    bench.plug_in();
    stored(&bench, |events| events.len() == 1).await;
}
