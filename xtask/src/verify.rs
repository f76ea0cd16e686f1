// SPDX-License-Identifier: Apache-2.0
//! Reads an archive back as a container engine would, and runs what is in it with nothing else around.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolb_manifests::Daemon;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::archive::{CONFIG, LAYER, MANIFEST, REF_NAME, digest, path_of};
use crate::{elf, megabytes};

/// Checks the archive at `path`; gives a line per image.
///
/// # Errors
/// The first thing that is not as the image specification, or this project, wants it.
pub(crate) fn archive(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let images = images(&bytes).with_context(|| format!("check {}", path.display()))?;
    let mut report = String::new();
    for (daemon, image) in Daemon::ALL.into_iter().zip(&images) {
        let root = tempfile::tempdir().context("make a temporary directory")?;
        tar::Archive::new(&*image.layer).unpack(root.path()).context("unpack the layer")?;
        let help = run_alone(root.path(), daemon.entrypoint(), &["--help"])?;
        ensure!(
            help.contains("log-level"),
            "{} --help says nothing of its flags: {help}",
            daemon.entrypoint()
        );
        writeln!(
            report,
            "{}: entrypoint {}, user {}, layer {:.1} MB ({:.1} MB unpacked), {}",
            image.name,
            daemon.entrypoint(),
            daemon.user(),
            megabytes(image.pulled),
            megabytes(u64::try_from(image.layer.len())?),
            image.digest
        )?;
    }
    Ok(report.trim_end().to_owned())
}

/// An image as the archive holds it.
#[derive(Debug)]
struct Image {
    name: String,
    digest: String,
    /// The layer's tar file.
    layer: Vec<u8>,
    /// Bytes of the layer as it is pulled.
    pulled: u64,
}

/// The images, in the order of [`Daemon::ALL`], every digest and size compared.
fn images(bytes: &[u8]) -> Result<Vec<Image>> {
    let files = files(bytes)?;
    let file = |name: &str| files.get(name).with_context(|| format!("there is no {name}"));
    let json = |name: &str| -> Result<Value> {
        serde_json::from_slice(file(name)?).with_context(|| format!("{name} is no JSON"))
    };
    ensure!(json("oci-layout")?["imageLayoutVersion"] == "1.0.0", "oci-layout has another version");
    let blob = |descriptor: &Value, media_type: &str| -> Result<&Vec<u8>> {
        let path = path_of(&descriptor["digest"]);
        let bytes = file(&path)?;
        ensure!(descriptor["mediaType"] == media_type, "{path} is a {}", descriptor["mediaType"]);
        ensure!(
            descriptor["size"] == bytes.len(),
            "{path} has {} bytes, not {}",
            bytes.len(),
            descriptor["size"]
        );
        ensure!(descriptor["digest"] == digest(bytes), "{path} does not have the digest of its name");
        Ok(bytes)
    };
    let index = json("index.json")?;
    let manifests = index["manifests"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(manifests.len() == Daemon::ALL.len(), "index.json has {} images", manifests.len());
    let mut images = Vec::new();
    for (daemon, descriptor) in Daemon::ALL.into_iter().zip(manifests) {
        let manifest: Value = serde_json::from_slice(blob(descriptor, MANIFEST)?)?;
        let config: Value = serde_json::from_slice(blob(&manifest["config"], CONFIG)?)?;
        let [layer] = manifest["layers"].as_array().map(Vec::as_slice).unwrap_or_default() else {
            bail!("the image of the {} has more or less than one layer", daemon.name());
        };
        let compressed = blob(layer, LAYER)?;
        let mut unpacked = Vec::new();
        GzDecoder::new(&**compressed).read_to_end(&mut unpacked).context("unzip the layer")?;
        ensure!(
            config["rootfs"]["diff_ids"] == serde_json::json!([digest(&unpacked)]),
            "the configuration's diff_id is not the layer's"
        );
        let own = &config["config"];
        ensure!(
            own["Entrypoint"] == serde_json::json!([daemon.entrypoint()]),
            "Entrypoint {}",
            own["Entrypoint"]
        );
        ensure!(own["User"] == daemon.user(), "User {}", own["User"]);
        let platform = elf::platform(&program(&unpacked)?)?;
        for (key, value) in [("architecture", platform.architecture), ("os", platform.os)] {
            ensure!(config[key] == value && descriptor["platform"][key] == value, "{key} is not {value}");
        }
        let name = descriptor["annotations"][REF_NAME].as_str().context("an image has no name")?;
        ensure!(name.contains(&format!("/{}:", daemon.name())), "{name} is not the {}", daemon.name());
        images.push(Image {
            name: name.to_owned(),
            digest: descriptor["digest"].as_str().unwrap_or_default().to_owned(),
            layer: unpacked,
            pulled: u64::try_from(compressed.len())?,
        });
    }
    legacy(&json("manifest.json")?, &files, &images)?;
    Ok(images)
}

/// The older form names the same images and files that exist.
fn legacy(list: &Value, files: &BTreeMap<String, Vec<u8>>, images: &[Image]) -> Result<()> {
    let list = list.as_array().context("manifest.json is no list")?;
    ensure!(list.len() == images.len(), "manifest.json has {} images", list.len());
    for (entry, image) in list.iter().zip(images) {
        ensure!(entry["RepoTags"] == serde_json::json!([image.name]), "RepoTags {}", entry["RepoTags"]);
        let layers = entry["Layers"].as_array().into_iter().flatten();
        for path in std::iter::once(&entry["Config"]).chain(layers) {
            let known = path.as_str().is_some_and(|path| files.contains_key(path));
            ensure!(known, "manifest.json names {path}, which is not there");
        }
    }
    Ok(())
}

fn files(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(bytes).entries().context("it is no tar file")? {
        let mut entry = entry.context("it is no tar file")?;
        let path = entry.path()?.display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).with_context(|| format!("{path} is cut off"))?;
        files.insert(path, content);
    }
    Ok(files)
}

