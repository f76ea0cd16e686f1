// SPDX-License-Identifier: Apache-2.0
//! `kubectl`, as people type it. Where it is not installed these tests say so and do nothing.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::target::Target;

struct Kubectl {
    target: Target,
    config: PathBuf,
    _dir: tempfile::TempDir,
}

impl Kubectl {
    async fn start() -> Option<Self> {
        let found = Command::new("kubectl").args(["version", "--client"]).stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            // Not eprintln, which the harness keeps to itself when a test passes.
            let _ = writeln!(std::io::stderr(), "SKIPPED: kubectl is not installed");
            return None;
        }
        let target = Target::fake_with(ferrolb_fakekube::Options::default()).await;
        let (dir, config) = target.kubeconfig_file();
        Some(Self { target, config, _dir: dir })
    }

    /// Runs a command line; what it printed, and whether it succeeded.
    async fn run(&self, line: &str, input: &str) -> (bool, String) {
        let arguments: Vec<String> = line.split(' ').map(|word| word.replace('~', " ")).collect();
        let (config, cache) = (self.config.clone(), self.config.with_file_name("cache"));
        let input = input.to_owned();
        let output = tokio::task::spawn_blocking(move || {
            let mut child = Command::new("kubectl")
                .arg("--kubeconfig")
                .arg(config)
                .arg("--cache-dir")
                .arg(cache)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("kubectl starts");
            std::io::Write::write_all(&mut child.stdin.take().expect("piped"), input.as_bytes())
                .expect("written");
            child.wait_with_output().expect("kubectl ends")
        });
        let output = output.await.expect("it ran");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    #[track_caller]
    fn expect(line: &str, (fine, output): (bool, String), parts: &[&str]) -> String {
        assert!(fine, "kubectl {line}: {output}");
        for part in parts {
            assert!(output.contains(part), "kubectl {line}: no {part:?} in:\n{output}");
        }
        output
    }

    async fn does(&self, line: &str, input: &str, parts: &[&str]) -> String {
        Self::expect(line, self.run(line, input).await, parts)
    }
}

const SERVICE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Service
metadata: {name: hello, namespace: demo}
spec:
  type: LoadBalancer
  selector: {app: hello}
  ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]
";

#[tokio::test]
async fn services_are_applied_shown_changed_and_deleted() {
    let Some(kubectl) = Kubectl::start().await else { return };
    kubectl.does("apply -f -", SERVICE, &["namespace/demo created", "service/hello created"]).await;
    kubectl.does("apply -f -", SERVICE, &["namespace/demo unchanged", "service/hello unchanged"]).await;
    let changed = SERVICE.replace("port: 80}", "port: 8080}");
    kubectl.does("apply -f -", &changed, &["service/hello configured"]).await;
    let ports = "get svc -n demo hello -o jsonpath={.spec.ports[*].port}";
    assert_eq!(kubectl.does(ports, "", &[]).await, "8080 53");
    kubectl.does("get svc -A", "", &["NAMESPACE", "EXTERNAL-IP", "LoadBalancer", "<pending>", "/UDP"]).await;
    kubectl.does("get svc -n demo -o wide", "", &["SELECTOR", "app=hello"]).await;
    kubectl.does("get all -n demo", "", &["service/hello"]).await;
    kubectl.does("label svc -n demo hello a=b", "", &["labeled"]).await;
    kubectl.does("annotate svc -n demo hello c=d", "", &["annotated"]).await;
    kubectl.does("get svc -n demo -l a=b -o name", "", &["service/hello"]).await;
    let patch = r#"patch svc -n demo hello -p {"spec":{"externalTrafficPolicy":"Local"}}"#;
    kubectl.does(patch, "", &["patched"]).await;
    let patch = r#"patch svc -n demo hello --type=json -p [{"op":"remove","path":"/metadata/labels/a"}]"#;
    kubectl.does(patch, "", &["patched"]).await;
    let patch = r#"patch svc -n demo hello --subresource=status --type=merge -p {"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}"#;
    kubectl.does(patch, "", &["patched"]).await;
    kubectl
        .does(
            "wait -n demo svc/hello --for=jsonpath={.status.loadBalancer.ingress[0].ipMode}=VIP --timeout=5s",
            "",
            &["condition met"],
        )
        .await;
    kubectl
        .does(
            "describe svc -n demo hello",
            "",
            &["LoadBalancer Ingress:", "192.0.2.7", "HealthCheck NodePort:"],
        )
        .await;
    let uid = kubectl.does("get svc -n demo hello -o jsonpath={.metadata.uid}", "", &[]).await;
    let event = serde_json::json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e", "namespace": "demo" },
        "involvedObject":
            { "apiVersion": "v1", "kind": "Service", "name": "hello", "namespace": "demo", "uid": uid },
        "reason": "IPAllocated", "message": "Assigned IP", "type": "Normal", "count": 1,
        "source": { "component": "metallb-controller" },
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    });
    kubectl.does("create -f -", &event.to_string(), &["event/e created"]).await;
    kubectl
        .does("get events -n demo", "", &["LAST SEEN", "IPAllocated", "service/hello", "Assigned IP"])
        .await;
    kubectl.does("events -n demo --for svc/hello", "", &["IPAllocated"]).await;
    kubectl.does("describe svc -n demo hello", "", &["IPAllocated", "metallb-controller"]).await;
    let replaced = kubectl.does("get svc -n demo hello -o json", "", &["\"kind\": \"Service\""]).await;
    kubectl.does("replace -f -", &replaced, &["replaced"]).await;
    kubectl
        .does("apply --server-side --force-conflicts -f -", &changed, &["service/hello serverside-applied"])
        .await;
    kubectl.does("diff --server-side=false -f -", "", &[]).await;
    kubectl.does("delete svc -n demo hello", "", &["deleted"]).await;
    kubectl.does("delete ns demo --timeout=20s", "", &["deleted"]).await;
}

