// SPDX-License-Identifier: Apache-2.0
//! The one layer of both images: the program, its names, the licence. Nothing of an operating system.
//!
//! The same program gives the same bytes: entries are in order, belong to root and are as old as time.

use std::io::Write as _;

use anyhow::Result;
use ferrolb_manifests::Daemon;
use ferrolb_manifests::release::NAME;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// A layer, packed and unpacked.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The tar file.
    pub(crate) tar: Vec<u8>,
    /// The tar file, compressed by gzip, as it is pulled.
    pub(crate) compressed: Vec<u8>,
}

/// Packs `program`.
///
/// # Errors
/// Writing to memory fails, which means that there is not enough of it.
pub(crate) fn pack(program: &[u8]) -> Result<Layer> {
    let mut entries: Vec<(&str, Content<'_>)> = vec![
        (NAME, Content::File(program, 0o755)),
        ("LICENSE", Content::File(LICENSE, 0o644)),
        ("NOTICE", Content::File(NOTICE, 0o644)),
    ];
    for daemon in Daemon::ALL {
        entries.push((daemon.name(), Content::LinkToProgram));
    }
    entries.extend(FRR_HELPERS.map(|name| (name, Content::LinkToProgram)));
    entries.sort_by_key(|(name, _)| *name);

    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = Header::new_ustar();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match content {
            Content::File(bytes, mode) => {
                header.set_mode(mode);
                header.set_size(u64::try_from(bytes.len())?);
                tar.append_data(&mut header, name, bytes)?;
            }
            Content::LinkToProgram => {
                header.set_mode(0o777);
                header.set_size(0);
                header.set_entry_type(EntryType::Symlink);
                tar.append_link(&mut header, name, NAME)?;
            }
        }
    }
    let tar = tar.into_inner()?;
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gzip.write_all(&tar)?;
    Ok(Layer { compressed: gzip.finish()?, tar })
}

enum Content<'a> {
    File(&'a [u8], u32),
    /// The program looks at the name that it is called by.
    LinkToProgram,
}

/// What the manifest of MetalLB's FRR mode calls in the speaker's image beside the speaker.
const FRR_HELPERS: [&str; 3] = ["cp-tool", "frr-metrics", "frr-reloader.sh"];

const LICENSE: &[u8] = include_bytes!("../../LICENSE");
const NOTICE: &[u8] = include_bytes!("../../NOTICE");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_the_program_its_names_and_the_licence_and_nothing_else() {
        let layer = pack(b"program").unwrap();
        let mut archive = tar::Archive::new(&*layer.tar);
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            let link = entry.link_name().unwrap().map(|path| path.display().to_string()).unwrap_or_default();
            found.push(format!("{:o} {} {link}", header.mode().unwrap(), entry.path().unwrap().display()));
        }
        assert_eq!(
            found,
            [
                "644 LICENSE ",
                "644 NOTICE ",
                "777 controller ferrolb",
                "777 cp-tool ferrolb",
                "755 ferrolb ",
                "777 frr-metrics ferrolb",
                "777 frr-reloader.sh ferrolb",
                "777 speaker ferrolb"
            ]
        );
    }

    #[test]
    fn the_same_program_gives_the_same_bytes() {
        assert_eq!(pack(b"program").unwrap().compressed, pack(b"program").unwrap().compressed);
        assert_ne!(pack(b"program").unwrap().compressed, pack(b"another").unwrap().compressed);
    }
}