/// The program in a layer.
fn program(layer: &[u8]) -> Result<Vec<u8>> {
    let files = files(layer)?;
    files.get(ferrolb_manifests::release::NAME).cloned().context("the layer has no program")
}

/// Runs a program with `root` as the whole file system; gives what it prints.
fn run_alone(root: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("chroot");
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        // A user namespace lets anybody change the root.
        command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "chroot"]);
    }
    let output = command
        .arg(root)
        .arg(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .with_context(|| {
            format!("start {} (Debian's coreutils and util-linux have it)", command.get_program().display())
        })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{program} does not run with nothing around it: {}, {}",
        output.status,
        text(&output.stderr).trim()
    );
    Ok(text(&output.stdout) + &text(&output.stderr))
}

#[cfg(test)]
mod tests {
    use ferrolb_manifests::Images;

    use super::*;
    use crate::elf::Platform;
    use crate::{archive, elf};

    fn good() -> Vec<u8> {
        let platform = Platform { architecture: "arm64", os: "linux" };
        archive::write(&elf::sample(183, &[1]), platform, &Images::default()).unwrap()
    }

    #[test]
    fn an_archive_reads_back_as_it_was_written() {
        let images = images(&good()).unwrap();
        let names: Vec<_> = images.iter().map(|image| image.name.as_str()).collect();
        assert_eq!(names, Daemon::ALL.map(|daemon| Images::default().of(daemon)));
        assert_eq!(images[0].layer, images[1].layer);
    }

    #[test]
    fn a_changed_byte_of_any_blob_is_noticed() {
        let good = good();
        let mut checked = 0;
        for (path, content) in files(&good).unwrap() {
            if !path.starts_with("blobs/") {
                continue;
            }
            let start = good.windows(content.len()).position(|window| window == content).unwrap();
            let mut bad = good.clone();
            bad[start + content.len() / 2] ^= 1;
            let error = images(&bad).unwrap_err().to_string();
            assert!(error.contains("does not have the digest of its name"), "{path}: {error}");
            checked += 1;
        }
        assert_eq!(checked, 5);
    }

    #[test]
    fn a_program_for_another_machine_than_the_configuration_says_is_noticed() {
        let platform = Platform { architecture: "arm64", os: "linux" };
        let bytes = archive::write(&elf::sample(62, &[1]), platform, &Images::default()).unwrap();
        assert!(images(&bytes).unwrap_err().to_string().contains("architecture is not amd64"));
    }
}
