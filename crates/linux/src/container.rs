// SPDX-License-Identifier: Apache-2.0
//! A process as a container runtime would start it: own mounts, one network namespace, few privileges.
//!
//! [`enter_and_exec`] turns the calling process into the program. It is meant for a helper process that has
//! just been started, still has one thread and does nothing else: so nothing complicated happens between fork
//! and exec, and the program keeps the helper's pid, standard streams and parent.
//!
//! The order matters, and is that of container runtimes: namespaces and mounts while there are privileges,
//! then the bounding set, then user and group, then the other capability sets, then no_new_privs.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, chdir, pivot_root, setgroups, setresgid, setresuid};
use serde::{Deserialize, Serialize};

use crate::error::{Attempt, Error, Result, check};
use crate::netns::Namespace;

/// What the program finds around itself. It serialises, so that it can be handed to the helper as an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The network namespace's name; `None` keeps the caller's.
    pub namespace: Option<String>,
    /// The host name the program sees (its Pod's name); `None` keeps the caller's.
    pub hostname: Option<String>,
    /// What the program's file system starts from.
    pub root: Root,
    /// What is mounted into it, in order.
    pub mounts: Vec<Mount>,
    /// Whether the root, apart from the mounts, is read-only.
    pub read_only_root: bool,
    /// User id.
    pub user: u32,
    /// Group id; there are no further groups.
    pub group: u32,
    /// The capabilities the program has. All sets lose everything else.
    pub capabilities: Vec<Capability>,
    /// Whether exec can never give privileges (no_new_privs).
    pub no_new_privileges: bool,
    /// The signal number the program gets when the *thread* that started the helper ends; `None` for no such
    /// signal.
    pub parent_death_signal: Option<i32>,
    /// The whole environment; `None` keeps the caller's.
    pub environment: Option<Vec<(String, String)>>,
}

impl Spec {
    /// A process in a namespace that keeps the host's files and all privileges of the caller's user 0.
    pub fn host(namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            hostname: None,
            root: Root::Host,
            mounts: Vec::new(),
            read_only_root: false,
            user: 0,
            group: 0,
            capabilities: Capability::ALL.to_vec(),
            no_new_privileges: false,
            parent_death_signal: None,
            environment: None,
        }
    }

    /// A container with next to no files, no capability and no way to get any.
    pub fn container(namespace: &str) -> Self {
        Self {
            root: Root::Minimal,
            read_only_root: true,
            capabilities: Vec::new(),
            no_new_privileges: true,
            ..Self::host(namespace)
        }
    }
}

/// What a container's file system starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    /// The host's files. What is mounted must already have a place there.
    Host,
    /// Nothing but /proc (/proc/sys read-only), /sys of the network namespace, a few harmless devices, and the
    /// host's shared libraries, read-only. Places for mounts are made as needed.
    Minimal,
}

/// Something put at a path of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The absolute path in the container.
    pub target: PathBuf,
    /// What is there.
    pub content: Content,
}

/// What is put at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// A file or directory of the host.
    Bind {
        /// Its path there.
        source: PathBuf,
        /// Whether the program cannot write to it.
        read_only: bool,
    },
    /// A directory in memory with these files, of mode 0644, read-only once they are written.
    Files(Vec<(String, String)>),
    /// An empty directory in memory that everybody can write to, of at most this many bytes.
    Scratch(u64),
}

/// A Linux capability, by its number in capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Capability(pub u8);

impl Capability {
    /// CAP_NET_BIND_SERVICE: bind ports below 1024.
    pub const NET_BIND_SERVICE: Self = Self(10);
    /// CAP_NET_ADMIN: change interfaces, addresses, routes and rules.
    pub const NET_ADMIN: Self = Self(12);
    /// CAP_NET_RAW: raw and packet sockets.
    pub const NET_RAW: Self = Self(13);
    /// Every capability that has a number; a kernel that lacks one ignores it.
    pub const ALL: &[Self] = &{
        let mut all = [Self(0); 41];
        let mut n = 0;
        while n < all.len() {
            all[n] = Self(n as u8);
            n += 1;
        }
        all
    };

