// SPDX-License-Identifier: Apache-2.0
//! `metallb_speaker_announced` and the `metallb_layer2_*` counters.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrolb_kube_support::metrics::Metrics;
use ferrolb_net_types::{NodeName, ServiceKey};
use ferrolb_speaker_core::Protocol;
use ferrolb_speaker_core::wire::Counters;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// The series of a speaker.
#[derive(Debug)]
pub(crate) struct Gauges {
    node: NodeName,
    announced: IntGaugeVec,
    requests: IntCounterVec,
    responses: IntCounterVec,
    gratuitous: IntCounterVec,
    /// The totals that the series show, to add what has come since.
    shown: BTreeMap<IpAddr, Counters>,
}

impl Gauges {
    pub(crate) fn register(metrics: &Metrics, node: NodeName) -> Result<Self, prometheus::Error> {
        let registry = metrics.registry();
        let announced = IntGaugeVec::new(
            Opts::new(
                "metallb_speaker_announced",
                "Services being announced from this node. This is desired state, it does not guarantee that the \
                 routing protocols have converged.",
            ),
            &["service", "protocol", "node", "ip"],
        )?;
        registry.register(Box::new(announced.clone()))?;
        let counter = |name: &str, help: &str| -> Result<IntCounterVec, prometheus::Error> {
            let counter = IntCounterVec::new(Opts::new(format!("metallb_layer2_{name}"), help), &["ip"])?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        Ok(Self {
            node,
            announced,
            requests: counter("requests_received", "Number of layer2 requests received for owned IPs")?,
            responses: counter(
                "responses_sent",
                "Number of layer2 responses sent for owned IPs in response to requests",
            )?,
            gratuitous: counter(
                "gratuitous_sent",
                "Number of gratuitous layer2 packets sent for owned IPs as a result of failovers",
            )?,
            shown: BTreeMap::new(),
        })
    }

    pub(crate) fn announced(&self, service: &ServiceKey, protocol: Protocol, ip: IpAddr, on: bool) {
        let (service, ip) = (service.to_string(), ip.to_string());
        let labels = [service.as_str(), protocol.as_str(), self.node.as_str(), ip.as_str()];
        if on {
            self.announced.with_label_values(&labels).set(1);
        } else {
            // The only error is that there was no such series.
            let _ = self.announced.remove_label_values(&labels);
        }
    }

    pub(crate) fn counters(&mut self, ip: IpAddr, counters: Option<Counters>) {
        let label = ip.to_string();
        let Some(total) = counters else {
            self.shown.remove(&ip);
            for counter in [&self.requests, &self.responses, &self.gratuitous] {
                let _ = counter.remove_label_values(&[label.as_str()]);
            }
            return;
        };
        let shown = self.shown.insert(ip, total).unwrap_or_default();
        for (counter, total, shown) in [
            (&self.requests, total.requests, shown.requests),
            (&self.responses, total.responses, shown.responses),
            (&self.gratuitous, total.gratuitous, shown.gratuitous),
        ] {
            counter.with_label_values(&[label.as_str()]).inc_by(total.saturating_sub(shown));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_follow_the_announcements_and_totals() {
        let metrics = Metrics::new().unwrap();
        let mut gauges = Gauges::register(&metrics, NodeName::from("node2")).unwrap();
        let text = || String::from_utf8(metrics.text()).unwrap();
        let has = |line: &str| text().lines().any(|found| found == line);
        let ip: IpAddr = "192.168.10.200".parse().unwrap();
        let service = ServiceKey::new("default", "four");

        gauges.announced(&service, Protocol::Layer2, ip, true);
        gauges.counters(ip, Some(Counters { requests: 2, responses: 2, gratuitous: 10 }));
        gauges.counters(ip, Some(Counters { requests: 3, responses: 3, gratuitous: 40 }));
        assert!(has(
            "metallb_speaker_announced{ip=\"192.168.10.200\",node=\"node2\",protocol=\"layer2\",service=\"default/four\"} 1"
        ));
        assert!(has("metallb_layer2_requests_received{ip=\"192.168.10.200\"} 3"));
        assert!(has("metallb_layer2_responses_sent{ip=\"192.168.10.200\"} 3"));
        assert!(has("metallb_layer2_gratuitous_sent{ip=\"192.168.10.200\"} 40"));

        gauges.announced(&service, Protocol::Layer2, ip, false);
        gauges.counters(ip, None);
        assert!(!text().contains("192.168.10.200"));
    }
}
