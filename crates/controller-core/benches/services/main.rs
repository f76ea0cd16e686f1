// SPDX-License-Identifier: Apache-2.0
//! What Services cost the controller, from the text of a watch event to the text of a write:
//! `cargo bench -p ferrolb-controller-core`.

#![allow(clippy::unwrap_used)] // texts of its own

mod api;
#[allow(dead_code)] // each bench needs a part of it
#[path = "../../../ipam/benches/allocation/table.rs"]
mod table;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Api;
use crate::table::{Table, Unit};

const MANY: usize = 10_000;

fn main() -> ExitCode {
    let mut table = Table::from_arguments();
    // 115 s of CPU is what MetalLB's controller was measured to take, HTTP included.
    let second = Some(Duration::from_secs(1));
    let mut api = cluster(&["10.0.0.0/16"], 0);
    api.put_services(0..MANY, |_| {});
    let created = api.quiet();
    assert_eq!((api.served(), api.service_writes), (MANY, MANY), "one write each");
    table.time("10,000 Services created at once, served and written", created, second, Unit::Milliseconds);
    table.time("of that, each", created / 10_000, None, Unit::Microseconds);
    table.count("writes of pools and states meanwhile", api.other_writes, 20);

    let writes = api.service_writes + api.other_writes;
    api.start();
    let restarted = api.quiet();
    table.time("a start among 10,000 Services", restarted, second, Unit::Milliseconds);
    // The state of the bench's own making is listed as absent, so it is created anew.
    table.count("status writes of that start", api.service_writes + api.other_writes - writes, 2);

    let writes = api.service_writes;
    api.put_pool(&["10.0.0.0/15"]);
    let edited = api.quiet();
    table.time("a pool edit among 10,000 Services that moves nobody", edited, second, Unit::Milliseconds);
    table.count("status writes of that edit", api.service_writes - writes, 0);

    let changed = |api: &mut Api, among: usize| {
        let turns = 200;
        let mut best = Duration::MAX;
        for turn in 0..turns {
            api.put_services([among / 2], |object| {
                object["metadata"]["labels"]["turn"] = json!(turn.to_string())
            });
            best = best.min(api.quiet());
        }
        best
    };
    let among_many = changed(&mut api, MANY);
    let among_few = changed(&mut cluster(&["10.0.0.0/16"], 10), 10);
    table.ratio("one changed Service among 10,000, to one among 10", among_many, among_few, 3.0);
    table.time("one changed Service among 10,000", among_many, None, Unit::Microseconds);

    // A pool whose other family has plenty, which is what every one of those who wait could be asked about in vain.
    let freed = |waiting: usize| {
        let held = 256;
        let mut api = cluster(&["10.0.0.0/24", "fd00::/64"], held + waiting);
        assert_eq!(api.served(), held);
        let mut best = Duration::MAX;
        for n in 0..held.min(waiting) {
            api.delete_service(n);
            best = best.min(api.quiet());
        }
        assert_eq!(api.served(), held);
        best
    };
    let (long_queue, short_queue) = (freed(MANY), freed(10));
    table.ratio("an address freed while 10,000 wait, to while 10 wait", long_queue, short_queue, 3.0);
    table.time("an address freed while 10,000 wait", long_queue, None, Unit::Microseconds);
    table.finish()
}

/// A cluster of one pool and so many Services, at rest.
fn cluster(addresses: &[&str], services: usize) -> Api {
    let mut api = Api::new();
    api.put_pool(addresses);
    api.put_services(0..services, |_: &mut Value| {});
    api.start();
    api.quiet();
    api
}
