// SPDX-License-Identifier: Apache-2.0
//! Hears the log, each test its own thread's part of it.
//!
//! A subscriber per test would not do: `tracing` remembers for each line of code whether anybody wants it, and while
//! there is one subscriber asks whoever comes by that line first, which may be a thread that has none. So there is one
//! for the whole program, there before the first line is.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static HEARD: RefCell<Vec<(Level, String)>> = const { RefCell::new(vec![]) };
}

/// Keeps every line of a level or worse that the thread of the test writes, as `field=value` pairs, the message first.
pub(crate) struct Recorder {
    level: Level,
}

impl Recorder {
    /// Hears everything from now on. The first thing that a test does.
    pub(crate) fn start(level: Level) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::subscriber::set_global_default(Everybody).unwrap());
        Self { level }
    }

    /// The lines since this was asked last.
    pub(crate) fn told(&self) -> Vec<String> {
        let heard = HEARD.take().into_iter();
        heard.filter(|(level, _)| *level <= self.level).map(|(_, line)| line).collect()
    }
}

struct Everybody;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Everybody {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        HEARD.with_borrow_mut(|heard| heard.push((*event.metadata().level(), line.0)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
