// SPDX-License-Identifier: Apache-2.0
//! The `metallb_allocator_*` gauges, per pool.

use ferrolb_ipam::Counters;
use ferrolb_kube_support::metrics::Metrics;
use ferrolb_net_types::PoolName;
use prometheus::{IntGaugeVec, Opts, Registry};

/// The series of the allocator.
#[derive(Clone, Debug)]
pub(crate) struct Gauges {
    capacity: Family,
    in_use: Family,
    /// Registered and never set by MetalLB; a family without series is not exported.
    #[expect(dead_code, reason = "kept registered so that the name stays taken")]
    services: IntGaugeVec,
}

/// One quantity: both families together, and each.
#[derive(Clone, Debug)]
struct Family {
    total: IntGaugeVec,
    ipv4: IntGaugeVec,
    ipv6: IntGaugeVec,
}

impl Gauges {
    pub(crate) fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let registry = metrics.registry();
        Ok(Self {
            capacity: Family::register(registry, "addresses_total", "Number of usable")?,
            in_use: Family::register(registry, "addresses_in_use_total", "Number of distinct in-use")?,
            services: gauge(registry, "services_allocated_total", "Number of services allocated, per pool")?,
        })
    }

    pub(crate) fn set(&self, pool: &PoolName, counters: Option<Counters>) {
        let pool = pool.as_str();
        match counters {
            Some(counters) => {
                let (total, ipv4, ipv6) = (counters.total(), counters.ipv4, counters.ipv6);
                self.capacity.set(pool, total.capacity, ipv4.capacity, ipv6.capacity);
                self.in_use.set(pool, total.in_use, ipv4.in_use, ipv6.in_use);
            }
            None => {
                self.capacity.remove(pool);
                self.in_use.remove(pool);
            }
        }
    }
}

impl Family {
    fn register(registry: &Registry, name: &str, help: &str) -> Result<Self, prometheus::Error> {
        Ok(Self {
            total: gauge(registry, name, &format!("{help} IP addresses, per pool"))?,
            ipv4: gauge(registry, &format!("ipv4_{name}"), &format!("{help} IPv4 addresses, per pool"))?,
            ipv6: gauge(registry, &format!("ipv6_{name}"), &format!("{help} IPv6 addresses, per pool"))?,
        })
    }

    fn set(&self, pool: &str, total: i64, ipv4: i64, ipv6: i64) {
        for (gauge, value) in [(&self.total, total), (&self.ipv4, ipv4), (&self.ipv6, ipv6)] {
            gauge.with_label_values(&[pool]).set(value);
        }
    }

    fn remove(&self, pool: &str) {
        for gauge in [&self.total, &self.ipv4, &self.ipv6] {
            // The only error is that there was no such series.
            let _ = gauge.remove_label_values(&[pool]);
        }
    }
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGaugeVec, prometheus::Error> {
    let gauge = IntGaugeVec::new(Opts::new(format!("metallb_allocator_{name}"), help), &["pool"])?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

#[cfg(test)]
mod tests {
    use ferrolb_ipam::Usage;

    use super::*;

    #[test]
    fn a_pool_has_six_series_and_none_when_it_is_gone() {
        let metrics = Metrics::new().unwrap();
        let gauges = Gauges::register(&metrics).unwrap();
        let pool = PoolName::from("first");
        let counters = Counters {
            ipv4: Usage { capacity: 21, in_use: 2, withheld: 0 },
            ipv6: Usage { capacity: 4, in_use: 1, withheld: 0 },
        };
        let text = || String::from_utf8(metrics.text()).unwrap();
        gauges.set(&pool, Some(counters));
        for line in [
            "metallb_allocator_addresses_total{pool=\"first\"} 25",
            "metallb_allocator_ipv4_addresses_total{pool=\"first\"} 21",
            "metallb_allocator_ipv6_addresses_total{pool=\"first\"} 4",
            "metallb_allocator_addresses_in_use_total{pool=\"first\"} 3",
            "metallb_allocator_ipv4_addresses_in_use_total{pool=\"first\"} 2",
            "metallb_allocator_ipv6_addresses_in_use_total{pool=\"first\"} 1",
        ] {
            assert!(text().lines().any(|found| found == line), "{line}");
        }
        gauges.set(&pool, None);
        assert!(!text().contains("metallb_allocator"));
    }
}
