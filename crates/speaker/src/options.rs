// SPDX-License-Identifier: Apache-2.0
//! The speaker's flags and environment variables, as MetalLB has them.

use std::path::PathBuf;
use std::time::Duration;

use ferrolb_kube_support::common::{self, Common, SettingError};
use ferrolb_kube_support::flags::{Flag, Values};
use ferrolb_kube_support::level::{self, Level};
use ferrolb_kube_support::process::{is_subdomain, variable};
use ferrolb_net_types::NodeName;

use crate::member_list::{self, MemberList};

/// Every flag of MetalLB's speaker.
pub fn flags() -> Vec<Flag> {
    let own = [
        Flag::text("node-name", "", "name of the node this speaker runs on").or_env("METALLB_NODE_NAME"),
        Flag::switch(
            "ignore-exclude-lb",
            "announce from nodes labelled as excluded from load balancers, too",
        ),
        Flag::text("host", "", "accepted and ignored").or_env("METALLB_HOST"),
        Flag::text("bgp-debounce-timeout", "", "milliseconds between FRR reloads; used by no BGP type here")
            .or_env("METALLB_BGP_DEBOUNCE_TIMEOUT"),
        Flag::text("frrk8s-namespace", "", "namespace of the FRRConfiguration").or_env("FRRK8S_NAMESPACE"),
        Flag::text("ml-bindaddr", "", "address for the member list; empty switches it off")
            .or_env("METALLB_ML_BIND_ADDR"),
        Flag::text("ml-bindport", "", "port for the member list").or_env("METALLB_ML_BIND_PORT"),
        Flag::text("ml-labels", "", "labels of the speakers' Pods").or_env("METALLB_ML_LABELS"),
        Flag::text("ml-secret-key-path", "", "directory with the member list's key")
            .or_env("METALLB_ML_SECRET_KEY_PATH"),
        Flag::switch("ml-wan-config", "timing of the member list for wide-area networks"),
    ];
    common::FLAGS.iter().copied().chain(own).collect()
}

