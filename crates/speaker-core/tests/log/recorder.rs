// SPDX-License-Identifier: Apache-2.0
//! Hears the log, each test its own thread's part of it.
//!
//! There is one subscriber for the whole program, and it is there before the first line: `tracing` remembers of each line
//! whether anybody wants it, and may ask a thread that has no subscriber.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A line as its fields, with `level` among them.
pub(crate) type Line = BTreeMap<String, String>;

thread_local! {
    /// What this thread has written, while somebody listens.
    static HEARD: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
}

/// There is a recorder from now on. The first thing that a test does which listens, now or later.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // Nobody else in this program sets one.
    ONCE.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
}

/// The lines that this part of a test's story makes.
pub(crate) fn lines_of(story: impl FnOnce()) -> Vec<Line> {
    install();
    HEARD.set(Some(Vec::new()));
    story();
    HEARD.take().unwrap_or_default()
}

struct Recorder;

struct Fields(Line);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
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
        HEARD.with_borrow_mut(|heard| {
            let Some(lines) = heard else { return };
            let mut fields = Fields(Line::new());
            fields.0.insert("level".to_owned(), event.metadata().level().to_string().to_lowercase());
            event.record(&mut fields);
            lines.push(fields.0);
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
