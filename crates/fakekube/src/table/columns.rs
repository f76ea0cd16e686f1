// SPDX-License-Identifier: Apache-2.0
//! Columns of the built-in kinds that people look at.

use jiff::Timestamp;
use serde_json::Value;

use crate::object::{at, list, name, text};

/// Names of a kind's columns after the first, and whether they are for wide output only.
pub(crate) fn of(kind: &str) -> &'static [(&'static str, bool)] {
    match kind {
        "Service" => &[
            ("Type", false),
            ("Cluster-IP", false),
            ("External-IP", false),
            ("Port(s)", false),
            ("Age", false),
            ("Selector", true),
        ],
        "Pod" => &[
            ("Ready", false),
            ("Status", false),
            ("Restarts", false),
            ("Age", false),
            ("IP", true),
            ("Node", true),
            ("Nominated Node", true),
            ("Readiness Gates", true),
        ],
        "Node" => &[
            ("Status", false),
            ("Roles", false),
            ("Age", false),
            ("Version", false),
            ("Internal-IP", true),
            ("External-IP", true),
            ("OS-Image", true),
            ("Kernel-Version", true),
            ("Container-Runtime", true),
        ],
        "Namespace" => &[("Status", false), ("Age", false)],
        "Deployment" => &[
            ("Ready", false),
            ("Up-to-date", false),
            ("Available", false),
            ("Age", false),
            ("Containers", true),
            ("Images", true),
            ("Selector", true),
        ],
        "ReplicaSet" => &[
            ("Desired", false),
            ("Current", false),
            ("Ready", false),
            ("Age", false),
            ("Containers", true),
            ("Images", true),
            ("Selector", true),
        ],
        "DaemonSet" => &[
            ("Desired", false),
            ("Current", false),
            ("Ready", false),
            ("Up-to-date", false),
            ("Available", false),
            ("Node Selector", false),
            ("Age", false),
            ("Containers", true),
            ("Images", true),
            ("Selector", true),
        ],
        "Event" => &[
            ("Last Seen", false),
            ("Type", false),
            ("Reason", false),
            ("Object", false),
            ("Subobject", true),
            ("Source", true),
            ("Message", false),
            ("First Seen", true),
            ("Count", true),
            ("Name", true),
        ],
        "EndpointSlice" => &[("AddressType", false), ("Ports", false), ("Endpoints", false), ("Age", false)],
        "Endpoints" => &[("Endpoints", false), ("Age", false)],
        "ConfigMap" => &[("Data", false), ("Age", false)],
        "Secret" => &[("Type", false), ("Data", false), ("Age", false)],
        "Lease" => &[("Holder", false), ("Age", false)],
        "ValidatingWebhookConfiguration" => &[("Webhooks", false), ("Age", false)],
        "CustomResourceDefinition" | "ClusterRole" | "Role" => &[("Created At", false)],
        "ClusterRoleBinding" | "RoleBinding" => &[("Role", false), ("Age", false)],
        "PodDisruptionBudget" => &[
            ("Min Available", false),
            ("Max Unavailable", false),
            ("Allowed Disruptions", false),
            ("Age", false),
        ],
        "NetworkPolicy" => &[("Pod-Selector", false), ("Age", false)],
        _ => &[("Age", false)],
    }
}

