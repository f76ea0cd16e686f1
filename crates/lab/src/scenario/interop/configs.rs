// SPDX-License-Identifier: Apache-2.0
//! What the routers are configured with: the same few lines for every case, and those that a case is about.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::makes::{Case, Make};
use crate::host::Host;

/// How many prefixes a router takes in [`Case::Limit`].
const LIMIT: u32 = 2;

/// What FRR is told for one case about a neighbor, and about its routes of the family.
fn frr_lines(case: Case, neighbor: IpAddr, password: &str) -> (Vec<String>, Vec<String>) {
    let line = |words: String| format!("neighbor {neighbor} {words}");
    match case {
        Case::Multihop => (vec![line("ebgp-multihop 2".into())], vec![]),
        Case::TwoOctet => (vec![line("dont-capability-negotiate".into())], vec![]),
        Case::Password => (vec![line(format!("password {password}"))], vec![]),
        Case::Limit => (vec![], vec![line(format!("maximum-prefix {LIMIT}"))]),
        Case::Ebgp | Case::Ibgp | Case::Ipv6 | Case::FourOctet => (vec![], vec![]),
    }
}

/// The lines by which FRR takes another password.
pub(super) fn frr_password(password: &str) -> Vec<String> {
    let (lines, _) = frr_lines(Case::Password, Case::Password.address_of(Host::Node1), password);
    let mut all = vec![format!("router bgp {}", Case::Password.router_as())];
    all.extend(lines);
    all
}

pub(super) fn frr(case: Case, password: &str) -> String {
    let family = if case == Case::Ipv6 { "ipv6" } else { "ipv4" };
    let mut text = format!(
        "router bgp {}\n bgp router-id {}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n",
        case.router_as(),
        case.identifier(Make::Frr)
    );
    let mut routes = String::new();
    for neighbor in case.nodes().iter().map(|node| case.address_of(*node)) {
        let (lines, of_family) = frr_lines(case, neighbor, password);
        let _ =
            write!(text, " neighbor {neighbor} remote-as {}\n neighbor {neighbor} passive\n", case.node_as());
        // Without zebra it does not know to which networks it is connected.
        if !matches!(case, Case::Ebgp | Case::Ibgp | Case::Multihop) {
            let _ = writeln!(text, " neighbor {neighbor} disable-connected-check");
        }
        for line in lines {
            let _ = writeln!(text, " {line}");
        }
        let _ = writeln!(routes, "  neighbor {neighbor} activate");
        for line in of_family {
            let _ = writeln!(routes, "  {line}");
        }
    }
    let _ = write!(text, " address-family {family} unicast\n{routes} exit-address-family\n");
    text
}

/// What BIRD is told for one case about a neighbor, and about its routes.
fn bird_lines(case: Case, password: &str) -> (String, String) {
    let none = String::new;
    match case {
        Case::Multihop => ("multihop;".into(), none()),
        Case::TwoOctet => ("enable as4 off;".into(), none()),
        Case::Password => (format!("password \"{password}\";"), none()),
        Case::Limit => (none(), format!("receive limit {LIMIT} action restart;")),
        Case::Ebgp | Case::Ibgp | Case::Ipv6 | Case::FourOctet => (none(), none()),
    }
}

/// What BIRD calls its session with a node.
pub(super) fn bird_protocol(node: Host) -> String {
    node.name().replace('-', "_")
}

pub(super) fn bird(case: Case, password: &str) -> String {
    let family = if case == Case::Ipv6 { "ipv6" } else { "ipv4" };
    let (lines, of_family) = bird_lines(case, password);
    // Whose speech has no room for a number of four octets must not name one, and yet compares the one that is offered.
    let neighbor_as = match case {
        Case::TwoOctet => "external".to_owned(),
        _ => format!("as {}", case.node_as()),
    };
    let id = case.identifier(Make::Bird);
    let mut text = format!("log stderr all;\nrouter id {id};\nprotocol device {{ }}\n");
    for node in case.nodes() {
        let _ = write!(
            text,
            "protocol bgp {} {{\n  local {} as {};\n  neighbor {} {neighbor_as};\n  strict bind on; passive on; error wait time 1, 2;\n  \
             {lines}\n  {family} {{ import all; export none; {of_family} }};\n}}\n",
            bird_protocol(*node),
            case.address(Make::Bird),
            case.router_as(),
            case.address_of(*node)
        );
    }
    text
}

