// SPDX-License-Identifier: Apache-2.0
//! Bytes that memberlist 0.5.1, and 0.2.2 within serf, wrote: read as they were meant, and written again the same.
//!
//! `data/README.md` tells how they were made. What a running member does with a request stands in `behaviour.rs`.

#![allow(clippy::unwrap_used)] // the helpers of tests

use std::net::{Ipv6Addr, SocketAddr};

use ferrolb_gossip::wire::message::kind;
use ferrolb_gossip::wire::{
    self, Accusation, Codec, Key, Keyring, Message, NodeState, Packet, PacketError, PartError, Ping, Source,
    StreamMessage, StreamReader, packet,
};
use serde_json::{Map, Value, json};

fn load(file: &str) -> Value {
    let path = format!("{}/tests/data/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn vectors(file: &Value) -> &[Value] {
    file["vectors"].as_array().unwrap()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A member's codec for a vector: its key, or its file's, its label, and compression if the vector has it.
fn codec(file: &Value, vector: &Value, compress: bool) -> Codec {
    let key = [&vector["key_hex"], &file["key_hex"]].into_iter().find(|key| key.is_string());
    let keyring = key.map(|key| Keyring::new(Key::new(&unhex(key)).unwrap(), Vec::new()));
    let mut codec =
        Codec::new(keyring).with_label(vector["decoded"]["label"].as_str().unwrap_or("")).unwrap();
    codec.compress = compress;
    codec
}

/// The layers of a decoded vector, from outside to inside: their names, and the innermost one.
fn layers(decoded: &Value) -> (Vec<&str>, &Value) {
    let mut message = decoded.get("message").unwrap_or(decoded);
    let mut names = Vec::new();
    while message.get("inner").is_some() {
        names.push(message["type"].as_str().unwrap());
        message = &message["inner"];
    }
    (names, message)
}

/// The nonce of something sealed: that of the vector, or what stands in the bytes after the label, a frame's header and
/// the version.
fn nonce(bytes: &[u8], stream: bool) -> [u8; 12] {
    let (_, rest) = wire::split_label(bytes).unwrap();
    let at = if stream { 6 } else { 1 };
    rest.get(at..at + 12).map_or([0; 12], |nonce| nonce.try_into().unwrap())
}

fn address(bytes: &[u8]) -> Value {
    match bytes.len() {
        4 => json!(format!("{}.{}.{}.{}", bytes[0], bytes[1], bytes[2], bytes[3])),
        16 => {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap());
            let suffix = if address.to_ipv4_mapped().is_some() { " (16 bytes)" } else { "" };
            json!(format!("{address}{suffix}"))
        }
        _ => json!(hex(bytes)),
    }
}

fn optional(bytes: &Option<Vec<u8>>) -> Value {
    bytes.as_ref().map_or(Value::Null, |bytes| json!({ "hex": hex(bytes) }))
}

fn text(bytes: &[u8]) -> Value {
    json!(String::from_utf8_lossy(bytes))
}

/// What a message says, in the words of the vectors.
fn described(message: &Message) -> Value {
    let accusation = |kind: &str, id: u8, accusation: &Accusation| {
        json!({ "type": kind, "id": id, "fields": {
            "From": accusation.from.to_string(), "Incarnation": accusation.incarnation, "Node": accusation.node.to_string(),
        } })
    };
    let sourced = |mut fields: Map<String, Value>, source: &Source| {
        if !source.address.is_empty() {
            fields.insert("SourceAddr".into(), address(&source.address));
        }
        if !source.node.is_empty() {
            fields.insert("SourceNode".into(), text(&source.node));
        }
        if source.port != 0 {
            fields.insert("SourcePort".into(), source.port.into());
        }
        fields
    };
    match message {
        Message::Ping(Ping { sequence, node, source }) => {
            let fields = json!({ "Node": text(node), "SeqNo": sequence }).as_object().unwrap().clone();
            json!({ "type": "ping", "id": 0, "fields": sourced(fields, source) })
        }
        Message::IndirectPing(request) => {
            let fields = json!({
                "Nack": request.nack, "Node": text(&request.node), "Port": request.port, "SeqNo": request.sequence,
                "Target": address(&request.target),
            });
            let fields = sourced(fields.as_object().unwrap().clone(), &request.source);
            json!({ "type": "indirectPing", "id": 1, "fields": fields })
        }
        Message::Ack(ack) => {
            json!({ "type": "ack", "id": 2, "fields": { "Payload": optional(&ack.payload), "SeqNo": ack.sequence } })
        }
        Message::Nack { sequence } => json!({ "type": "nack", "id": 11, "fields": { "SeqNo": sequence } }),
        Message::Suspect(word) => accusation("suspect", 3, word),
        Message::Dead(word) => accusation("dead", 5, word),
        Message::Alive(alive) => json!({ "type": "alive", "id": 4, "fields": {
            "Addr": address(&alive.address), "Incarnation": alive.incarnation, "Meta": optional(&alive.meta),
            "Node": alive.node.to_string(), "Port": alive.port, "Vsn": alive.versions,
        } }),
        Message::User(payload) => json!({ "type": "user", "id": 8, "payload_hex": hex(payload) }),
    }
}

fn described_on_stream(message: &StreamMessage) -> Value {
    let node = |node: &NodeState| {
        json!({
            "Addr": address(&node.address), "Incarnation": node.incarnation, "Meta": optional(&node.meta),
            "Name": node.name.to_string(), "Port": node.port, "State": node.state as u8, "Vsn": node.versions,
        })
    };
    match message {
        StreamMessage::Ping(ping) => described(&Message::Ping(ping.clone())),
        StreamMessage::Ack(ack) => described(&Message::Ack(ack.clone())),
        StreamMessage::Error(text) => json!({ "type": "err", "id": 13, "fields": { "Error": text } }),
        StreamMessage::User(payload) => json!({
            "type": "user", "id": 8, "header": { "UserMsgLen": payload.len() }, "payload_hex": hex(payload),
        }),
        StreamMessage::PushPull(exchange) => {
            let mut described = json!({
                "type": "pushPull", "id": 6,
                "header": {
                    "Join": exchange.join, "Nodes": exchange.states.len(), "UserStateLen": exchange.user_state.len(),
                },
                "nodes": exchange.states.iter().map(node).collect::<Vec<_>>(),
            });
            if !exchange.user_state.is_empty() {
                described["user_state_hex"] = json!(hex(&exchange.user_state));
            }
            described
        }
    }
}

/// Equal, where the vectors cut long bytes short with the number of them.
#[track_caller]
fn assert_same(expected: &Value, found: &Value, context: &str) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "{context}");
            for (key, value) in expected {
                assert_same(value, &found[key], &format!("{context}, {key}"));
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            assert_eq!(expected.len(), found.len(), "{context}");
            for (expected, found) in expected.iter().zip(found) {
                assert_same(expected, found, context);
            }
        }
        (Value::String(expected), Value::String(found)) if expected.contains("... (") => {
            let (start, rest) = expected.split_once("... (").unwrap();
            assert!(found.starts_with(start), "{context}: {expected} and {found}");
            assert_eq!(rest.trim_end_matches(" bytes)").parse(), Ok(found.len() / 2), "{context}");
        }
        _ => assert_eq!(expected, found, "{context}"),
    }
}

