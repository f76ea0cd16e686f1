// SPDX-License-Identifier: Apache-2.0
//! From a Pod to a process: program, environment, files and privileges, as a container runtime reads them.
//!
//! Images are names of programs that the lab has: `ferrolb/speaker`, `ferrolb/controller` and `ferrolb/hello`; and
//! `quay.io/metallb/speaker`, which is a stand-in. In each, a program of ours lies at the path that the image's entry point
//! names: in those of the daemons what their images hold.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use ferrolb_linux::container::{Capability, Content, Mount, Root, Spec};
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret, VolumeMount};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use crate::host::Host;
use crate::launch::{self, Launch};
use crate::ledger::Ledger;
use crate::view::View;

/// Where Pods look for their service account.
pub(crate) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Addresses of a Pod once it has a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) host: Host,
    pub(crate) address: Ipv4Addr,
}

/// The process of a Pod's only container.
pub(crate) fn launch(
    pod: &Pod,
    placed: Placed,
    namespace: &str,
    volumes: &Volumes,
    api: (&str, u16),
) -> Result<Launch> {
    let spec = pod.spec.as_ref().context("the Pod has no spec")?;
    let container = only_container(pod)?;
    let image = Image::named(container.image.as_deref().unwrap_or_default())?;
    let mut argv = vec![image.path.to_owned()];
    argv.extend(image.words.iter().map(|word| (*word).to_owned()));

    let mut environment = vec![
        ("PATH".to_owned(), "/".to_owned()),
        ("HOSTNAME".to_owned(), pod.name_any()),
        ("KUBERNETES_SERVICE_HOST".to_owned(), api.0.to_owned()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), api.1.to_string()),
    ];
    for variable in container.env.iter().flatten() {
        environment.push((variable.name.clone(), value_of(variable, pod, placed)?));
    }
    argv.extend(container.args.iter().flatten().map(|argument| expanded(argument, &environment)));

    let binary = Content::Bind { source: (image.program)()?, read_only: true };
    let mut mounts = vec![Mount { target: PathBuf::from(image.path), content: binary }];
    mounts.extend(volumes.mounts(container)?);

    let security = container.security_context.clone().unwrap_or_default();
    let pod_security = spec.security_context.clone().unwrap_or_default();
    let user = security.run_as_user.or(pod_security.run_as_user).unwrap_or(0);
    let group = security.run_as_group.or(pod_security.run_as_group).unwrap_or(user);
    let dropped = security.capabilities.clone().unwrap_or_default();
    let drops_all = dropped.drop.iter().flatten().any(|name| name.eq_ignore_ascii_case("all"));
    let added = dropped.add.iter().flatten().map(|name| capability(name)).collect::<Result<Vec<_>>>()?;
    Ok(Launch {
        role: format!("{}/{}", pod.name_any(), container.name),
        spec: Spec {
            namespace: Some(namespace.to_owned()),
            hostname: Some(if spec.host_network == Some(true) {
                placed.host.name().to_owned()
            } else {
                pod.name_any()
            }),
            root: Root::Minimal,
            mounts,
            read_only_root: security.read_only_root_filesystem == Some(true),
            user: u32::try_from(user).context("runAsUser")?,
            group: u32::try_from(group).context("runAsGroup")?,
            // A runtime's default set is of no use to anything here; who asks for none gets none.
            capabilities: if drops_all || user != 0 {
                added
            } else {
                vec![Capability::NET_RAW, Capability::NET_BIND_SERVICE]
            },
            no_new_privileges: security.allow_privilege_escalation == Some(false),
            parent_death_signal: None,
            environment: Some(environment),
        },
        argv,
    })
}

/// The container of a Pod. The bench runs Pods of one.
pub(crate) fn only_container(pod: &Pod) -> Result<&Container> {
    let spec = pod.spec.as_ref().context("the Pod has no spec")?;
    match spec.containers.as_slice() {
        [container] if spec.init_containers.iter().flatten().next().is_none() => Ok(container),
        _ => bail!("the bench runs Pods of exactly one container"),
    }
}

