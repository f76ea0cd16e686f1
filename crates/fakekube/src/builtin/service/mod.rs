// SPDX-License-Identifier: Apache-2.0
//! Services: their defaults, what a change of type drops, and their rules.

mod allocate;

use serde_json::{Value, json};

pub(crate) use self::allocate::{Allocator, Reservation};
use crate::builtin::metadata::{is_label, label_text};
use crate::builtin::{default_text, default_value};
use crate::error::FieldError;
use crate::object::{at, carry, list, object_mut, text};

/// Defaults of a Service, status included.
pub(crate) fn defaults(service: &mut Value) {
    let spec = &mut service["spec"];
    default_text(spec, "sessionAffinity", "None");
    default_text(spec, "type", "ClusterIP");
    if text(spec, &["sessionAffinity"]) == "None" {
        object_mut(spec).remove("sessionAffinityConfig");
    } else if text(spec, &["sessionAffinity"]) == "ClientIP"
        && at(spec, &["sessionAffinityConfig", "clientIP", "timeoutSeconds"]).is_none()
    {
        spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": 10800 } });
    }
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports {
            default_text(port, "protocol", "TCP");
            let number = port.get("port").cloned().unwrap_or(Value::Null);
            if at(port, &["targetPort"]).is_none_or(|target| target == &json!(0) || target == &json!("")) {
                object_mut(port).insert("targetPort".into(), number);
            }
        }
    }
    let kind = text(spec, &["type"]).to_owned();
    if kind != "ExternalName" {
        default_text(spec, "internalTrafficPolicy", "Cluster");
    }
    if is_external(spec) {
        default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default_value(spec, "allocateLoadBalancerNodePorts", json!(true));
        if let Some(Value::Array(ingress)) = service
            .get_mut("status")
            .and_then(|status| status.get_mut("loadBalancer"))
            .and_then(|lb| lb.get_mut("ingress"))
        {
            for entry in ingress {
                if !text(entry, &["ip"]).is_empty() {
                    default_text(entry, "ipMode", "VIP");
                }
            }
        }
    }
}

/// Carries over what was allocated, and drops what the new type has no use for.
pub(crate) fn prepare_update(old: &Value, new: &mut Value) {
    let (before, now) = (old["spec"].clone(), text(new, &["spec", "type"]).to_owned());
    let was = text(&before, &["type"]).to_owned();
    let spec = &mut new["spec"];
    let both = |needs: fn(&str) -> bool| needs(&was) && needs(&now);
    if both(needs_cluster_ip) {
        if text(spec, &["clusterIP"]).is_empty() {
            carry(&before, spec, "clusterIP");
        }
        if list(spec, &["clusterIPs"]).is_empty() && spec.get("clusterIP") == before.get("clusterIP") {
            carry(&before, spec, "clusterIPs");
        }
    }
    sync_cluster_ips(&before, spec);
    if both(needs_node_ports) {
        let ports = list(&before, &["ports"]).to_vec();
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let twin = ports.iter().find(|old| {
                old.get("port") == port.get("port") && old.get("protocol") == port.get("protocol")
            });
            if at(port, &["nodePort"]).and_then(Value::as_u64).unwrap_or(0) == 0
                && let Some(twin) = twin
            {
                carry(twin, port, "nodePort");
            }
        }
    }
    if needs_health_check(&before)
        && needs_health_check(spec)
        && at(spec, &["healthCheckNodePort"]).and_then(Value::as_u64).unwrap_or(0) == 0
    {
        carry(&before, spec, "healthCheckNodePort");
    }

    // A field that the old type needed and the new one does not is dropped, unless it was changed by hand.
    let mut drop = |key: &str, needed: bool| {
        if !needed && spec.get(key) == before.get(key) {
            object_mut(spec).remove(key);
        }
    };
    let now_external = needs_node_ports(&now);
    if now == "ExternalName" && needs_cluster_ip(&was) {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            drop(key, false);
        }
    }
    drop("allocateLoadBalancerNodePorts", now == "LoadBalancer");
    drop("loadBalancerClass", now == "LoadBalancer");
    drop("externalTrafficPolicy", now_external || !list(&before, &["externalIPs"]).is_empty());
    let needed = needs_health_check(spec);
    if !needed && spec.get("healthCheckNodePort") == before.get("healthCheckNodePort") {
        object_mut(spec).remove("healthCheckNodePort");
    }
    if needs_node_ports(&was) && !now_external {
        let ports = list(&before, &["ports"]).to_vec();
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if ports.iter().any(|old| old.get("nodePort") == port.get("nodePort")) {
                object_mut(port).remove("nodePort");
            }
        }
    }
    if was == "LoadBalancer" && now != "LoadBalancer" {
        new["status"]["loadBalancer"] = json!({});
    }
}

