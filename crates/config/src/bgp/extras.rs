// SPDX-License-Identifier: Apache-2.0
//! What annotations of a BGPPeer ask for beyond MetalLB.

use std::collections::{BTreeMap, BTreeSet};

pub(super) use ferrolb_api::annotations::GTSM_HOPS;
use ferrolb_api::annotations::{CAPABILITIES, LINK_BANDWIDTH, MAX_PREFIXES};

use super::{BgpCapability, LinkBandwidth};

/// The annotations that mean something on a BGPPeer.
pub(crate) const KEYS: [&str; 4] = [MAX_PREFIXES, GTSM_HOPS, LINK_BANDWIDTH, CAPABILITIES];

/// What they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) max_prefixes: Option<usize>,
    pub(crate) gtsm_hops: Option<u8>,
    pub(crate) link_bandwidth: Option<LinkBandwidth>,
    pub(crate) capabilities: BTreeSet<BgpCapability>,
}

/// Reads them; the error is everything that is wrong with them.
pub(crate) fn parse(annotations: &BTreeMap<String, String>) -> Result<Extras, Vec<String>> {
    let mut faults = Vec::new();
    let max_prefixes = number(annotations, MAX_PREFIXES, 1, u64::from(u32::MAX), &mut faults);
    let gtsm_hops = number(annotations, GTSM_HOPS, 1, 254, &mut faults);
    let link_bandwidth = match annotations.get(LINK_BANDWIDTH).map(String::as_str) {
        None => None,
        Some("non-transitive") => Some(LinkBandwidth::NonTransitive),
        Some("transitive") => Some(LinkBandwidth::Transitive),
        Some(other) => {
            faults.push(expected(LINK_BANDWIDTH, "non-transitive or transitive", other));
            None
        }
    };
    let capabilities = capabilities(annotations, &mut faults);
    if faults.is_empty() {
        Ok(Extras { max_prefixes, gtsm_hops, link_bandwidth, capabilities })
    } else {
        Err(faults)
    }
}

fn capabilities(annotations: &BTreeMap<String, String>, faults: &mut Vec<String>) -> BTreeSet<BgpCapability> {
    let mut capabilities = BTreeSet::new();
    for name in annotations.get(CAPABILITIES).into_iter().flat_map(|text| text.split(',')) {
        match name.trim() {
            "route-refresh" => capabilities.insert(BgpCapability::RouteRefresh),
            "fqdn" => capabilities.insert(BgpCapability::Fqdn),
            other => {
                faults.push(expected(CAPABILITIES, "route-refresh, fqdn or both", other));
                false
            }
        };
    }
    capabilities
}

fn number<T: TryFrom<u64>>(
    annotations: &BTreeMap<String, String>,
    key: &str,
    least: u64,
    most: u64,
    faults: &mut Vec<String>,
) -> Option<T> {
    let text = annotations.get(key)?;
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    let value = value.and_then(|value| T::try_from(value).ok());
    if value.is_none() {
        faults.push(expected(key, &format!("a number from {least} to {most}"), text));
    }
    value
}

fn expected(key: &str, what: &str, found: &str) -> String {
    format!("metadata.annotations[{key}]: expected {what}, found {found:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(key: &str, value: &str) -> Result<Extras, Vec<String>> {
        parse(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn annotations_are_read_and_what_is_wrong_is_named() {
        assert_eq!(parse(&BTreeMap::new()), Ok(Extras::default()));
        assert_eq!(parsed("ferrolb.io/max-prefixes", "500").unwrap().max_prefixes, Some(500));
        assert_eq!(parsed("ferrolb.io/gtsm-hops", "1").unwrap().gtsm_hops, Some(1));
        for (text, form) in
            [("non-transitive", LinkBandwidth::NonTransitive), ("transitive", LinkBandwidth::Transitive)]
        {
            assert_eq!(parsed("ferrolb.io/link-bandwidth", text).unwrap().link_bandwidth, Some(form));
        }
        for (text, wanted) in [
            ("route-refresh", &[BgpCapability::RouteRefresh][..]),
            ("fqdn, route-refresh", &[BgpCapability::RouteRefresh, BgpCapability::Fqdn]),
        ] {
            let capabilities = parsed("ferrolb.io/capabilities", text).unwrap().capabilities;
            assert!(capabilities.iter().eq(wanted), "{text}: {capabilities:?}");
        }
        for (key, value) in [
            ("ferrolb.io/capabilities", ""),
            ("ferrolb.io/capabilities", "graceful-restart"),
            ("ferrolb.io/max-prefixes", "0"),
            ("ferrolb.io/max-prefixes", "many"),
            ("ferrolb.io/gtsm-hops", "255"),
            ("ferrolb.io/gtsm-hops", ""),
            ("ferrolb.io/link-bandwidth", "true"),
        ] {
            let faults = parsed(key, value).unwrap_err();
            let [fault] = faults.as_slice() else { panic!("{faults:?}") };
            assert!(fault.contains(key) && fault.ends_with(&format!("found {value:?}")), "{fault}");
        }
    }
}
