// SPDX-License-Identifier: Apache-2.0
//! The Secrets that BGP peers name: each is watched by its name, so that no other is ever read.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;

use ferrolb_api::Change;
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::watch::{Delivery, Watch};
use ferrolb_speaker_core::Input;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::trim;

/// The watches of the Secrets that are wanted.
pub(crate) struct Secrets {
    namespace: String,
    client: Client,
    reach: Reach,
    /// Where the news goes.
    inputs: mpsc::UnboundedSender<Input>,
    watched: BTreeMap<String, Watched>,
}

/// A watch that ends with its owner.
#[derive(Debug)]
struct Watched(AbortHandle);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Secrets {
    pub(crate) fn new(
        namespace: String,
        client: Client,
        reach: Reach,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> Self {
        Self { namespace, client, reach, inputs, watched: BTreeMap::new() }
    }

    /// Watches these from now on, and no others.
    pub(crate) fn watch(&mut self, names: &BTreeSet<String>) {
        self.watched.retain(|name, _| names.contains(name));
        for name in names.iter().filter(|name| !self.watched.contains_key(*name)).cloned().collect::<Vec<_>>()
        {
            if is_name(&name) {
                let watched = self.start(name.clone());
                self.watched.insert(name, watched);
            } else {
                // Nothing can have this name.
                say(&self.inputs, name, None);
            }
        }
    }

    fn start(&self, name: String) -> Watched {
        let (client, reach, inputs) = (self.client.clone(), self.reach.clone(), self.inputs.clone());
        let watch = Watch::<Secret>::namespaced(&self.namespace)
            .fields(format!("metadata.name={name}"))
            .trim(trim::secret)
            // Whoever may not read it has no such Secret.
            .optional();
        let take = move |delivery: Delivery<Secret>| {
            match delivery {
                Delivery::Change(Change::Reset(list)) => {
                    say(&inputs, name.clone(), list.into_iter().next().map(Box::new));
                }
                Delivery::Change(Change::Applied(secret)) => say(&inputs, name.clone(), Some(secret)),
                Delivery::Change(Change::Deleted { .. }) => say(&inputs, name.clone(), None),
                Delivery::Undecodable(objects) if !objects.is_empty() => say(&inputs, name.clone(), None),
                Delivery::Undecodable(_) => {}
            }
            ready(!inputs.is_closed())
        };
        Watched(tokio::spawn(watch.run(client, reach, take)).abort_handle())
    }
}

fn say(inputs: &mpsc::UnboundedSender<Input>, name: String, secret: Option<Box<Secret>>) {
    // Nobody listens only while the process ends.
    let _ = inputs.send(Input::Secret { name, secret });
}

/// Whether an object can have this name; another would not be one name in a selector.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.len() <= 253 && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        for (name, is) in [
            ("router-1.password", true),
            ("", false),
            ("a,metadata.namespace=b", false),
            ("A", false),
            ("a b", false),
        ] {
            assert_eq!(is_name(name), is, "{name:?}");
        }
    }
}