    fn bit(self) -> u64 {
        1_u64.checked_shl(self.0.into()).unwrap_or(0)
    }
}

/// Turns the calling process into `argv` within the container. Returns only if that failed.
///
/// `argv[0]` is the program's absolute path in the container. It is opened while there are privileges, so that
/// its directories need not be open to the program's user.
///
/// The process must have one thread: mounts and namespaces change for the calling thread alone.
pub fn enter_and_exec(spec: &Spec, argv: &[OsString]) -> Error {
    match enter(spec).and_then(|parent| exec(spec, argv, parent)) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

/// Namespaces and mounts. Gives the parent, as it was at the start.
fn enter(spec: &Spec) -> Result<u32> {
    let parent = std::os::unix::process::parent_id();
    if let Some(name) = &spec.namespace {
        Namespace::open(name)?.enter()?;
    }
    unshare(CloneFlags::CLONE_NEWNS).attempting(|| "leave the mount namespace")?;
    // Nothing mounted here is seen outside; what the host unmounts goes away here too.
    change("/", MsFlags::MS_SLAVE | MsFlags::MS_REC)?;
    if let Some(name) = &spec.hostname {
        unshare(CloneFlags::CLONE_NEWUTS).attempting(|| "leave the UTS namespace")?;
        set_hostname(name).attempting(|| format!("set the host name {name}"))?;
    }
    // A source may lie under a place that is about to be covered.
    let sources = spec.mounts.iter().map(open_source).collect::<Result<Vec<_>>>()?;
    match spec.root {
        Root::Host => {
            // It shows the devices of the network that it was mounted in; the host's own is there already.
            if spec.namespace.is_some() {
                mount_sysfs("/sys")?;
            }
            for (mount, source) in spec.mounts.iter().zip(&sources) {
                put(Path::new("/"), mount, source.as_ref())?;
            }
        }
        Root::Minimal => build_root(spec, &sources)?,
    }
    if spec.read_only_root {
        change("/", MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY)?;
    }
    chdir("/").attempting(|| "go to /")?;
    Ok(parent)
}

/// Assembles a root in memory and moves into it.
fn build_root(spec: &Spec, sources: &[Option<File>]) -> Result<()> {
    // In a mount namespace of its own this covers /tmp for nobody else.
    let root = Path::new("/tmp");
    let host =
        ["/proc", "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"];
    let devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
    mount_fresh("tmpfs", root, MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=0755")?;
    for path in host.iter().chain(&devices).map(Path::new) {
        borrow(root, path)?;
    }
    let proc_sys = root.join("proc/sys");
    bind(&proc_sys, &proc_sys)?;
    change(&proc_sys, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY)?;
    make_directory(&root.join("sys"))?;
    mount_sysfs(root.join("sys"))?;
    for (mount, source) in spec.mounts.iter().zip(sources) {
        put(root, mount, source.as_ref())?;
    }
    chdir(root).attempting(|| "go to the new root")?;
    // The old root is put on top of the new one and then taken away, so that no place for it is needed.
    pivot_root(".", ".").attempting(|| "make the new root the root")?;
    umount2(".", MntFlags::MNT_DETACH).attempting(|| "take the old root away")
}

/// Shows a file or directory of the host at the same path of the new root, read-only, if the host has it. A
/// symbolic link (/lib on most systems) stays one.
fn borrow(root: &Path, path: &Path) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let target = under(root, path);
    if metadata.is_symlink() {
        let to = fs::read_link(path).attempting(|| format!("read the link {}", path.display()))?;
        return symlink(to, &target).attempting(|| format!("link {}", path.display()));
    }
    if metadata.is_dir() {
        make_directory(&target)?
    } else {
        make_file(&target)?
    }
    bind(path, &target)?;
    // /proc is written to (oom_score_adj, sysctls of the own process); devices lose nothing by being read-only.
    if metadata.is_dir() && path != Path::new("/proc") {
        change(&target, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY)?;
    }
    Ok(())
}

fn open_source(mount: &Mount) -> Result<Option<File>> {
    let Content::Bind { source, .. } = &mount.content else { return Ok(None) };
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(source);
    file.map(Some).attempting(|| format!("mount {}", source.display()))
}

fn put(root: &Path, mount: &Mount, source: Option<&File>) -> Result<()> {
    let target = under(root, &mount.target);
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    match (&mount.content, source) {
        (Content::Bind { source: name, read_only: locked }, Some(source)) => {
            let directory = source.metadata().attempting(|| format!("look at {}", name.display()))?.is_dir();
            if directory {
                make_directory(&target)?
            } else {
                make_file(&target)?
            }
            bind(Path::new(&format!("/proc/self/fd/{}", source.as_raw_fd())), &target)?;
            if *locked {
                change(&target, read_only)?;
            }
        }
        (Content::Files(files), _) => {
            make_directory(&target)?;
            mount_fresh("tmpfs", &target, MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "mode=0755")?;
            for (name, text) in files {
                let path = under(&target, Path::new(name));
                path.parent().map_or(Ok(()), make_directory)?;
                fs::write(&path, text)
                    .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)))
                    .attempting(|| format!("write {}", path.display()))?;
            }
            change(&target, read_only)?;
        }
        (Content::Scratch(bytes), _) => {
            make_directory(&target)?;
            let options = format!("mode=1777,size={bytes}");
            mount_fresh("tmpfs", &target, MsFlags::MS_NOSUID | MsFlags::MS_NODEV, &options)?;
        }
        (Content::Bind { .. }, None) => {} // open_source opens every bind
    }
    Ok(())
}

