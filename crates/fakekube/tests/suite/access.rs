// SPDX-License-Identifier: Apache-2.0
//! Who may ask: certificates, tokens, reviews.

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::target::{Target, until};

/// A target whose user has this token, or nothing.
async fn as_user(target: &Target, token: Option<&str>) -> Target {
    let mut kubeconfig = Kubeconfig::from_yaml(&target.kubeconfig).expect("a kubeconfig");
    let token = token.map(|token| token.to_owned().into());
    kubeconfig.auth_infos[0].auth_info = Some(AuthInfo { token, ..AuthInfo::default() });
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    let client = Client::try_from(config).expect("a client");
    Target { client, kubeconfig: String::new(), server: None, certificates: None }
}

#[tokio::test]
async fn a_service_account_token_is_a_user() {
    let target = Target::fake().await;
    let path = target.namespace("tokens").await + "/serviceaccounts";
    let account = target.post(&path, json!({ "metadata": { "name": "robot" } })).await.ok();
    let asked = json!({ "spec": { "expirationSeconds": 3600 } });
    let issued = target.post(&format!("{path}/robot/token"), asked).await.ok();
    let token = issued["status"]["token"].as_str().expect("a token").to_owned();

    let robot = as_user(&target, Some(&token)).await;
    assert_eq!(robot.get("/api/v1/namespaces").await.code, 200);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = robot.post(reviews, json!({ "spec": { "token": token } })).await.ok();
    assert_eq!(review["status"]["authenticated"], true);
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:tokens:robot");
    assert_eq!(review["status"]["user"]["uid"], account["metadata"]["uid"]);
    let review = robot.post(reviews, json!({ "spec": { "token": "nonsense" } })).await.ok();
    assert_eq!(review["status"].get("authenticated"), None);

    target.delete(&format!("{path}/robot")).await.ok();
    assert_eq!(
        robot.get("/api/v1/namespaces").await.code,
        401,
        "the account is gone, and its tokens with it"
    );
    target
        .post(&format!("{path}/nobody/token"), json!({ "spec": {} }))
        .await
        .refused(404, "\"nobody\" not found");
}

#[tokio::test]
async fn strangers_see_health_and_version_only() {
    let target = Target::fake().await;
    let stranger = as_user(&target, None).await;
    for path in ["/healthz", "/readyz", "/livez", "/version"] {
        assert_eq!(stranger.get(path).await.code, 200, "{path}");
    }
    let refused =
        "User \"system:anonymous\" cannot list resource \"services\" in API group \"\" at the cluster scope";
    stranger.get("/api/v1/services").await.refused(403, refused);
    stranger.get("/apis").await.refused(403, "cannot get path \"/apis\"");
    let liar = as_user(&target, Some("nonsense")).await;
    liar.get("/api/v1/services").await.refused(401, "Unauthorized");
}

#[tokio::test]
async fn access_reviews_allow_the_known() {
    let target = Target::fake().await;
    let attributes = json!({ "verb": "get", "path": "/metrics" });
    let own = json!({ "spec": { "nonResourceAttributes": attributes } });
    let path = "/apis/authorization.k8s.io/v1/";
    let review = target.post(&format!("{path}selfsubjectaccessreviews"), own).await.ok();
    assert_eq!(review["status"]["allowed"], true);
    let other = json!({ "spec": { "nonResourceAttributes": attributes, "user": "somebody" } });
    let review = target.post(&format!("{path}subjectaccessreviews"), other).await.ok();
    assert_eq!(review["status"]["allowed"], true);
    let nobody = json!({ "spec": { "nonResourceAttributes": attributes } });
    target
        .post(&format!("{path}subjectaccessreviews"), nobody)
        .await
        .refused(422, "at least one of user or group");
}

