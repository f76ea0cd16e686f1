// SPDX-License-Identifier: Apache-2.0
//! The lines of the log that people search for.

use ferrolb_speaker_core::wire::Input;

use super::network::Network;
use super::numbers::name;
use super::recorder::{Line, lines_of};
use super::seconds;

fn line(fields: &[(&str, &str)]) -> Line {
    fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn event(node: &str, address: &str, event: &str) -> Line {
    line(&[
        ("level", "info"),
        ("message", "node event - forcing sync"),
        ("node addr", address),
        ("node event", event),
        ("node name", node),
    ])
}

#[test]
fn members_that_come_change_and_go_are_told_in_metallbs_words() {
    let mut network = Network::settled(1, 2, 3);
    // The other node's lines would be among them.
    let story = lines_of(|| {
        network.kill(1);
        network.run(seconds(10));
        network.start_plain(1, 0);
        network.run(seconds(3));
    });
    let events: Vec<Line> = story.into_iter().filter(|line| line.contains_key("node event")).collect();
    assert_eq!(events, [event("n1", "10.0.0.2", "NodeLeave"), event("n1", "10.0.0.2", "NodeJoin")]);

    let mut network = Network::settled(2, 2, 3);
    let story = lines_of(|| {
        network.input(1, Input::Api { working: false });
        network.run(seconds(3));
    });
    assert_eq!(
        story,
        [event("n1", "10.0.0.2", "NodeUpdate"), event("n1", "10.0.0.2", "NodeUpdate")],
        "both see it"
    );

    let story = lines_of(|| {
        network.kill(1);
        network.input(0, Input::Stop);
        network.run(seconds(3));
    });
    let shutdown = |message| line(&[("level", "info"), ("message", message), ("op", "shutdown")]);
    assert_eq!(
        story,
        [
            shutdown("leaving memberlist cluster"),
            event("n0", "10.0.0.1", "NodeLeave"),
            shutdown("left memberlist cluster")
        ]
    );
}

#[test]
fn a_join_is_told_once_whole_or_in_part() {
    let mut network = Network::settled(3, 3, 3);
    network.kill(2);
    network.run(seconds(20));
    let story = lines_of(|| {
        network.start(2);
        network.run(seconds(60));
    });
    // The others tell that it is no longer missing.
    let of_starting = |line: &Line| line.contains_key("op") && !line["message"].starts_with("no longer so");
    let joins: Vec<Line> = story.into_iter().filter(of_starting).collect();
    let joined = line(&[
        ("level", "info"),
        ("message", "memberlist join successfully"),
        ("number of other nodes", "2"),
        ("op", "Member detection"),
    ]);
    assert_eq!(joins, [joined]);

    network.kill(2);
    network.kill(1);
    network.run(seconds(60));
    let story = lines_of(|| {
        network.start(2);
        network.run(seconds(60));
    });
    let told: Vec<Line> = story.into_iter().filter(of_starting).collect();
    let partial = line(&[
        ("error", "no exchange with 10.0.0.2:7946 in time"),
        ("expected", "2"),
        ("joined", "1"),
        ("level", "error"),
        ("message", "partial join"),
        ("op", "memberDiscovery"),
    ]);
    let missing = line(&[
        ("address", "10.0.0.2:7946"),
        ("error", "its port is closed"),
        ("level", "warn"),
        ("message", "another speaker is no proper member"),
        ("node", name(1).as_str()),
        ("op", "memberDiscovery"),
    ]);
    assert_eq!(told, [partial, missing], "one line each, however often it is tried");
}
