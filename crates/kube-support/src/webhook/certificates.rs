// SPDX-License-Identifier: Apache-2.0
//! What the certificate Secret holds, whether it will do, and how to make it anew. Time is an argument.
//!
//! Names, lifetimes and the form of the keys (RSA 2048, PKCS#1) are MetalLB's, whose controller takes over a Secret
//! only if it can read the CA's key in that form: so its certificates serve here, and ours serve there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use x509_parser::asn1_rs::{Any, FromDer as _, Tag};
use x509_parser::prelude::parse_x509_certificate;

/// A certificate that would not do this long from now is made anew.
pub const AHEAD: Duration = Duration::from_secs(90 * DAY);
/// Certificates are valid from this long before they are made, for clocks that are behind.
pub(crate) const BACKDATED: Duration = Duration::from_secs(3600);
const CA_LIFE: Duration = Duration::from_secs(3650 * DAY);
const SERVER_LIFE: Duration = Duration::from_secs(365 * DAY);
const DAY: u64 = 24 * 3600;

/// The four entries of the Secret, PEM each; empty where one is missing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// `ca.crt`.
    pub ca: Vec<u8>,
    /// `ca.key`.
    pub ca_key: Vec<u8>,
    /// `tls.crt`.
    pub server: Vec<u8>,
    /// `tls.key`.
    pub server_key: Vec<u8>,
}

/// What has to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The server's certificate, signed by the CA that is there.
    Server,
    /// Both.
    Everything,
}

/// What becomes of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It will do until this time, when it has to be looked at again.
    Good {
        /// 90 days before the first of the certificates ends.
        until: SystemTime,
    },
    /// Something has to be made anew, now.
    Renew {
        /// What.
        what: Renewal,
        /// Why.
        why: String,
    },
}

/// Certificates that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made: {0}")]
pub struct IssueError(String);

impl Material {
    /// From the Secret's `data`, decoded.
    pub fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Self {
        let entry = |key: &str| data.get(key).cloned().unwrap_or_default();
        Self {
            ca: entry("ca.crt"),
            ca_key: entry("ca.key"),
            server: entry("tls.crt"),
            server_key: entry("tls.key"),
        }
    }

    /// The entries by the keys that the Secret has for them.
    pub fn entries(&self) -> [(&'static str, &[u8]); 4] {
        [
            ("ca.crt", &self.ca),
            ("ca.key", &self.ca_key),
            ("tls.crt", &self.server),
            ("tls.key", &self.server_key),
        ]
    }

    /// Makes a CA, and a certificate for a server of this DNS name.
    ///
    /// # Errors
    ///
    /// [`IssueError`] when the system gives no keys.
    pub fn issue(dns: &str, now: SystemTime) -> Result<Self, IssueError> {
        let key = Key::generate()?;
        let mut params = CertificateParams::new(vec!["cert".to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "metallb");
        params.distinguished_name.push(DnType::CommonName, "cert");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + CA_LIFE).into();
        let ca = params.self_signed(&key.pair)?.pem().into_bytes();
        let material = Self { ca, ca_key: key.pem, ..Self::default() };
        material.issue_server(dns, now)
    }

    /// Makes a certificate for a server of this DNS name with the CA that is there.
    ///
    /// # Errors
    ///
    /// [`IssueError`] when the CA cannot sign, or the system gives no keys.
    pub fn issue_server(&self, dns: &str, now: SystemTime) -> Result<Self, IssueError> {
        let issuer = self.issuer().map_err(IssueError)?;
        let key = Key::generate()?;
        let mut params = CertificateParams::new(vec![dns.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, dns);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + SERVER_LIFE).into();
        let server = params.signed_by(&key.pair, &issuer)?.pem().into_bytes();
        Ok(Self { ca: self.ca.clone(), ca_key: self.ca_key.clone(), server, server_key: key.pem })
    }

    /// Whether this will do for a server of this DNS name, now and 90 days from now.
    pub fn verdict(&self, dns: &str, now: SystemTime) -> Verdict {
        let renew = |what, why| Verdict::Renew { what, why };
        let authority = match self.authority_is_good(now) {
            Ok(until) => until,
            Err(why) => return renew(Renewal::Everything, format!("CA: {why}")),
        };
        match self.server_is_good(dns, &[now, now + AHEAD]) {
            Ok(until) => Verdict::Good { until: authority.min(until) - AHEAD },
            Err(why) => renew(Renewal::Server, format!("server certificate: {why}")),
        }
    }

    /// What to present, if it is valid at this moment.
    ///
    /// # Errors
    ///
    /// Says what does not fit.
    pub fn usable(&self, dns: &str, now: SystemTime) -> Result<CertifiedKey, String> {
        self.server_is_good(dns, &[now])?;
        certified(&self.server, &self.server_key)
    }

    /// The CA's certificate.
    ///
    /// # Errors
    ///
    /// Says what does not fit.
    pub fn authority(&self) -> Result<CertificateDer<'static>, String> {
        if self.ca.is_empty() {
            return Err("there is none".to_owned());
        }
        CertificateDer::from_pem_slice(&self.ca).map_err(|error| format!("{error}"))
    }

