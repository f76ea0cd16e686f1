// SPDX-License-Identifier: Apache-2.0
//! TLS of the servers: the settings `--tls-*`, and the certificate, read from files or made at start.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

/// How often the files of a certificate are looked at, when somebody connects.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What `--tls-min-version`, `--tls-cipher-suites` and `--tls-curve-preferences` come to.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

/// A TLS setting that cannot be used. The text starts with the setting's name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsOptionError(String);

impl TlsOptions {
    /// Reads the three settings; empty texts are the defaults.
    ///
    /// # Errors
    ///
    /// [`TlsOptionError`] names the setting and the part that is wrong.
    pub fn parse(min_version: &str, cipher_suites: &str, curves: &str) -> Result<Self, TlsOptionError> {
        let (versions, only_tls13): (Vec<&SupportedProtocolVersion>, bool) = match min_version {
            "" | "VersionTLS13" => (vec![&rustls::version::TLS13], true),
            // 1.0 and 1.1 are accepted words; nothing below 1.2 is ever spoken.
            "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => {
                (vec![&rustls::version::TLS13, &rustls::version::TLS12], false)
            }
            other => {
                return Err(TlsOptionError(format!(
                    "parsing tls-min-version: unknown tls version {other:?}, use VersionTLS12 or VersionTLS13"
                )));
            }
        };
        let mut provider = aws_lc_rs::default_provider();
        if !cipher_suites.is_empty() {
            if only_tls13 {
                return Err(TlsOptionError(
                    "parsing tls-cipher-suites: cipher suites cannot be configured with TLS 1.3".to_owned(),
                ));
            }
            provider.cipher_suites = suites(cipher_suites)
                .map_err(|error| TlsOptionError(format!("parsing tls-cipher-suites: {error}")))?;
        }
        if !curves.is_empty() {
            provider.kx_groups = groups(curves)
                .map_err(|error| TlsOptionError(format!("parsing tls-curve-preferences: {error}")))?;
        }
        Ok(Self { provider: Arc::new(provider), versions })
    }

    /// A server's settings with this certificate. HTTP/2 is offered and preferred.
    ///
    /// # Errors
    ///
    /// When the chosen suites, groups and versions do not fit together.
    pub fn server(&self, certificate: Arc<Certificate>) -> Result<Arc<ServerConfig>, rustls::Error> {
        self.server_of(certificate, true)
    }

    /// A server's settings with whatever certificate `source` has when somebody connects. With `http2`, HTTP/2 is
    /// offered and preferred.
    ///
    /// # Errors
    ///
    /// When the chosen suites, groups and versions do not fit together.
    pub fn server_of(
        &self,
        source: Arc<dyn ResolvesServerCert>,
        http2: bool,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&self.versions)?
            .with_no_client_auth()
            .with_cert_resolver(source);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Ok(Arc::new(config))
    }
}

/// The TLS 1.2 suites of the list, and those of TLS 1.3, which cannot be chosen.
fn suites(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let known = aws_lc_rs::ALL_CIPHER_SUITES;
    let tls13 = |suite: &&SupportedCipherSuite| suite.tls13().is_some();
    let mut chosen: Vec<SupportedCipherSuite> = known.iter().filter(tls13).copied().collect();
    for name in list.split(',').map(str::trim) {
        // Go has names without the hash for the two ChaCha20 suites besides.
        let full = match name {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
                format!("{name}_SHA256")
            }
            _ => name.to_owned(),
        };
        let found = known
            .iter()
            .find(|suite| suite.tls13().is_none() && suite.suite().as_str() == Some(full.as_str()))
            .ok_or_else(|| {
                let names: Vec<&str> = known
                    .iter()
                    .filter(|suite| suite.tls13().is_none())
                    .filter_map(|suite| suite.suite().as_str())
                    .collect();
                format!("cipher suite {name} not supported or doesn't exist, use some of {}", names.join(","))
            })?;
        if !chosen.contains(found) {
            chosen.push(*found);
        }
    }
    Ok(chosen)
}

