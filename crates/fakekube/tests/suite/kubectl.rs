// SPDX-License-Identifier: Apache-2.0
//! `kubectl`, as people type it. Where it is not installed these tests say so and do nothing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

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
            eprintln!("SKIPPED: kubectl is not installed");
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
