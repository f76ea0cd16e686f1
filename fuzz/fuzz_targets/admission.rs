// SPDX-License-Identifier: Apache-2.0
//! The body of an AdmissionReview: whatever it holds, it gets one answer that the API server can use, and the answer
//! refuses or admits for a reason that is told.
#![no_main]

use ferrolb_config::BgpType;
use ferrolb_config::admission::{List, Review, Setup, Stored, Target, judge};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else { return };
    let target = Target::ALL[usize::from(*choice) % Target::ALL.len()];
    let bgp_type = if choice & 0x80 == 0 { BgpType::Native } else { BgpType::Frr };
    let setup = Setup { namespace: "metallb-system".to_owned(), bgp_type };
    let answer = match Review::decode(target, body) {
        Err(answer) => answer,
        Ok(review) => {
            let mut stored = Stored::new();
            for list in review.reads(&setup).all() {
                // The object beside itself: what contradicts itself is found by every rule.
                let object = serde_json::from_slice::<Value>(body).ok();
                let object = object.and_then(|review| review.pointer("/request/oldObject").cloned());
                stored.insert(list, object.into_iter().filter(|_| list != List::Nodes).collect());
            }
            let answer = judge(&review, &stored, &setup);
            assert_eq!(answer, judge(&review, &stored, &setup), "the same question has the same answer");
            answer
        }
    };
    assert_eq!(answer.allowed, answer.code == 200);
    assert_eq!(answer.allowed, answer.message.is_empty());
    assert!(answer.warnings.iter().all(|text| !text.is_empty() && !text.chars().any(char::is_control)));
    let told = answer.to_json();
    assert_eq!(told["response"]["allowed"], answer.allowed);
});