/// What the bench has instead of an image.
struct Image {
    /// Path of the program in it.
    path: &'static str,
    /// What comes before the container's arguments.
    words: &'static [&'static str],
    /// Which file of this machine the program is.
    program: fn() -> Result<PathBuf>,
}

impl Image {
    fn named(image: &str) -> Result<Self> {
        let name = image.split('@').next().unwrap_or_default();
        let name = name.strip_prefix("localhost/").unwrap_or(name);
        Ok(match name.split(':').next().unwrap_or_default() {
            "ferrolb/speaker" => Self { path: "/speaker", words: &[], program: launch::daemons },
            "ferrolb/controller" => Self { path: "/controller", words: &[], program: launch::daemons },
            "ferrolb/hello" => Self { path: "/hello", words: &["__pod"], program: launch::program },
            // Not at /speaker: by that name the program is the daemon.
            "quay.io/metallb/speaker" => {
                Self { path: "/metallb-speaker", words: &["__metallb-speaker"], program: launch::program }
            }
            _ => bail!(
                "the bench has no image {image:?}: it has ferrolb/speaker, ferrolb/controller, ferrolb/hello and a \
                 stand-in for quay.io/metallb/speaker"
            ),
        })
    }
}

fn value_of(variable: &EnvVar, pod: &Pod, placed: Placed) -> Result<String> {
    if let Some(value) = &variable.value {
        return Ok(value.clone());
    }
    let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
    match field.map(|field| field.field_path.as_str()) {
        Some("metadata.name") => Ok(pod.name_any()),
        Some("metadata.namespace") => Ok(pod.namespace().unwrap_or_default()),
        Some("metadata.uid") => Ok(pod.uid().unwrap_or_default()),
        Some("spec.nodeName") => Ok(placed.host.name().to_owned()),
        Some("status.hostIP") => Ok(placed.host.address().to_string()),
        Some("status.podIP") => Ok(placed.address.to_string()),
        Some(other) => {
            bail!("environment variable {}: the bench does not know the field {other}", variable.name)
        }
        None if variable.value_from.is_none() => Ok(String::new()),
        None => bail!("environment variable {}: the bench knows value and fieldRef only", variable.name),
    }
}

