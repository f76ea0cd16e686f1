// SPDX-License-Identifier: Apache-2.0
//! The header of a message: whatever is in it, it is refused with a code of its own, or the message ends where it says;
//! a KEEPALIVE and a ROUTE-REFRESH, which are little more, are written as they were read.
#![no_main]

use ferrolb_bgp::wire::{Code, Context, HEADER, Message, MessageError, Reader, keepalive};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((marked, stream)) = bytes.split_first() else { return };
    // Few markers are right by chance.
    let stream = match marked & 1 {
        0 => stream.to_vec(),
        _ => [&[0xff; 16][..], stream].concat(),
    };
    let mut rest = &stream[..];
    let read = Reader::new().read(&mut rest, &Context::default());
    let Some(header) = stream.get(..HEADER) else {
        // A marker is judged as far as it is there.
        assert!(matches!(read, Ok(None) | Err(MessageError::Header(_))));
        return;
    };
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    match read {
        Err(MessageError::Header(error)) => {
            let code = error.notification().code;
            assert!([Code::NOT_SYNCHRONIZED, Code::BAD_LENGTH, Code::BAD_TYPE].contains(&code));
        }
        Err(error) => assert!(error.notification().code.is_registered()),
        Ok(None) => assert!(length > stream.len() && rest.is_empty()),
        Ok(Some(message)) => {
            assert_eq!(stream.len() - rest.len(), length);
            match message {
                Message::Keepalive => assert_eq!(stream[..length], keepalive()),
                Message::RouteRefresh(refresh) => assert_eq!(stream[..length], refresh.encode()),
                Message::Open(_) | Message::Update(_) | Message::Notification(_) => {}
            }
        }
    }
});
