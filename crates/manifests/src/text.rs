// SPDX-License-Identifier: Apache-2.0
//! The manifests as text: templates filled in, the rest written out.

use ferrolb_config::admission::Target;

use crate::rights::{ROLES, Role, Rule, Scope};
use crate::{Daemon, Installation};

/// The whole text, in the order in which it can be applied to an empty cluster.
pub(crate) fn whole(installation: &Installation) -> Result<String, serde_saphyr::SerializeError> {
    let namespace = plain(&installation.namespace);
    let fill = |template: &str| {
        template
            .replace("$NAMESPACE", &namespace)
            .replace("$CONTROLLER_IMAGE", &installation.images.of(Daemon::Controller))
            .replace("$SPEAKER_IMAGE", &installation.images.of(Daemon::Speaker))
    };
    let mut text = String::from(HEAD);
    let mut add = |document: &str| {
        text.push_str("---\n");
        text.push_str(document);
    };
    add(&fill(NAMESPACE));
    let own = ferrolb_api::own_manifests();
    for definition in ferrolb_api::manifests(&installation.namespace).into_iter().chain(own) {
        add(&serde_saphyr::to_string(&definition)?);
    }
    for daemon in Daemon::ALL {
        add(&account(daemon, &namespace));
    }
    for role in ROLES {
        add(&rules(role, &installation.namespace));
        add(&binding(role, &installation.namespace));
    }
    for template in [CONFIGURATION, CONTROLLER, SPEAKER] {
        add(&fill(template));
    }
    add(&webhooks(&namespace));
    Ok(text)
}

const HEAD: &str = "\
# SPDX-License-Identifier: Apache-2.0
# ferrolb, a replacement for MetalLB v0.16.1: everything that an installation consists of. `ferrolb manifests` prints it.
#
# Objects, names, labels, ports and privileges are those of MetalLB's plain manifest, so that either can be applied over
# the other. Where they differ a comment says why.
";

const NAMESPACE: &str = include_str!("templates/namespace.yaml");
const CONFIGURATION: &str = include_str!("templates/configuration.yaml");
const CONTROLLER: &str = include_str!("templates/controller.yaml");
const SPEAKER: &str = include_str!("templates/speaker.yaml");

fn account(daemon: Daemon, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {}\n  namespace: {namespace}\n  labels:\n    app: \
         metallb\n",
        daemon.name()
    )
}

fn rules(role: &Role, namespace: &str) -> String {
    let mut text = head_of(role, "", namespace);
    text.push_str("rules:\n");
    for Rule { why, group, resources, names, verbs } in role.rules {
        for line in wrapped(why) {
            text.push_str(&format!("# {line}\n"));
        }
        let group = if group.is_empty() { "\"\"" } else { group };
        text.push_str(&format!("- apiGroups: [{group}]\n  resources: [{}]\n", resources.join(", ")));
        if !names.is_empty() {
            text.push_str(&format!("  resourceNames: [{}]\n", names.join(", ")));
        }
        text.push_str(&format!("  verbs: [{}]\n", verbs.join(", ")));
    }
    text
}

fn binding(role: &Role, namespace: &str) -> String {
    let mut text = head_of(role, "Binding", namespace);
    text.push_str(&format!(
        "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {}\n  name: {}\nsubjects:\n- kind: ServiceAccount\n  \
         name: {}\n  namespace: {}\n",
        kind_of(role),
        name_of(role, namespace),
        role.daemon.name(),
        plain(namespace)
    ));
    text
}

fn head_of(role: &Role, suffix: &str, namespace: &str) -> String {
    let place = match role.scope {
        Scope::Cluster => String::new(),
        Scope::Namespace => format!("  namespace: {}\n", plain(namespace)),
    };
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {}{suffix}\nmetadata:\n  name: {}\n{place}  labels:\n    app: \
         metallb\n",
        kind_of(role),
        name_of(role, namespace)
    )
}

const fn kind_of(role: &Role) -> &'static str {
    match role.scope {
        Scope::Cluster => "ClusterRole",
        Scope::Namespace => "Role",
    }
}

fn name_of(role: &Role, namespace: &str) -> String {
    match role.scope {
        Scope::Cluster => plain(&format!("{namespace}:{}", role.name)),
        Scope::Namespace => role.name.to_owned(),
    }
}

fn webhooks(namespace: &str) -> String {
    let mut text = String::from(
        "# Which changes of the configuration the controller judges before they are stored. Its authority's certificate\n\
         # (caBundle) is absent here: the controller puts it in, and applying this file again leaves it there. MetalLB does not\n\
         # write scope; it is the default, written so that applying this file again changes nothing at all.\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata:\n  \
         name: metallb-webhook-configuration\nwebhooks:\n",
    );
    let mut targets = Target::ALL;
    targets.sort_by_key(|target| target.webhook_name());
    for target in targets {
        let operations: Vec<_> = target.operations().iter().map(|operation| operation.as_str()).collect();
        text.push_str(&format!(
            "- name: {}\n  admissionReviewVersions: [v1]\n  clientConfig:\n    service:\n      name: \
             metallb-webhook-service\n      namespace: {namespace}\n      path: {}\n  failurePolicy: Fail\n  rules:\n  \
             - apiGroups: [{}]\n    apiVersions: [{}]\n    operations: [{}]\n    resources: [{}]\n    scope: \"*\"\n  \
             sideEffects: None\n",
            target.webhook_name(),
            target.path(),
            ferrolb_api::GROUP,
            target.version(),
            operations.join(", "),
            target.plural(),
        ));
    }
    text
}

/// A scalar: bare where YAML reads it as text, in quotation marks where it would read a number or a truth value. No
/// name of a namespace needs more.
fn plain(text: &str) -> String {
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) && !WORDS.contains(&text) {
        text.to_owned()
    } else {
        format!("\"{text}\"")
    }
}

/// Lines of a comment.
fn wrapped(text: &str) -> Vec<String> {
    const WIDTH: usize = 116;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_something_else_stays_a_name() {
        for name in ["metallb-system", "on", "1", "1e3", "0x10", "null", "true", "y", "4-2"] {
            let value: serde_json::Value = serde_saphyr::from_str(&plain(name)).unwrap();
            assert_eq!(value, name);
        }
    }

    #[test]
    fn a_comment_is_broken_between_words() {
        let text = "word ".repeat(60);
        let lines = wrapped(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= 116), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim());
    }
}
