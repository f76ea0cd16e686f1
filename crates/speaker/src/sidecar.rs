// SPDX-License-Identifier: Apache-2.0
//! The helpers that the manifest of MetalLB's FRR mode calls beside the speaker, so that its Pods start.
//!
//! That manifest puts FRR into the speaker's Pod: init containers copy two helpers out of the speaker's image, which then
//! run in FRR's, and FRR's probes ask one of them. Here the speaker talks to routers itself, and FRR idles. What is left
//! of the helpers: one copies, one answers probes and has nothing to tell, one waits.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use ferrolb_kube_support::access::Access;
use ferrolb_kube_support::client::{Source, client, install_crypto};
use ferrolb_kube_support::flags::{Flag, Values};
use ferrolb_kube_support::listen::{Bind, listen};
use ferrolb_kube_support::logging::{self, LogLevel};
use ferrolb_kube_support::metrics::{Metrics, MetricsServer};
use ferrolb_kube_support::process::StopSignals;
use ferrolb_kube_support::tls::{Certificate, TlsOptions};

/// The names that MetalLB's manifest calls the helpers by.
pub const NAMES: [&str; 3] = ["cp-tool", "frr-metrics", "frr-reloader.sh"];

/// Runs the helper of this name with these arguments (the program's name left out) and gives the exit code; `None` if
/// there is no such helper.
pub fn main(name: &str, args: impl IntoIterator<Item = String>) -> Option<ExitCode> {
    let outcome = match name {
        "cp-tool" => copy(&args.into_iter().collect::<Vec<_>>()),
        "frr-metrics" => match Values::parse(name, FLAGS, args, |variable| std::env::var_os(variable)) {
            Ok(values) => answer_probes(&values),
            Err(refusal) => {
                eprint!("{}", refusal.text());
                return Some(ExitCode::from(refusal.exit_code()));
            }
        },
        "frr-reloader.sh" => wait(),
        _ => return None,
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    })
}

/// MetalLB's flags.
const FLAGS: &[Flag] = &[
    Flag::whole("metrics-port", "9121", "port of the metrics and of /livez, HTTPS on all addresses"),
    Flag::text("metrics-bind-address", "0.0.0.0", "accepted; it listens on all addresses"),
    Flag::text("metrics-path", "/metrics", "path of the metrics"),
    Flag::text("tls-cert-file", "", "certificate, named tls.crt, beside its key; default: self-signed"),
    Flag::text("tls-private-key-file", "", "its key, named tls.key"),
    Flag::text("tls-min-version", "", "VersionTLS12 or VersionTLS13; empty is VersionTLS13"),
    Flag::text("tls-cipher-suites", "", "TLS 1.2 cipher suites by IANA name, comma separated"),
    Flag::text("tls-curve-preferences", "", "TLS groups by IANA number, comma separated"),
    Flag::text("log-level", "info", "accepted; it logs what goes wrong"),
    Flag::text("kubeconfig", "", "kubeconfig file; then KUBECONFIG, the Pod's ServiceAccount"),
];

/// Copies a program to where another container finds it. One that is there already, and may be running, is replaced.
fn copy(args: &[String]) -> anyhow::Result<()> {
    let [source, target] = args else { anyhow::bail!("usage: cp-tool SOURCE TARGET") };
    let (source, mut target) = (Path::new(source), PathBuf::from(target));
    if target.is_dir() {
        target.push(source.file_name().context("SOURCE has no name")?);
    }
    let mut name = target.file_name().context("TARGET has no name")?.to_owned();
    name.push(".new");
    let new = target.with_file_name(name);
    let words = || format!("copy {} to {}", source.display(), target.display());
    std::fs::copy(source, &new).with_context(words)?;
    std::fs::rename(&new, &target).with_context(words)
}

/// Says to whoever asks that all is well, and that there is nothing to count: the speaker counts on its own port.
fn answer_probes(values: &Values) -> anyhow::Result<()> {
    logging::install(LogLevel::Warn);
    install_crypto();
    let port = values.port("metrics-port").map_err(anyhow::Error::msg)?;
    let tls = TlsOptions::parse(
        values.text("tls-min-version"),
        values.text("tls-cipher-suites"),
        values.text("tls-curve-preferences"),
    )?;
    let directory = directory(values.given("tls-cert-file"), values.given("tls-private-key-file"))?;
    run(async {
        let mut signals = StopSignals::install()?;
        let client = client(&Source::of_process(values.given("kubeconfig")), "frr-metrics").await?;
        let server = MetricsServer {
            metrics: Metrics::empty()?,
            access: Access::new(client),
            tls,
            certificate: Certificate::from_directory_or_new(directory.as_deref())?,
            path: values.text("metrics-path").to_owned(),
            livez: true,
        };
        let listener = listen(Bind::Everywhere, port)?;
        tokio::select! {
            served = server.serve(listener) => Ok(served?),
            _ = signals.next() => Ok(()),
        }
    })
}

/// Where the two files of a certificate lie.
fn directory(certificate: Option<&str>, key: Option<&str>) -> anyhow::Result<Option<PathBuf>> {
    let (Some(certificate), Some(key)) = (certificate.map(Path::new), key.map(Path::new)) else {
        return Ok(None);
    };
    let named = certificate.ends_with("tls.crt") && key.ends_with("tls.key");
    anyhow::ensure!(
        named && certificate.parent() == key.parent(),
        "--tls-cert-file and --tls-private-key-file have to be tls.crt and tls.key of one directory, as in a Secret of \
         type kubernetes.io/tls"
    );
    Ok(certificate.parent().map(Path::to_owned))
}

/// Does nothing until it is told to end: there is no configuration for FRR to read.
fn wait() -> anyhow::Result<()> {
    run(async {
        StopSignals::install()?.next().await;
        Ok(())
    })
}

fn run(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_program_is_copied_through_its_link_with_its_mode_and_over_an_older_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("ferrolb"), "program").unwrap();
        std::fs::set_permissions(path("ferrolb"), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink("ferrolb", path("frr-metrics")).unwrap();
        std::fs::create_dir(path("volume")).unwrap();
        for target in ["volume/frr-metrics", "volume/frr-metrics", "volume"] {
            copy(&[path("frr-metrics"), path(target)]).unwrap();
            let copied = path("volume/frr-metrics");
            assert_eq!(std::fs::read_to_string(&copied).unwrap(), "program");
            let data = std::fs::symlink_metadata(&copied).unwrap();
            assert!(data.is_file() && data.permissions().mode() & 0o777 == 0o755);
        }
        assert_eq!(std::fs::read_dir(path("volume")).unwrap().count(), 1);
        assert!(copy(&[path("nothing"), path("volume")]).is_err());
        assert!(copy(&[path("nothing")]).is_err());
    }

    #[test]
    fn a_certificate_is_a_pair_of_files_in_one_directory() {
        let of = |certificate, key| directory(certificate, key).map_err(|error| error.to_string());
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(Some("/certs/tls.crt"), Some("/certs/tls.key")), Ok(Some(PathBuf::from("/certs"))));
        assert!(of(Some("/certs/a.crt"), Some("/certs/a.key")).is_err());
    }

    #[test]
    fn only_metallbs_names_are_helpers() {
        assert!(main("speaker", []).is_none());
        let args = || ["--metrics-port=0", "--nonsense"].map(str::to_owned);
        assert!(main("frr-metrics", args()).is_some());
    }
}