/// A row.
pub(crate) fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let age = || age_of(object, &["metadata", "creationTimestamp"], now);
    let number = |path: &[&str]| at(object, path).and_then(Value::as_i64).unwrap_or(0).to_string();
    let size = |path: &[&str]| at(object, path).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let mut row: Vec<String> = vec![name(object).to_owned()];
    match kind {
        "Service" => {
            row.extend([
                text(object, &["spec", "type"]).to_owned(),
                or_none(text(object, &["spec", "clusterIP"])),
                external_addresses(object),
                ports(object),
                age(),
                or_none(&labels(at(object, &["spec", "selector"]))),
            ]);
        }
        "Pod" => row.extend(pod(object, now)),
        "Node" => row.extend(node(object, now)),
        "Namespace" => row.extend([text(object, &["status", "phase"]).to_owned(), age()]),
        "Deployment" => {
            row.extend([
                format!("{}/{}", number(&["status", "readyReplicas"]), number(&["spec", "replicas"])),
                number(&["status", "updatedReplicas"]),
                number(&["status", "availableReplicas"]),
                age(),
            ]);
            row.extend(containers(object));
        }
        "ReplicaSet" => {
            row.extend([
                number(&["spec", "replicas"]),
                number(&["status", "replicas"]),
                number(&["status", "readyReplicas"]),
                age(),
            ]);
            row.extend(containers(object));
        }
        "DaemonSet" => {
            row.extend([
                number(&["status", "desiredNumberScheduled"]),
                number(&["status", "currentNumberScheduled"]),
                number(&["status", "numberReady"]),
                number(&["status", "updatedNumberScheduled"]),
                number(&["status", "numberAvailable"]),
                or_none(&labels(at(object, &["spec", "template", "spec", "nodeSelector"]))),
                age(),
            ]);
            row.extend(containers(object));
        }
        "Event" => row = event(object, now),
        "EndpointSlice" => {
            let ports: Vec<String> = list(object, &["ports"])
                .iter()
                .map(|port| at(port, &["port"]).map_or_else(|| "*".to_owned(), ToString::to_string))
                .collect();
            let addresses: Vec<&str> = list(object, &["endpoints"])
                .iter()
                .flat_map(|endpoint| list(endpoint, &["addresses"]))
                .filter_map(Value::as_str)
                .collect();
            row.extend([
                text(object, &["addressType"]).to_owned(),
                if ports.is_empty() { "<unset>".to_owned() } else { shortened(&ports) },
                if addresses.is_empty() { "<unset>".to_owned() } else { shortened(&addresses) },
                age(),
            ]);
        }
        "Endpoints" => {
            let mut all = Vec::new();
            for subset in list(object, &["subsets"]) {
                let addresses = list(subset, &["addresses"]).iter().map(|a| text(a, &["ip"]));
                for address in addresses {
                    let ports = list(subset, &["ports"]);
                    if ports.is_empty() {
                        all.push(address.to_owned());
                    }
                    all.extend(ports.iter().map(|port| format!("{address}:{}", port["port"])));
                }
            }
            row.extend([or_none(&shortened(&all)), age()]);
        }
        "ConfigMap" => row.extend([(size(&["data"]) + size(&["binaryData"])).to_string(), age()]),
        "Secret" => row.extend([text(object, &["type"]).to_owned(), size(&["data"]).to_string(), age()]),
        "Lease" => row.extend([text(object, &["spec", "holderIdentity"]).to_owned(), age()]),
        "ValidatingWebhookConfiguration" => {
            row.extend([list(object, &["webhooks"]).len().to_string(), age()]);
        }
        "CustomResourceDefinition" | "ClusterRole" | "Role" => {
            row.push(text(object, &["metadata", "creationTimestamp"]).to_owned());
        }
        "ClusterRoleBinding" | "RoleBinding" => {
            let role = at(object, &["roleRef"]).cloned().unwrap_or_default();
            row.extend([format!("{}/{}", text(&role, &["kind"]), text(&role, &["name"])), age()]);
        }
        "PodDisruptionBudget" => {
            let or_na = |path: &[&str]| match at(object, path) {
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => "N/A".to_owned(),
            };
            row.extend([
                or_na(&["spec", "minAvailable"]),
                or_na(&["spec", "maxUnavailable"]),
                number(&["status", "disruptionsAllowed"]),
                age(),
            ]);
        }
        "NetworkPolicy" => {
            row.extend([or_none(&labels(at(object, &["spec", "podSelector", "matchLabels"]))), age()]);
        }
        _ => row.push(age()),
    }
    row.into_iter().map(Value::String).collect()
}

