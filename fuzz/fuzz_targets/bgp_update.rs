// SPDX-License-Identifier: Apache-2.0
//! The body of an UPDATE: what is read of it can be written, and read again it is the same, without a fault.
#![no_main]

use ferrolb_bgp::wire::{Context, Families, Message, Reader, Treatment, Update};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let context = Context {
        four_octet_as: choice & 1 == 0,
        internal: choice & 2 != 0,
        families: [Families::BOTH, Families::V4, Families::V6, Families::NONE][usize::from(choice >> 2 & 3)],
    };
    let Ok(length) = u16::try_from(19 + body.len()) else { return };
    let message = [&[0xff; 16][..], &length.to_be_bytes(), &[2], body].concat();
    let received = match Reader::new().read(&mut &message[..], &context) {
        Ok(Some(Message::Update(received))) => received,
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert!(error.notification().code.is_registered());
            assert!(error.notification().encode().len() <= 4096);
            return;
        }
    };
    let announces = |update: &Update| matches!(update, Update::Announce(_));
    let withdraws = received.faults.iter().any(|fault| fault.treatment == Treatment::Withdraw);
    assert!(!withdraws || !received.updates.iter().any(announces), "what is wrong is announced");
    assert!(received.updates.len() <= 4 && received.faults.len() <= 17);
    for update in received.updates {
        // In a narrow session a path is written twice, which may be too long.
        let Ok(written) = update.encode(&context) else { continue };
        let mut rest = &written[..];
        let mut reader = Reader::new();
        let mut again = Vec::new();
        while let Some(message) = reader.read(&mut rest, &context).expect("what is written can be read") {
            let Message::Update(received) = message else { panic!("{message:?}") };
            assert_eq!(received.faults, []);
            again.extend(received.updates);
        }
        if let [one] = &again[..] {
            assert_eq!(*one, update);
        } else {
            let count = |update: &Update| match update {
                Update::Announce(some) => some.prefixes().len(),
                Update::Withdraw(some) => some.as_slice().len(),
                Update::EndOfRib(_) => 0,
            };
            assert_eq!(again.iter().map(count).sum::<usize>(), count(&update));
        }
    }
});
