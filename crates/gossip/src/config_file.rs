// SPDX-License-Identifier: Apache-2.0
//! MetalLB's file with settings of its members, `config.json` of the ConfigMap `metallb-memberlist-config`.
//!
//! It replaces the profile, the WAN one too. MetalLB takes a file with all seven durations, and what else it lacks is
//! then 0 or false: false is meant, or at least works; 0 does not, so an integer that is missing there is refused here. A
//! file that lacks durations MetalLB refuses; here it changes what it names and leaves the rest as in a LAN.

use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use crate::settings::Settings;
use crate::timing::Profile;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// How often and how long.
    pub profile: Profile,
    /// As [`crate::wire::Codec::verify_incoming`].
    pub verify_incoming: bool,
    /// As [`crate::wire::Codec::verify_outgoing`].
    pub verify_outgoing: bool,
    /// As [`crate::wire::Codec::compress`].
    pub compress: bool,
}

/// Why the file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigFileError {
    /// It is no JSON.
    #[error("the memberlist config file is no JSON: {0}")]
    Json(String),
    /// It is JSON, but no object.
    #[error("the memberlist config file holds no object")]
    Object,
    /// A value of another kind than its key has.
    #[error("{key} in the memberlist config file is not {expected}")]
    Kind {
        /// The key.
        key: &'static str,
        /// What it ought to be.
        expected: &'static str,
    },
    /// A duration that is none.
    #[error("parsing {key} \"{value}\" in memberlist config file: not a duration such as 500ms or 1m30s")]
    Duration {
        /// The key.
        key: &'static str,
        /// The text.
        value: String,
    },
    /// An integer is missing in a file that MetalLB takes, and takes for 0.
    #[error("{0} is missing in the memberlist config file; MetalLB takes that for 0, which does not work")]
    Missing(&'static str),
    /// A value with which a member does not work.
    #[error("{key} in the memberlist config file is to be at least {least}")]
    TooSmall {
        /// The key.
        key: &'static str,
        /// The smallest value that works.
        least: String,
    },
    /// A value beyond what is possible.
    #[error("{key} in the memberlist config file is to be at most {most}")]
    TooLarge {
        /// The key.
        key: &'static str,
        /// The largest value that is possible.
        most: u32,
    },
}

/// Keys of durations, and the smallest that works.
const DURATIONS: [(&str, Duration); 7] = [
    ("TCPTimeout", Duration::from_millis(1)),
    ("PushPullInterval", Duration::ZERO),
    ("ProbeTimeout", Duration::from_millis(1)),
    ("ProbeInterval", Duration::ZERO),
    ("GossipInterval", Duration::ZERO),
    ("GossipToTheDeadTime", Duration::ZERO),
    ("QueueCheckInterval", Duration::ZERO),
];
/// Keys of integers, the smallest that works, the largest that is possible.
const INTEGERS: [(&str, u32, u32); 8] = [
    ("IndirectChecks", 0, 1000),
    ("RetransmitMult", 1, 1000),
    ("SuspicionMult", 1, 1000),
    ("SuspicionMaxTimeoutMult", 1, 1000),
    ("AwarenessMaxMultiplier", 1, 1000),
    ("GossipNodes", 0, 1000),
    ("HandoffQueueDepth", 1, i32::MAX as u32),
    ("UDPBufferSize", 256, 65_507),
];
const BOOLEANS: [&str; 4] =
    ["DisableTcpPings", "GossipVerifyIncoming", "GossipVerifyOutgoing", "EnableCompression"];

