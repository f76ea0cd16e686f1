// SPDX-License-Identifier: Apache-2.0
//! Programs of others that the lab calls, and what to say when one is missing.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Result, bail};

/// A program that the lab calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tool {
    /// The name it is called by.
    pub(crate) program: &'static str,
    /// The Debian package that has it, and what else there is to say.
    pub(crate) install: &'static str,
}

/// nftables: the kube-proxy stand-in needs it.
pub(crate) const NFT: Tool = Tool { program: "nft", install: "apt-get install nftables" };
/// ARP from the command line, Habets' version.
pub(crate) const ARPING: Tool = Tool { program: "arping", install: "apt-get install arping" };
/// HTTP from the command line.
pub(crate) const CURL: Tool = Tool { program: "curl", install: "apt-get install curl" };
/// The Kubernetes command line.
pub(crate) const KUBECTL: Tool = Tool {
    program: "kubectl",
    install: "see https://kubernetes.io/docs/tasks/tools/ (1.30 or newer; Debian 12's kubernetes-client is too old)",
};
/// Shells and scripts of an API server that the lab brings up need these.
pub(crate) const OPENSSL: Tool = Tool { program: "openssl", install: "apt-get install openssl" };
/// Namespaces from the command line; the API server's script uses it.
pub(crate) const IP: Tool = Tool { program: "ip", install: "apt-get install iproute2" };

/// Listening sockets from the command line.
pub(crate) const SS: Tool = Tool { program: "ss", install: "apt-get install iproute2" };

/// FRR: the router of the stories about BGP. Its daemons are not in anybody's `PATH`.
pub(crate) const BGPD: Tool = Tool { program: "/usr/lib/frr/bgpd", install: "apt-get install frr" };
/// FRR's way into the kernel.
pub(crate) const ZEBRA: Tool = Tool { program: "/usr/lib/frr/zebra", install: "apt-get install frr" };
/// FRR's command line.
pub(crate) const VTYSH: Tool = Tool { program: "vtysh", install: "apt-get install frr" };
/// BIRD: what a network plugin runs on every node.
pub(crate) const BIRD: Tool = Tool { program: "bird", install: "apt-get install bird2" };
/// BIRD's command line.
pub(crate) const BIRDC: Tool = Tool { program: "birdc", install: "apt-get install bird2" };

/// GoBGP.
pub(crate) const GOBGPD: Tool = Tool { program: "gobgpd", install: "apt-get install gobgpd" };
/// GoBGP's command line.
pub(crate) const GOBGP: Tool = Tool { program: "gobgp", install: "apt-get install gobgpd" };
/// ExaBGP.
pub(crate) const EXABGP: Tool = Tool { program: "exabgp", install: "apt-get install exabgp" };

/// What stories about BGP call beside that.
pub(crate) const OF_ROUTERS: [Tool; 5] = [BGPD, ZEBRA, VTYSH, BIRD, BIRDC];

/// What every story calls; `kubectl` is played through the API where it is not installed.
pub(crate) const OF_STORIES: [Tool; 5] = [NFT, ARPING, CURL, IP, SS];

const ALL: [Tool; 15] =
    [NFT, ARPING, CURL, KUBECTL, OPENSSL, IP, SS, BGPD, ZEBRA, VTYSH, BIRD, BIRDC, GOBGPD, GOBGP, EXABGP];

/// Checks that every tool is installed.
///
/// # Errors
/// Names all that are not, with the packages that have them.
pub(crate) fn require(tools: &[Tool]) -> Result<()> {
    let missing: Vec<Tool> = tools.iter().copied().filter(|tool| find(tool.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> =
        missing.iter().map(|tool| format!("  {}: {}", tool.program, tool.install)).collect();
    bail!("the lab needs programs that are not installed:\n{}", lines.join("\n"))
}

/// Checks that the caller may make namespaces.
///
/// # Errors
/// The caller is not root.
pub(crate) fn require_root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!(
        "the lab makes network namespaces, which only root may do: call it with sudo (everything it does stays inside those namespaces)"
    )
}

/// Where a program is, by `PATH` and the places where an administrator's programs are.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// An error about starting `program`, in words that say what to do.
pub(crate) fn explain(program: &str, error: std::io::Error) -> anyhow::Error {
    let known = ALL.iter().find(|tool| tool.program == program);
    match (error.kind(), known) {
        (ErrorKind::NotFound, Some(tool)) => {
            anyhow::anyhow!("{program} is not installed: {}", tool.install)
        }
        (ErrorKind::NotFound, None) => anyhow::anyhow!("{program} is not installed"),
        _ => anyhow::Error::new(error).context(format!("start {program}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_all_at_once_and_what_is_there_is_not() {
        let there = Tool { program: "sh", install: "cannot be missing" };
        let one = Tool { program: "no-such-tool-1", install: "apt-get install one" };
        let two = Tool { program: "no-such-tool-2", install: "apt-get install two" };
        assert!(require(&[there]).is_ok());
        let text = require(&[one, there, two]).unwrap_err().to_string();
        assert!(text.contains("no-such-tool-1: apt-get install one"), "{text}");
        assert!(text.contains("no-such-tool-2: apt-get install two"), "{text}");
        assert!(!text.contains("cannot be missing"), "{text}");
    }
}
