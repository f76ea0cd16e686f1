// SPDX-License-Identifier: Apache-2.0
//! The log: one JSON object per line on standard output, in MetalLB's form.
//!
//! Keys are in alphabetical order; `level`, `ts` and `caller` are always there, a message is `msg`, and every
//! field keeps the name it was given. Dashboards and alerts of MetalLB's users search these lines.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::Mutex;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::lossy::Lossy;

/// The values of `--log-level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    All,
    /// Debug and above.
    Debug,
    /// Info and above.
    Info,
    /// Warnings and errors.
    Warn,
    /// Errors.
    Error,
    /// Nothing.
    None,
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            Self::All => LevelFilter::TRACE,
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Warn => LevelFilter::WARN,
            Self::Error => LevelFilter::ERROR,
            Self::None => LevelFilter::OFF,
        }
    }
}

/// A log level that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("failed to initialize logging: failed to parse log level: {0}")]
pub struct UnknownLevel(String);

impl FromStr for LogLevel {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "all" => Self::All,
            "debug" => Self::Debug,
            "info" => Self::Info,
            "warn" => Self::Warn,
            "error" => Self::Error,
            "none" => Self::None,
            other => return Err(UnknownLevel(other.to_owned())),
        })
    }
}

/// Sends the log of this process to standard output from now on. A second call changes nothing.
pub fn install(level: LogLevel) {
    let subscriber =
        tracing_subscriber::registry().with(JsonLines::new(level, Lossy::new(std::io::stdout())));
    // The only error is that a log is installed already, as in tests that start two daemons in one process.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// A layer that writes each event as one JSON line.
#[derive(Debug)]
pub struct JsonLines<W> {
    level: LogLevel,
    out: Mutex<W>,
}

impl<W: Write> JsonLines<W> {
    /// Writes the events that `level` lets through to `out`.
    pub fn new(level: LogLevel, out: W) -> Self {
        Self { level, out: Mutex::new(out) }
    }

    /// Libraries are heard only when they warn: their words are not part of the log that users know.
    fn lets_through(&self, metadata: &Metadata<'_>) -> bool {
        // The client reports each failed request by itself; whoever asked says it once, with its meaning.
        if metadata.target().starts_with("kube_client") {
            return false;
        }
        let limit = self.level.filter();
        let ours = metadata.target().starts_with("ferrolb");
        *metadata.level() <= if ours { limit } else { limit.min(LevelFilter::WARN) }
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + 'static,
{
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        // Spans are not printed; refusing them here spares their bookkeeping.
        metadata.is_event() && self.lets_through(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.filter())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let metadata = event.metadata();
        let file = metadata.file().and_then(|path| path.rsplit('/').next()).unwrap_or("unknown");
        line.text("caller", format!("{file}:{}", metadata.line().unwrap_or(0)));
        line.text("level", level_name(*metadata.level()).to_owned());
        line.text("ts", timestamp());
        let Ok(mut bytes) = serde_json::to_vec(&line.keys) else { return };
        bytes.push(b'\n');
        if let Ok(mut out) = self.out.lock() {
            // A log that cannot be written has nowhere to say so.
            let _ = out.write_all(&bytes).and_then(|()| out.flush());
        }
    }
}

/// Now, as `ts` has it.
pub(crate) fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        _ => "debug",
    }
}

/// The keys of one line; a `BTreeMap`, since they are printed in order.
#[derive(Default)]
struct Line {
    keys: BTreeMap<&'static str, Value>,
}

impl Line {
    fn text(&mut self, key: &'static str, text: String) {
        self.keys.insert(key, Value::String(text));
    }

    fn put(&mut self, field: &Field, value: Value) {
        let key = if field.name() == "message" { "msg" } else { field.name() };
        self.keys.insert(key, value);
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Bool(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, Value::String(value.to_string()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.put(field, list(&text).unwrap_or(Value::String(text)));
    }
}

/// A list becomes a JSON array of texts, as MetalLB prints lists of addresses, whether its items print
/// quoted or bare.
fn list(text: &str) -> Option<Value> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return Some(value);
    }
    let bare = |item: &str| item.parse::<std::net::IpAddr>().is_ok();
    let items: Vec<&str> = inner.split(", ").collect();
    items
        .iter()
        .all(|item| bare(item))
        .then(|| items.into_iter().map(|item| Value::String(item.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(level: LogLevel, talk: impl FnOnce()) -> Vec<String> {
        let buffer = Buffer::default();
        let subscriber = tracing_subscriber::registry().with(JsonLines::new(level, buffer.clone()));
        tracing::subscriber::with_default(subscriber, talk);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_has_metallbs_keys_in_order() {
        let ips = ["192.168.10.200".parse::<std::net::IpAddr>().unwrap()];
        let lines = lines(LogLevel::Info, || {
            tracing::info!(
                event = "serviceAnnounced", ?ips, pool = "first", protocol = "layer2", nodes = ?["a", "b"],
                count = 2, "start reconcile" = "demo/hello", "service has IP, announcing"
            );
        });
        let value: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(value["event"], "serviceAnnounced");
        assert_eq!(value["ips"], serde_json::json!(["192.168.10.200"]));
        assert_eq!(value["nodes"], serde_json::json!(["a", "b"]));
        assert_eq!(value["count"], 2);
        assert_eq!(value["level"], "info");
        assert_eq!(value["msg"], "service has IP, announcing");
        assert_eq!(value["start reconcile"], "demo/hello");
        assert!(value["caller"].as_str().unwrap().starts_with("logging.rs:"));
        let ts = value["ts"].as_str().unwrap();
        assert!(ts.len() == 20 && ts.ends_with('Z') && ts.parse::<jiff::Timestamp>().is_ok(), "{ts}");
        let positions: Vec<usize> =
            ["caller", "count", "event", "ips", "level", "msg", "nodes", "pool", "ts"]
                .iter()
                .map(|key| lines[0].find(&format!("\"{key}\":")).unwrap())
                .collect();
        assert!(positions.is_sorted(), "{}", lines[0]);
    }

    #[test]
    fn levels_let_through_what_they_say() {
        let talk = || {
            tracing::trace!("t");
            tracing::debug!("d");
            tracing::info!("i");
            tracing::warn!("w");
            tracing::error!("e");
        };
        for (name, count) in [("all", 5), ("debug", 4), ("info", 3), ("warn", 2), ("error", 1), ("none", 0)] {
            assert_eq!(lines(name.parse().unwrap(), talk).len(), count, "{name}");
        }
    }

    #[test]
    fn libraries_are_heard_only_when_they_warn() {
        let lines = lines(LogLevel::All, || {
            tracing::info!(target: "hyper::proto", "requesting");
            tracing::warn!(target: "hyper::proto", "failed");
            tracing::error!(target: "kube_client::client::builder", "failed");
        });
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn an_unknown_level_is_refused_with_metallbs_text() {
        let error = "loud".parse::<LogLevel>().unwrap_err();
        assert_eq!(error.to_string(), "failed to initialize logging: failed to parse log level: loud");
    }
}
