// SPDX-License-Identifier: Apache-2.0
//! The member list as MetalLB's flags, Secret and file describe it.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferrolb_gossip::wire::{Codec, Key, KeyRule, Keyring};
use ferrolb_gossip::{ConfigFile, ConfigFileError, Profile, Settings};
use ferrolb_kube_support::common::SettingError;
use ferrolb_kube_support::flags::Values;
use ferrolb_net_types::{NodeName, parse_ip};
use ferrolb_speaker_core::wire::Gossip;
use tokio_util::sync::CancellationToken;

use crate::secret::{self, Fallback, SecretError};
use crate::wire::{self, BindError, Sockets};

/// What the speaker was told of the member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberList {
    /// The label selector of the speakers' Pods.
    pub labels: String,
    /// The address to listen on, and to be reached at; the unspecified one listens on all.
    pub bind: IpAddr,
    /// The port of every member.
    pub port: u16,
    /// The timing of wide-area networks, unless the file says otherwise.
    pub wan: bool,
    /// How the Secret's content becomes a key.
    pub rule: KeyRule,
}

/// The member list cannot be used as it is configured; exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum MemberListError {
    /// The Secret's file.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The file with settings cannot be read.
    #[error("failed to load memberlist config: {file}: {error}")]
    File {
        /// The file.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// The file with settings makes no sense.
    #[error("failed to load memberlist config: {0}")]
    Config(#[from] ConfigFileError),
    /// There is no telling where the others would reach this host.
    #[error(
        "failed to create memberlist: no address to advertise while listening on all, set --ml-bindaddr: {0}"
    )]
    Advertise(io::Error),
    /// The port.
    #[error("failed to create memberlist: {0}")]
    Bind(#[from] BindError),
    /// There is no randomness.
    #[error("failed to create memberlist: /dev/urandom: {0}")]
    Random(io::Error),
}

/// Where MetalLB's ConfigMap is mounted.
pub(crate) const FILE: &str = "/etc/metallb/memberlist/config.json";

/// How long a port is waited for that a former process still holds.
const PATIENCE: Duration = Duration::from_secs(10);
const TRY_EVERY: Duration = Duration::from_millis(200);

impl MemberList {
    /// Reads the flags; none without an address or labels. `rule` is what `FERROLB_ML_KEY_RULE` says.
    pub(crate) fn read(values: &Values, rule: Option<&str>) -> Result<Option<Self>, SettingError> {
        let wrong = |name: &str, what: &str| SettingError::Other(format!("{}: {what}", values.spelled(name)));
        let port = match values.given("ml-bindport") {
            None => PORT,
            Some(text) => match text.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(wrong("ml-bindport", "not a port, which is a number from 1 to 65535")),
            },
        };
        let rule = match rule.unwrap_or_default() {
            "" | "truncated" => KeyRule::Truncated,
            "sha256" => KeyRule::Hashed,
            other => {
                return Err(SettingError::Other(format!(
                    "environment variable FERROLB_ML_KEY_RULE={other}: not a rule; use truncated (MetalLB up to \
                     v0.16.1) or sha256 (later ones)"
                )));
            }
        };
        let (Some(bind), Some(labels)) = (values.given("ml-bindaddr"), values.given("ml-labels")) else {
            return Ok(None);
        };
        let bind = parse_ip(bind).ok_or_else(|| wrong("ml-bindaddr", "not an IP address"))?;
        let wan = values.is_on("ml-wan-config");
        Ok(Some(Self { labels: labels.to_owned(), bind, port, wan, rule }))
    }

    /// Everything that the member is told, with this content of the Secret and of the file, if there is one.
    fn gossip(
        &self,
        node: &NodeName,
        secret: &[u8],
        file: Option<&[u8]>,
        advertised: IpAddr,
        seed: [u8; 32],
    ) -> Result<Gossip, ConfigFileError> {
        let other = match self.rule {
            KeyRule::Hashed => KeyRule::Truncated,
            KeyRule::Truncated | KeyRule::Short => KeyRule::Hashed,
        };
        // Whoever uses the other rule is understood, but does not understand.
        let others = Key::of_secret(secret, other).into_iter().collect();
        let keyring = Key::of_secret(secret, self.rule).map(|key| Keyring::new(key, others));
        let address = SocketAddr::new(advertised, self.port);
        let mut settings = Settings::speaker(node.as_str().into(), address, Codec::new(keyring));
        if self.wan {
            settings.profile = Profile::wan();
        }
        if let Some(content) = file {
            ConfigFile::parse(content)?.apply(&mut settings);
        }
        Ok(Gossip { settings, seed })
    }
}

