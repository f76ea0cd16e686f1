// SPDX-License-Identifier: Apache-2.0
//! Who may ask: certificates, tokens, reviews.

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::target::Target;

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
