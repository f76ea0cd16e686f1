// SPDX-License-Identifier: Apache-2.0
//! Where a webhook listens: a URL, or a Service whose cluster IP is dialled. Where nobody routes cluster IPs, an
//! embedder names the address that stands for a Service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

use crate::api::Cluster;
use crate::kinds::SERVICES;
use crate::object::{at, list, text};

/// Addresses that stand for Services, by `NAMESPACE/NAME`.
#[derive(Debug, Default)]
pub(crate) struct Routes(RwLock<BTreeMap<String, SocketAddr>>);

impl Routes {
    /// Routes as an embedder gave them.
    pub(crate) fn new(routes: BTreeMap<String, SocketAddr>) -> Self {
        Self(RwLock::new(routes))
    }

    /// From now on this Service is dialled there, whatever its cluster IP.
    pub(crate) fn set(&self, service: &str, address: SocketAddr) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(service.to_owned(), address);
    }

    fn find(&self, service: &str) -> Option<SocketAddr> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(service).copied()
    }
}

/// A webhook's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// URL without query, as messages show it.
    pub(crate) url: String,
    /// Name that its certificate must be valid for.
    pub(crate) host: String,
    /// Port that the URL names.
    pub(crate) port: u16,
    /// Path of the request.
    pub(crate) path: String,
    /// Namespace and name of the Service that the URL stands for.
    pub(crate) service: Option<(String, String)>,
}

impl Endpoint {
    /// Reads a `clientConfig`.
    pub(crate) fn of(config: &Value) -> Result<Self, String> {
        if let Some(service) = at(config, &["service"]) {
            let (namespace, name) = (text(service, &["namespace"]), text(service, &["name"]));
            let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
            let port = port.unwrap_or(443);
            let path = text(service, &["path"]);
            let path = if path.is_empty() { "/" } else { path }.to_owned();
            let host = format!("{name}.{namespace}.svc");
            let url = format!("https://{host}:{port}{path}");
            return Ok(Self { url, host, port, path, service: Some((namespace.into(), name.into())) });
        }
        let url = text(config, &["url"]);
        let uri: http::Uri = url.parse().map_err(|error| format!("Unable to parse {url:?}: {error}"))?;
        let host = uri.host().ok_or_else(|| format!("{url:?} names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = uri.path().to_owned();
        let shown = if url.ends_with(&path) { url.to_owned() } else { format!("{url}{path}") };
        Ok(Self { url: shown, host, port: uri.port_u16().unwrap_or(443), path, service: None })
    }

    /// Host and port to dial.
    pub(crate) fn dial(&self, cluster: &Cluster) -> Result<(String, u16), String> {
        let Some((namespace, name)) = &self.service else { return Ok((self.host.clone(), self.port)) };
        if let Some(address) = cluster.routes.find(&format!("{namespace}/{name}")) {
            return Ok((address.ip().to_string(), address.port()));
        }
        let key = (namespace.clone(), name.clone());
        let stored =
            cluster.store.find(SERVICES, &key).ok_or_else(|| format!("service {name:?} not found"))?;
        let service = &*stored.object;
        let served = list(service, &["spec", "ports"]).iter().any(|port| port["port"] == self.port);
        if !served {
            return Err(format!("no service port {} found for service {name:?}", self.port));
        }
        match (text(service, &["spec", "type"]), text(service, &["spec", "clusterIP"])) {
            ("ExternalName", _) => Ok((text(service, &["spec", "externalName"]).to_owned(), self.port)),
            (_, "None" | "") => Err("cannot route to service with ClusterIP \"None\"".into()),
            (_, address) => Ok((address.to_owned(), self.port)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn urls_and_services_are_shown_as_a_real_server_shows_them() {
        for (config, url, host, port) in [
            (json!({ "service": { "namespace": "n", "name": "s" } }), "https://s.n.svc:443/", "s.n.svc", 443),
            (
                json!({ "service": { "namespace": "n", "name": "s", "port": 8443, "path": "/a/b" } }),
                "https://s.n.svc:8443/a/b",
                "s.n.svc",
                8443,
            ),
            (json!({ "url": "https://127.0.0.1:9443/x" }), "https://127.0.0.1:9443/x", "127.0.0.1", 9443),
            (
                json!({ "url": "https://hook.example.com" }),
                "https://hook.example.com/",
                "hook.example.com",
                443,
            ),
            (json!({ "url": "https://[::1]:9443/x" }), "https://[::1]:9443/x", "::1", 9443),
        ] {
            let endpoint = Endpoint::of(&config).expect("an endpoint");
            assert_eq!((endpoint.url.as_str(), endpoint.host.as_str(), endpoint.port), (url, host, port));
        }
        assert!(Endpoint::of(&json!({ "url": "no url" })).is_err());
    }
}