    /// Whether a client that trusts these CAs would accept the server at this moment.
    pub fn is_accepted_by(&self, trusted: &[CertificateDer<'_>], dns: &str, now: SystemTime) -> bool {
        self.verify(trusted, dns, &[now]).is_ok()
    }

    /// When the CA was made, as its certificate says.
    pub(crate) fn made(&self) -> Option<SystemTime> {
        let validity = Validity::of(&self.authority().ok()?).ok()?;
        Some(validity.from + BACKDATED)
    }

    fn authority_is_good(&self, now: SystemTime) -> Result<SystemTime, String> {
        let der = self.authority()?;
        let validity = Validity::of(&der)?;
        for time in [now, now + AHEAD] {
            validity.covers(time, now)?;
        }
        if !validity.ca {
            return Err("its certificate is none of an authority".to_owned());
        }
        certified(&self.ca, &self.ca_key)?;
        self.issuer()?;
        Ok(validity.until)
    }

    fn server_is_good(&self, dns: &str, times: &[SystemTime]) -> Result<SystemTime, String> {
        certified(&self.server, &self.server_key)?;
        let until = Validity::of(&chain(&self.server)?[0])?.until;
        self.verify(&[self.authority()?], dns, times)?;
        Ok(until)
    }

    fn verify(&self, trusted: &[CertificateDer<'_>], dns: &str, times: &[SystemTime]) -> Result<(), String> {
        let chain = chain(&self.server)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let parsed = ParsedCertificate::try_from(&chain[0]).map_err(|error| error.to_string())?;
        let name = ServerName::try_from(dns).map_err(|error| format!("{dns}: {error}"))?;
        verify_server_name(&parsed, &name).map_err(|error| error.to_string())?;
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        for time in times {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|error| error.to_string())?;
            let time = UnixTime::since_unix_epoch(since);
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &chain[1..], time, algorithms)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, String> {
        let key = PrivateKeyDer::from_pem_slice(&self.ca_key).map_err(|error| format!("key: {error}"))?;
        let key = KeyPair::try_from(&key).map_err(|error| format!("key: {error}"))?;
        Issuer::from_ca_cert_der(&self.authority()?, key).map_err(|error| error.to_string())
    }
}

impl IssueError {
    /// Whatever made it did not come to its end.
    pub(crate) fn broken(error: &dyn fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Certificates are public; of keys only the length is shown.
impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries();
        f.debug_map().entries(entries.iter().map(|(key, value)| (key, value.len()))).finish()
    }
}

impl From<rcgen::Error> for IssueError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// The certificates of a bundle; what is none is left out.
pub(crate) fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

/// Whether a certificate is one of an authority, and valid at this time.
pub(crate) fn is_authority(der: &CertificateDer<'_>, now: SystemTime) -> bool {
    Validity::of(der).is_ok_and(|validity| validity.ca && validity.covers(now, now).is_ok())
}

/// A certificate as PEM.
pub(crate) fn pem(der: &[u8]) -> String {
    encode("CERTIFICATE", der)
}

fn encode(label: &str, der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(label, der), config)
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() { Err("there is none".to_owned()) } else { Ok(chain) }
}

/// Certificate and key, if they belong together.
fn certified(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain = chain(certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("key: {error}"))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| error.to_string())
}

/// A new key.
struct Key {
    pair: KeyPair,
    /// PKCS#1, the only form in which MetalLB reads the key of a CA.
    pem: Vec<u8>,
}

impl Key {
    fn generate() -> Result<Self, IssueError> {
        let pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let pkcs1 = pkcs1(pair.serialized_der())
            .ok_or_else(|| IssueError("the new key is not in the form of RFC 5958".to_owned()))?;
        Ok(Self { pem: encode("RSA PRIVATE KEY", &pkcs1).into_bytes(), pair })
    }
}