#[tokio::test]
async fn mistakes_are_shown_as_a_real_server_words_them() {
    let Some(kubectl) = Kubectl::start().await else { return };
    let fails = async |input: &str, text: &str| {
        let (fine, output) = kubectl.run("apply -n default -f -", input).await;
        assert!(!fine && output.contains(text), "{output}");
    };
    let service =
        |spec: &str| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {spec}\n");
    fails(
        &service("{type: Foo, ports: [{port: 1}]}"),
        "The Service \"a\" is invalid: spec.type: Unsupported value: \"Foo\"",
    )
    .await;
    fails(&service("{ports: [{port: 1}], typ: x}"), "unknown field \"spec.typ\"").await;
    fails(&service("{ports: [{port: x}]}"), "cannot unmarshal string").await;
    fails("apiVersion: v1\nkind: Nope\nmetadata: {name: a}\n", "no matches for kind \"Nope\"").await;
    let (fine, output) = kubectl.run("get svc nothing", "").await;
    assert!(
        !fine && output.contains("Error from server (NotFound): services \"nothing\" not found"),
        "{output}"
    );
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: pools, kind: Pool, shortNames: [po2]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Auto Assign, type: boolean, jsonPath: .spec.auto}
    - {name: Addresses, type: string, jsonPath: .spec.addresses}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            description: What the pool holds.
            required: [addresses]
            properties:
              addresses: {type: array, items: {type: string}}
              auto: {type: boolean, default: true}
          status:
            type: object
            properties:
              used: {type: integer}
";

const POOL: &str = "
apiVersion: example.com/v1
kind: Pool
metadata: {name: first, namespace: default}
spec: {addresses: [192.0.2.0/24]}
";

#[tokio::test]
async fn custom_kinds_are_first_class() {
    let Some(kubectl) = Kubectl::start().await else { return };
    kubectl
        .does(
            "apply -f -",
            DEFINITION,
            &["customresourcedefinition.apiextensions.k8s.io/pools.example.com created"],
        )
        .await;
    kubectl
        .does("wait --for condition=established crd/pools.example.com --timeout=5s", "", &["condition met"])
        .await;
    kubectl.does("apply -f -", POOL, &["pool.example.com/first created"]).await;
    kubectl
        .does("get pools", "", &["NAME", "AUTO ASSIGN", "ADDRESSES", "first", "true", "[\"192.0.2.0/24\"]"])
        .await;
    kubectl.does("get po2 -o name", "", &["pool.example.com/first"]).await;
    let changed = POOL.replace("0/24]", "0/24, 198.51.100.0/24]");
    kubectl.does("apply -f -", &changed, &["configured"]).await;
    kubectl.does("apply -f -", &changed, &["unchanged"]).await;
    kubectl
        .does("apply --server-side --field-manager=me --force-conflicts -f -", POOL, &["serverside-applied"])
        .await;
    kubectl.does("explain pools.spec", "", &["What the pool holds.", "addresses", "-required-"]).await;
    kubectl.does("describe pool first", "", &["Kind:         Pool", "Addresses:"]).await;
    let (fine, output) = kubectl.run("apply -f -", &POOL.replace("addresses", "adresses")).await;
    assert!(!fine && output.contains("unknown field \"spec.adresses\""), "{output}");
    let (fine, output) = kubectl.run("apply -f -", &POOL.replace("[192.0.2.0/24]", "7")).await;
    assert!(!fine && output.contains("spec.addresses in body must be of type array"), "{output}");
    kubectl.does("delete pool first", "", &["deleted"]).await;
    kubectl.does("delete crd pools.example.com --timeout=10s", "", &["deleted"]).await;
    assert_eq!(kubectl.target.get("/apis/example.com/v1/pools").await.code, 404);
}

