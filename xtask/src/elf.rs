// SPDX-License-Identifier: Apache-2.0
//! What an ELF file says about itself: whether it runs without a dynamic linker, and on which machine.

use anyhow::{Context as _, Result, bail, ensure};

/// Where a program runs, in the words of image configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// `amd64` or `arm64`.
    pub(crate) architecture: &'static str,
    /// `linux`.
    pub(crate) os: &'static str,
}

/// The platform of a 64-bit little-endian Linux program that needs no dynamic linker.
///
/// # Errors
/// The file is something else; the text says what.
pub(crate) fn platform(file: &[u8]) -> Result<Platform> {
    ensure!(file.get(..4) == Some(b"\x7fELF"), "it is no ELF file");
    ensure!(file.get(4..6) == Some(&[2, 1]), "it is not 64-bit and little-endian");
    let architecture = match u16_at(file, MACHINE)? {
        62 => "amd64",
        183 => "arm64",
        other => bail!("its machine (e_machine {other}) is neither x86-64 nor AArch64"),
    };
    let table = usize::try_from(u64_at(file, PROGRAM_HEADERS)?)?;
    let entry = usize::from(u16_at(file, HEADER_SIZE)?);
    for index in 0..usize::from(u16_at(file, HEADER_COUNT)?) {
        let kind = u32_at(file, table + index * entry)?;
        ensure!(kind != INTERPRETER, "it is not static: it names a dynamic linker (PT_INTERP)");
    }
    Ok(Platform { architecture, os: "linux" })
}

// Offsets in the ELF header (System V ABI, chapter 4), and a type of program header.
const MACHINE: usize = 18;
const PROGRAM_HEADERS: usize = 32;
const HEADER_SIZE: usize = 54;
const HEADER_COUNT: usize = 56;
const INTERPRETER: u32 = 3;

fn bytes_at<const N: usize>(file: &[u8], offset: usize) -> Result<[u8; N]> {
    let bytes = file.get(offset..).and_then(|rest| rest.first_chunk::<N>());
    bytes.copied().context("it ends within its headers")
}

fn u16_at(file: &[u8], offset: usize) -> Result<u16> {
    bytes_at(file, offset).map(u16::from_le_bytes)
}

fn u32_at(file: &[u8], offset: usize) -> Result<u32> {
    bytes_at(file, offset).map(u32::from_le_bytes)
}

fn u64_at(file: &[u8], offset: usize) -> Result<u64> {
    bytes_at(file, offset).map(u64::from_le_bytes)
}

/// The headers of a program with program headers of these types, for tests.
#[cfg(test)]
pub(crate) fn sample(machine: u16, kinds: &[u32]) -> Vec<u8> {
    let mut file = vec![0; 64 + 56 * kinds.len()];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[MACHINE..MACHINE + 2].copy_from_slice(&machine.to_le_bytes());
    file[PROGRAM_HEADERS] = 64;
    file[HEADER_SIZE] = 56;
    file[HEADER_COUNT] = u8::try_from(kinds.len()).unwrap();
    for (index, kind) in kinds.iter().enumerate() {
        let start = 64 + 56 * index;
        file[start..start + 4].copy_from_slice(&kind.to_le_bytes());
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_has_the_platform_of_its_machine() {
        for (machine, architecture) in [(62, "amd64"), (183, "arm64")] {
            assert_eq!(
                platform(&sample(machine, &[1, 1, 2])).unwrap(),
                Platform { architecture, os: "linux" }
            );
        }
    }

    #[test]
    fn what_cannot_stand_alone_is_refused_with_the_reason() {
        let cut = sample(62, &[1, 1])[..100].to_vec();
        for (file, reason) in [
            (b"#!/bin/sh".to_vec(), "it is no ELF file"),
            (sample(62, &[1, INTERPRETER]), "it is not static"),
            (sample(243, &[1]), "e_machine 243"),
            (cut, "it ends within its headers"),
            (b"\x7fELF\x01\x01".to_vec(), "it is not 64-bit"),
        ] {
            let error = platform(&file).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn this_test_itself_is_dynamic() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(platform(&own).unwrap_err().to_string().contains("not static"));
    }
}
