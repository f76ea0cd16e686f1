// SPDX-License-Identifier: Apache-2.0
//! Which of two versions of an object is the newer one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// What a version of an object is to the one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// It is the same, or an older one: a list from a cache, or a watch that lags behind our own write.
    Stale,
    /// It is newer.
    Newer,
    /// It is another object of the same name.
    Other,
}

/// Whether an object is older than another one of its kind, whatever its name, as far as versions are numbers.
pub(crate) fn is_older(new: &ObjectMeta, known: &ObjectMeta) -> bool {
    number(new).zip(number(known)).is_some_and(|(new, known)| new < known)
}

fn number(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_ref()?.parse().ok()
}

impl Update {
    /// Compares the metadata of the known version with those of another one.
    ///
    /// API servers number versions (Kubernetes guarantees it since 1.35, etcd-backed ones always did); where they
    /// do not, every version that differs counts as newer.
    pub(crate) fn of(known: &ObjectMeta, new: &ObjectMeta) -> Self {
        if known.uid != new.uid {
            return Self::Other;
        }
        match (number(known), number(new)) {
            (Some(known), Some(new)) if new <= known => Self::Stale,
            (None, _) | (_, None) if known.resource_version.is_some() => {
                if known.resource_version == new.resource_version { Self::Stale } else { Self::Newer }
            }
            _ => Self::Newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_where_they_are_numbers() {
        let meta = |uid: &str, version: Option<&str>| ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: version.map(str::to_owned),
            ..ObjectMeta::default()
        };
        for (known, new, expected) in [
            (("u", Some("9")), ("u", Some("10")), Update::Newer),
            (("u", Some("10")), ("u", Some("9")), Update::Stale),
            (("u", Some("10")), ("u", Some("10")), Update::Stale),
            (("u", Some("10")), ("v", Some("9")), Update::Other),
            (("u", Some("x")), ("u", Some("a")), Update::Newer),
            (("u", Some("x")), ("u", Some("x")), Update::Stale),
            (("u", None), ("u", None), Update::Newer),
        ] {
            assert_eq!(Update::of(&meta(known.0, known.1), &meta(new.0, new.1)), expected);
        }
    }
}
