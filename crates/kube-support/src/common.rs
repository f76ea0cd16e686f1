// SPDX-License-Identifier: Apache-2.0
//! The settings that both daemons have, as MetalLB names them.

use std::path::PathBuf;

use crate::client::Source;
use crate::flags::{Flag, Values};
use crate::logging::{LogLevel, UnknownLevel};
use crate::process;
use crate::tls::{TlsOptionError, TlsOptions};

/// Flags that both daemons have.
pub const FLAGS: &[Flag] = &[
    Flag::whole("port", "9120", "port of the metrics, HTTPS on all addresses; 0 serves none"),
    Flag::whole("health-probe-port", "17472", "port of the probes /healthz and /readyz"),
    Flag::text("namespace", "", "namespace of the configuration; default: the ServiceAccount's")
        .or_env("METALLB_NAMESPACE"),
    Flag::text("pod-name", "", "name of this Pod, owner of the status objects").or_env("METALLB_POD_NAME"),
    Flag::text("log-level", "info", "all, debug, info, warn, error or none"),
    Flag::text("lb-class", "", "handle only Services of this loadBalancerClass"),
    Flag::text("tls-min-version", "", "VersionTLS12 or VersionTLS13; empty is VersionTLS13"),
    Flag::text("tls-cipher-suites", "", "TLS 1.2 cipher suites by IANA name, comma separated"),
    Flag::text("tls-curve-preferences", "", "TLS groups by IANA number, comma separated, e.g. 29,4588"),
    Flag::text(
        "metrics-cert-dir",
        "",
        "directory with tls.crt and tls.key for the metrics; default: self-signed",
    ),
    Flag::text("pprof-bind-address", "", "accepted; there is no profiling endpoint"),
    Flag::text(
        "kubeconfig",
        "",
        "kubeconfig file; then KUBECONFIG, the Pod's ServiceAccount, ~/.kube/config",
    ),
];

/// Where MetalLB's library looks for a metrics certificate when no directory is given.
const DEFAULT_CERT_DIR: &str = "/tmp/k8s-metrics-server/serving-certs";

/// What the common flags come to.
#[derive(Clone, Debug)]
pub struct Common {
    /// MetalLB's namespace.
    pub namespace: String,
    /// This Pod's name.
    pub pod_name: String,
    /// The load-balancer class handled; empty for Services without one.
    pub lb_class: String,
    /// Port of the metrics; 0 serves none.
    pub metrics_port: u16,
    /// Port of the probes; 0 takes a free one.
    pub health_port: u16,
    /// TLS of the servers.
    pub tls: TlsOptions,
    /// Where the metrics certificate may lie.
    pub metrics_cert_dir: PathBuf,
    /// Where the API server is named.
    pub source: Source,
}

/// A setting that the daemon cannot start with; exit code 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// `--log-level`.
    #[error(transparent)]
    LogLevel(#[from] UnknownLevel),
    /// `--tls-…`.
    #[error("failed to parse TLS flags: {0}")]
    // The text holds the cause, which is therefore no source: whoever prints the chain would say it twice.
    Tls(TlsOptionError),
    /// Any other; the text names it.
    #[error("{0}")]
    Other(String),
}

impl SettingError {
    /// What this flag holds cannot be the name of such an object, `a Pod` for one.
    pub fn no_name(values: &Values, flag: &str, of: &str) -> Self {
        Self::Other(format!("{}: not the name of {of}", values.spelled(flag)))
    }
}

impl From<TlsOptionError> for SettingError {
    fn from(error: TlsOptionError) -> Self {
        Self::Tls(error)
    }
}

/// `--log-level`.
///
/// # Errors
///
/// When there is no such level.
pub fn log_level(values: &Values) -> Result<LogLevel, SettingError> {
    Ok(values.text("log-level").parse()?)
}

impl Common {
    /// Reads the common flags.
    ///
    /// # Errors
    ///
    /// [`SettingError`] for the first one that cannot be used.
    pub fn read(values: &Values) -> Result<Self, SettingError> {
        let tls = TlsOptions::parse(
            values.text("tls-min-version"),
            values.text("tls-cipher-suites"),
            values.text("tls-curve-preferences"),
        )?;
        let namespace = process::namespace(values.given("namespace")).map_err(SettingError::Other)?;
        if !process::is_label(&namespace) {
            return Err(SettingError::no_name(values, "namespace", "a namespace"));
        }
        let pod_name = values
            .given("pod-name")
            .ok_or_else(|| {
                SettingError::Other(
                    "must specify --pod-name or METALLB_POD_NAME: the Pod owns the status objects that this \
                     process writes"
                        .to_owned(),
                )
            })?
            .to_owned();
        if !process::is_subdomain(&pod_name) {
            return Err(SettingError::no_name(values, "pod-name", "a Pod"));
        }
        if let Some(address) = values.given("pprof-bind-address") {
            tracing::warn!(
                op = "startup",
                address,
                "--pprof-bind-address is accepted, but there is no profiling endpoint"
            );
        }
        Ok(Self {
            namespace,
            pod_name,
            lb_class: values.text("lb-class").to_owned(),
            metrics_port: values.port("port").map_err(SettingError::Other)?,
            health_port: values.port("health-probe-port").map_err(SettingError::Other)?,
            tls,
            metrics_cert_dir: values.given("metrics-cert-dir").unwrap_or(DEFAULT_CERT_DIR).into(),
            source: Source::of_process(values.given("kubeconfig")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(args: &[&str]) -> Values {
        let args = args.iter().map(|arg| (*arg).to_owned());
        Values::parse("controller", FLAGS, args, |_| None).unwrap()
    }

    #[test]
    fn defaults_are_metallbs() {
        let common =
            Common::read(&values(&["--namespace=metallb-system", "--pod-name=controller-0"])).unwrap();
        assert_eq!((common.metrics_port, common.health_port), (9120, 17472));
        assert_eq!(common.namespace, "metallb-system");
        assert_eq!(common.lb_class, "");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (args, text) in [
            (
                &["--namespace=m", "--pod-name=p", "--port=-1"][..],
                "--port=-1: a port is a number from 0 to 65535",
            ),
            (&["--namespace=m"], "must specify --pod-name or METALLB_POD_NAME"),
            (&["--namespace=m/../n", "--pod-name=p"], "flag --namespace=m/../n: not the name of a namespace"),
            (&["--namespace=m", "--pod-name=a b"], "flag --pod-name=a b: not the name of a Pod"),
            (
                &["--tls-cipher-suites=X"],
                "failed to parse TLS flags: parsing tls-cipher-suites: cipher suites cannot be configured with TLS 1.3",
            ),
        ] {
            let error = Common::read(&values(args)).unwrap_err();
            assert!(error.to_string().starts_with(text), "{error}");
            assert!(std::error::Error::source(&error).is_none(), "its text says all: {error}");
        }
        let error = log_level(&values(&["--log-level=loud"])).unwrap_err().to_string();
        assert_eq!(error, "failed to initialize logging: failed to parse log level: loud");
    }
}
