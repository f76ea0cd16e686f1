// SPDX-License-Identifier: Apache-2.0
//! The server's own certificate authority: one per server, alive only in memory.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::Error;

/// A certificate authority that signs the server and its clients.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

/// A client's certificate and key.
#[derive(Debug, Clone)]
pub(crate) struct ClientCertificate {
    pub(crate) der: Vec<u8>,
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    /// Makes a new authority.
    pub(crate) fn new() -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        // Its name differs from the server's: with equal names OpenSSL and curl see a self-signed loop.
        params.distinguished_name = subject("fakekube-ca", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let pem = certificate.pem();
        let certificate = certificate.der().clone();
        Ok(Self { issuer: Issuer::new(params, key), certificate, pem })
    }

    /// The authority's certificate.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// What the listener presents and whom it believes: clients may present a certificate of this
    /// authority, or none.
    pub(crate) fn server_config(&self, addresses: &[IpAddr]) -> Result<ServerConfig, Error> {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names)?;
        params.subject_alt_names.extend(addresses.iter().map(|&ip| SanType::IpAddress(ip)));
        params.distinguished_name = subject("fakekube", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| Error::Tls(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone(), self.certificate.clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Signs a client certificate: the common name is the user, organisations are its groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<ClientCertificate, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(ClientCertificate {
            der: certificate.der().to_vec(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn subject(name: &str, organisations: &[&str]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    for organisation in organisations {
        subject.push(DnType::OrganizationName, *organisation);
    }
    subject
}