/// Reads what the member list needs and takes its port; none if it is switched off, or `stop` came first.
pub(crate) async fn prepare(
    list: Option<&MemberList>,
    secret_directory: Option<&Path>,
    fallback: Fallback<'_>,
    node: &NodeName,
    stop: &CancellationToken,
) -> Result<Option<wire::MemberList>, MemberListError> {
    let Some(secret) = secret::read(secret_directory, fallback, stop).await? else { return Ok(None) };
    let Some(list) = list else {
        tracing::info!(
            "not starting fast dead node detection (memberlist), need ml-bindaddr / ml-labels config"
        );
        // Every node counts in elections then, also one that has no speaker.
        tracing::warn!("when memberlist is disabled, the speaker pods must run on all nodes");
        return Ok(None);
    };
    if secret.is_empty() {
        tracing::warn!(
            op = "startup",
            warning = "no ml-secret-key set, memberlist traffic will not be encrypted"
        );
    }
    let file = optional(Path::new(FILE))?;
    if file.is_some() {
        tracing::info!(path = FILE, "loading memberlist config from file");
    }
    let advertised = wire::advertised(list.bind).map_err(MemberListError::Advertise)?;
    let seed = seed().map_err(MemberListError::Random)?;
    let gossip = list.gossip(node, &secret, file.as_deref(), advertised, seed)?;
    let Some(sockets) = bind(SocketAddr::new(list.bind, list.port), PATIENCE, stop).await? else {
        return Ok(None);
    };
    Ok(Some(wire::MemberList { gossip, sockets }))
}

/// Takes the port, and waits for it if a former process still has it; none if `stop` came first.
async fn bind(
    address: SocketAddr,
    patience: Duration,
    stop: &CancellationToken,
) -> Result<Option<Sockets>, BindError> {
    let until = tokio::time::Instant::now() + patience;
    let mut said = false;
    loop {
        match Sockets::bind(address) {
            Ok(sockets) => return Ok(Some(sockets)),
            Err(error) if error.may_pass() && tokio::time::Instant::now() < until => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(op = "startup", %error, "waiting for the member list's port");
                }
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = tokio::time::sleep(TRY_EVERY) => {}
            () = stop.cancelled() => return Ok(None),
        }
    }
}

fn optional(file: &Path) -> Result<Option<Vec<u8>>, MemberListError> {
    match std::fs::read(file) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(MemberListError::File { file: file.display().to_string(), error }),
    }
}

fn seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}

/// The directory of the Secret, as the flags have it.
pub(crate) fn secret_directory(values: &Values) -> Option<PathBuf> {
    values.given("ml-secret-key-path").map(PathBuf::from)
}