/// `clusterIP` and `clusterIPs[0]` say the same; who changes only one of them means both.
fn sync_cluster_ips(old: &Value, spec: &mut Value) {
    let one = text(spec, &["clusterIP"]).to_owned();
    let many = list(spec, &["clusterIPs"]).to_vec();
    if many.is_empty() && !one.is_empty() {
        object_mut(spec).insert("clusterIPs".into(), json!([one]));
        return;
    }
    let changed = |key: &str| old.get(key) != spec.get(key);
    if changed("clusterIP") && !changed("clusterIPs") {
        if one.is_empty() {
            object_mut(spec).remove("clusterIPs");
        } else if many.first().is_some_and(|first| first.as_str() != Some(&one)) {
            spec["clusterIPs"] = json!([one]);
        }
    }
}

/// Errors of a Service's spec.
pub(crate) fn errors(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    let kind = text(spec, &["type"]);
    enumeration(spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], &mut errors);
    enumeration(spec, "sessionAffinity", &["ClientIP", "None"], &mut errors);
    let ports = list(spec, &["ports"]);
    let headless = text(spec, &["clusterIP"]) == "None";
    if kind == "ExternalName" {
        if text(spec, &["externalName"]).is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
    } else if ports.is_empty() && !headless {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if kind == "LoadBalancer" && headless {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for LoadBalancer services",
        ));
    }
    for (i, port) in ports.iter().enumerate() {
        port_errors(i, port, ports, headless, &mut errors);
    }
    let kept_node_ports = ports.iter().enumerate().filter(|(_, port)| number(port, "nodePort") != 0);
    if !needs_node_ports(kind) {
        for (i, _) in kept_node_ports {
            let field = format!("spec.ports[{i}].nodePort");
            errors.push(FieldError::forbidden(field, "may not be used when `type` is 'ClusterIP'"));
        }
    }
    if is_external(spec) {
        enumeration(spec, "externalTrafficPolicy", &["Cluster", "Local"], &mut errors);
    } else if at(spec, &["externalTrafficPolicy"]).is_some() {
        errors.push(FieldError::invalid(
            "spec.externalTrafficPolicy",
            spec["externalTrafficPolicy"].clone(),
            "may only be set for externally-accessible services",
        ));
    }
    if kind != "ExternalName" {
        enumeration(spec, "internalTrafficPolicy", &["Cluster", "Local"], &mut errors);
    }
    if number(spec, "healthCheckNodePort") != 0 && !needs_health_check(spec) {
        errors.push(FieldError::invalid(
            "spec.healthCheckNodePort",
            spec["healthCheckNodePort"].clone(),
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ));
    }
    for (i, address) in list(spec, &["externalIPs"]).iter().enumerate() {
        if address.as_str().is_none_or(|text| text.parse::<std::net::IpAddr>().is_err()) {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(format!("spec.externalIPs[{i}]"), address.clone(), detail));
        }
    }
    for (i, range) in list(spec, &["loadBalancerSourceRanges"]).iter().enumerate() {
        if range.as_str().is_none_or(|text| !is_cidr(text.trim())) {
            let field = format!("spec.loadBalancerSourceRanges[{i}]");
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(field, range.clone(), detail));
        }
    }
    class_errors(old, spec, kind, &mut errors);
    if let Some(old) = old {
        let (was, before) = (text(old, &["spec", "type"]), &old["spec"]);
        let needed = |kind: &str| needs_cluster_ip(kind);
        if needed(was) && needed(kind) {
            let (old_first, first) = (
                list(before, &["clusterIPs"]).first().cloned().unwrap_or(Value::Null),
                list(spec, &["clusterIPs"]).first().cloned().unwrap_or(Value::Null),
            );
            if !old_first.is_null() && old_first != first {
                errors.push(FieldError::invalid("spec.clusterIPs[0]", first, "field is immutable"));
            }
        }
        if needs_health_check(before)
            && needs_health_check(spec)
            && number(before, "healthCheckNodePort") != number(spec, "healthCheckNodePort")
        {
            errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
        }
    }
    errors
}

