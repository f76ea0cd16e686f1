// SPDX-License-Identifier: Apache-2.0
//! What is said when status objects cannot be written.

use std::time::Duration;

use ferrolb_api::request::WriteError;
use ferrolb_api::{Change, Clock};
use ferrolb_net_types::Time;
use ferrolb_speaker_core::wire::Report;
use ferrolb_speaker_core::{Effect, Input};
use serde_json::json;

use super::{CLOCK, Log, assert_has, decode, recorder};
use crate::recorder::Line;

const SERVICES: u8 = 8;

/// The warnings of five minutes in which every write fails like this; and how many were tried.
fn five_minutes(log: &mut Log, from: u64, error: &WriteError) -> (Vec<Line>, usize) {
    let mut tried = 0;
    let lines = recorder::lines_of(|| {
        for step in 0..3000 {
            let clock = Clock { now: Time::ZERO + Duration::from_millis(from * 1000 + step * 100), ..CLOCK };
            log.core.handle_timeout(clock);
            while let Some(effect) = log.core.poll() {
                let Effect::Write { id, request } = effect else { continue };
                if request.resource.plural() == "servicel2statuses" {
                    tried += 1;
                    log.core.handle(clock, Input::Written { id, result: Err(error.clone()) });
                }
            }
        }
    });
    (lines.into_iter().filter(|line| line["level"] == "warn").collect(), tried)
}

#[test]
fn what_keeps_many_statuses_from_being_written_is_said_once_and_not_for_each_at_each_try() {
    let mut log = Log::new();
    let ip = |n: u8| format!("192.168.10.{}", 200 + n);
    for n in 0..SERVICES {
        let slice = decode(json!({
            "metadata": {
                "namespace": "demo", "name": format!("s{n}-1"),
                "labels": { "kubernetes.io/service-name": format!("s{n}") },
            },
            "addressType": "IPv4",
            "endpoints": [{ "addresses": ["10.1.1.1"] }],
        }));
        let service = decode(json!({
            "metadata": { "namespace": "demo", "name": format!("s{n}") },
            "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": ip(n) }] } },
        }));
        log.core.handle(CLOCK, Input::EndpointSlices(Change::Applied(Box::new(slice))));
        log.core.handle(CLOCK, Input::Services(Change::Applied(Box::new(service))));
    }
    log.drain();
    let owned = (0..SERVICES).map(|n| (ip(n).parse().unwrap(), Some(["ens18".into()].into()))).collect();
    log.core.handle(CLOCK, Input::Wire(Report { owned, complete: true, ..Report::default() }));

    let silent = WriteError::no_answer("deadline has elapsed");
    let (lines, tried) = five_minutes(&mut log, 0, &silent);
    assert!(tried > 50, "{tried}");
    assert_eq!(lines, [], "whoever asks a server that does not answer says so, once");

    let (lines, tried) = five_minutes(&mut log, 400, &WriteError::refused(403, "Forbidden", "it may not"));
    assert!(tried >= usize::from(SERVICES), "{tried}");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_has(
        &lines[0],
        &[
            ("controller", "Layer2StatusReconciler"),
            ("error", "the API server refused (403 Forbidden): it may not"),
            ("message", "the ServiceL2Status could not be written, retrying"),
        ],
    );
    let (lines, _) = five_minutes(&mut log, 1000, &WriteError::refused(500, "", "a webhook failed"));
    assert_eq!(lines.len(), 1, "another reason is another line: {lines:?}");
}
