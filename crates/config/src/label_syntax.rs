// SPDX-License-Identifier: Apache-2.0
//! What Kubernetes allows as key and value of a label, and how it says what is wrong.

/// What is wrong with a label's key; empty if nothing is.
pub(crate) fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        ["", name] => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            faults.extend(subdomain_faults(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            name
        }
        _ => {
            let with_prefix = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            faults.push(format!("a qualified name {NAME_RULE}{with_prefix}"));
            return faults;
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_NAME {
        faults.push(format!("name part must be no more than {MAX_NAME} bytes"));
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME_RULE}"));
    }
    faults
}

/// What is wrong with a label's value; empty if nothing is.
pub(crate) fn value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > MAX_NAME {
        faults.push(format!("must be no more than {MAX_NAME} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE_RULE.to_owned());
    }
    faults
}

fn subdomain_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > MAX_SUBDOMAIN {
        faults.push(format!("must be no more than {MAX_SUBDOMAIN} bytes"));
    }
    let label = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        part.bytes().all(|b| inner(b) || b == b'-')
            && part.bytes().next().is_some_and(inner)
            && part.bytes().last().is_some_and(inner)
    };
    if !text.split('.').all(label) {
        faults.push(SUBDOMAIN_RULE.to_owned());
    }
    faults
}

fn is_name(text: &str) -> bool {
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && end(text.bytes().next())
        && end(text.bytes().last())
}

const MAX_NAME: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                          '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                          'my_value',  or '12345', regex used for validation is \
                          '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                              or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                              regex used for validation is \
                              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_that_kubernetes_accepts_are_accepted() {
        for key in ["a", "MyName", "my.name", "123-abc", "example.com/a_b", "a.b-c.d/X"] {
            assert_eq!(key_faults(key), Vec::<String>::new(), "{key}");
        }
        for value in ["", "a", "my_value", "12345", "v1.2-x"] {
            assert_eq!(value_faults(value), Vec::<String>::new(), "{value}");
        }
    }

    #[test]
    fn each_fault_of_a_key_or_value_is_said() {
        let long = "x".repeat(64);
        for (key, expected) in [
            ("", vec!["name part must be non-empty", "name part must consist"]),
            ("bad key!", vec!["name part must consist of alphanumeric"]),
            ("-a", vec!["name part must consist"]),
            ("/a", vec!["prefix part must be non-empty"]),
            ("Upper/a", vec!["prefix part a lowercase RFC 1123 subdomain"]),
            ("a/b/c", vec!["a qualified name must consist"]),
            (long.as_str(), vec!["name part must be no more than 63 bytes"]),
        ] {
            let faults = key_faults(key);
            assert_eq!(faults.len(), expected.len(), "{key}: {faults:?}");
            for (fault, start) in faults.iter().zip(expected) {
                assert!(fault.starts_with(start), "{key}: {fault}");
            }
        }
        assert!(value_faults(&long)[0].starts_with("must be no more than 63 bytes"));
        assert!(value_faults("a b")[0].starts_with("a valid label must be an empty string or consist"));
        assert!(value_faults("a-")[0].starts_with("a valid label"));
    }
}
