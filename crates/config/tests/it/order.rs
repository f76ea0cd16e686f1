// SPDX-License-Identifier: Apache-2.0
//! The order in which objects arrive never matters.

use ferrolb_config::{LastGood, Resources, evaluate};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::build::{community, labels, object};

/// Good and bad addresses that often overlap.
fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_u8..4, 22_u8..=26).prop_map(|(third, length)| format!("10.0.{third}.0/{length}")),
        (0_u8..4, 0_u8..200)
            .prop_map(|(third, last)| format!("10.0.{third}.{last}-10.0.{third}.{}", last + 40)),
        Just("nonsense".to_owned()),
        Just("10.0.0.9-10.0.0.1".to_owned()),
    ]
}

fn pools() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec((prop::collection::vec(entry(), 1..3), 0_u32..3), 0..5).prop_map(|list| {
        list.into_iter().map(|(addresses, age)| json!({ "addresses": addresses, "age": age })).collect()
    })
}

fn resources(pools: &[Value], advertisements: usize) -> Resources {
    let named = |i: usize| format!("o{i}");
    Resources {
        pools: pools
            .iter()
            .enumerate()
            .map(|(i, spec)| {
                let age = u32::try_from(spec["age"].as_u64().unwrap()).unwrap();
                object(&named(i), age, &json!({ "parity": (i % 2).to_string() }), spec)
            })
            .collect(),
        l2_advertisements: (0..advertisements)
            .map(|i| {
                let spec = match i % 3 {
                    0 => json!({}),
                    1 => json!({ "ipAddressPoolSelectors": [{ "matchLabels": { "parity": "1" } }], "interfaces": ["x"] }),
                    _ => json!({ "ipAddressPools": ["o1", "o1"] }),
                };
                object(&named(i), 0, &json!({}), &spec)
            })
            .collect(),
        communities: vec![community("a", &[("x", "1:1")]), community("b", &[("x", "1:2"), ("y", "no")])],
        nodes: [("n1".into(), labels(&[])), ("n2".into(), labels(&[]))].into(),
        ..Resources::default()
    }
}

proptest! {
    #[test]
    fn shuffled_objects_give_the_same_evaluation(
        (before, after) in (pools(), pools()),
        advertisements in 0_usize..5,
        seed: u64,
    ) {
        let past = evaluate(&resources(&before, advertisements), &LastGood::default());
        let ordered = resources(&after, advertisements);
        let mut shuffled = ordered.clone();
        shuffle(&mut shuffled.pools, seed);
        shuffle(&mut shuffled.l2_advertisements, seed);
        shuffle(&mut shuffled.communities, seed);
        prop_assert_eq!(evaluate(&ordered, &past.last_good), evaluate(&shuffled, &past.last_good));
    }

    #[test]
    fn whatever_happens_pools_never_overlap_and_good_ones_stay(before in pools(), after in pools()) {
        let past = evaluate(&resources(&before, 0), &LastGood::default());
        let now = evaluate(&resources(&after, 0), &past.last_good);
        let all: Vec<_> = now.config.pools.values().flat_map(|pool| pool.blocks.clone()).collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                prop_assert!(!a.overlaps(b), "{a} {b}");
            }
        }
        for name in past.config.pools.keys() {
            let exists = after.len() > name.as_str()[1..].parse::<usize>().unwrap();
            prop_assert_eq!(now.config.pools.contains_key(name), exists, "{}", name);
        }
        if let Err(text) = &now.verdict {
            prop_assert_eq!(text, &now.diagnostics[0].message);
        }
        // Evaluated again, nothing changes.
        let again = evaluate(&resources(&after, 0), &now.last_good);
        prop_assert_eq!(&again.config, &now.config);
    }
}

proptest! {
    #[test]
    fn the_verdict_is_that_of_the_current_versions_whatever_the_past(before in pools(), after in pools()) {
        let past = evaluate(&resources(&before, 0), &LastGood::default());
        let current = Resources { communities: Vec::new(), ..resources(&after, 0) };
        let now = evaluate(&current, &past.last_good);

        let alone: Vec<_> = current
            .pools
            .iter()
            .map(|pool| Resources { pools: vec![pool.clone()], ..Resources::default() })
            .map(|one| evaluate(&one, &LastGood::default()))
            .collect();
        let every_one_is_good = alone.iter().all(|one| one.verdict.is_ok());
        let blocks: Vec<_> = alone.iter().flat_map(|one| one.config.pools.values()).flat_map(|p| p.blocks.clone()).collect();
        let overlap = (0..blocks.len()).any(|i| (0..i).any(|j| blocks[i].overlaps(&blocks[j])));
        prop_assert_eq!(now.verdict.is_ok(), every_one_is_good && !overlap);

        // And nothing is passed over in silence: what is not in force as it stands is named.
        for (pool, one) in current.pools.iter().zip(&alone) {
            let name = pool.metadata.name.as_deref().unwrap();
            let in_force = one.verdict.is_ok() && now.config.pools.get(name) == one.config.pools.get(name);
            prop_assert_eq!(!in_force, now.diagnostics.iter().any(|d| d.name == name), "{}", name);
        }
    }
}

/// A deterministic shuffle, enough to reach every order of a short list.
fn shuffle<T>(list: &mut [T], mut seed: u64) {
    for i in (1..list.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        list.swap(i, usize::try_from(seed >> 33).unwrap() % (i + 1));
    }
}
