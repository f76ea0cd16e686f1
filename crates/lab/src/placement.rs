// SPDX-License-Identifier: Apache-2.0
//! Where Pods go: the scheduler stand-in, and the nodes a DaemonSet covers. Pure.
//!
//! A Pod goes to the node with the fewest Pods of its workload; of equals to the one whose name is last. So three
//! Pods over k8s-node-1 and k8s-node-2 are one and two, every time.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PodSpec, Taint, Toleration};

/// The node for one more Pod of a workload that has `counts` Pods by node name; `None` if no node takes it.
pub(crate) fn place(pod: &PodSpec, nodes: &[&Node], counts: &BTreeMap<String, usize>) -> Option<String> {
    nodes
        .iter()
        .filter(|node| node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true)))
        .filter(|node| fits(pod, node))
        .filter_map(|node| node.metadata.name.clone())
        .min_by(|a, b| {
            let count = |name: &String| counts.get(name).copied().unwrap_or(0);
            count(a).cmp(&count(b)).then_with(|| b.cmp(a))
        })
}

/// The nodes that a DaemonSet's Pods run on, by name: cordoned ones too.
pub(crate) fn covers(pod: &PodSpec, nodes: &[&Node]) -> Vec<String> {
    let mut names: Vec<String> =
        nodes.iter().filter(|node| fits(pod, node)).filter_map(|node| node.metadata.name.clone()).collect();
    names.sort();
    names
}

/// Whether labels and taints of the node let the Pod in.
fn fits(pod: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selected = pod.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let tolerated = taints
        // Written by `kubectl cordon`'s controller; the field says the same.
        .filter(|taint| taint.key != "node.kubernetes.io/unschedulable")
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .all(|taint| pod.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint)));
    selected && tolerated
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect =
        toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let matches = if key.is_empty() {
        exists
    } else {
        key == taint.key && (exists || toleration.value.as_deref() == taint.value.as_deref())
    };
    effect && matches
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, spec: serde_json::Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": spec,
        }))
        .unwrap()
    }

    fn cluster() -> [Node; 3] {
        let taint =
            json!({"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]});
        [node("k8s-master-1", taint), node("k8s-node-1", json!({})), node("k8s-node-2", json!({}))]
    }

    fn pod(spec: serde_json::Value) -> PodSpec {
        let mut whole = json!({"containers": []});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn spread(count: usize, nodes: &[&Node]) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..count {
            if let Some(name) = place(&pod(json!({})), nodes, &counts) {
                *counts.entry(name).or_insert(0) += 1;
            }
        }
        counts
    }

    #[test]
    fn three_pods_are_one_on_the_first_worker_and_two_on_the_second() {
        let nodes = cluster();
        let counts = spread(3, &nodes.each_ref());
        assert_eq!(counts, [("k8s-node-1".to_owned(), 1), ("k8s-node-2".to_owned(), 2)].into());
    }

    #[test]
    fn a_cordoned_node_gets_no_new_pod_but_keeps_its_daemons() {
        let [master, one, _] = cluster();
        let two = node("k8s-node-2", json!({"unschedulable": true}));
        let nodes = [&master, &one, &two];
        assert_eq!(spread(2, &nodes), [("k8s-node-1".to_owned(), 2)].into());
        assert_eq!(covers(&pod(json!({})), &nodes), ["k8s-node-1", "k8s-node-2"]);
    }

    #[test]
    fn a_toleration_opens_the_control_plane_and_a_selector_names_it() {
        let nodes = cluster();
        let daemon = pod(json!({"tolerations":
            [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}]}));
        assert_eq!(covers(&daemon, &nodes.each_ref()).len(), 3);
        let bound = pod(json!({"nodeSelector": {"kubernetes.io/hostname": "k8s-master-1"}}));
        assert_eq!(place(&bound, &nodes.each_ref(), &BTreeMap::new()), None, "the taint still holds");
    }

    #[test]
    fn a_toleration_of_another_key_value_or_effect_does_not_count() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "a", "value": "1", "effect": "NoSchedule"})).unwrap();
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"key": "a", "value": "1"}), true),
            (json!({"key": "a", "value": "2"}), false),
            (json!({"key": "b", "operator": "Exists"}), false),
            (json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({}), false),
        ] {
            let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&parsed, &taint), expected, "{toleration}");
        }
    }
}