/// A datagram: what it says, and that it is written again the same.
fn check_packet(file: &Value, vector: &Value, context: &str) {
    let bytes = unhex(&vector["hex"]);
    let (names, innermost) = layers(&vector["decoded"]);
    let codec = codec(file, vector, names.contains(&"compress"));
    let read = codec.read_packet(&bytes);
    if vector["decoded"]["message"]["valid"] == false {
        assert_eq!(read, Err(PacketError::Checksum), "{context}");
        return;
    }
    let Packet { messages, refused, lost } = read.unwrap();
    let missing = innermost["truncated_parts"].as_u64().unwrap_or(0) as usize;
    assert_eq!(lost, missing, "{context}");
    assert_eq!(refused, Vec::from_iter((missing > 0).then_some(PartError::Parts(missing))), "{context}");

    let is_compound = innermost["type"] == "compound";
    let expected =
        innermost["parts"].as_array().map_or_else(|| std::slice::from_ref(innermost), Vec::as_slice);
    let found: Vec<Value> = messages.iter().map(described).collect();
    assert_same(&json!(expected), &json!(found), context);

    let version = vector["decoded"]["encryption"]["version"].as_u64();
    let encoded: Vec<Vec<u8>> = messages.iter().map(Message::encode).collect();
    let mut whole = packet::compound(&encoded);
    if version != Some(0) && missing == 0 && is_compound == (encoded.len() > 1) {
        assert_eq!(whole.len(), 1);
        let written = codec.packet(whole.remove(0), names.contains(&"hasCrc"), &nonce(&bytes, false));
        assert_eq!(hex(&written), hex(&bytes), "{context}");
    }
}

