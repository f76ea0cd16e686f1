// SPDX-License-Identifier: Apache-2.0
//! The body of an OPEN: it is refused with a code of its class, or what is read of it can be written, and read again it
//! is the same.
#![no_main]

use ferrolb_bgp::wire::{HEADER, MAX_LENGTH, Open};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if HEADER + body.len() > MAX_LENGTH.into() {
        return;
    }
    match Open::decode(body) {
        Err(error) => {
            let last = error.notification();
            assert!(last.code.code == 2 && last.code.is_registered());
            assert!(last.encode().len() <= MAX_LENGTH.into());
        }
        Ok(open) => {
            let bytes = open.encode();
            assert!(bytes.len() <= MAX_LENGTH.into());
            assert_eq!(Open::decode(&bytes[HEADER..]), Ok(open));
        }
    }
});