/// Errors of a Service's status.
pub(crate) fn status_errors(service: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let ingress = list(service, &["status", "loadBalancer", "ingress"]);
    if !ingress.is_empty() && text(service, &["spec", "type"]) != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is \"LoadBalancer\"";
        errors.push(FieldError::forbidden("status.loadBalancer.ingress", detail));
    }
    for (i, entry) in ingress.iter().enumerate() {
        let field = |key: &str| format!("status.loadBalancer.ingress[{i}].{key}");
        let ip = text(entry, &["ip"]);
        if !ip.is_empty() && ip.parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(field("ip"), ip, detail));
        }
        match (ip.is_empty(), text(entry, &["ipMode"])) {
            (false, "") => {
                errors.push(FieldError::required(field("ipMode"), "must be specified when `ip` is set"))
            }
            (true, mode) if !mode.is_empty() => {
                errors.push(FieldError::forbidden(
                    field("ipMode"),
                    "may not be specified when `ip` is not set",
                ));
            }
            (false, mode) if !matches!(mode, "VIP" | "Proxy") => {
                errors.push(FieldError::not_supported(
                    field("ipMode"),
                    mode,
                    &["Proxy".into(), "VIP".into()],
                ));
            }
            _ => {}
        }
        let hostname = text(entry, &["hostname"]);
        if !hostname.is_empty() && hostname.parse::<std::net::IpAddr>().is_ok() {
            errors.push(FieldError::invalid(
                field("hostname"),
                hostname,
                "must be a DNS name, not an IP address",
            ));
        }
    }
    errors
}

fn port_errors(i: usize, port: &Value, all: &[Value], headless: bool, errors: &mut Vec<FieldError>) {
    let field = |key: &str| format!("spec.ports[{i}].{key}");
    let name = text(port, &["name"]);
    if name.is_empty() && all.len() > 1 {
        errors.push(FieldError::required(field("name"), ""));
    } else if !name.is_empty() && !is_label(name) {
        errors.push(FieldError::invalid(field("name"), name, label_text()));
    }
    if !name.is_empty() && all[..i].iter().any(|other| text(other, &["name"]) == name) {
        let kind = crate::error::FieldErrorKind::Duplicate;
        errors.push(FieldError::of(kind, field("name"), Some(name.into()), ""));
    }
    let outside = |n: u64| !(1..=65535).contains(&n);
    let range = "must be between 1 and 65535, inclusive";
    if outside(number(port, "port")) {
        errors.push(FieldError::invalid(field("port"), port["port"].clone(), range));
    }
    enumeration_at(port, "protocol", &field("protocol"), &["SCTP", "TCP", "UDP"], errors);
    let target = &port["targetPort"];
    if target.is_number() && outside(target.as_u64().unwrap_or(0)) {
        errors.push(FieldError::invalid(field("targetPort"), target.clone(), range));
    }
    let key = |port: &Value| (number(port, "port"), text(port, &["protocol"]).to_owned());
    if !headless && all[..i].iter().any(|other| key(other) == key(port)) {
        let kind = crate::error::FieldErrorKind::Duplicate;
        let shown = json!({ "port": port["port"], "protocol": port["protocol"] });
        errors.push(FieldError::of(kind, format!("spec.ports[{i}]"), Some(shown), ""));
    }
}

