// SPDX-License-Identifier: Apache-2.0
//! What a BGP peer writes, message after message: read in pieces it is the same as read at once, and the session that
//! hears it stays one that knows what to do next, answers each fault with one NOTIFICATION that has a name, and keeps
//! nothing of it.
#![no_main]

use ferrolb_bgp::wire::{Context, Families, Message, Reader};
use ferrolb_bgp::{Close, ConnectionId, Input, Local, Output, PeerAs, Session, Settings, State};
use ferrolb_net_types::{Asn, Prefix, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, stream)) = bytes.split_first() else { return };
    let context = Context {
        four_octet_as: choice & 1 == 0,
        internal: choice & 2 != 0,
        families: if choice & 4 == 0 { Families::BOTH } else { Families::V4 },
    };
    let all = messages(stream, stream.len().max(1), &context);
    assert_eq!(all, messages(stream, 1 + usize::from(choice >> 3), &context));

    let asn = |number| Asn::new(number).expect("no zero");
    let own = if context.internal { PeerAs::Internal } else { PeerAs::External };
    let settings = Settings { families: Families::BOTH, ..Settings::native(asn(64_512), own) };
    let mut session = Session::new(Time::ZERO, settings, 7);
    let route = Prefix::host([192, 0, 2, 1].into());
    session.handle(Time::ZERO, Input::Routes(&[(route, Some(Default::default()))]));
    assert_eq!(session.poll(), Some(Output::Connect(ConnectionId::Dialled(1))));
    let connection = ConnectionId::Dialled(1);
    let address = [192, 168, 10, 20].into();
    let local = Local::new(address, &[address], None, "node1");
    session.handle(Time::ZERO, Input::Connected { connection, local });

    let (mut closed, mut sent) = (None, Vec::new());
    for piece in stream.chunks(1 + usize::from(choice >> 3)) {
        session.handle(Time::ZERO, Input::Received { connection, bytes: piece });
        while let Some(output) = session.poll() {
            match output {
                Output::Send { bytes, .. } => {
                    assert!(closed.is_none(), "nothing is said on a connection that is closed");
                    let written = bytes.len();
                    sent.push(bytes);
                    session.handle(Time::ZERO, Input::Written { connection, bytes: written });
                }
                Output::Close { how, .. } => assert_eq!(closed.replace(how), None),
                Output::Connect(_) => panic!("it connects again without having waited"),
                Output::State { .. } | Output::Notice(_) => {}
                Output::Stopped => panic!("nobody stopped it"),
            }
        }
    }
    let status = session.status();
    assert_eq!(
        (status.state == State::Idle, status.next_attempt.is_some()),
        (closed.is_some(), closed.is_some())
    );
    assert_eq!(status.wanted, 1);
    let deadline = session.next_deadline();
    let endless = status.peer.is_some_and(|peer| peer.keepalive.is_none());
    assert!(deadline.is_some_and(|at| at > Time::ZERO) || endless);
    // All that was said can be read, and the last of it says why it ends.
    let said = sent.concat();
    let peer = status.peer.map_or(Context { families: Families::BOTH, ..context }, |peer| peer.context());
    let said = messages(&said, said.len(), &peer).expect("what is said can be read");
    let words = said.iter().filter_map(|message| match message {
        Message::Notification(notification) => Some(notification.code.is_registered()),
        _ => None,
    });
    let words: Vec<bool> = words.collect();
    assert_eq!(words, if closed == Some(Close::AfterWriting) { vec![true] } else { vec![] });
});

/// The messages of a stream that comes in pieces of this size; none if one of them is refused.
fn messages(stream: &[u8], size: usize, context: &Context) -> Option<Vec<Message>> {
    let mut reader = Reader::new();
    let mut messages = Vec::new();
    for mut piece in stream.chunks(size.max(1)) {
        while let Some(message) = reader.read(&mut piece, context).ok()? {
            messages.push(message);
        }
        assert!(piece.is_empty(), "all of it is taken");
    }
    Some(messages)
}