/// The privileges, then the program.
fn exec(spec: &Spec, argv: &[OsString], parent: u32) -> Result<std::convert::Infallible> {
    let program = argv.first().ok_or_else(|| Error::other("start a program", "no program named"))?;
    let named = || format!("start {}", program.display());
    let executable =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(program).attempting(named)?;
    let arguments = argv.iter().map(|text| c_string(text)).collect::<Result<Vec<_>>>()?;
    let environment = match &spec.environment {
        Some(pairs) => pairs.iter().map(|(key, value)| OsString::from(format!("{key}={value}"))).collect(),
        None => std::env::vars_os()
            .map(|(key, value)| OsString::from_vec([key.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Vec<_>>(),
    };
    let environment = environment.iter().map(|text| c_string(text)).collect::<Result<Vec<_>>>()?;

    drop_privileges(spec)?;
    if let Some(signal) = spec.parent_death_signal {
        // Changing credentials clears this, so it comes last.
        prctl(libc::PR_SET_PDEATHSIG, signal.unsigned_abs().into(), 0)
            .attempting(|| "follow the parent's death")?;
        if std::os::unix::process::parent_id() != parent {
            return Err(Error::other(named(), "the parent has ended meanwhile"));
        }
    }

    let pointers = |texts: &[CString]| {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argument_pointers, environment_pointers) = (pointers(&arguments), pointers(&environment));
    // SAFETY: both arrays end with a null pointer and point to NUL-terminated strings; they and the strings
    // outlive the call, which returns only on failure.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            executable.as_raw_fd(),
            c"".as_ptr(),
            argument_pointers.as_ptr(),
            environment_pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    Err(Error::new(named(), io::Error::last_os_error()))
}

fn drop_privileges(spec: &Spec) -> Result<()> {
    let kept = spec.capabilities.iter().fold(0, |set, capability| set | capability.bit());
    for number in (0..64_u8).filter(|number| kept & Capability(*number).bit() == 0) {
        match prctl(libc::PR_CAPBSET_DROP, number.into(), 0) {
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => break, // past the last one
            other => other.attempting(|| format!("drop capability {number} from the bounding set"))?,
        };
    }
    setgroups(&[]).attempting(|| "leave all groups")?;
    let group = Gid::from_raw(spec.group);
    setresgid(group, group, group).attempting(|| format!("become group {group}"))?;
    prctl(libc::PR_SET_KEEPCAPS, 1, 0).attempting(|| "keep capabilities over the change of user")?;
    let user = Uid::from_raw(spec.user);
    setresuid(user, user, user).attempting(|| format!("become user {user}"))?;

    // Exec gives user 0 all of the bounding set. Any other user keeps only ambient capabilities, which must be
    // inheritable too.
    let ambient = if spec.user == 0 { 0 } else { kept };
    let supported = kept & supported_capabilities()?;
    set_capabilities(supported, ambient & supported).attempting(|| "set the capabilities")?;
    let (clear, raise) =
        (libc::PR_CAP_AMBIENT_CLEAR_ALL.unsigned_abs(), libc::PR_CAP_AMBIENT_RAISE.unsigned_abs());
    prctl(libc::PR_CAP_AMBIENT, clear.into(), 0).attempting(|| "clear the ambient capabilities")?;
    for number in (0..64_u8).filter(|number| ambient & supported & Capability(*number).bit() != 0) {
        prctl(libc::PR_CAP_AMBIENT, raise.into(), number.into())
            .attempting(|| format!("make capability {number} ambient"))?;
    }
    if spec.no_new_privileges {
        prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).attempting(|| "set no_new_privs")?;
    }
    Ok(())
}

/// The capabilities this process may have, which leaves out those that the kernel does not know.
fn supported_capabilities() -> Result<u64> {
    let status =
        fs::read_to_string("/proc/thread-self/status").attempting(|| "read /proc/thread-self/status")?;
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    permitted
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .ok_or_else(|| Error::other("read the own capabilities", "no CapPrm in /proc/thread-self/status"))
}

fn set_capabilities(permitted: u64, inheritable: u64) -> io::Result<()> {
    /// `struct __user_cap_data_struct`
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    /// `struct __user_cap_header_struct`
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let word = |set: u64, shift: u32| u32::try_from((set >> shift) & 0xffff_ffff).unwrap_or(0);
    let half = |shift| Data {
        effective: word(permitted, shift),
        permitted: word(permitted, shift),
        inheritable: word(inheritable, shift),
    };
    let header = Header { version: VERSION_3, pid: 0 };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads one header and two data structures, which live until the call returns.
    let answer = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_hostname(name: &str) -> io::Result<libc::c_int> {
    // SAFETY: pointer and length are those of a string that outlives the call.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })
}

fn prctl(operation: libc::c_int, first: libc::c_ulong, second: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: the operations used here take numbers only.
    check(unsafe { libc::prctl(operation, first, second, 0_u64, 0_u64) })
}

fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes()).attempting(|| format!("pass the argument {}", text.display()))
}

/// A path of the container as a path below its root; `..` does not lead out.
fn under(root: &Path, path: &Path) -> PathBuf {
    let mut joined = root.to_owned();
    joined.extend(path.components().filter(|part| matches!(part, Component::Normal(_))));
    joined
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).attempting(|| format!("make the directory {}", path.display()))
}

fn make_file(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), make_directory)?;
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).attempting(|| format!("make a place for {}", path.display()))
}

fn mount_sysfs(target: impl AsRef<Path>) -> Result<()> {
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_fresh("sysfs", target.as_ref(), flags, "")
}

fn mount_fresh(kind: &str, target: &Path, flags: MsFlags, options: &str) -> Result<()> {
    mount(Some(kind), target, Some(kind), flags, Some(options))
        .attempting(|| format!("mount {kind} on {}", target.display()))
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .attempting(|| format!("mount {} on {}", source.display(), target.display()))
}

fn change(target: impl AsRef<Path>, flags: MsFlags) -> Result<()> {
    let target = target.as_ref();
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
        .attempting(|| format!("change the mount {}", target.display()))
}
