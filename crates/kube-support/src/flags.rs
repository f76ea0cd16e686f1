// SPDX-License-Identifier: Apache-2.0
//! Command lines as Go's `flag` package reads them, because MetalLB's manifests are written for it.
//!
//! One dash or two are the same; a value follows after `=` or as the next argument; a switch takes a value
//! only with `=`. A setting that was not given comes from its environment variable, where it has one that
//! is not empty, and else from its default.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;

use crate::process;

/// One flag that a daemon knows.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Name without dashes.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// Environment variable that stands in when the flag is not given; empty counts as unset.
    pub env: Option<&'static str>,
    /// Value when neither is given.
    pub default: &'static str,
    /// One sentence for the usage text.
    pub help: &'static str,
}

/// What values a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A whole number: decimal, or with a prefix 0x, 0o or 0b.
    Whole,
    /// true or false; given alone it means true.
    Switch,
}

impl Flag {
    /// A flag that takes text.
    pub const fn text(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Text, env: None, default, help }
    }

    /// A flag that takes a whole number.
    pub const fn whole(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Whole, env: None, default, help }
    }

    /// A flag that is on or off, off by default.
    pub const fn switch(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Switch, env: None, default: "false", help }
    }

    /// The same flag with an environment variable behind it.
    pub const fn or_env(mut self, variable: &'static str) -> Self {
        self.env = Some(variable);
        self
    }
}

/// Why a command line starts nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The usage was asked for; exit code 0.
    Help {
        /// The usage text, ending in a newline.
        usage: String,
    },
    /// The command line is wrong; exit code 2.
    Wrong {
        /// One line that says what is wrong.
        message: String,
        /// The usage text, ending in a newline.
        usage: String,
    },
}

impl Refusal {
    /// What goes to standard error.
    pub fn text(&self) -> String {
        match self {
            Self::Help { usage } => usage.clone(),
            Self::Wrong { message, usage } => format!("{message}\n{usage}"),
        }
    }

    /// The exit code that Go's `flag` package gives.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Help { .. } => 0,
            Self::Wrong { .. } => 2,
        }
    }
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// This environment variable.
    Environment(&'static str),
    /// Nobody gave it.
    Default,
}

/// The values of all flags of a daemon.
#[derive(Clone, Debug)]
pub struct Values {
    values: BTreeMap<&'static str, (String, Origin)>,
}

impl Values {
    /// Reads `args` (without the program's name).
    ///
    /// # Errors
    ///
    /// [`Refusal`] when the usage is asked for, a flag is unknown, lacks its value, or has one of the wrong kind, or a
    /// variable is not UTF-8, also one that a flag stands before.
    pub fn parse<A>(
        program: &str,
        flags: &[Flag],
        args: A,
        env: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refusal>
    where
        A: IntoIterator<Item = String>,
    {
        let usage = || usage(program, flags);
        let wrong = |message: String| Refusal::Wrong { message, usage: usage() };
        let mut values = BTreeMap::new();
        for flag in flags {
            let given = flag.env.and_then(|name| Some((name, env(name).filter(|value| !value.is_empty())?)));
            let value = match given {
                Some((name, value)) => {
                    (process::text(name, value).map_err(wrong)?, Origin::Environment(name))
                }
                None => (flag.default.to_owned(), Origin::Default),
            };
            values.insert(flag.name, value);
        }

        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let Some(bare) = arg.strip_prefix('-').filter(|rest| !rest.is_empty()) else { break };
            let bare = bare.strip_prefix('-').unwrap_or(bare);
            if bare.is_empty() {
                break; // "--" ends the flags
            }
            if bare.starts_with('-') || bare.starts_with('=') {
                return Err(wrong(format!("bad flag syntax: {arg}")));
            }
            let (name, given) = match bare.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (bare, None),
            };
            let Some(flag) = flags.iter().find(|flag| flag.name == name) else {
                if name == "h" || name == "help" {
                    return Err(Refusal::Help { usage: usage() });
                }
                return Err(wrong(format!("flag provided but not defined: -{name}")));
            };
            let value = match (flag.kind, given) {
                (Kind::Switch, None) => "true".to_owned(),
                (Kind::Switch, Some(value)) => switch(&value)
                    .ok_or_else(|| {
                        wrong(format!("invalid boolean value {value:?} for -{name}: parse error"))
                    })?
                    .to_string(),
                (kind, given) => {
                    let value = given
                        .or_else(|| args.next())
                        .ok_or_else(|| wrong(format!("flag needs an argument: -{name}")))?;
                    if kind == Kind::Whole && whole(&value).is_none() {
                        return Err(wrong(format!("invalid value {value:?} for flag -{name}: parse error")));
                    }
                    value
                }
            };
            values.insert(flag.name, (value, Origin::Flag));
        }
        Ok(Self { values })
    }

    /// The text of a flag; empty for a flag that was not declared.
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", |(value, _)| value)
    }

    /// The text of a flag, `None` when it is empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        switch(self.text(name)).unwrap_or(false)
    }

    /// A flag that is a TCP port, 0 to 65535.
    ///
    /// # Errors
    ///
    /// A sentence that names the flag and the value.
    pub fn port(&self, name: &str) -> Result<u16, String> {
        let text = self.text(name);
        whole(text)
            .and_then(|number| u16::try_from(number).ok())
            .ok_or_else(|| format!("--{name}={text}: a port is a number from 0 to 65535"))
    }

    /// Where the value of a flag came from.
    pub fn origin(&self, name: &str) -> Origin {
        self.values.get(name).map_or(Origin::Default, |(_, origin)| *origin)
    }

    /// How a person gave this setting: `--flag=value`, or `VARIABLE=value`.
    pub fn spelled(&self, name: &str) -> String {
        let text = self.text(name);
        match self.origin(name) {
            Origin::Environment(variable) => format!("environment variable {variable}={text}"),
            Origin::Flag | Origin::Default => format!("flag --{name}={text}"),
        }
    }
}