impl ConfigFile {
    /// Reads the file. Keys match whatever their case; unknown ones are ignored, and `null` is as if it were not there.
    ///
    /// # Errors
    ///
    /// If it is no JSON object, or a value is of the wrong kind, missing, or one with which a member does not work.
    pub fn parse(content: &[u8]) -> Result<Self, ConfigFileError> {
        let json: Value =
            serde_json::from_slice(content).map_err(|error| ConfigFileError::Json(error.to_string()))?;
        let Value::Object(entries) = json else { return Err(ConfigFileError::Object) };
        let value = |key: &str| {
            let found =
                entries.iter().filter(|(name, value)| name.eq_ignore_ascii_case(key) && !value.is_null());
            found.map(|(_, value)| value).next_back()
        };

        let mut durations = [None; DURATIONS.len()];
        for (place, (key, least)) in DURATIONS.into_iter().enumerate() {
            let Some(value) = value(key) else { continue };
            let text =
                value.as_str().ok_or(ConfigFileError::Kind { key, expected: "a duration in quotes" })?;
            let wrong = || ConfigFileError::Duration { key, value: text.to_owned() };
            let duration = duration(text).ok_or_else(wrong)?;
            if duration < least {
                return Err(ConfigFileError::TooSmall { key, least: format!("{least:?}") });
            }
            durations[place] = Some(duration);
        }
        let is_metallbs = durations.iter().all(Option::is_some);

        let mut integers = [None; INTEGERS.len()];
        for (place, (key, least, most)) in INTEGERS.into_iter().enumerate() {
            let Some(value) = value(key) else {
                if is_metallbs {
                    return Err(ConfigFileError::Missing(key));
                }
                continue;
            };
            let number = value.as_i64().ok_or(ConfigFileError::Kind { key, expected: "an integer" })?;
            if number < i64::from(least) {
                return Err(ConfigFileError::TooSmall { key, least: least.to_string() });
            }
            let number = u32::try_from(number).ok().filter(|number| *number <= most);
            integers[place] = Some(number.ok_or(ConfigFileError::TooLarge { key, most })?);
        }

        let mut booleans = [None; BOOLEANS.len()];
        for (place, key) in BOOLEANS.into_iter().enumerate() {
            booleans[place] = match value(key) {
                Some(value) => {
                    Some(value.as_bool().ok_or(ConfigFileError::Kind { key, expected: "true or false" })?)
                }
                None => is_metallbs.then_some(false),
            };
        }

        let lan = Profile::lan();
        let [tcp_timeout, push_pull, probe_timeout, probe, gossip, to_the_dead, _queue_check] = durations;
        let [indirect, retransmit, suspicion, suspicion_max, awareness, gossip_nodes, _handoff, packet] =
            integers;
        let [no_tcp_pings, verify_incoming, verify_outgoing, compress] = booleans;
        let count = |number: Option<u32>, default: usize| number.map_or(default, |number| number as usize);
        Ok(Self {
            profile: Profile {
                tcp_timeout: tcp_timeout.unwrap_or(lan.tcp_timeout),
                indirect_checks: count(indirect, lan.indirect_checks),
                retransmit_mult: retransmit.unwrap_or(lan.retransmit_mult),
                suspicion_mult: suspicion.unwrap_or(lan.suspicion_mult),
                suspicion_max_mult: suspicion_max.unwrap_or(lan.suspicion_max_mult),
                push_pull_interval: push_pull.unwrap_or(lan.push_pull_interval),
                probe_timeout: probe_timeout.unwrap_or(lan.probe_timeout),
                probe_interval: probe.unwrap_or(lan.probe_interval),
                tcp_pings: no_tcp_pings.map_or(lan.tcp_pings, |disabled| !disabled),
                awareness_max: awareness.unwrap_or(lan.awareness_max),
                gossip_nodes: count(gossip_nodes, lan.gossip_nodes),
                gossip_interval: gossip.unwrap_or(lan.gossip_interval),
                gossip_to_the_dead: to_the_dead.unwrap_or(lan.gossip_to_the_dead),
                packet_size: count(packet, lan.packet_size),
            },
            verify_incoming: verify_incoming.unwrap_or(true),
            verify_outgoing: verify_outgoing.unwrap_or(true),
            compress: compress.unwrap_or(true),
        })
    }

    /// Puts what the file says into the settings of a member.
    pub fn apply(self, settings: &mut Settings) {
        settings.profile = self.profile;
        settings.codec.verify_incoming = self.verify_incoming;
        settings.codec.verify_outgoing = self.verify_outgoing;
        settings.codec.compress = self.compress;
    }
}