/// What one side of a stream wrote: what it says, and that it is written again the same.
fn check_stream(file: &Value, vector: &Value, hexes: &Value, decoded: &Value, dialler: bool, context: &str) {
    let bytes = unhex(hexes);
    let (names, innermost) = layers(decoded);
    let codec = codec(file, vector, names.contains(&"compress"));
    let mut reader = if dialler { StreamReader::accepted() } else { StreamReader::dialled() };
    let message = reader.push(&codec, &bytes).unwrap().unwrap_or_else(|| panic!("{context}: not whole"));
    assert_same(innermost, &described_on_stream(&message), context);
    if vector["decoded"]["encryption"]["version"] == 0 || context.starts_with("serf") {
        // Nobody sends version 0 any more; memberlist 0.2.2 writes lengths above 127 as unsigned.
        return;
    }
    assert_eq!(hex(&codec.stream(&message, dialler, &nonce(&bytes, true))), hex(&bytes), "{context}");
}

/// How many messages of a file were checked.
fn check_file(name: &str) -> usize {
    let file = load(name);
    let mut checked = 0;
    for vector in vectors(&file) {
        let context = format!("{name}, {} {}", vector["name"], vector["t"]);
        if vector["transport"] == "packet" {
            check_packet(&file, vector, &context);
            checked += 1;
        } else if vector.get("hex").is_some() {
            // An answer carries no label; those of the files are requests, or have none.
            check_stream(&file, vector, &vector["hex"], &vector["decoded"], true, &context);
            checked += 1;
        } else {
            for (side, dialler) in [("client_sends", true), ("server_sends", false)] {
                if let Some(said) = vector.get(side).filter(|said| said["decoded"].is_object()) {
                    check_stream(&file, vector, &said["hex"], &said["decoded"], dialler, &context);
                    checked += 1;
                }
            }
        }
    }
    checked
}

#[test]
fn messages_are_read_and_written_as_memberlist_does() {
    for (file, least) in [
        ("ping", 5),
        ("indirect_ping", 3),
        ("ack_nack", 4),
        ("suspect_dead", 4),
        ("alive", 8),
        ("user_err", 4),
        ("compound", 2),
        ("crc", 2),
        ("compress", 2),
        ("encrypt_packet", 7),
        ("label", 2),
        ("push_pull", 10),
        ("stream_ping", 4),
    ] {
        let checked = check_file(file);
        assert!(checked >= least, "{file}: {checked} vectors");
    }
}

#[test]
fn captured_traffic_is_read_and_written_as_memberlist_did() {
    for (file, least) in [
        ("live_join", 6),
        ("live_gossip", 4),
        ("live_probe", 4),
        ("live_failure", 20),
        ("live_leave", 4),
        ("live_restart", 8),
        ("live_user", 2),
        ("live_stream_ping", 4),
        ("serf_join", 2),
        ("serf_probe_gossip", 10),
    ] {
        let checked = check_file(file);
        assert!(checked >= least, "{file}: {checked} messages");
    }
}

#[test]
fn lzw_blocks_expand_to_their_input_and_are_made_the_same() {
    let file = load("lzw");
    for vector in vectors(&file) {
        let name = vector["name"].as_str().unwrap();
        let input = if name == "lzw_clear" {
            let mut x = 1_u32;
            let mut next = || {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((x >> 24) & 63) as u8
            };
            (0..6000).map(|_| next()).collect()
        } else {
            unhex(&vector["input_hex"])
        };
        let message = unhex(&vector["hex"]);
        assert_eq!(wire::decompress(&message[1..], 6000), Ok(input.clone()), "{name}");
        // Byte for byte, also past the clear in the middle of a stream.
        let block = wire::lzw::compress(&input);
        assert!(message.ends_with(&block), "{name}: {}", hex(&block));
    }
}