/// What the speaker was told.
#[derive(Clone, Debug)]
pub struct Options {
    /// What both daemons are told.
    pub common: Common,
    /// The node it runs on.
    pub node: NodeName,
    /// Announce from nodes that carry the label that excludes them.
    pub ignore_exclude_lb: bool,
    /// `METALLB_BGP_TYPE`; empty when it is not set.
    pub bgp_type: String,
    /// For how long BGP peers are told that routes are about to go (RFC 8326) before the speaker, which was asked to end,
    /// withdraws them. It is part of the Pod's grace period.
    pub graceful_shutdown: Duration,
    /// The member list, if there is to be one.
    pub members: Option<MemberList>,
    /// The directory of the member list's Secret.
    pub secret_directory: Option<PathBuf>,
    /// Whose manifests the speaker runs under.
    pub level: Level,
    /// A directory that outlives the process (`FERROLB_STATE_DIR`), from which a start goes on while the API server is
    /// away.
    pub state: Option<PathBuf>,
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
    /// [`SettingError`] names the first setting that the speaker cannot start with.
    pub fn of_process(values: &Values) -> Result<Self, SettingError> {
        let bgp_type = variable("METALLB_BGP_TYPE")?;
        let key_rule = variable("FERROLB_ML_KEY_RULE")?;
        let options = Self::read(values, bgp_type.as_deref(), key_rule.as_deref())?;
        let level = variable(level::VARIABLE)?.unwrap_or_default().parse()?;
        let graceful_shutdown = graceful_shutdown(level, &variable(GRACEFUL_SHUTDOWN)?.unwrap_or_default())?;
        let state =
            std::env::var_os("FERROLB_STATE_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
        Ok(Self { level, graceful_shutdown, state, ..options })
    }

    fn read(values: &Values, bgp_type: Option<&str>, key_rule: Option<&str>) -> Result<Self, SettingError> {
        let other = |text: String| Err(SettingError::Other(text));
        let common = Common::read(values)?;
        if let Some(text) = values.given("bgp-debounce-timeout") {
            let milliseconds = text.parse::<u64>().ok().filter(|number| *number > 0);
            if milliseconds.is_none() {
                return other(format!(
                    "invalid BGP debounce timeout value, must be a positive integer value: {}",
                    values.spelled("bgp-debounce-timeout")
                ));
            }
        }
        match bgp_type.unwrap_or_default() {
            "" | "native" | "frr" | "frr-k8s" => {}
            unknown => {
                return other(format!(
                    "unsupported BGP implementation type: {unknown} (environment variable METALLB_BGP_TYPE); use \
                     native, frr or frr-k8s"
                ));
            }
        }
        let Some(node) = values.given("node-name") else {
            return other("missing configuration: must specify --node-name or METALLB_NODE_NAME".to_owned());
        };
        if !is_subdomain(node) {
            return Err(SettingError::no_name(values, "node-name", "a node"));
        }
        Ok(Self {
            common,
            node: NodeName::from(node),
            ignore_exclude_lb: values.is_on("ignore-exclude-lb"),
            bgp_type: bgp_type.unwrap_or_default().to_owned(),
            graceful_shutdown: Duration::ZERO,
            members: MemberList::read(values, key_rule)?,
            secret_directory: member_list::secret_directory(values),
            level: Level::default(),
            state: None,
        })
    }
}

/// The environment variable for how long routes are told to be about to go.
const GRACEFUL_SHUTDOWN: &str = "FERROLB_BGP_GRACEFUL_SHUTDOWN";

/// A moment where our manifests give the time, as they do since they are level B; none under MetalLB's, whose grace period
/// of two seconds, or none, is too short.
fn graceful_shutdown(level: Level, text: &str) -> Result<Duration, SettingError> {
    if text.is_empty() {
        return Ok(match level {
            Level::A => Duration::ZERO,
            Level::B => Duration::from_secs(1),
        });
    }
    let parsed = text.parse::<ferrolb_api::Duration>().ok();
    let nanos = parsed.and_then(|duration| u64::try_from(duration.as_nanos()).ok());
    nanos.map(Duration::from_nanos).filter(|duration| *duration <= LONGEST_SHUTDOWN).ok_or_else(|| {
        SettingError::Other(format!(
            "invalid time: {text} (environment variable {GRACEFUL_SHUTDOWN}); use one like 500ms or 2s, up to \
             {}s and well below the Pod's terminationGracePeriodSeconds",
            LONGEST_SHUTDOWN.as_secs()
        ))
    })
}

const LONGEST_SHUTDOWN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: &[&str] =
        &["--namespace=metallb-system", "--pod-name=speaker-n1", "--node-name=n1", "--log-level=info"];

    fn read(args: &[&str], env: &[(&str, &str)]) -> Result<Options, String> {
        let of = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let args = NEEDED.iter().chain(args).map(|arg| (*arg).to_owned());
        let values = Values::parse("speaker", &flags(), args, |name| of(name).map(Into::into)).unwrap();
        Options::read(&values, of("METALLB_BGP_TYPE").as_deref(), None).map_err(|error| error.to_string())
    }

    /// The table of flags that MetalLB v0.16.1's speaker has: name, environment variable, default.
    const METALLB: &[(&str, Option<&str>, &str)] = &[
        ("bgp-debounce-timeout", Some("METALLB_BGP_DEBOUNCE_TIMEOUT"), ""),
        ("frrk8s-namespace", Some("FRRK8S_NAMESPACE"), ""),
        ("health-probe-port", None, "17472"),
        ("host", Some("METALLB_HOST"), ""),
        ("ignore-exclude-lb", None, "false"),
        ("kubeconfig", None, ""),
        ("lb-class", None, ""),
        ("log-level", None, "info"),
        ("metrics-cert-dir", None, ""),
        ("ml-bindaddr", Some("METALLB_ML_BIND_ADDR"), ""),
        ("ml-bindport", Some("METALLB_ML_BIND_PORT"), ""),
        ("ml-labels", Some("METALLB_ML_LABELS"), ""),
        ("ml-secret-key-path", Some("METALLB_ML_SECRET_KEY_PATH"), ""),
        ("ml-wan-config", None, "false"),
        ("namespace", Some("METALLB_NAMESPACE"), ""),
        ("node-name", Some("METALLB_NODE_NAME"), ""),
        ("pod-name", Some("METALLB_POD_NAME"), ""),
        ("port", None, "9120"),
        ("pprof-bind-address", None, ""),
        ("tls-cipher-suites", None, ""),
        ("tls-curve-preferences", None, ""),
        ("tls-min-version", None, ""),
    ];

