// SPDX-License-Identifier: Apache-2.0
//! The scenarios against a real API server.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::target::Target;
use crate::{access, collector, conversion, custom, objects, recorded, services, watches, webhooks};

/// Ends the server even when a scenario fails.
struct Running {
    script: PathBuf,
    dir: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new(&self.script).arg("down").arg(self.dir.path()).status();
    }
}

#[tokio::test]
async fn a_real_api_server_agrees() {
    let Some(kapi) = std::env::var_os("FERROLB_KAPI") else {
        // Not eprintln, which the harness keeps to itself when a test passes.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: FERROLB_KAPI is not set, so no real API server is compared with"
        );
        return;
    };
    let running =
        Running { script: PathBuf::from(kapi).join("kapi"), dir: tempfile::tempdir().expect("a directory") };
    // Three ports in a row, counted from the process so that two suites rarely meet.
    let port = 20_000 + std::process::id() % 2_000 * 4;
    let status = Command::new(&running.script)
        .arg("up")
        .arg(running.dir.path())
        .env("KAPI_PORT", port.to_string())
        .status()
        .expect("the script runs");
    assert!(status.success(), "kapi up failed");
    let kubeconfig = std::fs::read_to_string(running.dir.path().join("kubeconfig")).expect("a kubeconfig");
    let mut target = Target::existing(kubeconfig).await;
    target.certificates = Some(running.dir.path().to_owned());

    recorded::answers(&target).await;
    objects::only_what_is_selected_is_listed(&target).await;
    objects::pages_show_one_moment(&target).await;
    objects::a_finalizer_holds_an_object(&target).await;
    objects::a_dry_run_changes_nothing(&target).await;
    objects::a_write_that_changes_nothing_is_no_change(&target).await;
    custom::a_defined_kind_is_served_and_established(&target).await;
    custom::status_and_spec_are_written_apart(&target).await;
    services::addresses_and_ports_are_released(&target).await;
    services::a_status_gets_its_ip_mode(&target).await;
    watches::a_watch_sees_every_change_once(&target).await;
    watches::a_streaming_list_ends_with_a_bookmark(&target).await;
    watches::selected_objects_come_and_go(&target).await;
    webhooks::a_webhook_judges_writes(&target).await;
    webhooks::a_webhook_sees_what_a_write_would_do(&target).await;
    webhooks::bad_configurations_are_refused(&target).await;
    conversion::objects_are_shown_in_the_version_that_is_asked_for(&target).await;
    conversion::managers_of_fields_are_told_apart_by_version(&target).await;
    conversion::a_failed_conversion_says_why(&target).await;
    conversion::a_webhook_sees_the_version_of_its_rules(&target).await;
    conversion::bad_conversions_are_refused(&target).await;
    access::guarded(&target).await;
    objects::a_lease_changes_hands_once(&target).await;
    collector::owned_objects_follow_their_owner(&target).await;
}