/// MetalLB's, and memberlist's.
const PORT: u16 = 7946;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::flags;

    fn read(args: &[&str], rule: Option<&str>) -> Result<Option<MemberList>, String> {
        let args = args.iter().map(|arg| (*arg).to_owned());
        let values = Values::parse("speaker", &flags(), args, |_| None).unwrap();
        MemberList::read(&values, rule).map_err(|error| error.to_string())
    }

    fn list() -> MemberList {
        read(&["--ml-bindaddr=192.0.2.13", "--ml-labels=app=metallb"], None).unwrap().unwrap()
    }

    #[test]
    fn go_6_it_is_on_with_an_address_of_ones_choice_and_labels_only() {
        let on = MemberList {
            labels: "app=metallb".to_owned(),
            bind: [192, 0, 2, 13].into(),
            port: 7946,
            wan: false,
            rule: KeyRule::Truncated,
        };
        assert_eq!(list(), on);
        for args in
            [&[][..], &["--ml-bindaddr=192.0.2.13"], &["--ml-labels=app=metallb"], &["--ml-wan-config"]]
        {
            assert_eq!(read(args, None), Ok(None), "{args:?}");
        }
        let all = ["--ml-bindaddr=::", "--ml-labels=a", "--ml-bindport=7947", "--ml-wan-config"];
        let read = read(&all, Some("sha256")).unwrap().unwrap();
        assert_eq!((read.port, read.wan, read.rule), (7947, true, KeyRule::Hashed));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (args, rule, part) in [
            (&["--ml-bindport=x"][..], None, "--ml-bindport=x: not a port"),
            (&["--ml-bindport=0"], None, "--ml-bindport=0: not a port"),
            (&["--ml-bindport=65536"], None, "--ml-bindport=65536: not a port"),
            (&["--ml-bindaddr=here", "--ml-labels=a"], None, "--ml-bindaddr=here: not an IP address"),
            (&[], Some("md5"), "FERROLB_ML_KEY_RULE=md5"),
        ] {
            let error = read(args, rule).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn go_7_a_file_replaces_the_profile_and_may_name_only_what_it_changes() {
        let wan = MemberList { wan: true, ..list() };
        let settings = |list: &MemberList, file: Option<&[u8]>| {
            list.gossip(&"n".into(), b"", file, [192, 0, 2, 13].into(), [7; 32]).map(|gossip| gossip.settings)
        };
        assert_eq!(settings(&list(), None).unwrap().profile, Profile::lan());
        assert_eq!(settings(&wan, None).unwrap().profile, Profile::wan());
        let changed = Profile { probe_interval: Duration::from_millis(200), ..Profile::lan() };
        let file = br#"{"ProbeInterval": "200ms"}"#;
        assert_eq!(settings(&wan, Some(file)).unwrap().profile, changed);
        let error = settings(&list(), Some(b"{\"ProbeInterval\": \"soon\"}")).unwrap_err();
        assert!(MemberListError::from(error).to_string().starts_with("failed to load memberlist config: "));
    }

    #[test]
    fn go_3_x02_s56_both_rules_are_understood_and_the_configured_one_is_spoken() {
        use ferrolb_gossip::wire::{Message, Ping, Source};
        let ping = Message::Ping(Ping {
            sequence: 1,
            node: b"n".to_vec(),
            source: Source { address: vec![192, 0, 2, 1], port: 7946, node: b"m".to_vec() },
        });
        for secret in
            // 22, 31, 32 and 40 bytes are those of X02.
            [
                &b"k1"[..],
                b"AAECAwQFBgcICQoLDA0ODw",
                &[b'x'; 31],
                &[b'x'; 32],
                &[b'x'; 33],
                &[b'x'; 40],
                &[b'x'; 100],
                b"abc\n",
            ]
        {
            for (rule, spoken) in
                [(KeyRule::Truncated, true), (KeyRule::Hashed, true), (KeyRule::Short, false)]
            {
                let theirs =
                    Codec::new(Key::of_secret(secret, rule).map(|key| Keyring::new(key, Vec::new())));
                let bytes = theirs.packet(ping.encode(), false, &[9; 12]);
                for own in [KeyRule::Truncated, KeyRule::Hashed] {
                    let list = MemberList { rule: own, ..list() };
                    let gossip = list.gossip(&"n".into(), secret, None, list.bind, [7; 32]).unwrap();
                    let codec = gossip.settings.codec;
                    assert_eq!(codec.read_packet(&bytes).is_ok(), spoken, "{rule:?} to {own:?}");
                    let sent = codec.packet(ping.encode(), false, &[9; 12]);
                    assert_eq!(theirs.read_packet(&sent).is_ok(), rule == own, "{own:?} to {rule:?}");
                }
            }
        }
    }

    /// A port that was free for TCP and UDP, at an address that is this process's alone: no test beside this one is given a
    /// port of it once that is free.
    fn both() -> (std::net::TcpListener, std::net::UdpSocket) {
        let [.., third, last] = std::process::id().to_be_bytes();
        for _ in 0..100 {
            let streams = std::net::TcpListener::bind((Ipv4Addr::new(127, 79, third, last), 0)).unwrap();
            if let Ok(datagrams) = std::net::UdpSocket::bind(streams.local_addr().unwrap()) {
                return (streams, datagrams);
            }
        }
        panic!("no port is free for both");
    }

    #[tokio::test]
    async fn go_5_a_port_in_use_is_waited_for_and_then_named() {
        for tcp in [true, false] {
            let stop = CancellationToken::new();
            let (streams, datagrams) = both();
            let address = streams.local_addr().unwrap();
            let (held, free): (Box<dyn Send>, Box<dyn Send>) = if tcp {
                (Box::new(streams), Box::new(datagrams))
            } else {
                (Box::new(datagrams), Box::new(streams))
            };
            drop(free);
            let error = bind(address, Duration::ZERO, &stop).await.unwrap_err().to_string();
            let protocol = if tcp { "tcp" } else { "udp" };
            assert!(error.starts_with(&format!("listen on {protocol} {address}: ")), "{error}");
            let release = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                drop(held);
            };
            let (bound, ()) = tokio::join!(bind(address, PATIENCE, &stop), release);
            assert!(bound.unwrap().is_some());
            let _held = Sockets::bind(address).unwrap();
            stop.cancel();
            assert!(bind(address, PATIENCE, &stop).await.unwrap().is_none());
        }
    }
}