/// An argument with the values of the variables it names as `$(NAME)`.
fn expanded(argument: &str, environment: &[(String, String)]) -> String {
    environment
        .iter()
        .fold(argument.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

fn capability(name: &str) -> Result<Capability> {
    match name.trim_start_matches("CAP_") {
        "NET_RAW" => Ok(Capability::NET_RAW),
        "NET_ADMIN" => Ok(Capability::NET_ADMIN),
        "NET_BIND_SERVICE" => Ok(Capability::NET_BIND_SERVICE),
        other => bail!("the bench does not give the capability {other}"),
    }
}

/// The directories of a Pod's volumes, in the lab's state directory.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    pod: String,
    namespace: String,
    root: PathBuf,
    kinds: BTreeMap<String, Volume>,
    /// Directories within volumes where other volumes are mounted.
    nested: Vec<PathBuf>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Volume {
    Empty,
    /// A directory of the node, which outlives the Pod: where it lies in the lab's state directory.
    Host(PathBuf),
    Secret {
        name: String,
        optional: bool,
    },
    ConfigMap {
        name: String,
        optional: bool,
    },
    Unknown,
}

impl Volumes {
    /// The volumes a Pod names. Nothing is made yet.
    pub(crate) fn of(pod: &Pod, ledger: &Ledger) -> Self {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let kinds = volumes.map(|volume| {
            let kind = if let Some(secret) = &volume.secret {
                Volume::Secret {
                    name: secret.secret_name.clone().unwrap_or_default(),
                    optional: secret.optional == Some(true),
                }
            } else if let Some(map) = &volume.config_map {
                Volume::ConfigMap { name: map.name.clone(), optional: map.optional == Some(true) }
            } else if volume.empty_dir.is_some() {
                Volume::Empty
            } else if let Some(host) = &volume.host_path {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
                Volume::Host(of_node(ledger, node, &host.path))
            } else {
                Volume::Unknown
            };
            (volume.name.clone(), kind)
        });
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mounts: Vec<&VolumeMount> =
            containers.flat_map(|container| container.volume_mounts.iter().flatten()).collect();
        let within = |outer: &&VolumeMount, inner: &&VolumeMount| {
            let rest = Path::new(&inner.mount_path).strip_prefix(&outer.mount_path).ok()?;
            (!rest.as_os_str().is_empty()).then(|| PathBuf::from(&outer.name).join(rest))
        };
        Self {
            pod: pod.name_any(),
            namespace: pod.namespace().unwrap_or_default(),
            root: directory(ledger, &pod.uid().unwrap_or_default()),
            kinds: kinds.collect(),
            nested: mounts.iter().flat_map(|a| mounts.iter().filter_map(|b| within(a, b))).collect(),
        }
    }

    /// What has to be there before the Pod can start, and is not yet.
    pub(crate) fn missing(&self, view: &View) -> Option<String> {
        self.kinds.iter().find_map(|(volume, kind)| match kind {
            Volume::Secret { name, optional: false } if self.files(view, kind).is_none() => {
                Some(format!("MountVolume.SetUp failed for volume {volume:?}: secret {name:?} not found"))
            }
            Volume::ConfigMap { name, optional: false } if self.files(view, kind).is_none() => {
                Some(format!("MountVolume.SetUp failed for volume {volume:?}: configmap {name:?} not found"))
            }
            _ => None,
        })
    }

    /// Makes the directories and fills them.
    pub(crate) fn prepare(&self, view: &View) -> Result<()> {
        for (name, kind) in &self.kinds {
            let path = self.source(name, kind);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
            match kind {
                Volume::Empty => fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?,
                Volume::Unknown => {
                    bail!(
                        "volume {name} of {}: the bench has secret, configMap, emptyDir and hostPath",
                        self.pod
                    )
                }
                _ => {}
            }
        }
        for path in &self.nested {
            let path = self.root.join(path);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        self.refresh(view)
    }

    /// Brings the files of Secrets and ConfigMaps up to date.
    pub(crate) fn refresh(&self, view: &View) -> Result<()> {
        for (name, kind) in &self.kinds {
            let path = self.root.join(name);
            // An object that is gone leaves its files, as a kubelet does.
            if let (Some(files), true) = (self.files(view, kind), path.exists()) {
                write_files(&path, &files)?;
            }
        }
        Ok(())
    }

    /// Whether the files of the service account are there.
    pub(crate) fn has_service_account(&self) -> bool {
        self.root.join(TOKEN_VOLUME).join("token").exists()
    }

    /// Writes the files of the service account.
    pub(crate) fn service_account(&self, token: &str, ca: &str) -> Result<()> {
        let path = self.root.join(TOKEN_VOLUME);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        let files = [("token", token), ("ca.crt", ca), ("namespace", self.namespace.as_str())];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        write_files(&path, &files.into())
    }

    /// Removes everything.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.root);
    }

    fn files(&self, view: &View, kind: &Volume) -> Option<BTreeMap<String, Vec<u8>>> {
        match kind {
            Volume::Secret { name, .. } => {
                let secret = view.secrets.get(&ObjectRef::<Secret>::new(name).within(&self.namespace))?;
                let data = secret.data.iter().flatten();
                Some(data.map(|(key, value)| (key.clone(), value.0.clone())).collect())
            }
            Volume::ConfigMap { name, .. } => {
                let map = view.config_maps.get(&ObjectRef::<ConfigMap>::new(name).within(&self.namespace))?;
                let data = map.data.iter().flatten();
                Some(data.map(|(key, value)| (key.clone(), value.clone().into_bytes())).collect())
            }
            Volume::Empty | Volume::Host(_) | Volume::Unknown => None,
        }
    }

    /// Where a volume's files are.
    fn source(&self, name: &str, kind: &Volume) -> PathBuf {
        match kind {
            Volume::Host(path) => path.clone(),
            _ => self.root.join(name),
        }
    }

    fn mounts(&self, container: &Container) -> Result<Vec<Mount>> {
        let mut mounts = Vec::new();
        let token = self.root.join(TOKEN_VOLUME);
        if token.exists() {
            let content = Content::Bind { source: token, read_only: true };
            mounts.push(Mount { target: PathBuf::from(SERVICE_ACCOUNT), content });
        }
        for VolumeMount { name, mount_path, read_only, .. } in container.volume_mounts.iter().flatten() {
            let kind = self.kinds.get(name).with_context(|| {
                format!("the container mounts {name}, which is no volume of {}", self.pod)
            })?;
            let read_only = *read_only == Some(true) || !matches!(kind, Volume::Empty | Volume::Host(_));
            let content = Content::Bind { source: self.source(name, kind), read_only };
            mounts.push(Mount { target: PathBuf::from(mount_path), content });
        }
        Ok(mounts)
    }
}

/// Where a Pod's volumes are.
pub(crate) fn directory(ledger: &Ledger, uid: &str) -> PathBuf {
    ledger.path().join("pods").join(uid)
}

/// Where a directory of a node is that Pods mount; one that leads elsewhere by `..` leads nowhere.
fn of_node(ledger: &Ledger, node: &str, path: &str) -> PathBuf {
    let inner = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    inner.fold(ledger.path().join("nodes").join(node), |all, part| all.join(part))
}

/// Makes a directory hold exactly these files. Each changes at once, and only if its content does.
fn write_files(directory: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    let context = || format!("write files to {}", directory.display());
    for (name, content) in files {
        let path = directory.join(name);
        if fs::read(&path).is_ok_and(|stored| &stored == content) {
            continue;
        }
        let fresh = directory.join(format!("..{name}"));
        fs::write(&fresh, content).with_context(context)?;
        // The mode in the manifest names root as the owner; the bench's Pods have other users too.
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644)).with_context(context)?;
        fs::rename(&fresh, &path).with_context(context)?;
    }
    for entry in fs::read_dir(directory).with_context(context)?.flatten() {
        // A directory is where another volume is mounted.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && !entry.file_name().to_str().is_some_and(|name| files.contains_key(name)) {
            fs::remove_file(entry.path()).with_context(context)?;
        }
    }
    Ok(())
}

