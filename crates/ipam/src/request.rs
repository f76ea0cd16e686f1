// SPDX-License-Identifier: Apache-2.0
//! The addresses a Service asks for by name, in its annotation or in `spec.loadBalancerIP`.

use std::net::IpAddr;

use ferrolb_net_types::parse_ip;
use thiserror::Error;

use crate::family::{Families, FamilyError};
use crate::text::Quoted;

/// The addresses asked for, in the order of the request; `None` if the Service leaves the choice to us.
///
/// `annotation` is the value of `loadBalancerIPs` (one address, or two of different families with a comma
/// between; blanks are ignored), `field` that of `spec.loadBalancerIP`. Empty counts as absent.
///
/// # Errors
/// Both are set, an item is not an address, or the list is not one address per family.
pub fn requested_ips(annotation: &str, field: &str) -> Result<Option<Vec<IpAddr>>, RequestError> {
    let ips: Vec<IpAddr> = match (annotation, field) {
        ("", "") => return Ok(None),
        ("", field) => vec![parse_ip(field).ok_or_else(|| RequestError::Field(Quoted(field).to_string()))?],
        (list, "") => list
            .split(',')
            .map(|item| parse_ip(item.trim()))
            .collect::<Option<_>>()
            .ok_or_else(|| RequestError::Annotation(Quoted(list).to_string()))?,
        _ => return Err(RequestError::Both),
    };
    Families::of(&ips.iter().copied().map(Some).collect::<Vec<_>>())?;
    Ok(Some(ips))
}

/// A request that cannot be understood. Each holds the value in quotes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Both ways of asking are used at once.
    #[error("service can not have both metallb.io/loadBalancerIPs and svc.Spec.LoadBalancerIP")]
    Both,
    /// An item of the annotation is not an address.
    #[error("invalid metallb.io/loadBalancerIPs: {0}")]
    Annotation(String),
    /// The field is not an address.
    #[error("invalid spec.loadBalancerIP {0}")]
    Field(String),
    /// Not one address per family.
    #[error(transparent)]
    Family(#[from] FamilyError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_metallb_reads_them() {
        let text = |annotation, field| match requested_ips(annotation, field) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(ips)) => ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        for (annotation, field, expected) in [
            ("", "", "nothing"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("", "10.0.0.1", "10.0.0.1"),
            ("FD00:0::5, 10.0.0.5", "", "fd00::5 10.0.0.5"),
            (" 10.0.0.5 ", "", "10.0.0.5"),
            ("10.0.0.1,", "", r#"invalid metallb.io/loadBalancerIPs: "10.0.0.1,""#),
            ("please", "", r#"invalid metallb.io/loadBalancerIPs: "please""#),
            ("", "please", r#"invalid spec.loadBalancerIP "please""#),
            (
                "10.0.0.1",
                "10.0.0.1",
                "service can not have both metallb.io/loadBalancerIPs and svc.Spec.LoadBalancerIP",
            ),
            ("1.2.3.1,1.2.3.2", "", r#"IPFamilyForAddresses: same address family ["1.2.3.1" "1.2.3.2"]"#),
            ("1.2.3.1,::1,::2", "", r#"IPFamilyForAddresses: invalid ips length 3 ["1.2.3.1" "::1" "::2"]"#),
        ] {
            assert_eq!(text(annotation, field), expected, "{annotation:?} {field:?}");
        }
    }
}