/// Stands for a number of four octets where there is room for two (RFC 6793).
pub(super) const AS_TRANS: u32 = 23_456;

/// What GoBGP is told for one case about a neighbor: in its `config`, beside it, and in the family's.
fn gobgp_lines(case: Case, password: &str) -> [String; 3] {
    let none = String::new;
    match case {
        Case::Password => [format!("auth-password = \"{password}\""), none(), none()],
        Case::Multihop => [
            none(),
            "[neighbors.ebgp-multihop.config]\n    enabled = true\n    multihop-ttl = 2".into(),
            none(),
        ],
        Case::Limit => [
            none(),
            none(),
            format!("[neighbors.afi-safis.prefix-limit.config]\n      max-prefixes = {LIMIT}"),
        ],
        Case::Ebgp | Case::Ibgp | Case::Ipv6 | Case::FourOctet | Case::TwoOctet => [none(), none(), none()],
    }
}

pub(super) fn gobgp(case: Case, password: &str) -> String {
    let family = if case == Case::Ipv6 { "ipv6" } else { "ipv4" };
    let [in_config, beside, in_family] = gobgp_lines(case, password);
    let mut text = format!(
        "[global.config]\n  as = {}\n  router-id = \"{}\"\n  port = 179\n  local-address-list = [\"{}\"]\n",
        case.router_as(),
        case.identifier(Make::GoBgp),
        case.address(Make::GoBgp)
    );
    for node in case.nodes() {
        let _ = write!(
            text,
            "[[neighbors]]\n  [neighbors.config]\n    neighbor-address = \"{}\"\n    peer-as = {}\n    {in_config}\n  \
             [neighbors.transport.config]\n    passive-mode = true\n  {beside}\n  [[neighbors.afi-safis]]\n    \
             [neighbors.afi-safis.config]\n      afi-safi-name = \"{family}-unicast\"\n    {in_family}\n",
            case.address_of(*node),
            case.node_as()
        );
    }
    text
}

/// What ExaBGP is told for one case about a neighbor.
fn exabgp_line(case: Case, password: &str) -> String {
    match case {
        Case::Password => format!("md5-password \"{password}\";"),
        Case::TwoOctet => "capability { asn4 disable; }".into(),
        _ => String::new(),
    }
}

pub(super) fn exabgp(case: Case, password: &str) -> String {
    let family = if case == Case::Ipv6 { "ipv6" } else { "ipv4" };
    let neighbor_as = if case == Case::TwoOctet { AS_TRANS } else { case.node_as() };
    let mut text = String::new();
    for node in case.nodes() {
        let _ = write!(
            text,
            "neighbor {} {{\n  router-id {}; local-address {}; local-as {}; peer-as {neighbor_as}; passive true;\n  {}\n  \
             family {{ {family} unicast; }}\n  \
             api {{ processes [events]; neighbor-changes; receive {{ parsed; update; }} }}\n}}\n",
            case.address_of(*node),
            case.identifier(Make::ExaBgp),
            case.address(Make::ExaBgp),
            case.router_as(),
            exabgp_line(case, password)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interop.md"));

    #[test]
    fn our_page_has_the_lines_that_the_cases_are_about() {
        let node = Case::Ebgp.address_of(Host::Node1);
        let mut lines = Vec::new();
        for case in Case::ALL {
            let (frr, of_family) = frr_lines(case, node, "one");
            let (bird, of_channel) = bird_lines(case, "one");
            lines.extend(frr.into_iter().chain(of_family));
            lines.extend([bird, of_channel, exabgp_line(case, "one")]);
            lines.extend(gobgp_lines(case, "one").iter().flat_map(|text| text.lines()).map(str::to_owned));
        }
        for line in lines.iter().map(|line| line.trim()) {
            assert!(PAGE.contains(line), "{line}");
        }
    }
}