#[test]
fn odd_bodies_are_taken_and_refused_as_memberlist_does() {
    let file = load("decode_tolerance");
    for vector in vectors(&file) {
        let body = unhex(&vector["body_hex"]);
        let read = Message::decode(&[vec![kind::PING], body].concat());
        let Value::Object(result) = &vector["result"] else {
            assert!(read.is_err(), "{}: {read:?}", vector["name"]);
            assert_eq!(vector["accepted"], false);
            continue;
        };
        let bytes = |field: &str| if result[field].is_null() { Vec::new() } else { unhex(&result[field]) };
        let expected = Ping {
            sequence: result["SeqNo"].as_u64().unwrap() as u32,
            node: bytes("Node_hex"),
            source: Source {
                address: bytes("SourceAddr"),
                port: result["SourcePort"].as_u64().unwrap() as u16,
                node: result["SourceNode"].as_str().unwrap().into(),
            },
        };
        assert_eq!(read, Ok(Message::Ping(expected)), "{}", vector["name"]);
    }
}

#[test]
fn each_layer_refuses_what_memberlist_refuses() {
    let file = load("reject");
    for vector in vectors(&file) {
        let name = vector["name"].as_str().unwrap();
        // Here we are stricter: what memberlist then does is to crash.
        let accepted = vector["error"].is_null() && !name.starts_with("version byte altered to 0");
        match vector["layer"].as_str().unwrap() {
            "encryption" => {
                let ring = Keyring::new(Key::new(&unhex(&vector["key_hex"])).unwrap(), Vec::new());
                let opened = ring.open(&unhex(&vector["hex"]), &unhex(&vector["aad_hex"]));
                assert_eq!(opened.is_ok(), accepted, "{name}: {opened:?}");
            }
            "label" => {
                let bytes = unhex(&vector["hex"]);
                let split = wire::split_label(&bytes);
                assert_eq!(split.is_ok(), accepted, "{name}: {split:?}");
                if let Ok((label, rest)) = split {
                    assert_eq!(vector["label"], text(label), "{name}");
                    assert_eq!(vector["rest_hex"], hex(rest), "{name}");
                }
            }
            "compound" => {
                let body = unhex(&vector["body_hex"]);
                let read = packet::parts(&body);
                assert_eq!(read.is_ok(), accepted, "{name}: {read:?}");
                if let Ok((parts, missing)) = read {
                    let expected: Vec<Vec<u8>> =
                        vector["parts"].as_array().into_iter().flatten().map(unhex).collect();
                    assert_eq!(parts, expected, "{name}");
                    assert_eq!(vector["truncated"], missing, "{name}");
                } else {
                    assert_eq!(read, Err(PartError::Lengths));
                }
            }
            "compress" => {
                let read = wire::decompress(&unhex(&vector["body_hex"]), 1000);
                assert_eq!(read.is_ok(), accepted, "{name}: {read:?}");
                if let Ok(plain) = read {
                    assert_eq!(plain, unhex(&vector["plain_hex"]), "{name}");
                }
            }
            other => panic!("there is no layer {other}"),
        }
    }
}

#[test]
fn captured_packets_came_from_where_their_messages_say() {
    // An answer goes to the source that a ping names, so a ping that is written with another one is never answered.
    for name in ["live_probe", "live_failure"] {
        let file = load(name);
        for vector in vectors(&file).iter().filter(|vector| vector["transport"] == "packet") {
            let packet = codec(&file, vector, true).read_packet(&unhex(&vector["hex"])).unwrap();
            let from: SocketAddr = vector["from"].as_str().unwrap().parse().unwrap();
            for message in packet.messages {
                if let Message::Ping(Ping { source, .. }) = message {
                    assert_eq!(address(&source.address), from.ip().to_string());
                    assert_eq!(source.port, from.port());
                }
            }
        }
    }
}
