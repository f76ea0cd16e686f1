// SPDX-License-Identifier: Apache-2.0
//! The controller's flags and environment variables, as MetalLB has them.

use ferrolb_config::BgpType;
use ferrolb_kube_support::common::{self, Common, SettingError};
use ferrolb_kube_support::flags::{Flag, Values};
use ferrolb_kube_support::level::{self, Level};
use ferrolb_kube_support::process::variable;

use crate::webhook::{PORT, WebhookOptions};

/// Every flag of MetalLB's controller.
pub fn flags() -> Vec<Flag> {
    let own = [
        Flag::text("deployment", "", "name of this Deployment, owner of the memberlist Secret")
            .or_env("METALLB_DEPLOYMENT"),
        Flag::text("ml-secret-name", "", "memberlist Secret to create; empty creates none")
            .or_env("METALLB_ML_SECRET_NAME"),
        Flag::text("webhook-mode", "enabled", "enabled, disabled or onlywebhook"),
        Flag::switch("disable-cert-rotation", "do not make and renew the webhook certificate"),
        Flag::text(
            "cert-dir",
            "/tmp/k8s-webhook-server/serving-certs",
            "directory of the webhook certificate",
        ),
        Flag::text("cert-service-name", "metallb-webhook-service", "Service that leads to the webhooks"),
        Flag::text("webhook-secret", "metallb-webhook-cert", "Secret that holds the webhook certificate"),
        Flag::switch("webhook-http2", "offer HTTP/2 on the webhook port"),
    ];
    common::FLAGS.iter().copied().chain(own).collect()
}

/// `--webhook-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookMode {
    /// Serve admission, and everything else.
    Enabled,
    /// Do not serve admission.
    Disabled,
    /// Serve admission, and nothing else.
    OnlyWebhook,
}

/// What the controller was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// What both daemons are told.
    pub common: Common,
    /// The Deployment that owns the memberlist Secret.
    pub deployment: String,
    /// The memberlist Secret to create, if any.
    pub memberlist_secret: Option<String>,
    /// Whether admission is wanted.
    pub webhook_mode: WebhookMode,
    /// The port of the webhooks.
    pub webhook: WebhookOptions,
    /// Whose rules of validation hold.
    pub bgp_type: BgpType,
    /// Whose manifests the daemon runs under.
    pub level: Level,
}

impl AsRef<Common> for Options {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl Options {
    /// Reads the flags, and the environment of this process for what has no flag.
    ///
    /// # Errors
    ///
    /// [`SettingError`] names the first setting that the controller cannot start with.
    pub fn of_process(values: &Values) -> Result<Self, SettingError> {
        let (bgp_type, level) = (variable("METALLB_BGP_TYPE")?, variable(level::VARIABLE)?);
        Self::read(values, bgp_type.as_deref(), level.as_deref())
    }