fn groups(list: &str) -> Result<Vec<&'static dyn SupportedKxGroup>, String> {
    let mut chosen: Vec<&'static dyn SupportedKxGroup> = Vec::new();
    for text in list.split(',').map(str::trim) {
        let number: u32 = text
            .parse()
            .map_err(|_| format!("invalid curve preference {text:?}: must be a numeric CurveID (0-65535)"))?;
        let id = u16::try_from(number)
            .ok()
            .filter(|id| *id > 0)
            .ok_or_else(|| format!("curve preference {number} is out of range (must be 1-65535)"))?;
        if chosen.iter().any(|group| u16::from(group.name()) == id) {
            return Err(format!("duplicate curve preference {id}"));
        }
        let group = aws_lc_rs::ALL_KX_GROUPS
            .iter()
            .find(|group| u16::from(group.name()) == id)
            .ok_or_else(|| format!("curve preference {id} is not supported by this version"))?;
        chosen.push(*group);
    }
    Ok(chosen)
}

/// A server's certificate, exchanged under way when its files change.
#[derive(Debug)]
pub struct Certificate {
    current: ArcSwap<CertifiedKey>,
    files: Option<Mutex<Files>>,
}

#[derive(Debug)]
struct Files {
    directory: PathBuf,
    read: (Option<SystemTime>, Option<SystemTime>),
    looked: Instant,
}

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("certificate {what}: {problem}")]
pub struct CertificateError {
    what: String,
    problem: String,
}

impl Certificate {
    /// `tls.crt` and `tls.key` of a directory, or one made now when either is missing.
    ///
    /// # Errors
    ///
    /// [`CertificateError`] when both files exist and do not fit, or none can be made.
    pub fn from_directory_or_new(directory: Option<&Path>) -> Result<Arc<Self>, CertificateError> {
        let directory = directory
            .filter(|directory| directory.join("tls.crt").exists() && directory.join("tls.key").exists());
        let certificate = match directory {
            None => Self { current: ArcSwap::from_pointee(self_signed()?), files: None },
            Some(directory) => {
                let read = modified(directory);
                Self {
                    current: ArcSwap::from_pointee(load(directory)?),
                    files: Some(Mutex::new(Files {
                        directory: directory.to_owned(),
                        read,
                        looked: Instant::now(),
                    })),
                }
            }
        };
        Ok(Arc::new(certificate))
    }