fn class_errors(old: Option<&Value>, spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let class = at(spec, &["loadBalancerClass"]);
    if class.is_some() && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(
            "spec.loadBalancerClass",
            "may only be used when `type` is 'LoadBalancer'",
        ));
    }
    if let Some(old) = old
        && text(old, &["spec", "type"]) == "LoadBalancer"
        && kind == "LoadBalancer"
        && at(old, &["spec", "loadBalancerClass"]) != class
    {
        let shown = class.cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid("spec.loadBalancerClass", shown, "may not change once set"));
    }
}

fn enumeration(spec: &Value, key: &str, known: &[&str], errors: &mut Vec<FieldError>) {
    enumeration_at(spec, key, &format!("spec.{key}"), known, errors);
}

fn enumeration_at(value: &Value, key: &str, field: &str, known: &[&str], errors: &mut Vec<FieldError>) {
    let given = text(value, &[key]);
    if !known.contains(&given) {
        let known: Vec<Value> = known.iter().map(|&word| word.into()).collect();
        errors.push(if given.is_empty() {
            FieldError::required(field, "")
        } else {
            FieldError::not_supported(field, given, &known)
        });
    }
}

fn number(value: &Value, key: &str) -> u64 {
    at(value, &[key]).and_then(Value::as_u64).unwrap_or(0)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    match (address.parse::<std::net::IpAddr>(), length.parse::<u8>()) {
        (Ok(address), Ok(length)) => length <= if address.is_ipv4() { 32 } else { 128 },
        _ => false,
    }
}

fn needs_cluster_ip(kind: &str) -> bool {
    matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer" | "")
}

fn needs_node_ports(kind: &str) -> bool {
    matches!(kind, "NodePort" | "LoadBalancer")
}

fn needs_health_check(spec: &Value) -> bool {
    text(spec, &["type"]) == "LoadBalancer" && text(spec, &["externalTrafficPolicy"]) == "Local"
}

fn is_external(spec: &Value) -> bool {
    let kind = text(spec, &["type"]);
    needs_node_ports(kind) || (kind == "ClusterIP" && !list(spec, &["externalIPs"]).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        let mut service = json!({ "spec": spec, "status": { "loadBalancer": {} } });
        defaults(&mut service);
        service
    }

    #[test]
    fn a_load_balancer_gets_every_default() {
        let service = service(json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] }));
        assert_eq!(
            service["spec"],
            json!({
                "type": "LoadBalancer", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
                "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 80 }],
            })
        );
        assert!(errors(None, &service).is_empty());
    }

    #[test]
    fn becoming_a_cluster_ip_service_drops_what_only_a_load_balancer_has() {
        let mut old = service(json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30002, "loadBalancerClass": "x", "clusterIP": "10.96.0.2",
            "clusterIPs": ["10.96.0.2"], "ports": [{ "port": 80, "nodePort": 30000 }] }));
        old["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "1.1.1.1" }] } });
        let mut new = old.clone();
        new["spec"]["type"] = "ClusterIP".into();
        prepare_update(&old, &mut new);
        assert_eq!(
            new["spec"],
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2"],
                "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 80 }],
            })
        );
        assert_eq!(new["status"], json!({ "loadBalancer": {} }));
        assert!(errors(Some(&old), &new).is_empty());
    }

    #[test]
    fn a_class_cannot_change_but_can_come_with_the_type() {
        let plain = service(json!({ "type": "ClusterIP", "ports": [{ "port": 80 }] }));
        let with = |class: &str| {
            service(json!({ "type": "LoadBalancer", "loadBalancerClass": class, "ports": [{ "port": 80 }] }))
        };
        assert!(errors(Some(&plain), &with("a")).is_empty());
        let found = errors(Some(&with("a")), &with("b"));
        assert_eq!(
            found[0].to_string(),
            "spec.loadBalancerClass: Invalid value: \"b\": may not change once set"
        );
    }

    #[test]
    fn a_status_without_ip_mode_gets_one_and_nonsense_is_refused() {
        let mut service = service(json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] }));
        service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "1.1.1.1" }, { "ip": "nonsense" }]);
        defaults(&mut service);
        assert_eq!(service["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");
        let found = status_errors(&service);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].field(), "status.loadBalancer.ingress[1].ip");
    }
}
