// SPDX-License-Identifier: Apache-2.0
//! Pods, the workloads that make them, and the endpoints that lead to them: the defaults and rules that
//! clients of this server meet.

use serde_json::{Value, json};

use crate::builtin::{default_text, default_value, items_mut};
use crate::error::FieldError;
use crate::object::{at, child_mut, list, text};

/// Defaults of a Pod.
pub(crate) fn pod_defaults(pod: &mut Value) {
    spec_defaults(&mut pod["spec"]);
    default_value(&mut pod["spec"], "enableServiceLinks", json!(true));
}

fn spec_defaults(spec: &mut Value) {
    default_text(spec, "restartPolicy", "Always");
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "schedulerName", "default-scheduler");
    default_value(spec, "terminationGracePeriodSeconds", json!(30));
    default_value(spec, "securityContext", json!({}));
    for key in ["containers", "initContainers"] {
        let Some(Value::Array(containers)) = spec.get_mut(key) else { continue };
        for container in containers {
            default_text(container, "terminationMessagePath", "/dev/termination-log");
            default_text(container, "terminationMessagePolicy", "File");
            default_value(container, "resources", json!({}));
            let image = text(container, &["image"]).to_owned();
            let tag =
                image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag.to_owned());
            let latest = !image.contains('@') && tag.is_none_or(|tag| tag == "latest");
            default_text(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
            if let Some(Value::Array(ports)) = container.get_mut("ports") {
                ports.iter_mut().for_each(|port| default_text(port, "protocol", "TCP"));
            }
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                if let Some(probe) = container.get_mut(probe) {
                    default_value(probe, "timeoutSeconds", json!(1));
                    default_value(probe, "periodSeconds", json!(10));
                    default_value(probe, "successThreshold", json!(1));
                    default_value(probe, "failureThreshold", json!(3));
                    if let Some(get) = probe.get_mut("httpGet") {
                        default_text(get, "path", "/");
                        default_text(get, "scheme", "HTTP");
                    }
                }
            }
        }
    }
}

/// Defaults of Deployment, DaemonSet and ReplicaSet.
pub(crate) fn defaults(kind: &str, object: &mut Value) {
    if at(object, &["spec", "template"]).is_some() {
        let template = &mut object["spec"]["template"];
        child_mut(template, "spec");
        spec_defaults(&mut template["spec"]);
    }
    let spec = &mut object["spec"];
    match kind {
        "Deployment" => {
            default_value(spec, "replicas", json!(1));
            default_value(spec, "revisionHistoryLimit", json!(10));
            default_value(spec, "progressDeadlineSeconds", json!(600));
            default_value(spec, "strategy", json!({}));
            default_text(&mut spec["strategy"], "type", "RollingUpdate");
            if text(spec, &["strategy", "type"]) == "RollingUpdate" {
                let rolling = child_mut(&mut spec["strategy"], "rollingUpdate");
                rolling.entry("maxUnavailable").or_insert_with(|| json!("25%"));
                rolling.entry("maxSurge").or_insert_with(|| json!("25%"));
            }
        }
        "ReplicaSet" => default_value(spec, "replicas", json!(1)),
        _ => {
            default_value(spec, "revisionHistoryLimit", json!(10));
            default_value(spec, "updateStrategy", json!({}));
            default_text(&mut spec["updateStrategy"], "type", "RollingUpdate");
            if text(spec, &["updateStrategy", "type"]) == "RollingUpdate" {
                let rolling = child_mut(&mut spec["updateStrategy"], "rollingUpdate");
                rolling.entry("maxUnavailable").or_insert_with(|| json!(1));
                rolling.entry("maxSurge").or_insert_with(|| json!(0));
            }
        }
    }
}

/// Defaults of ports of Endpoints and EndpointSlices.
pub(crate) fn endpoint_defaults(object: &mut Value) {
    let defaults = |ports: &mut Value, name: bool| {
        for port in ports.as_array_mut().into_iter().flatten() {
            default_text(port, "protocol", "TCP");
            if name {
                default_value(port, "name", json!(""));
            }
        }
    };
    if let Some(ports) = object.get_mut("ports") {
        defaults(ports, true);
    }
    if let Some(Value::Array(subsets)) = object.get_mut("subsets") {
        for subset in subsets {
            if let Some(ports) = subset.get_mut("ports") {
                defaults(ports, false);
            }
        }
    }
}

