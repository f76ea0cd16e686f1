// SPDX-License-Identifier: Apache-2.0
//! What a peer is told of a prefix, put together from everything that announces it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolb_config::{BgpAdvertisement, BgpCommunity};
use ferrolb_net_types::PeerName;

/// What a peer is told of a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BgpRoute {
    /// LOCAL_PREF: the greatest that is asked for; `None` if none is.
    pub local_pref: Option<u32>,
    /// The communities of all advertisements.
    pub communities: BTreeSet<BgpCommunity>,
    /// How many endpoints of Services with the traffic policy Local serve on the node; `None` where some Service behind
    /// the prefix is reached over any node.
    pub endpoints: Option<u32>,
}

/// One reason for a prefix: a Service with so many endpoints on the node, by these advertisements. It is one, however
/// many of its addresses and advertisements come to the prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share {
    /// In order of their names.
    pub(super) advertisements: Vec<Arc<BgpAdvertisement>>,
    pub(super) endpoints: Option<u32>,
}

/// The reasons for one prefix, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares(BTreeMap<Share, u32>);

impl Shares {
    pub(super) fn add(&mut self, share: Share) {
        *self.0.entry(share).or_default() += 1;
    }

    pub(super) fn remove(&mut self, share: &Share) {
        if let Some(count) = self.0.get_mut(share) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(share);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The route for a peer; `None` if no advertisement is for it.
    pub(super) fn route(&self, peer: &PeerName) -> Option<BgpRoute> {
        let mut route: Option<BgpRoute> = None;
        for (share, count) in &self.0 {
            let mut for_peer = share.advertisements.iter().filter(|one| one.is_for(peer)).peekable();
            if for_peer.peek().is_none() {
                continue;
            }
            let endpoints = share.endpoints.map(|endpoints| endpoints.saturating_mul(*count));
            let all = match &mut route {
                None => route.insert(BgpRoute { endpoints, ..BgpRoute::default() }),
                Some(all) => {
                    all.endpoints = all.endpoints.zip(endpoints).map(|(a, b)| a.saturating_add(b));
                    all
                }
            };
            for advertisement in for_peer {
                all.local_pref = all.local_pref.max(advertisement.local_pref);
                all.communities.extend(&advertisement.communities);
            }
        }
        route
    }
}