    #[test]
    fn flags_variables_and_defaults_are_metallbs_and_no_others() {
        let mut own: Vec<_> = flags().iter().map(|flag| (flag.name, flag.env, flag.default)).collect();
        own.sort_unstable();
        assert_eq!(own, METALLB);
    }

    #[test]
    fn settings_of_the_member_list_come_from_flags_and_variables() {
        let options = read(&[], &[]).unwrap();
        assert_eq!((options.members, options.secret_directory), (None, None));
        let metallbs = [
            ("METALLB_ML_BIND_ADDR", "192.168.10.20"),
            ("METALLB_ML_BIND_PORT", "7947"),
            ("METALLB_ML_LABELS", "app=metallb,component=speaker"),
            ("METALLB_ML_SECRET_KEY_PATH", "/etc/ml_secret_key"),
        ];
        let options = read(&[], &metallbs).unwrap();
        let list = options.members.unwrap();
        assert_eq!((list.bind.to_string().as_str(), list.port), ("192.168.10.20", 7947));
        assert_eq!(options.secret_directory, Some(PathBuf::from("/etc/ml_secret_key")));
        let options = read(&["--ml-bindport=7948"], &metallbs).unwrap();
        assert_eq!(options.members.unwrap().port, 7948, "a flag comes before its variable");
        let empty = metallbs.map(|(variable, _)| (variable, ""));
        assert_eq!(read(&[], &empty).unwrap().members, None, "an empty variable counts as unset");
    }

    #[test]
    fn every_bgp_type_of_metallb_starts_and_no_other_s01() {
        for bgp_type in ["", "native", "frr", "frr-k8s"] {
            assert!(read(&[], &[("METALLB_BGP_TYPE", bgp_type)]).is_ok(), "{bgp_type:?}");
        }
        let error = read(&[], &[("METALLB_BGP_TYPE", "bird")]).unwrap_err();
        assert!(error.starts_with("unsupported BGP implementation type: bird"), "{error}");
    }

    #[test]
    fn routes_are_told_to_be_about_to_go_where_there_is_time_for_it() {
        let read = |level, text| graceful_shutdown(level, text).map_err(|error| error.to_string());
        assert_eq!(read(Level::A, ""), Ok(Duration::ZERO));
        assert_eq!(read(Level::B, ""), Ok(Duration::from_secs(1)));
        assert_eq!(read(Level::B, "0s"), Ok(Duration::ZERO));
        assert_eq!(read(Level::A, "1m30s"), Ok(Duration::from_secs(90)));
        for bad in ["soon", "-1s", "11m", "5"] {
            let error = read(Level::B, bad).unwrap_err();
            assert!(error.contains(bad) && error.contains(GRACEFUL_SHUTDOWN), "{error}");
        }
    }

    #[test]
    fn the_node_is_required() {
        let args = NEEDED[..2].iter().map(|arg| (*arg).to_owned());
        let values = Values::parse("speaker", &flags(), args, |_| None).unwrap();
        let error = Options::read(&values, None, None).unwrap_err().to_string();
        assert_eq!(error, "missing configuration: must specify --node-name or METALLB_NODE_NAME");
    }

    #[test]
    fn a_node_has_a_name_that_nodes_can_have() {
        let args = NEEDED[..2].iter().map(|arg| (*arg).to_owned());
        let env = |name: &str| (name == "METALLB_NODE_NAME").then(|| "Node 1".into());
        let values = Values::parse("speaker", &flags(), args, env).unwrap();
        let error = Options::read(&values, None, None).unwrap_err().to_string();
        assert_eq!(error, "environment variable METALLB_NODE_NAME=Node 1: not the name of a node");
    }

    #[test]
    fn a_bad_debounce_time_is_refused_though_nothing_uses_it() {
        for bad in ["0", "-1", "soon"] {
            let error = read(&[], &[("METALLB_BGP_DEBOUNCE_TIMEOUT", bad)]).unwrap_err();
            assert!(
                error.starts_with("invalid BGP debounce timeout value, must be a positive integer value"),
                "{error}"
            );
        }
        assert!(read(&["--bgp-debounce-timeout=3000"], &[]).is_ok());
    }
}
