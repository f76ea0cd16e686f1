// SPDX-License-Identifier: Apache-2.0
//! Waiting for the API to say something, by watching it.

use std::fmt::Debug;

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// Waits until the object `name` exists and `condition` holds for it. It has no time limit of its own.
///
/// # Errors
/// The watch ended.
pub async fn until<K>(api: &Api<K>, name: &str, mut condition: impl FnMut(&K) -> bool) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    observe(api, name, |object| object.is_some_and(&mut condition)).await
}

/// Waits until `condition` holds for the object `name`, `None` while there is none. It has no time limit of its own.
///
/// # Errors
/// The watch ended.
pub async fn observe<K>(api: &Api<K>, name: &str, mut condition: impl FnMut(Option<&K>) -> bool) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let stream = watcher::watch_object(api.clone(), name).default_backoff();
    let mut stream = std::pin::pin!(stream.map_err(drop));
    loop {
        match stream.try_next().await {
            Ok(Some(object)) if condition(object.as_ref()) => return Ok(()),
            // The watch opens itself again after an error.
            Ok(Some(_)) | Err(()) => {}
            Ok(None) => return Err(anyhow::anyhow!("the watch of {name} ended")).context("wait"),
        }
    }
}

/// Watches every object of an API until `condition` holds for what there is. It has no time limit of its own.
///
/// # Errors
/// The watch ended.
pub async fn all<K>(api: &Api<K>, mut condition: impl FnMut(&[std::sync::Arc<K>]) -> bool) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + std::hash::Hash + Clone,
{
    let (store, writer) = kube::runtime::reflector::store();
    let stream = watcher(api.clone(), watcher::Config::default());
    let stream = kube::runtime::reflector::reflector(writer, stream).default_backoff();
    let mut stream = std::pin::pin!(stream.map_err(drop));
    loop {
        match stream.try_next().await {
            Ok(Some(watcher::Event::Init | watcher::Event::InitApply(_))) | Err(()) => {}
            Ok(Some(_)) if condition(&store.state()) => return Ok(()),
            Ok(Some(_)) => {}
            Ok(None) => anyhow::bail!("a watch ended"),
        }
    }
}