/// The RSAPrivateKey (RFC 8017 appendix A.1.2) within a PrivateKeyInfo (RFC 5958 section 2): version, algorithm, and
/// the key as an OCTET STRING.
fn pkcs1(pkcs8: &[u8]) -> Option<Vec<u8>> {
    let (_, info) = Any::from_der(pkcs8).ok()?;
    let (rest, _version) = Any::from_der(info.data).ok()?;
    let (rest, _algorithm) = Any::from_der(rest).ok()?;
    let (_, key) = Any::from_der(rest).ok()?;
    (key.tag() == Tag::OctetString).then(|| key.data.to_vec())
}

struct Validity {
    from: SystemTime,
    until: SystemTime,
    ca: bool,
}

impl Validity {
    fn of(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, parsed) = parse_x509_certificate(der).map_err(|error| error.to_string())?;
        let time = |timestamp: i64| {
            // Before 1970 is as good as always.
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(timestamp).unwrap_or_default())
        };
        Ok(Self {
            from: time(parsed.validity().not_before.timestamp()),
            until: time(parsed.validity().not_after.timestamp()),
            ca: parsed.is_ca(),
        })
    }

    fn covers(&self, time: SystemTime, now: SystemTime) -> Result<(), String> {
        if time < self.from {
            return Err("it is not valid yet".to_owned());
        }
        if time > self.until {
            let left = self.until.duration_since(now).unwrap_or_default().as_secs() / DAY;
            return Err(format!("it ends in {left} days"));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use super::*;

    pub(crate) const DNS: &str = "metallb-webhook-service.metallb-system.svc";

    /// 2026-12-01, a day after [`metallb`] was made, and the time at which [`OURS`] was.
    pub(crate) fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_083_200)
    }

    pub(crate) fn days(days: u64) -> Duration {
        Duration::from_secs(days * DAY)
    }

    /// A Secret of the form that MetalLB gives it.
    pub(crate) fn metallb() -> Material {
        Material {
            ca: include_bytes!("../../tests/data/metallb-secret/ca.crt").to_vec(),
            ca_key: include_bytes!("../../tests/data/metallb-secret/ca.key").to_vec(),
            server: include_bytes!("../../tests/data/metallb-secret/tls.crt").to_vec(),
            server_key: include_bytes!("../../tests/data/metallb-secret/tls.key").to_vec(),
        }
    }

    /// What this makes.
    pub(crate) static OURS: LazyLock<Material> = LazyLock::new(|| Material::issue(DNS, start()).unwrap());

    /// Another of the kind.
    pub(crate) static OTHER: LazyLock<Material> = LazyLock::new(|| Material::issue(DNS, start()).unwrap());

    /// What has to be made anew, if anything.
    fn renewal(material: &Material, now: SystemTime) -> Option<Renewal> {
        match material.verdict(DNS, now) {
            Verdict::Good { .. } => None,
            Verdict::Renew { what, .. } => Some(what),
        }
    }

    #[test]
    fn what_will_not_do_is_made_anew_and_nothing_else() {
        let (metallb, ours, other) = (metallb(), OURS.clone(), OTHER.clone());
        let elsewhere = ours.issue_server("other.metallb-system.svc", start()).unwrap();
        let garbage = b"garbage".to_vec();
        for (name, material, expected) in [
            ("MetalLB's", metallb.clone(), None),
            ("ours", ours.clone(), None),
            ("empty, as manifests make it", Material::default(), Some(Renewal::Everything)),
            ("no CA", Material { ca: Vec::new(), ..ours.clone() }, Some(Renewal::Everything)),
            ("no key of the CA", Material { ca_key: Vec::new(), ..ours.clone() }, Some(Renewal::Everything)),
            (
                "a CA that is none",
                Material { ca: garbage.clone(), ..ours.clone() },
                Some(Renewal::Everything),
            ),
            (
                "the key of another CA",
                Material { ca_key: other.ca_key.clone(), ..ours.clone() },
                Some(Renewal::Everything),
            ),
            (
                "a server's certificate for the CA's",
                Material { ca: ours.server.clone(), ca_key: ours.server_key.clone(), ..ours.clone() },
                Some(Renewal::Everything),
            ),
            ("no certificate", Material { server: Vec::new(), ..ours.clone() }, Some(Renewal::Server)),
            ("no key", Material { server_key: Vec::new(), ..ours.clone() }, Some(Renewal::Server)),
            ("a key that is none", Material { server_key: garbage, ..ours.clone() }, Some(Renewal::Server)),
            (
                "another key",
                Material { server_key: other.server_key.clone(), ..ours.clone() },
                Some(Renewal::Server),
            ),
            (
                "a certificate of another CA",
                Material { server: other.server.clone(), server_key: other.server_key, ..ours },
                Some(Renewal::Server),
            ),
            ("a certificate for another Service", elsewhere, Some(Renewal::Server)),
            (
                "a half written certificate",
                Material { server: metallb.server[..400].to_vec(), ..metallb },
                Some(Renewal::Server),
            ),
        ] {
            assert_eq!(renewal(&material, start()), expected, "{name}: {:?}", material.verdict(DNS, start()));
        }
    }

    #[test]
    fn certificates_are_renewed_ninety_days_before_they_end() {
        for (name, material) in [("MetalLB's", metallb()), ("ours", OURS.clone())] {
            // MetalLB's are a day older.
            for (after, expected) in [
                (0, None),
                (100, None),
                (273, None),
                (276, Some(Renewal::Server)),
                (366, Some(Renewal::Server)),
                (3550, Some(Renewal::Server)),
                (3561, Some(Renewal::Everything)),
                (4000, Some(Renewal::Everything)),
            ] {
                assert_eq!(renewal(&material, start() + days(after)), expected, "{name} after {after} days");
            }
            let Verdict::Good { until } = material.verdict(DNS, start()) else { panic!("{name} is good") };
            let second = Duration::from_secs(1);
            assert_eq!(renewal(&material, until - second), None, "{name}");
            assert_eq!(renewal(&material, until + second), Some(Renewal::Server), "{name}");
            assert!(until > start() + days(273) && until <= start() + days(275), "{name}");
        }
    }

    #[test]
    fn a_clock_that_is_an_hour_behind_changes_nothing_and_one_of_last_year_does() {
        assert_eq!(renewal(&OURS, start() - BACKDATED), None);
        assert_eq!(renewal(&OURS, start() - days(365)), Some(Renewal::Everything));
    }

    #[test]
    fn a_renewed_certificate_is_signed_by_the_ca_that_is_there_whoever_made_it() {
        for (name, material) in [("MetalLB's", metallb()), ("ours", OURS.clone())] {
            let later = start() + days(300);
            assert_eq!(renewal(&material, later), Some(Renewal::Server), "{name}");
            let renewed = material.issue_server(DNS, later).unwrap();
            assert_eq!((&renewed.ca, &renewed.ca_key), (&material.ca, &material.ca_key), "{name}");
            assert_ne!(renewed.server, material.server, "{name}");
            assert_eq!(renewal(&renewed, later), None, "{name}");
            assert!(renewed.is_accepted_by(&[material.authority().unwrap()], DNS, later), "{name}");
        }
    }

    #[test]
    fn an_expired_certificate_is_not_presented_and_one_near_its_end_is() {
        assert!(OURS.usable(DNS, start() + days(364)).is_ok());
        assert!(OURS.usable(DNS, start() + days(366)).is_err());
        assert!(OURS.usable("another.name.svc", start()).is_err());
        assert!(Material::default().usable(DNS, start()).is_err());
    }

    /// MetalLB's controller reads the CA's key in no other form; with another it would not start again.
    #[test]
    fn what_is_written_has_metallbs_form() {
        for (key, value) in OURS.entries() {
            let text = std::str::from_utf8(value).unwrap();
            let label = if key.ends_with("key") { "RSA PRIVATE KEY" } else { "CERTIFICATE" };
            assert!(text.starts_with(&format!("-----BEGIN {label}-----\n")), "{key}: {text}");
            assert!(text.ends_with(&format!("-----END {label}-----\n")), "{key}");
            assert!(text.lines().all(|line| line.len() <= 64), "{key}");
        }
        for (pem, theirs, authority) in
            [(&OURS.ca, metallb().ca, true), (&OURS.server, metallb().server, false)]
        {
            let (ours, theirs) = (chain(pem).unwrap(), chain(&theirs).unwrap());
            let (_, ours) = parse_x509_certificate(&ours[0]).unwrap();
            let (_, theirs) = parse_x509_certificate(&theirs[0]).unwrap();
            assert_eq!(ours.subject().to_string(), theirs.subject().to_string());
            assert_eq!(ours.issuer().to_string(), theirs.issuer().to_string());
            assert_eq!(ours.is_ca(), authority);
            let names = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
                format!("{:?}", certificate.subject_alternative_name().unwrap().unwrap().value)
            };
            assert_eq!(names(&ours), names(&theirs));
            let usage = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
                certificate.key_usage().unwrap().unwrap().value.to_string()
            };
            assert_eq!(usage(&ours), usage(&theirs));
            let server = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
                certificate.extended_key_usage().unwrap().map(|usage| usage.value.server_auth)
            };
            assert_eq!(server(&ours), server(&theirs));
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let shown = format!("{:?}", *OURS);
        assert!(shown.contains("tls.key") && !shown.contains("BEGIN"), "{shown}");
    }
}
