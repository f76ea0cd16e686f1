// SPDX-License-Identifier: Apache-2.0
//! What names a release: version, images, where it comes from. Nothing else in the project spells them out.

use crate::InvalidValue;

/// The version, which is every image's tag too.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The project's name.
pub const NAME: &str = "ferrolb";

/// Name of the program that images hold. In them it has the project's.
pub const DAEMONS: &str = "ferrolb-daemons";

/// Where the source code is published; `None` while it is not.
pub const REPOSITORY: Option<&str> = None;

/// The licence, as SPDX writes it.
pub const LICENSE: &str = "Apache-2.0";

/// What stands before an image's own name while no registry has the images.
///
/// Container engines take `localhost` for images that are on the node already and ask no public registry for them, where
/// anybody could have put something under a bare name.
pub const IMAGE_PREFIX: &str = "localhost/ferrolb";

/// The daemons, each with an image of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// Gives addresses to Services.
    Controller,
    /// Announces them, on every node.
    Speaker,
}

impl Daemon {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Controller, Self::Speaker];

    /// The name of image, container, workload and ServiceAccount, as MetalLB has them.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Speaker => "speaker",
        }
    }

    /// The program in its image, which is the image's entrypoint.
    pub const fn entrypoint(self) -> &'static str {
        match self {
            Self::Controller => "/controller",
            Self::Speaker => "/speaker",
        }
    }

    /// The user of the image's own: what the Pod of no manifest overrides.
    ///
    /// The speaker opens packet sockets, for which it needs uid 0 and `NET_RAW`; the controller needs nothing.
    pub const fn user(self) -> &'static str {
        match self {
            Self::Controller => "65534:65534",
            Self::Speaker => "0:0",
        }
    }
}

/// Where the images are: `PREFIX/controller:TAG` and `PREFIX/speaker:TAG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    prefix: String,
    tag: String,
}

impl Default for Images {
    fn default() -> Self {
        Self { prefix: IMAGE_PREFIX.to_owned(), tag: VERSION.to_owned() }
    }
}

impl Images {
    /// Images under `prefix` (`registry.example/ferrolb`) with `tag`.
    ///
    /// # Errors
    /// Something that cannot stand in the name of an image.
    pub fn new(prefix: &str, tag: &str) -> Result<Self, InvalidValue> {
        let path = prefix.split('/').enumerate().all(|(index, part)| {
            let host = |c: char| index == 0 && (c == ':' || c.is_ascii_uppercase());
            let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.starts_with(|c| letter(c) || host(c))
                && part.ends_with(letter)
                && part.chars().all(|c| letter(c) || "._-".contains(c) || host(c))
        });
        if !path {
            return Err(InvalidValue::ImagePrefix(prefix.to_owned()));
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good =
            tag.starts_with(word) && tag.len() <= 128 && tag.chars().all(|c| word(c) || ".-".contains(c));
        if !good {
            return Err(InvalidValue::Tag(tag.to_owned()));
        }
        Ok(Self { prefix: prefix.to_owned(), tag: tag.to_owned() })
    }

    /// The full name of a daemon's image.
    pub fn of(&self, daemon: Daemon) -> String {
        format!("{}/{}:{}", self.prefix, daemon.name(), self.tag)
    }

    /// The tag alone.
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_prefix_daemon_and_tag() {
        let images = Images::new("registry.example:5000/team/ferrolb", "v1.2.3-rc.1").unwrap();
        assert_eq!(images.of(Daemon::Speaker), "registry.example:5000/team/ferrolb/speaker:v1.2.3-rc.1");
        assert_eq!(
            Images::default().of(Daemon::Controller),
            format!("localhost/ferrolb/controller:{VERSION}")
        );
    }

    #[test]
    fn what_no_container_engine_takes_is_refused() {
        for prefix in ["", "a b", "Team/x/", "/ferrolb", "ferrolb/", "a//b", "a/B", "x/y:5000", "a\n/b", "-a"]
        {
            assert!(matches!(Images::new(prefix, "1"), Err(InvalidValue::ImagePrefix(_))), "{prefix:?}");
        }
        for tag in ["", ".1", "-1", "a b", "a:b", "a/b", &"x".repeat(129)] {
            assert!(matches!(Images::new("ferrolb", tag), Err(InvalidValue::Tag(_))), "{tag:?}");
        }
    }
}