/// Quality-of-service class of a Pod.
pub(crate) fn quality(pod: &mut Value) -> &'static str {
    let containers = items_mut(pod, "spec", "containers");
    let has = |container: &Value, key: &str| {
        at(container, &["resources", key]).and_then(Value::as_object).is_some_and(|map| !map.is_empty())
    };
    let some = containers.iter().any(|c| has(c, "requests") || has(c, "limits"));
    let all = containers.iter().all(|c| {
        at(c, &["resources", "limits", "cpu"]).is_some()
            && at(c, &["resources", "limits", "memory"]).is_some()
            && ["cpu", "memory"].iter().all(|name| {
                at(c, &["resources", "requests", name])
                    .is_none_or(|value| Some(value) == at(c, &["resources", "limits", name]))
            })
    });
    match (some, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A Pod has containers with names and images, and its spec stays but for a few fields.
pub(crate) fn pod_errors(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    container_errors("spec", new, &mut errors);
    if let Some(old) = old {
        let frozen = |pod: &Value| {
            let mut spec = pod["spec"].clone();
            if let Some(map) = spec.as_object_mut() {
                for key in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
                    map.remove(key);
                }
                for key in ["containers", "initContainers"] {
                    for container in map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
                        if let Some(container) = container.as_object_mut() {
                            container.remove("image");
                            container.remove("imagePullPolicy");
                        }
                    }
                }
            }
            spec
        };
        if frozen(old) != frozen(new) {
            errors.push(FieldError::forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,\
                 `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
                 to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                 previously negative)",
            ));
        }
    }
    errors
}

fn container_errors(path: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let containers = list(object, &["spec", "containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    for (i, container) in containers.iter().enumerate() {
        for key in ["name", "image"] {
            if text(container, &[key]).is_empty() {
                errors.push(FieldError::required(format!("{path}.containers[{i}].{key}"), ""));
            }
        }
    }
}

/// A workload selects the Pods that its template makes, and goes on doing so.
pub(crate) fn errors(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(selector) = at(new, &["spec", "selector"]) else {
        errors.push(FieldError::required("spec.selector", ""));
        return errors;
    };
    let labels = at(new, &["spec", "template", "metadata", "labels"]);
    let wanted = at(selector, &["matchLabels"]).and_then(Value::as_object);
    let selected = wanted.is_none_or(|wanted| {
        wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    });
    if !selected {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels.cloned().unwrap_or_else(|| json!({})),
            "`selector` does not match template `labels`",
        ));
    }
    container_errors("spec.template.spec", &json!({ "spec": new["spec"]["template"]["spec"] }), &mut errors);
    if let Some(old) = old
        && at(old, &["spec", "selector"]) != Some(selector)
    {
        errors.push(FieldError::invalid("spec.selector", selector.clone(), "field is immutable"));
    }
    errors
}

/// An EndpointSlice has a family that stays and addresses of it.
pub(crate) fn slice_errors(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let family = text(new, &["addressType"]);
    let known: Vec<Value> = ["IPv4", "IPv6", "FQDN"].iter().map(|&known| known.into()).collect();
    if family.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !known.contains(&family.into()) {
        errors.push(FieldError::not_supported("addressType", family, &known));
    }
    if let Some(old) = old
        && text(old, &["addressType"]) != family
    {
        errors.push(FieldError::invalid("addressType", family, "field is immutable"));
    }
    for (i, endpoint) in list(new, &["endpoints"]).iter().enumerate() {
        let addresses = list(endpoint, &["addresses"]);
        if addresses.is_empty() {
            let field = format!("endpoints[{i}].addresses");
            errors.push(FieldError::required(field, "must contain at least 1 address"));
        }
        for (j, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
            let fits = match family {
                "IPv4" => address.parse::<std::net::Ipv4Addr>().is_ok(),
                "IPv6" => address.parse::<std::net::Ipv6Addr>().is_ok(),
                _ => true,
            };
            if !fits {
                let field = format!("endpoints[{i}].addresses[{j}]");
                errors.push(FieldError::invalid(field, address, format!("must be a valid {family} address")));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_must_select_its_own_pods() {
        let mut deployment = json!({ "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "c" } },
                "spec": { "containers": [{ "name": "x", "image": "y" }] } } } });
        assert_eq!(errors(None, &deployment).len(), 1);
        deployment["spec"]["template"]["metadata"]["labels"]["a"] = "b".into();
        assert!(errors(None, &deployment).is_empty());
        defaults("Deployment", &mut deployment);
        assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always");
    }
}
