// SPDX-License-Identifier: Apache-2.0
//! Kernel settings of a network namespace, as files below /proc/sys/net.

use std::fs;
use std::path::PathBuf;

use crate::error::{Attempt, Result};
use crate::netns::Namespace;

/// Writes settings of a namespace: `("ipv4/ip_forward", "1")` is /proc/sys/net/ipv4/ip_forward there.
///
/// # Errors
///
/// The first that fails, by name; those before it are written.
pub fn write<K: AsRef<str> + Sync, V: AsRef<str> + Sync>(
    namespace: &Namespace,
    settings: &[(K, V)],
) -> Result<()> {
    namespace.run(|| settings.iter().try_for_each(|(key, value)| write_here(key.as_ref(), value.as_ref())))?
}

/// Writes one setting of the calling thread's namespace.
///
/// # Errors
///
/// `NotFound` if the kernel has no such setting.
pub fn write_here(key: &str, value: &str) -> Result<()> {
    fs::write(path_of(key), value).attempting(|| format!("set net/{key} to {value}"))
}

/// Reads one setting of the calling thread's namespace, without the line's end.
///
/// # Errors
///
/// `NotFound` if the kernel has no such setting.
pub fn read_here(key: &str) -> Result<String> {
    let text = fs::read_to_string(path_of(key)).attempting(|| format!("read net/{key}"))?;
    Ok(text.trim_end().to_owned())
}

fn path_of(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys/net").join(key)
}
