// SPDX-License-Identifier: Apache-2.0
//! The JSON paths that printer columns use: members, indices, `[*]` and `[?(@.key=="value")]`.

use serde_json::Value;

/// Values at a path; none if the path does not fit.
pub(crate) fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut here = vec![object];
    for step in steps(path) {
        here = here.into_iter().flat_map(|value| step.from(value)).collect();
    }
    here.retain(|value| !value.is_null());
    here
}

#[derive(Debug, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    All,
    Where(String, String),
}

impl Step {
    fn from<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Member(key) => value.get(key).into_iter().collect(),
            Self::Index(i) => {
                let Some(items) = value.as_array() else { return Vec::new() };
                let length = i64::try_from(items.len()).unwrap_or(0);
                let i = if *i < 0 { length + i } else { *i };
                usize::try_from(i).ok().and_then(|i| items.get(i)).into_iter().collect()
            }
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Self::Where(path, wanted) => {
                let fits = |item: &&Value| {
                    find(item, path).first().is_some_and(|found| match found {
                        Value::String(text) => text == wanted,
                        other => other.to_string() == *wanted,
                    })
                };
                value.as_array().into_iter().flatten().filter(fits).collect()
            }
        }
    }
}

fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let mut key = String::new();
            let mut end = after.len();
            let mut escaped = false;
            for (i, c) in after.char_indices() {
                match c {
                    '\\' if !escaped => {
                        escaped = true;
                        continue;
                    }
                    '.' | '[' if !escaped => {
                        end = i;
                        break;
                    }
                    other => key.push(other),
                }
                escaped = false;
            }
            if key == "*" {
                steps.push(Step::All);
            } else if !key.is_empty() {
                steps.push(Step::Member(key));
            }
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = closing(after) else { return steps };
            let inner = after[..end].trim();
            let quoted = inner.trim_matches(['\'', '"']);
            if inner == "*" {
                steps.push(Step::All);
            } else if let Some(filter) = inner.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
                let (left, right) = filter.split_once("==").unwrap_or((filter, ""));
                let left = left.trim().trim_start_matches('@').to_owned();
                steps.push(Step::Where(left, right.trim().trim_matches(['\'', '"']).to_owned()));
            } else if let Ok(i) = inner.parse() {
                steps.push(Step::Index(i));
            } else {
                steps.push(Step::Member(quoted.to_owned()));
            }
            rest = &after[end + 1..];
        } else {
            // A path may start without its dot.
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(Step::Member(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    steps
}

fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(i),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_paths_of_printer_columns_are_followed() {
        let object = json!({
            "spec": { "a": [1, 2], "m": { "x.y/z": "q" } },
            "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "Ready", "status": "True" }] },
        });
        for (path, expected) in [
            (".spec.a", json!([[1, 2]])),
            (".spec.a[0]", json!([1])),
            (".spec.a[-1]", json!([2])),
            (".spec.a[*]", json!([1, 2])),
            ("spec.m['x.y/z']", json!(["q"])),
            (r".spec.m.x\.y/z", json!(["q"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".nothing.here", json!([])),
        ] {
            assert_eq!(json!(find(&object, path)), expected, "{path}");
        }
    }
}