#[tokio::test]
async fn roles_and_bindings_say_who_may_do_what() {
    let options = ferrolb_fakekube::Options {
        authorize: ferrolb_fakekube::Authorize::Rbac,
        gc_delay: None,
        ..Default::default()
    };
    let target = Target::fake_with(options).await;
    guarded(&target).await;

    // What everybody who is known may do, and what even strangers may.
    let robot = robot(&target, "guarded").await;
    for path in ["/api", "/apis", "/version", "/apis/apps/v1"] {
        assert_eq!(robot.get(path).await.code, 200, "{path}");
    }
    let asked = json!({ "spec": { "resourceAttributes": { "verb": "get", "resource": "secrets" } } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(robot.post(path, asked).await.ok()["status"], json!({ "allowed": false }));
    robot.get("/fakekube/requests").await.refused(403, "cannot get path \"/fakekube/requests\"");
    let stranger = as_user(&target, None).await;
    assert_eq!(stranger.get("/version").await.code, 200);
    stranger
        .get("/apis")
        .await
        .refused(403, "forbidden: User \"system:anonymous\" cannot get path \"/apis\"");
}

/// The ServiceAccount `robot` of a namespace, by its token.
async fn robot(target: &Target, namespace: &str) -> Target {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/robot/token");
    let issued = target.post(&path, json!({ "spec": {} })).await.ok();
    as_user(target, issued["status"]["token"].as_str()).await
}

pub(crate) async fn guarded(target: &Target) {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let namespace = target.namespace("guarded").await;
    target
        .post(&format!("{namespace}/serviceaccounts"), json!({ "metadata": { "name": "robot" } }))
        .await
        .ok();
    let robot = robot(target, "guarded").await;
    let user = "User \"system:serviceaccount:guarded:robot\"";
    for (path, text) in [
        (
            "/api/v1/nodes",
            "nodes is forbidden: USER cannot list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/nodes/x",
            "nodes \"x\" is forbidden: USER cannot get resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/namespaces/guarded",
            "namespaces \"guarded\" is forbidden: USER cannot get resource \"namespaces\" in API group \"\" in the \
             namespace \"guarded\"",
        ),
        (
            "/api/v1/namespaces/guarded/services/a/status",
            "services \"a\" is forbidden: USER cannot get resource \"services/status\" in API group \"\" in the \
             namespace \"guarded\"",
        ),
        (
            "/apis/apps/v1/namespaces/guarded/deployments?watch=1",
            "deployments.apps is forbidden: USER cannot watch resource \"deployments\" in API group \"apps\" in the \
             namespace \"guarded\"",
        ),
        ("/metrics", "forbidden: USER cannot get path \"/metrics\""),
    ] {
        let answer = robot.get(path).await;
        assert_eq!(answer.body["message"], text.replace("USER", user), "{path}");
        assert_eq!((answer.code, &answer.body["reason"]), (403, &json!("Forbidden")));
    }

    let subject = json!([{ "kind": "ServiceAccount", "name": "robot", "namespace": "guarded" }]);
    let reference = |kind: &str, name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
    let rules = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"] },
        { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "list"] },
    ]);
    let role = json!({ "metadata": { "name": "local" }, "rules": rules });
    target.post(&format!("{RBAC}/namespaces/guarded/roles"), role).await.ok();
    let binding = json!({ "metadata": { "name": "local" }, "subjects": subject, "roleRef": reference("Role", "local") });
    target.post(&format!("{RBAC}/namespaces/guarded/rolebindings"), binding).await.ok();
    let maps = format!("{namespace}/configmaps");
    until("the binding is in force", async || (robot.get(&maps).await.code == 200).then_some(())).await;
    robot.post(&maps, json!({ "metadata": { "name": "a" } })).await.ok();
    robot.delete(&format!("{maps}/a")).await.refused(403, "cannot delete resource \"configmaps\"");
    robot.get("/api/v1/configmaps").await.refused(403, "at the cluster scope");
    let secrets = format!("{namespace}/secrets");
    robot.get(&format!("{secrets}/mine")).await.refused(404, "secrets \"mine\" not found");
    robot.get(&format!("{secrets}/other")).await.refused(403, "secrets \"other\" is forbidden");
    robot.get(&secrets).await.refused(403, "secrets is forbidden");
    let one = robot.get(&format!("{secrets}?fieldSelector=metadata.name%3Dmine")).await;
    assert_eq!(one.code, 200, "a list of one object is a request for that object: {}", one.body);

    let role = json!({ "metadata": { "name": "guarded" },
        "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["*"] }] });
    target.post(&format!("{RBAC}/clusterroles"), role).await.ok();
    let binding = json!({ "metadata": { "name": "guarded" }, "subjects": subject,
        "roleRef": reference("ClusterRole", "guarded") });
    target.post(&format!("{RBAC}/clusterrolebindings"), binding).await.ok();
    until("the binding is in force", async || (robot.get("/api/v1/nodes").await.code == 200).then_some(()))
        .await;
    let review = async |resource: &str| {
        let attributes = json!({ "verb": "list", "resource": resource });
        let spec = json!({ "user": "system:serviceaccount:guarded:robot", "resourceAttributes": attributes });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        target.post(path, json!({ "spec": spec })).await.ok()["status"].clone()
    };
    assert_eq!(review("pods").await["allowed"], false);
    let allowed = review("nodes").await;
    assert_eq!(allowed["allowed"], true);
    let reason = allowed["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("RBAC: allowed by ClusterRoleBinding"), "{reason}");
}

#[tokio::test]
async fn files_for_other_processes_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = ferrolb_fakekube::Options { dir: Some(dir.path().join("new")), ..Default::default() };
    let target = Target::fake_with(options).await;
    let read = |name: &str| std::fs::read_to_string(dir.path().join("new").join(name)).expect("a file");
    assert_eq!(read("kubeconfig"), target.kubeconfig);
    assert_eq!(read("ca.crt"), target.server.as_ref().expect("ours").ca_pem());
    assert!(read("admin.key").contains("PRIVATE KEY"));
    let again = Target::existing(read("kubeconfig")).await;
    assert_eq!(again.get("/api/v1/nodes").await.code, 200);
}