    /// Reads the files again if they changed; at most every ten seconds. Files that do not fit leave the
    /// certificate as it is, since they are replaced one after the other.
    pub fn refresh(&self, now: Instant) {
        let Some(files) = &self.files else { return };
        let Ok(mut files) = files.lock() else { return };
        if now.saturating_duration_since(files.looked) < LOOK_AGAIN {
            return;
        }
        files.looked = now;
        let found = modified(&files.directory);
        if found == files.read {
            return;
        }
        match load(&files.directory) {
            Ok(key) => {
                self.current.store(Arc::new(key));
                files.read = found;
                tracing::info!(op = "certificate", directory = %files.directory.display(), "certificate read anew");
            }
            Err(error) => {
                tracing::warn!(op = "certificate", error = %error, "changed certificate cannot be used")
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn modified(directory: &Path) -> (Option<SystemTime>, Option<SystemTime>) {
    let time = |name| std::fs::metadata(directory.join(name)).and_then(|data| data.modified()).ok();
    (time("tls.crt"), time("tls.key"))
}

pub(crate) fn load(directory: &Path) -> Result<CertifiedKey, CertificateError> {
    let failed = |name: &str, problem: String| CertificateError {
        what: directory.join(name).display().to_string(),
        problem,
    };
    let chain = CertificateDer::pem_file_iter(directory.join("tls.crt"))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed("tls.crt", error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(directory.join("tls.key"))
        .map_err(|error| failed("tls.key", error.to_string()))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(|error| failed("tls.crt", format!("does not fit tls.key: {error}")))
}

/// A chain of two, valid for `localhost` and a year, as MetalLB's daemons make at each start.
fn self_signed() -> Result<CertifiedKey, CertificateError> {
    let failed = |error: &dyn std::fmt::Display| CertificateError {
        what: "for localhost".to_owned(),
        problem: error.to_string(),
    };
    let now = SystemTime::now();
    let unix = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let hour = Duration::from_secs(3600);
    let named = |name: &str| {
        let mut params = CertificateParams::default();
        // Different subjects: a chain whose links bear one name looks like a loop to OpenSSL.
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, format!("{name}@{unix}"));
        params.not_before = (now - hour).into();
        params.not_after = (now - hour + 365 * 24 * hour).into();
        params
    };
    let make = || -> Result<_, rcgen::Error> {
        let mut ca = named("localhost-ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_key = KeyPair::generate()?;
        let ca_certificate = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);

        let mut server = named("localhost");
        server.subject_alt_names =
            CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()])?.subject_alt_names;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &issuer)?;
        Ok((vec![certificate.der().clone(), ca_certificate.der().clone()], key.serialize_der()))
    };
    let (chain, key) = make().map_err(|error| failed(&error))?;
    let key = PrivateKeyDer::try_from(key).map_err(|error| failed(&error))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_setting_is_said_in_metallbs_words() {
        for (min, suites, curves, text) in [
            ("", "TLS_X", "", "parsing tls-cipher-suites: cipher suites cannot be configured with TLS 1.3"),
            (
                "VersionTLS13",
                "TLS_X",
                "",
                "parsing tls-cipher-suites: cipher suites cannot be configured with TLS 1.3",
            ),
            (
                "",
                "",
                "x",
                "parsing tls-curve-preferences: invalid curve preference \"x\": must be a numeric CurveID (0-65535)",
            ),
            (
                "",
                "",
                "0",
                "parsing tls-curve-preferences: curve preference 0 is out of range (must be 1-65535)",
            ),
            (
                "",
                "",
                "70000",
                "parsing tls-curve-preferences: curve preference 70000 is out of range (must be 1-65535)",
            ),
            ("", "", "29, 29", "parsing tls-curve-preferences: duplicate curve preference 29"),
            (
                "",
                "",
                "25",
                "parsing tls-curve-preferences: curve preference 25 is not supported by this version",
            ),
        ] {
            let error = TlsOptions::parse(min, suites, curves).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
        let error = TlsOptions::parse("SSLv3", "", "").unwrap_err().to_string();
        assert!(error.starts_with("parsing tls-min-version: unknown tls version \"SSLv3\""), "{error}");
        let error =
            TlsOptions::parse("VersionTLS12", "TLS_RSA_WITH_RC4_128_SHA", "").unwrap_err().to_string();
        assert!(error.contains("TLS_RSA_WITH_RC4_128_SHA not supported"), "{error}");
    }

    #[test]
    fn chosen_groups_and_suites_are_used_in_order() {
        let options = TlsOptions::parse(
            "VersionTLS12",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "4588,29,23",
        )
        .unwrap();
        let groups: Vec<u16> = options.provider.kx_groups.iter().map(|group| group.name().into()).collect();
        assert_eq!(groups, [4588, 29, 23]);
        assert_eq!(options.provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count(), 2);
        assert_eq!(options.versions.len(), 2);
        assert_eq!(TlsOptions::parse("", "", "").unwrap().versions, [&rustls::version::TLS13]);
    }

    #[test]
    fn a_directory_without_files_gives_a_certificate_of_its_own() {
        let empty = tempfile::tempdir().unwrap();
        for directory in [None, Some(empty.path())] {
            let certificate = Certificate::from_directory_or_new(directory).unwrap();
            assert_eq!(certificate.current.load().cert.len(), 2);
            assert!(TlsOptions::parse("", "", "").unwrap().server(certificate).is_ok());
        }
    }

    fn write(directory: &Path) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed(vec!["metrics".to_owned()]).unwrap();
        std::fs::write(directory.join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        made.cert.der().to_vec()
    }

    #[test]
    fn a_changed_certificate_is_read_anew_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let first = write(directory.path());
        let certificate = Certificate::from_directory_or_new(Some(directory.path())).unwrap();
        let current = || certificate.current.load().cert[0].to_vec();
        assert_eq!(current(), first);

        std::fs::write(directory.path().join("tls.key"), "half written").unwrap();
        let start = Instant::now();
        certificate.refresh(start + LOOK_AGAIN);
        assert_eq!(current(), first);

        let second = write(directory.path());
        certificate.refresh(start + LOOK_AGAIN + LOOK_AGAIN);
        assert_eq!(current(), second);
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path());
        std::fs::write(directory.path().join("tls.key"), "no key").unwrap();
        let error = Certificate::from_directory_or_new(Some(directory.path())).unwrap_err().to_string();
        assert!(error.contains("tls.key"), "{error}");
    }
}