const WORKLOAD: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-role.kubernetes.io/control-plane: ''}}
status:
  conditions: [{type: Ready, status: 'True'}]
  addresses: [{type: InternalIP, address: 192.0.2.1}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: default}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: 'i:1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default, labels: {a: b}}
spec: {nodeName: n1, containers: [{name: c, image: 'i:1'}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s, namespace: default}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]
";

#[tokio::test]
async fn nodes_and_workloads_are_shown_and_drained() {
    let Some(kubectl) = Kubectl::start().await else { return };
    kubectl
        .does("apply -f -", WORKLOAD, &["node/n1 created", "deployment.apps/d created", "pod/p created"])
        .await;
    kubectl.does("apply -f -", WORKLOAD, &["deployment.apps/d unchanged", "pod/p unchanged"]).await;
    kubectl.does("get nodes -o wide", "", &["Ready", "control-plane", "192.0.2.1"]).await;
    kubectl.does("get deploy", "", &["0/1", "UP-TO-DATE"]).await;
    kubectl.does("get pods -o wide", "", &["0/1", "Pending", "n1"]).await;
    kubectl.does("get endpointslices", "", &["ADDRESSTYPE", "IPv4", "10.0.0.1,10.0.0.2"]).await;
    kubectl.does("get pods --field-selector spec.nodeName=n1 -o name", "", &["pod/p"]).await;
    kubectl.does("set image deployment/d c=i:2", "", &["image updated"]).await;
    kubectl.does("cordon n1", "", &["cordoned"]).await;
    kubectl.does("get nodes", "", &["Ready,SchedulingDisabled"]).await;
    kubectl.does("drain n1 --force --timeout=10s", "", &["evicting pod default/p", "drained"]).await;
    kubectl.does("uncordon n1", "", &["uncordoned"]).await;
    kubectl.does("taint nodes n1 k=v:NoSchedule", "", &["tainted"]).await;
    kubectl.does("describe node n1", "", &["k=v:NoSchedule"]).await;
    kubectl.does("api-resources", "", &["endpointslices", "customresourcedefinitions"]).await;
}

/// One object of every kind that an installation brings.
const INSTALLATION: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: lb, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: controller, namespace: lb}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: controller, namespace: lb}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [memberlist], verbs: [list]}
- {apiGroups: [apps], resources: [deployments], resourceNames: [controller], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "lb:controller"}
rules:
- {apiGroups: [""], resources: [services/status], verbs: [update]}
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: controller, namespace: lb}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: controller}
subjects: [{kind: ServiceAccount, name: controller}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "lb:controller"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "lb:controller"}
subjects: [{kind: ServiceAccount, name: controller, namespace: lb}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: excluded, namespace: lb}
data: {excludel2.yaml: "a: b\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: webhook-cert, namespace: lb}
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: lb}
spec:
  ports: [{port: 443, targetPort: 9443}]
  selector: {component: controller}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: lb}