const TOKEN_VOLUME: &str = "kube-api-access";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host::LabName;

    const PLACED: Placed = Placed { host: Host::Node1, address: Ipv4Addr::new(192, 168, 10, 20) };

    /// The Pod that the bench's manifest makes of a workload.
    fn pod(kind: &str) -> Pod {
        let documents = crate::seed::documents(crate::seed::METALLB).unwrap();
        let workload = documents.iter().find(|document| document["kind"] == kind).unwrap();
        let mut pod = workload["spec"]["template"].clone();
        pod["metadata"]["name"] = json!("pod-1");
        pod["metadata"]["namespace"] = json!("metallb-system");
        serde_json::from_value(pod).unwrap()
    }

    fn launched(pod: &Pod) -> Result<Launch> {
        let ledger = Ledger::at(&LabName::default());
        launch(pod, PLACED, "ferrolb-x", &Volumes::of(pod, &ledger), ("10.96.0.1", 443))
    }

    #[test]
    fn the_speaker_is_user_0_with_one_capability_and_no_way_to_more() {
        let launch = launched(&pod("DaemonSet")).unwrap();
        assert_eq!(launch.argv, ["/speaker", "--port=9120", "--log-level=info"]);
        assert_eq!(
            (launch.spec.user, launch.spec.capabilities.as_slice()),
            (0, [Capability::NET_RAW].as_slice())
        );
        assert!(launch.spec.no_new_privileges && launch.spec.read_only_root);
        let environment: BTreeMap<_, _> = launch.spec.environment.unwrap().into_iter().collect();
        assert_eq!(environment["METALLB_NODE_NAME"], "k8s-node-1");
        assert_eq!(environment["METALLB_POD_NAME"], "pod-1");
        assert_eq!(environment["METALLB_HOST"], "192.168.10.20");
        assert_eq!(environment["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
        assert!(launch.spec.mounts.iter().any(|mount| mount.target == Path::new("/etc/metallb")));
    }

    #[test]
    fn the_controller_is_nobody_without_any_capability() {
        let launch = launched(&pod("Deployment")).unwrap();
        assert_eq!((launch.spec.user, launch.spec.capabilities.len()), (65534, 0));
        assert!(launch.spec.no_new_privileges && launch.spec.read_only_root);
        let certificates = Path::new("/tmp/k8s-webhook-server/serving-certs");
        assert!(launch.spec.mounts.iter().any(|mount| mount.target == certificates));
    }

    #[test]
    fn a_directory_of_the_node_is_the_same_for_every_pod_there_and_can_be_written_to() {
        let mut pod = pod("DaemonSet");
        let spec = pod.spec.as_mut().unwrap();
        spec.node_name = Some("k8s-node-1".to_owned());
        let volume = json!({"name": "state", "hostPath": {"path": "/var/../lib/ferrolb"}});
        spec.volumes.get_or_insert_default().push(serde_json::from_value(volume).unwrap());
        let mount = json!({"name": "state", "mountPath": "/state"});
        spec.containers[0].volume_mounts.get_or_insert_default().push(serde_json::from_value(mount).unwrap());
        let source = |pod: &Pod| {
            let mounts = launched(pod).unwrap().spec.mounts;
            mounts.into_iter().find(|mount| mount.target == Path::new("/state")).unwrap().content
        };
        let expected = Ledger::at(&LabName::default()).path().join("nodes/k8s-node-1/var/lib/ferrolb");
        assert_eq!(source(&pod), Content::Bind { source: expected, read_only: false });
        let first = source(&pod);
        pod.metadata.name = Some("pod-2".to_owned());
        assert_eq!(source(&pod), first);
    }

    #[test]
    fn an_argument_can_name_a_variable() {
        let environment = [("POD_NAME".to_owned(), "hello-1".to_owned())];
        assert_eq!(expanded("--name=$(POD_NAME)", &environment), "--name=hello-1");
        assert_eq!(expanded("--name=$(OTHER)", &environment), "--name=$(OTHER)");
    }

    #[test]
    fn what_the_bench_cannot_run_is_refused_by_name() {
        let mut other = pod("DaemonSet");
        other.spec.as_mut().unwrap().containers[0].image =
            Some("registry.example/other/speaker:v1".to_owned());
        assert!(launched(&other).unwrap_err().to_string().contains("registry.example/other/speaker:v1"));
        let mut two = pod("DaemonSet");
        let second = two.spec.as_ref().unwrap().containers[0].clone();
        two.spec.as_mut().unwrap().containers.push(second);
        assert!(launched(&two).unwrap_err().to_string().contains("exactly one container"));
    }

    #[test]
    fn a_directory_of_files_follows_its_object() {
        let directory = tempfile::tempdir().unwrap();
        let files = |pairs: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
        };
        write_files(directory.path(), &files(&[("a", "1"), ("b", "2")])).unwrap();
        write_files(directory.path(), &files(&[("b", "3")])).unwrap();
        let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["b"]);
        assert_eq!(fs::read_to_string(directory.path().join("b")).unwrap(), "3");
    }
}
