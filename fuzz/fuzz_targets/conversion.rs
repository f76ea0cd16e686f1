// SPDX-License-Identifier: Apache-2.0
//! The body of a ConversionReview: whatever it holds, either every object is converted, in order and with its metadata
//! untouched, or none is and the result says why.
#![no_main]

use ferrolb_api::conversion;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(question) = serde_json::from_slice::<Value>(bytes) else { return };
    let Ok(answer) = conversion::review(&question) else { return };
    let none = Vec::new();
    let asked = question.pointer("/request/objects").and_then(Value::as_array).unwrap_or(&none);
    let converted = answer.pointer("/response/convertedObjects").and_then(Value::as_array).unwrap_or(&none);
    match answer.pointer("/response/result/status").and_then(Value::as_str) {
        Some("Success") => {
            assert_eq!(asked.len(), converted.len());
            for (old, new) in asked.iter().zip(converted) {
                assert_eq!(old.get("metadata"), new.get("metadata"));
                assert_eq!(new["apiVersion"], question["request"]["desiredAPIVersion"]);
                // What came back once comes back the same again.
                let there = conversion::convert(new, old["apiVersion"].as_str().unwrap_or_default());
                let there = there.expect("what was converted can be converted back");
                let again = conversion::convert(&there, new["apiVersion"].as_str().unwrap_or_default());
                assert_eq!(again.as_ref(), Ok(new));
            }
        }
        status => {
            assert_eq!(status, Some("Failure"));
            assert!(converted.is_empty());
            assert!(answer["response"]["result"]["message"].as_str().is_some_and(|text| !text.is_empty()));
        }
    }
});