spec:
  replicas: 2
  revisionHistoryLimit: 3
  selector: {matchLabels: {component: controller}}
  template:
    metadata:
      labels: {component: controller}
    spec:
      serviceAccountName: controller
      terminationGracePeriodSeconds: 0
      securityContext: {runAsNonRoot: true, runAsUser: 65534, fsGroup: 65534}
      nodeSelector: {kubernetes.io/os: linux}
      containers:
      - name: controller
        image: "example.com/lb:v1"
        args: [--port=7472, --log-level=info]
        env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        ports: [{name: monitoring, containerPort: 7472}, {name: webhook, containerPort: 9443, protocol: TCP}]
        livenessProbe:
          httpGet: {path: /metrics, port: monitoring}
          initialDelaySeconds: 10
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [all]}
        volumeMounts: [{name: cert, mountPath: /certs, readOnly: true}]
      volumes:
      - name: cert
        secret: {defaultMode: 420, secretName: webhook-cert}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: speaker, namespace: lb}
spec:
  selector: {matchLabels: {component: speaker}}
  template:
    metadata: {labels: {component: speaker}}
    spec:
      hostNetwork: true
      tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule, operator: Exists}]
      containers:
      - name: speaker
        image: "example.com/lb:v1"
        env:
        - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        ports: [{name: memberlist-tcp, containerPort: 7946}, {name: memberlist-udp, containerPort: 7946, protocol: UDP}]
        securityContext: {capabilities: {add: [NET_RAW], drop: [ALL]}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader, namespace: lb}
spec: {holderIdentity: a, leaseDurationSeconds: 4}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: ingress, namespace: lb}
spec:
  podSelector: {matchLabels: {component: controller}}
  policyTypes: [Ingress]
  ingress: [{ports: [{port: 9443}]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget, namespace: lb}
spec: {minAvailable: 1, selector: {matchLabels: {component: controller}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: webhooks}
webhooks:
- name: pools.hook.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: webhook, namespace: lb, path: /validate}}
  failurePolicy: Fail
  rules:
  - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pools]}
  sideEffects: None
"#;

#[tokio::test]
async fn an_installation_is_applied_and_applied_again() {
    let Some(kubectl) = Kubectl::start().await else { return };
    let objects = INSTALLATION.matches("\nkind:").count() + 1;
    let all = format!("{DEFINITION}---{INSTALLATION}");
    let count = |output: &str, word: &str| output.lines().filter(|line| line.ends_with(word)).count();
    let applied = kubectl.does("apply -f -", &all, &[]).await;
    assert_eq!(count(&applied, " created"), objects, "{applied}");
    // kubectl always sends something for these two, which changes nothing.
    let sent = ["poddisruptionbudget.policy/budget configured", "io/webhooks configured"];
    let again = kubectl.does("apply -f -", &all, &sent).await;
    assert_eq!(count(&again, " unchanged"), objects - sent.len(), "{again}");
    kubectl.does("diff -f -", &all, &[]).await;

    // A certificate that somebody puts into one field by server-side apply is no difference to whoever applies the rest.
    let certificate = kubectl.target.server.as_ref().expect("ours").ca_pem();
    let bundle = serde_json::json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "webhooks" }, "webhooks": [{ "name": "pools.hook.example.com",
            "clientConfig": { "caBundle": STANDARD.encode(certificate) } }],
    });
    let patch = "apply --server-side --field-manager=certifier -f -";
    kubectl.does(patch, &bundle.to_string(), &["serverside-applied"]).await;
    kubectl.does("diff -f -", &all, &[]).await;
    let third = kubectl.does("apply -f -", &all, &[]).await;
    assert_eq!(count(&third, " unchanged"), objects - sent.len(), "{third}");
    let bundle =
        "get validatingwebhookconfiguration webhooks -o jsonpath={.webhooks[0].clientConfig.caBundle}";
    assert_ne!(kubectl.does(bundle, "", &[]).await, "", "it is still there");
    let server_side = "apply --server-side --field-manager=gitops --force-conflicts -f -";
    let applied = kubectl.does(server_side, &all, &[]).await;
    assert_eq!(count(&applied, " serverside-applied"), objects, "{applied}");
    let before = kubectl.does("get validatingwebhookconfigurations,crd,deploy,ds -A -o yaml", "", &[]).await;
    let again = kubectl.does(server_side, &all, &[]).await;
    assert_eq!(count(&again, " serverside-applied"), objects, "{again}");
    let after = kubectl.does("get validatingwebhookconfigurations,crd,deploy,ds -A -o yaml", "", &[]).await;
    assert_eq!(before, after, "the second time changes nothing");
    kubectl.does("delete -f -", &all.replace("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: lb, labels: {pod-security.kubernetes.io/enforce: privileged}}\n", ""), &["deleted"]).await;
}
