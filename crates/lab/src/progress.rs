// SPDX-License-Identifier: Apache-2.0
//! What the lab says while it works: what it does, what it waits for, and which command a person would have typed.

use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One thing to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// Something begins, or goes on for long.
    Step(&'a str),
    /// A command, as it would be typed.
    Command(&'a str),
}

/// Where progress goes.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(Line<'_>) + Send + Sync>);

impl Progress {
    /// Progress to a function of the caller's.
    pub fn new(show: impl Fn(Line<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(show))
    }

    /// Progress to standard error, one line each.
    pub fn stderr() -> Self {
        Self::new(|line| {
            let mut stderr = anstream::stderr().lock();
            // Who closed our standard error does not want to know.
            let _ = match line {
                Line::Step(text) => writeln!(stderr, "{text}"),
                Line::Command(text) => writeln!(stderr, "  $ {text}"),
            };
        })
    }

    /// No progress.
    pub fn silent() -> Self {
        Self::new(|_| {})
    }

    /// Shows that something begins.
    pub fn step(&self, text: &str) {
        (self.0)(Line::Step(text));
    }

    /// Shows a command.
    pub fn command(&self, text: &str) {
        (self.0)(Line::Command(text));
    }

    /// Waits for `future`, and says so after two seconds and then every five.
    pub async fn during<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let mut future = std::pin::pin!(future);
        let mut pause = PATIENCE;
        loop {
            match tokio::time::timeout(pause, &mut future).await {
                Ok(value) => return value,
                Err(_) => self.step(&format!("{what}: {} s so far", started.elapsed().as_secs())),
            }
            pause = REPEAT;
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

const PATIENCE: Duration = Duration::from_secs(2);
const REPEAT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn recorder() -> (Progress, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let progress = Progress::new(move |line| kept.lock().unwrap().push(format!("{line:?}")));
        (progress, lines)
    }

    #[tokio::test]
    async fn what_is_quick_says_nothing() {
        let (progress, lines) = recorder();
        assert_eq!(progress.during("waiting", async { 7 }).await, 7);
        assert!(lines.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_takes_long_says_so() {
        let (progress, lines) = recorder();
        let long = async { tokio::time::sleep(PATIENCE + Duration::from_millis(200)).await };
        progress.during("waiting for the API", long).await;
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("waiting for the API: 2 s so far"), "{lines:?}");
    }
}