/// Go's `ParseBool`.
fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn whole(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(digits, radix).ok().map(|number| sign * number)
}

fn usage(program: &str, flags: &[Flag]) -> String {
    let mut sorted: Vec<&Flag> = flags.iter().collect();
    sorted.sort_by_key(|flag| flag.name);
    let mut text = format!("Usage of {program}:\n");
    for flag in sorted {
        let kind = match flag.kind {
            Kind::Text => " string",
            Kind::Whole => " int",
            Kind::Switch => "",
        };
        let env = flag.env.map(|variable| format!(" [{variable}]")).unwrap_or_default();
        let default = match flag.kind {
            _ if flag.default.is_empty() || flag.default == "false" => String::new(),
            Kind::Text => format!(" (default {:?})", flag.default),
            Kind::Whole | Kind::Switch => format!(" (default {})", flag.default),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  -{}{kind}\n    \t{}{env}{default}", flag.name, flag.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        Flag::text("node-name", "", "name of the node").or_env("NODE"),
        Flag::whole("port", "9120", "port"),
        Flag::switch("ignore-exclude-lb", "take every node"),
        Flag::text("log-level", "info", "level"),
    ];

    fn parse(args: &[&str], env: &[(&str, &str)]) -> Result<Values, Refusal> {
        Values::parse("speaker", FLAGS, args.iter().map(|arg| (*arg).to_owned()), |name| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(*value))
        })
    }

    #[test]
    fn one_dash_or_two_with_equals_or_a_space_are_the_same() {
        for args in
            [&["-node-name", "n1"][..], &["--node-name", "n1"], &["-node-name=n1"], &["--node-name=n1"]]
        {
            assert_eq!(parse(args, &[]).unwrap().text("node-name"), "n1", "{args:?}");
        }
    }

    #[test]
    fn a_switch_stands_alone_or_takes_a_value_after_equals() {
        for (args, want) in [
            (&[][..], false),
            (&["-ignore-exclude-lb"][..], true),
            (&["--ignore-exclude-lb=false"], false),
            (&["--ignore-exclude-lb=T"], true),
            (&["--ignore-exclude-lb=0"], false),
        ] {
            assert_eq!(parse(args, &[]).unwrap().is_on("ignore-exclude-lb"), want, "{args:?}");
        }
        // The word after a switch is no value of it, and ends the flags.
        let values = parse(&["--ignore-exclude-lb", "false", "--node-name=n1"], &[]).unwrap();
        assert!(values.is_on("ignore-exclude-lb"));
        assert_eq!(values.text("node-name"), "");
    }

    #[test]
    fn the_flag_wins_over_the_environment_and_empty_counts_as_unset() {
        let env = [("NODE", "from-env")];
        assert_eq!(parse(&[], &env).unwrap().text("node-name"), "from-env");
        assert_eq!(parse(&[], &env).unwrap().origin("node-name"), Origin::Environment("NODE"));
        assert_eq!(parse(&["--node-name=n1"], &env).unwrap().text("node-name"), "n1");
        let unset = parse(&[], &[("NODE", "")]).unwrap();
        assert_eq!((unset.text("node-name"), unset.origin("node-name")), ("", Origin::Default));
    }

    #[test]
    fn what_is_wrong_is_named_and_ends_with_code_two() {
        for (args, message) in [
            (&["--nope"][..], "flag provided but not defined: -nope"),
            (&["-nope=1"], "flag provided but not defined: -nope"),
            (&["--port"], "flag needs an argument: -port"),
            (&["--port=many"], "invalid value \"many\" for flag -port: parse error"),
            (
                &["--ignore-exclude-lb=maybe"],
                "invalid boolean value \"maybe\" for -ignore-exclude-lb: parse error",
            ),
            (&["---port=1"], "bad flag syntax: ---port=1"),
        ] {
            let refusal = parse(args, &[]).unwrap_err();
            assert_eq!(refusal.exit_code(), 2);
            let text = refusal.text();
            assert!(text.starts_with(&format!("{message}\nUsage of speaker:\n")), "{text}");
        }
    }

    #[test]
    fn help_is_no_error() {
        for args in [["-h"], ["--help"], ["-help"]] {
            let refusal = parse(&args, &[]).unwrap_err();
            assert_eq!(refusal.exit_code(), 0);
            assert!(
                refusal.text().contains("  -port int\n    \tport (default 9120)\n"),
                "{}",
                refusal.text()
            );
        }
    }

    #[test]
    fn a_port_is_in_range_or_named() {
        assert_eq!(parse(&["--port=0x10"], &[]).unwrap().port("port"), Ok(16));
        let error = parse(&["--port=70000"], &[]).unwrap().port("port").unwrap_err();
        assert_eq!(error, "--port=70000: a port is a number from 0 to 65535");
    }

    #[test]
    fn a_setting_is_spelled_the_way_it_was_given() {
        assert_eq!(parse(&["-node-name", "a"], &[]).unwrap().spelled("node-name"), "flag --node-name=a");
        assert_eq!(parse(&[], &[("NODE", "a")]).unwrap().spelled("node-name"), "environment variable NODE=a");
    }
}