    fn read(values: &Values, bgp_type: Option<&str>, level: Option<&str>) -> Result<Self, SettingError> {
        let level = level.unwrap_or_default().parse()?;
        let webhook_mode = match values.text("webhook-mode") {
            "enabled" => WebhookMode::Enabled,
            "disabled" => WebhookMode::Disabled,
            "onlywebhook" => WebhookMode::OnlyWebhook,
            other => {
                return Err(SettingError::Other(format!(
                    "invalid webhookmode value: --webhook-mode={other}, use enabled, disabled or onlywebhook"
                )));
            }
        };
        // Parsing cannot fail: what is unknown is a type of its own.
        let bgp_type: BgpType = bgp_type.unwrap_or_default().parse().unwrap_or_default();
        match &bgp_type {
            BgpType::Native | BgpType::Frr | BgpType::FrrK8s => {}
            BgpType::Other(other) => {
                return Err(SettingError::Other(format!(
                    "unsupported BGP implementation type: {other} (environment variable METALLB_BGP_TYPE); use \
                     native, frr-k8s or frr"
                )));
            }
        }
        let common = Common::read(values)?;
        let memberlist_secret = values.given("ml-secret-name").map(str::to_owned);
        let deployment = values.text("deployment").to_owned();
        if memberlist_secret.is_some() && deployment.is_empty() {
            return Err(SettingError::Other(
                "must specify --deployment or METALLB_DEPLOYMENT: it owns the memberlist Secret that \
                 --ml-secret-name (METALLB_ML_SECRET_NAME) asks for"
                    .to_owned(),
            ));
        }
        let webhook = WebhookOptions {
            port: PORT,
            rotate: !values.is_on("disable-cert-rotation"),
            directory: values.text("cert-dir").into(),
            service: values.text("cert-service-name").to_owned(),
            secret: values.text("webhook-secret").to_owned(),
            http2: values.is_on("webhook-http2"),
        };
        Ok(Self { common, deployment, memberlist_secret, webhook_mode, webhook, bgp_type, level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: &[&str] = &["--namespace=metallb-system", "--pod-name=controller-0"];

    fn read(args: &[&str], bgp_type: Option<&str>) -> Result<Options, String> {
        read_at(args, bgp_type, None)
    }

    fn read_at(args: &[&str], bgp_type: Option<&str>, level: Option<&str>) -> Result<Options, String> {
        let args = NEEDED.iter().chain(args).map(|arg| (*arg).to_owned());
        let values = Values::parse("controller", &flags(), args, |_| None).unwrap();
        Options::read(&values, bgp_type, level).map_err(|error| error.to_string())
    }

    /// The table of flags that MetalLB v0.16.1's controller has: name, environment variable, default.
    const METALLB: &[(&str, Option<&str>, &str)] = &[
        ("cert-dir", None, "/tmp/k8s-webhook-server/serving-certs"),
        ("cert-service-name", None, "metallb-webhook-service"),
        ("deployment", Some("METALLB_DEPLOYMENT"), ""),
        ("disable-cert-rotation", None, "false"),
        ("health-probe-port", None, "17472"),
        ("kubeconfig", None, ""),
        ("lb-class", None, ""),
        ("log-level", None, "info"),
        ("metrics-cert-dir", None, ""),
        ("ml-secret-name", Some("METALLB_ML_SECRET_NAME"), ""),
        ("namespace", Some("METALLB_NAMESPACE"), ""),
        ("pod-name", Some("METALLB_POD_NAME"), ""),
        ("port", None, "9120"),
        ("pprof-bind-address", None, ""),
        ("tls-cipher-suites", None, ""),
        ("tls-curve-preferences", None, ""),
        ("tls-min-version", None, ""),
        ("webhook-http2", None, "false"),
        ("webhook-mode", None, "enabled"),
        ("webhook-secret", None, "metallb-webhook-cert"),
    ];

    #[test]
    fn flags_variables_and_defaults_are_metallbs_and_no_others() {
        let mut own: Vec<_> = flags().iter().map(|flag| (flag.name, flag.env, flag.default)).collect();
        own.sort_unstable();
        assert_eq!(own, METALLB);
    }

    #[test]
    fn the_arguments_of_metallbs_manifests_start() {
        let options = read(
            &["--log-level=info", "--tls-min-version=VersionTLS12", "--webhook-mode=enabled", "--port=9120"],
            Some("native"),
        )
        .unwrap();
        assert_eq!(options.webhook_mode, WebhookMode::Enabled);
        let all = read(
            &[
                "-disable-cert-rotation",
                "-cert-dir=/tmp/x",
                "-cert-service-name=s",
                "-webhook-secret=w",
                "-webhook-http2",
                "-deployment=controller",
                "-ml-secret-name=memberlist",
                "-webhook-mode=disabled",
                "-pprof-bind-address=:6060",
            ],
            Some("frr-k8s"),
        )
        .unwrap();
        assert_eq!(all.memberlist_secret.as_deref(), Some("memberlist"));
        assert!(!all.webhook.rotate && all.webhook.http2);
        assert_eq!((all.webhook.service.as_str(), all.webhook.secret.as_str()), ("s", "w"));
        assert_eq!(all.webhook.directory, std::path::Path::new("/tmp/x"));
        assert!(options.webhook.rotate && !options.webhook.http2);
        assert_eq!(options.webhook.port, 9443);
        let only = read(&["--webhook-mode=onlywebhook"], None).unwrap();
        assert_eq!(only.webhook_mode, WebhookMode::OnlyWebhook);
    }

    #[test]
    fn the_level_is_a_unless_the_manifests_say_b() {
        for (variable, level) in
            [(None, Level::A), (Some(""), Level::A), (Some("A"), Level::A), (Some("B"), Level::B)]
        {
            assert_eq!(read_at(&[], None, variable).unwrap().level, level, "{variable:?}");
        }
        let error = read_at(&[], None, Some("C")).unwrap_err();
        assert!(error.starts_with("unknown level: C (environment variable FERROLB_LEVEL)"), "{error}");
    }

    #[test]
    fn what_the_controller_cannot_start_with_is_named() {
        for (args, bgp_type, text) in [
            (&["--webhook-mode=maybe"][..], None, "invalid webhookmode value: --webhook-mode=maybe"),
            (
                &[],
                Some("bird"),
                "unsupported BGP implementation type: bird (environment variable METALLB_BGP_TYPE)",
            ),
            (&["--ml-secret-name=memberlist"], None, "must specify --deployment or METALLB_DEPLOYMENT"),
        ] {
            let error = read(args, bgp_type).unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn an_empty_bgp_type_is_none() {
        for bgp_type in [None, Some(""), Some("native"), Some("frr"), Some("frr-k8s")] {
            assert!(read(&[], bgp_type).is_ok(), "{bgp_type:?}");
        }
    }
}
