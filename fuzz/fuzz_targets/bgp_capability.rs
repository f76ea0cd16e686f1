// SPDX-License-Identifier: Apache-2.0
//! The value of a capability: it has the code that it came with, whatever its length, and survives an OPEN.
#![no_main]

use ferrolb_bgp::wire::{Capability, Families, HEADER, HoldTime, Open, RouterId};
use ferrolb_net_types::Asn;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((code, value)) = bytes.split_first() else { return };
    let Some(capability) = Capability::of(*code, value) else {
        assert!(value.len() > 255);
        return;
    };
    assert_eq!(capability.code(), *code);
    if let Capability::Other(other) = &capability {
        assert_eq!(other.value(), value);
    }
    let (asn, id) =
        (Asn::new(64_512).expect("no zero"), RouterId::new([192, 0, 2, 1].into()).expect("no zero"));
    let open = Open::new(asn, HoldTime::ZERO, id, Families::NONE, vec![capability.clone()]);
    let again = Open::decode(&open.encode()[HEADER..]).expect("what is written can be read");
    assert!(again.capabilities.contains(&capability));
});