/// A duration as Go writes it: numbers with a unit each, one after the other, or a bare 0. None if it is no such thing,
/// negative, or beyond 292 years.
fn duration(text: &str) -> Option<Duration> {
    if matches!(text, "0" | "+0" | "-0") {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (whole, after) = rest.split_at(digits(rest));
        let (part, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.len() + part.len() == 0 || whole.len() > 20 {
            return None;
        }
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanos += if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()?.checked_mul(unit)? };
        let mut scale = unit;
        for digit in part.bytes() {
            scale /= 10;
            nanos += u128::from(digit - b'0') * scale;
        }
        rest = after;
    }
    i64::try_from(nanos).ok().and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All nineteen, with the values of a LAN.
    const WHOLE: &str = r#"{
        "TCPTimeout": "10s", "PushPullInterval": "30s", "ProbeTimeout": "500ms", "ProbeInterval": "1s",
        "GossipInterval": "200ms", "GossipToTheDeadTime": "30s", "QueueCheckInterval": "30s",
        "IndirectChecks": 3, "RetransmitMult": 4, "SuspicionMult": 4, "SuspicionMaxTimeoutMult": 6,
        "AwarenessMaxMultiplier": 8, "GossipNodes": 3, "HandoffQueueDepth": 1024, "UDPBufferSize": 1400,
        "DisableTcpPings": false, "GossipVerifyIncoming": true, "GossipVerifyOutgoing": true, "EnableCompression": true
    }"#;

    fn parse(text: &str) -> Result<ConfigFile, ConfigFileError> {
        ConfigFile::parse(text.as_bytes())
    }

    fn lan() -> ConfigFile {
        ConfigFile { profile: Profile::lan(), verify_incoming: true, verify_outgoing: true, compress: true }
    }

    #[test]
    fn a_whole_file_is_taken_as_metallb_takes_it() {
        assert_eq!(parse(WHOLE), Ok(lan()));
        let changed =
            WHOLE.replace("\"1s\"", "\"1m30s\"").replace("\"RetransmitMult\": 4", "\"retransmitMULT\": 9");
        let mut expected = lan();
        expected.profile.probe_interval = Duration::from_secs(90);
        expected.profile.retransmit_mult = 9;
        assert_eq!(parse(&changed), Ok(expected));
        // Booleans that it lacks are false.
        let end = WHOLE.find(",\n        \"DisableTcpPings\"").unwrap();
        let without = format!("{}, \"Other\": 1}}", &WHOLE[..end]);
        let expected =
            ConfigFile { verify_incoming: false, verify_outgoing: false, compress: false, ..lan() };
        assert_eq!(parse(&without), Ok(expected));
    }

    #[test]
    fn go_7_a_file_with_one_key_changes_that_one() {
        let mut expected = lan();
        expected.profile.probe_interval = Duration::from_millis(200);
        assert_eq!(parse(r#"{"ProbeInterval": "200ms"}"#), Ok(expected));
        assert_eq!(parse("{}"), Ok(lan()));
        assert_eq!(parse(r#"{"GossipNodes": null}"#), Ok(lan()));
    }

    #[test]
    fn what_does_not_work_is_refused_by_name_s55() {
        for (text, error) in [
            ("[]".to_owned(), "the memberlist config file holds no object"),
            (
                WHOLE.replace(r#""UDPBufferSize": 1400,"#, ""),
                "UDPBufferSize is missing in the memberlist config file; MetalLB takes that for 0, which does not work",
            ),
            (WHOLE.replace("1400", "0"), "UDPBufferSize in the memberlist config file is to be at least 256"),
            (
                WHOLE.replace("1400", "70000"),
                "UDPBufferSize in the memberlist config file is to be at most 65507",
            ),
            (
                WHOLE.replace("\"GossipNodes\": 3", "\"GossipNodes\": -1"),
                "GossipNodes in the memberlist config file is to be at least 0",
            ),
            (
                WHOLE.replace("1024", "1.5"),
                "HandoffQueueDepth in the memberlist config file is not an integer",
            ),
            (
                r#"{"ProbeTimeout": 5}"#.to_owned(),
                "ProbeTimeout in the memberlist config file is not a duration in quotes",
            ),
            (
                r#"{"ProbeTimeout": "0s"}"#.to_owned(),
                "ProbeTimeout in the memberlist config file is to be at least 1ms",
            ),
            (
                r#"{"TCPTimeout": "5 s"}"#.to_owned(),
                "parsing TCPTimeout \"5 s\" in memberlist config file: not a duration such as 500ms or 1m30s",
            ),
            (
                r#"{"EnableCompression": 1}"#.to_owned(),
                "EnableCompression in the memberlist config file is not true or false",
            ),
        ] {
            assert_eq!(parse(&text).map_err(|error| error.to_string()), Err(error.to_owned()), "{text}");
        }
        assert!(matches!(parse("{"), Err(ConfigFileError::Json(_))));
    }

    #[test]
    fn durations_are_gos() {
        let millis = |text| duration(text).map(|duration| duration.as_nanos());
        for (text, nanos) in [
            ("0", 0),
            ("1.5s", 1_500_000_000),
            ("1h2m3s", 3_723_000_000_000),
            (".5ms", 500_000),
            ("1.s", 1_000_000_000),
            ("+2us", 2000),
            ("3µs", 3000),
            ("7ns", 7),
            ("0.0000000019s", 1),
        ] {
            assert_eq!(millis(text), Some(nanos), "{text}");
        }
        for text in
            ["", "1", "s", "-1s", "1 s", "1x", "1s2", ".s", "300000h1000000000h", "99999999999999999999999s"]
        {
            assert_eq!(millis(text), None, "{text}");
        }
    }
}
