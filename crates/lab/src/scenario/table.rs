// SPDX-License-Identifier: Apache-2.0
//! Tables as `kubectl get` prints them, read back into cells.

/// The rows of what `kubectl get KIND,KIND…` printed, headings included. Names lose the kind that stands before them.
pub(crate) fn rows(printed: &str) -> Vec<Vec<String>> {
    let mut starts = Vec::new();
    let mut rows = Vec::new();
    for line in printed.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with("NAME ") {
            starts = column_starts(line);
        }
        let mut cells = cells(line, &starts);
        if let Some(name) = cells.first_mut()
            && let Some((_, plain)) = name.split_once('/')
        {
            *name = plain.to_owned();
        }
        rows.push(cells);
    }
    rows
}

/// A row as text: cells between bars, the random ends of generated names left out.
pub(crate) fn line(row: &[String]) -> String {
    let shortened = row.iter().enumerate().map(|(index, cell)| match cell.split_once('-') {
        Some(("l2", _)) if index == 0 => "l2-…".to_owned(),
        _ => cell.clone(),
    });
    shortened.collect::<Vec<_>>().join(" | ")
}

/// Where columns begin: after at least two blanks. Headings may contain single ones.
fn column_starts(headings: &str) -> Vec<usize> {
    let mut blanks = 2;
    let mut starts = Vec::new();
    for (index, character) in headings.char_indices() {
        if character == ' ' {
            blanks += 1;
        } else {
            if blanks >= 2 {
                starts.push(index);
            }
            blanks = 0;
        }
    }
    starts
}

fn cells(line: &str, starts: &[usize]) -> Vec<String> {
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| line.get(*start..end.min(line.len())).unwrap_or_default().trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_even_when_some_are_empty() {
        let printed = "\
NAME                           AUTO ASSIGN   AVOID BUGGY IPS   ADDRESSES
ipaddresspool.metallb.io/lan   true          false             [\"192.168.10.200-192.168.10.220\"]

NAME                             IPADDRESSPOOLS   INTERFACES
l2advertisement.metallb.io/lan                    [\"ens18\"]

NAME                                 ALLOCATED NODE   SERVICE NAME
servicel2status.metallb.io/l2-x7k2   k8s-node-1       hello-lb
";
        let lines: Vec<String> = rows(printed).iter().map(|row| line(row)).collect();
        assert_eq!(
            lines,
            [
                "NAME | AUTO ASSIGN | AVOID BUGGY IPS | ADDRESSES",
                "lan | true | false | [\"192.168.10.200-192.168.10.220\"]",
                "NAME | IPADDRESSPOOLS | INTERFACES",
                "lan |  | [\"ens18\"]",
                "NAME | ALLOCATED NODE | SERVICE NAME",
                "l2-… | k8s-node-1 | hello-lb",
            ]
        );
    }
}
