// SPDX-License-Identifier: Apache-2.0
//! The `process_*` series, read from /proc when they are asked for.

use std::fmt::Write as _;

/// Clock ticks per second and bytes per page of every Linux this runs on, as /proc counts.
const TICKS: f64 = 100.0;
const PAGE: f64 = 4096.0;

/// The series as text; what cannot be read is left out.
pub(crate) fn text() -> String {
    let mut text = String::new();
    let mut series = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}\n"
            );
        }
    };
    let stat = std::fs::read_to_string("/proc/self/stat").ok();
    let fields = stat.as_deref().map(after_name).unwrap_or_default();
    // Numbered as in proc(5), where the state is field 3.
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    let cpu = field(14).zip(field(15)).map(|(user, system)| (user + system) / TICKS);
    series("cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", cpu);
    let descriptors = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    series("open_fds", "gauge", "Number of open file descriptors.", descriptors);
    series("max_fds", "gauge", "Maximum number of open file descriptors.", max_fds());
    series("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", field(23));
    let resident = field(24).map(|pages| pages * PAGE);
    series("resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident);
    let start = boot_time().zip(field(22)).map(|(boot, ticks)| boot + ticks / TICKS);
    series("start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", start);
    text
}

/// The fields after the command's name, which may itself hold blanks and brackets.
fn after_name(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default()
}

fn max_fds() -> Option<f64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_there_with_a_plausible_value() {
        let text = text();
        for (name, low, high) in [
            ("cpu_seconds_total", 0.0, 1e6),
            ("open_fds", 3.0, 1e6),
            ("max_fds", 3.0, 1e12),
            ("virtual_memory_bytes", 1e6, 1e15),
            ("resident_memory_bytes", 1e5, 1e12),
            ("start_time_seconds", 1.6e9, 1e10),
        ] {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("process_{name} ")));
            let value: f64 = line.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap();
            assert!((low..high).contains(&value), "{name} {value}");
        }
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        assert_eq!(after_name("7 (a) b) S 1 2"), ["S", "1", "2"]);
    }
}
