// SPDX-License-Identifier: Apache-2.0
//! The body of a NOTIFICATION: it is read as it is written, and its words harm no log: one line of bounded length,
//! whatever text came with it.
#![no_main]

use ferrolb_bgp::Down;
use ferrolb_bgp::wire::{Context, Message, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(length) = u16::try_from(19 + body.len()) else { return };
    let message = [&[0xff; 16][..], &length.to_be_bytes(), &[3], body].concat();
    match Reader::new().read(&mut &message[..], &Context::default()) {
        Ok(Some(Message::Notification(notification))) => {
            assert_eq!(notification.encode(), message);
            let text = Down::Told(notification).to_string();
            assert!(text.chars().all(|c| !c.is_control()), "{text:?}");
            let marks = ['\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}', '\u{200e}'..='\u{200f}'];
            assert!(!text.chars().any(|c| marks.iter().any(|range| range.contains(&c))), "{text:?}");
            assert!(text.len() < 2_000, "{} bytes", text.len());
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => assert!(error.notification().code.is_registered()),
    }
});
