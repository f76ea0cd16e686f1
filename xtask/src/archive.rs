// SPDX-License-Identifier: Apache-2.0
//! The archive: an OCI image layout (image-spec v1.1) as a tar file, with two images over one layer.
//!
//! Beside the layout it holds `manifest.json`, by which engines that know only `docker save`'s form find the same blobs.

use std::collections::BTreeMap;

use anyhow::Result;
use ferrolb_manifests::release::{LICENSE, NAME, REPOSITORY};
use ferrolb_manifests::{Daemon, Images};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tar::Header;

use crate::elf::Platform;
use crate::layer;

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The annotation by which an image of a layout is asked for.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The same for containerd, which takes the other one for a tag.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// When everything in it was made: two builds of one source differ in nothing.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// The archive's bytes.
///
/// # Errors
/// There is not enough memory to write it.
pub(crate) fn write(program: &[u8], platform: Platform, images: &Images) -> Result<Vec<u8>> {
    let layer = layer::pack(program)?;
    let diff_id = digest(&layer.tar);
    let mut blobs = Blobs::default();
    let layer = blobs.add(LAYER, layer.compressed)?;
    let mut manifests = Vec::new();
    let mut legacy = Vec::new();
    for daemon in Daemon::ALL {
        let name = images.of(daemon);
        let config = blobs.add(CONFIG, serde_json::to_vec(&config(daemon, platform, images, &diff_id))?)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [layer],
            "annotations": labels(daemon, images),
        });
        let mut manifest = blobs.add(MANIFEST, serde_json::to_vec(&manifest)?)?;
        manifest["platform"] = json!({"architecture": platform.architecture, "os": platform.os});
        manifest["annotations"] = json!({REF_NAME: name, CONTAINERD_NAME: name});
        manifests.push(manifest);
        legacy.push(json!({
            "Config": path_of(&config["digest"]),
            "RepoTags": [name],
            "Layers": [path_of(&layer["digest"])],
        }));
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });
    let mut files = blobs.files;
    files.insert("index.json".to_owned(), serde_json::to_vec(&index)?);
    files.insert("manifest.json".to_owned(), serde_json::to_vec(&legacy)?);
    files.insert("oci-layout".to_owned(), serde_json::to_vec(&json!({"imageLayoutVersion": "1.0.0"}))?);
    tarred(&files)
}

fn config(daemon: Daemon, platform: Platform, images: &Images, diff_id: &str) -> Value {
    json!({
        "created": CREATED,
        "architecture": platform.architecture,
        "os": platform.os,
        "config": {
            "User": daemon.user(),
            "Env": ["PATH=/"],
            "Entrypoint": [daemon.entrypoint()],
            "WorkingDir": "/",
            "Labels": labels(daemon, images),
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": CREATED, "created_by": "cargo xtask image"}],
    })
}

/// What a registry shows of an image; annotations of the manifest and labels of the configuration alike.
fn labels(daemon: Daemon, images: &Images) -> Map<String, Value> {
    let mut labels = Map::new();
    let mut add = |key: &str, value: &str| {
        labels.insert(format!("org.opencontainers.image.{key}"), value.into());
    };
    add("title", &format!("{NAME} {}", daemon.name()));
    add("version", images.tag());
    add("licenses", LICENSE);
    if let Some(repository) = REPOSITORY {
        add("source", repository);
    }
    labels
}

#[derive(Default)]
struct Blobs {
    files: BTreeMap<String, Vec<u8>>,
}

impl Blobs {
    /// Files a blob under its digest; gives its descriptor.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Result<Value> {
        let digest = Value::from(digest(&bytes));
        let descriptor =
            json!({"mediaType": media_type, "digest": digest, "size": u64::try_from(bytes.len())?});
        self.files.insert(path_of(&digest), bytes);
        Ok(descriptor)
    }
}

/// Where a blob lies in the layout.
pub(crate) fn path_of(digest: &Value) -> String {
    format!("blobs/{}", digest.as_str().unwrap_or_default().replacen(':', "/", 1))
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn tarred(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = Header::new_ustar();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mode(0o644);
        header.set_size(u64::try_from(bytes.len())?);
        tar.append_data(&mut header, path, &**bytes)?;
    }
    Ok(tar.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_builds_of_one_program_differ_in_nothing() {
        let platform = Platform { architecture: "amd64", os: "linux" };
        let images = Images::default();
        let once = write(b"program", platform, &images).unwrap();
        assert_eq!(once, write(b"program", platform, &images).unwrap());
    }
}
