// SPDX-License-Identifier: Apache-2.0
//! The log says what is new, and only that.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::cluster::Cluster;

/// Keeps every warning and error as `field=value` pairs, the message first.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() <= Level::WARN {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_fault_is_told_once_however_often_other_objects_change() {
    let bad = |n: u32| json!({ "name": format!("bad-{n:02}"), "addresses": ["nonsense"] });
    let lines = Recorder::default();
    let told = || std::mem::take(&mut *lines.0.lock().unwrap());
    tracing::subscriber::with_default(lines.clone(), || {
        let mut cluster = Cluster::new();
        for n in 0..20 {
            cluster.pool(bad(n));
            cluster.quiet();
        }
        let each = told();
        assert_eq!(each.len(), 21, "one line for each object, and one for the whole: {each:#?}");
        assert!((0..20).all(|n| each.iter().any(|line| line.contains(&format!("name=\"bad-{n:02}\"")))));

        cluster.pool(json!({ "name": "good", "addresses": ["10.0.0.0/24"] }));
        cluster.relist();
        cluster.quiet();
        assert_eq!(told(), Vec::<String>::new(), "nothing is newly wrong");

        cluster.pool(json!({ "name": "bad-03", "addresses": ["10.0.1.0/24"] }));
        cluster.quiet();
        assert_eq!(told(), Vec::<String>::new(), "put right");
        cluster.pool(bad(3));
        cluster.quiet();
        let again = told();
        assert_eq!(again.len(), 1, "wrong again, told again: {again:#?}");
        assert!(again[0].contains("configuration object is at fault"), "{again:#?}");
    });
}