fn external_addresses(service: &Value) -> String {
    let mut addresses: Vec<String> =
        list(service, &["spec", "externalIPs"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    match text(service, &["spec", "type"]) {
        "LoadBalancer" => {
            let ingress = list(service, &["status", "loadBalancer", "ingress"]).iter().map(|entry| {
                let ip = text(entry, &["ip"]);
                if ip.is_empty() { text(entry, &["hostname"]).to_owned() } else { ip.to_owned() }
            });
            let ingress: Vec<String> = ingress.collect();
            if ingress.is_empty() && addresses.is_empty() {
                return "<pending>".into();
            }
            addresses.splice(0..0, ingress);
        }
        "ExternalName" => return text(service, &["spec", "externalName"]).to_owned(),
        _ => {}
    }
    if addresses.is_empty() { "<none>".into() } else { addresses.join(",") }
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = list(service, &["spec", "ports"])
        .iter()
        .map(|port| {
            let node = at(port, &["nodePort"]).and_then(Value::as_u64).filter(|&port| port > 0);
            let node = node.map(|node| format!(":{node}")).unwrap_or_default();
            format!("{}{node}/{}", port["port"], text(port, &["protocol"]))
        })
        .collect();
    if ports.is_empty() { "<none>".into() } else { ports.join(",") }
}

fn pod(pod: &Value, now: Timestamp) -> Vec<String> {
    let statuses = list(pod, &["status", "containerStatuses"]);
    let ready = statuses.iter().filter(|status| status.get("ready") == Some(&Value::Bool(true))).count();
    let restarts: i64 = statuses.iter().filter_map(|status| status.get("restartCount")?.as_i64()).sum();
    let mut status = text(pod, &["status", "phase"]).to_owned();
    if !text(pod, &["status", "reason"]).is_empty() {
        status = text(pod, &["status", "reason"]).to_owned();
    }
    for container in statuses {
        for state in ["waiting", "terminated"] {
            let reason = text(container, &["state", state, "reason"]);
            if !reason.is_empty() {
                status = reason.to_owned();
            }
        }
    }
    if at(pod, &["metadata", "deletionTimestamp"]).is_some() {
        status = "Terminating".into();
    }
    let or_none = |path: &[&str]| match text(pod, path) {
        "" => "<none>".to_owned(),
        text => text.to_owned(),
    };
    vec![
        format!("{ready}/{}", list(pod, &["spec", "containers"]).len()),
        status,
        restarts.to_string(),
        age_of(pod, &["metadata", "creationTimestamp"], now),
        or_none(&["status", "podIP"]),
        or_none(&["spec", "nodeName"]),
        or_none(&["status", "nominatedNodeName"]),
        "<none>".into(),
    ]
}

fn node(node: &Value, now: Timestamp) -> Vec<String> {
    let ready = list(node, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "Ready");
    let mut status = match ready.map(|condition| text(condition, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let roles: Vec<&str> = at(node, &["metadata", "labels"])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |kind: &str| {
        let found = list(node, &["status", "addresses"]).iter().find(|a| text(a, &["type"]) == kind);
        found.map_or_else(|| "<none>".to_owned(), |address| text(address, &["address"]).to_owned())
    };
    let info = |key: &str| match text(node, &["status", "nodeInfo", key]) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    vec![
        status,
        if roles.is_empty() { "<none>".into() } else { roles.join(",") },
        age_of(node, &["metadata", "creationTimestamp"], now),
        text(node, &["status", "nodeInfo", "kubeletVersion"]).to_owned(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn event(event: &Value, now: Timestamp) -> Vec<String> {
    let about =
        at(event, &["involvedObject"]).or_else(|| at(event, &["regarding"])).cloned().unwrap_or_default();
    let either = |core: &[&str], new: &[&str]| match text(event, core) {
        "" => text(event, new).to_owned(),
        text => text.to_owned(),
    };
    let time = |paths: [&[&str]; 4]| {
        let known = paths.into_iter().find(|path| !text(event, path).is_empty());
        known.map_or_else(|| "<unknown>".to_owned(), |path| age_of(event, path, now))
    };
    let source = match either(&["source", "component"], &["deprecatedSource", "component"]) {
        empty if empty.is_empty() => either(&["reportingComponent"], &["reportingController"]),
        component => component,
    };
    let count = at(event, &["count"]).or_else(|| at(event, &["deprecatedCount"]));
    vec![
        time([
            &["lastTimestamp"],
            &["deprecatedLastTimestamp"],
            &["series", "lastObservedTime"],
            &["eventTime"],
        ]),
        text(event, &["type"]).to_owned(),
        text(event, &["reason"]).to_owned(),
        format!("{}/{}", text(&about, &["kind"]).to_lowercase(), text(&about, &["name"])),
        text(&about, &["fieldPath"]).to_owned(),
        source,
        either(&["message"], &["note"]).trim().to_owned(),
        time([&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"], &["eventTime"]]),
        count.and_then(Value::as_i64).unwrap_or(1).to_string(),
        name(event).to_owned(),
    ]
}

fn containers(object: &Value) -> Vec<String> {
    let containers = list(object, &["spec", "template", "spec", "containers"]);
    let join = |key: &str| containers.iter().map(|c| text(c, &[key])).collect::<Vec<_>>().join(",");
    vec![join("name"), join("image"), labels(at(object, &["spec", "selector", "matchLabels"]))]
}

fn labels(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    pairs
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

fn shortened<T: AsRef<str>>(items: &[T]) -> String {
    let mut shown = items.iter().take(3).map(AsRef::as_ref).collect::<Vec<&str>>().join(",");
    if items.len() > 3 {
        shown.push_str(&format!(" + {} more...", items.len() - 3));
    }
    shown
}

/// The age of a time at a path.
pub(crate) fn age_of(object: &Value, path: &[&str], now: Timestamp) -> String {
    text(object, path).parse::<Timestamp>().map_or_else(|_| "<unknown>".to_owned(), |then| age(then, now))
}

/// A duration as kubectl shows it: two units at most, one from a day or so.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - then.as_second();
    if seconds < -1 {
        return "<invalid>".into();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |a: i64, ua: &str, b: i64, ub: &str| {
        if b == 0 { format!("{a}{ua}") } else { format!("{a}{ua}{b}{ub}") }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ages_are_shown_as_kubectl_shows_them() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (700, "11m"),
            (3600 * 3, "3h"),
            (3600 * 3 + 61, "3h1m"),
            (3600 * 47, "47h"),
            (86400 * 2, "2d"),
            (86400 * 400, "400d"),
        ] {
            let then = Timestamp::from_second(now.as_second() - seconds).expect("a time");
            assert_eq!(age(then, now), expected, "{seconds}");
        }
    }

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        for row in crate::kinds::Registry::new().all() {
            let columns = of(&row.kind).len() + usize::from(row.kind != "Event");
            assert_eq!(cells(&row.kind, &json!({}), Timestamp::UNIX_EPOCH).len(), columns, "{}", row.kind);
        }
    }

    #[test]
    fn a_load_balancer_shows_its_address_or_that_it_waits() {
        let mut service = json!({ "metadata": { "name": "s" }, "spec": { "type": "LoadBalancer",
            "clusterIP": "10.96.0.9", "ports": [{ "port": 80, "nodePort": 30080, "protocol": "TCP" }] } });
        let row = |service: &Value| cells("Service", service, Timestamp::UNIX_EPOCH)[1..5].to_vec();
        assert_eq!(row(&service), ["LoadBalancer", "10.96.0.9", "<pending>", "80:30080/TCP"]);
        service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "192.0.2.1" }]);
        assert_eq!(row(&service)[2], "192.0.2.1");
    }
}
