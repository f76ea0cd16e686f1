// SPDX-License-Identifier: Apache-2.0
//! Interfaces that never announce, from `/etc/metallb/excludel2.yaml`.

use std::path::Path;

use regex::Regex;
use serde::Deserialize;

/// Where MetalLB's ConfigMap is mounted.
pub(crate) const FILE: &str = "/etc/metallb/excludel2.yaml";

/// Which interfaces are excluded.
#[derive(Clone, Debug, Default)]
pub struct Excluded {
    pattern: Option<Regex>,
}

/// A list that cannot be used; exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("failed to parse announcedInterfacesToExclude from configMap: {file}: {problem}")]
pub struct ExcludedError {
    file: String,
    problem: String,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "announcedInterfacesToExclude")]
    patterns: Option<Vec<String>>,
}

impl Excluded {
    /// Reads the file; one that is not there excludes nothing.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is no such list, or holds a bad pattern.
    pub fn read(file: &Path) -> Result<Self, ExcludedError> {
        let failed = |problem: String| ExcludedError { file: file.display().to_string(), problem };
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error.to_string())),
        };
        Self::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let document: Option<Document> = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let patterns = document.and_then(|document| document.patterns).unwrap_or_default();
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        // Each by itself first, so that a bad one is named alone.
        for pattern in &patterns {
            Regex::new(pattern).map_err(|error| format!("pattern {pattern:?}: {error}"))?;
        }
        let alternation = patterns.iter().map(|pattern| format!("({pattern})")).collect::<Vec<_>>().join("|");
        let pattern = Regex::new(&alternation).map_err(|error| error.to_string())?;
        Ok(Self { pattern: Some(pattern) })
    }

    /// Whether this interface is excluded. Patterns may match anywhere in the name.
    pub fn contains(&self, interface: &str) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(interface))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of MetalLB's manifests.
    const SHIPPED: &str = "announcedInterfacesToExclude:\n- ^docker.*\n- ^cbr.*\n- ^dummy.*\n- ^virbr.*\n- ^lxcbr.*\n\
        - ^veth.*\n- ^lo$\n- ^cali.*\n- ^tunl.*\n- ^flannel.*\n- ^kube-ipvs.*\n- ^cni.*\n- ^nodelocaldns.*\n- ^lxc.*\n";

    #[test]
    fn the_shipped_list_excludes_the_cluster_s_own_interfaces() {
        let excluded = Excluded::parse(SHIPPED).unwrap();
        for (name, want) in [
            ("ens18", false),
            ("eth0", false),
            ("lo", true),
            ("lo0", false),
            ("veth12ab", true),
            ("cni0", true),
        ] {
            assert_eq!(excluded.contains(name), want, "{name}");
        }
    }

    #[test]
    fn patterns_match_anywhere_unless_they_are_anchored() {
        let excluded = Excluded::parse("announcedInterfacesToExclude: [br, '^x$']").unwrap();
        assert!(excluded.contains("virbr0") && excluded.contains("x") && !excluded.contains("xx"));
    }

    #[test]
    fn nothing_excludes_nothing() {
        for text in
            ["", "\n", "announcedInterfacesToExclude: []", "announcedInterfacesToExclude:", "other: 1"]
        {
            assert!(!Excluded::parse(text).unwrap().contains("lo"), "{text:?}");
        }
        assert!(!Excluded::read(Path::new("/nowhere/excludel2.yaml")).unwrap().contains("lo"));
    }

    #[test]
    fn a_bad_list_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("excludel2.yaml");
        for (text, part) in [
            ("announcedInterfacesToExclude: ['(']", "pattern \"(\""),
            ("announcedInterfacesToExclude: 7", ""),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Excluded::read(&file).unwrap_err().to_string();
            assert!(
                error.starts_with("failed to parse announcedInterfacesToExclude from configMap: "),
                "{error}"
            );
            assert!(error.contains("excludel2.yaml") && error.contains(part), "{error}");
        }
    }
}
