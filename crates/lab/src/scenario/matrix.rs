// SPDX-License-Identifier: Apache-2.0
//! What a story comes to as a table: features by systems, a word for each.

use std::fmt::Write as _;

use serde::Serialize;

/// A table with a heading for each column.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Matrix {
    /// The systems, from left to right.
    pub columns: Vec<Column>,
    /// The features, from top to bottom.
    pub rows: Vec<Row>,
}

/// A system.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Which version of it was there.
    pub version: String,
}

/// A feature.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// A word for each system.
    pub cells: Vec<String>,
}

impl Matrix {
    /// The table in aligned lines. The versions, which differ from machine to machine, are left out unless they are wanted.
    pub fn text(&self, versions: bool) -> String {
        let mut lines = vec![self.line("", |column| column.name.clone())];
        if versions {
            lines.push(self.line("", |column| column.version.clone()));
        }
        for row in &self.rows {
            lines.push([std::slice::from_ref(&row.name), &row.cells].concat());
        }
        let width = |index: usize| {
            lines.iter().filter_map(|line| line.get(index)).map(|cell| cell.chars().count()).max()
        };
        let mut text = String::new();
        for line in &lines {
            let mut cells = String::new();
            for (index, cell) in line.iter().enumerate() {
                let _ = write!(cells, "{cell:<width$}  ", width = width(index).unwrap_or_default());
            }
            let _ = writeln!(text, "{}", cells.trim_end());
        }
        text
    }

    fn line(&self, name: &str, cell: impl Fn(&Column) -> String) -> Vec<String> {
        std::iter::once(name.to_owned()).chain(self.columns.iter().map(cell)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_versions_are_there_only_where_they_are_wanted() {
        let column = |name: &str, version: &str| Column { name: name.into(), version: version.into() };
        let row =
            |name: &str, cells: [&str; 2]| Row { name: name.into(), cells: cells.map(Into::into).into() };
        let matrix = Matrix {
            columns: vec![column("FRR", "8.4.4"), column("BIRD", "2.0.12")],
            rows: vec![row("IPv4", ["✓", "✓"]), row("link bandwidth", ["✓", "heard"])],
        };
        assert_eq!(
            matrix.text(false),
            "                FRR  BIRD\nIPv4            ✓    ✓\nlink bandwidth  ✓    heard\n"
        );
        assert_eq!(matrix.text(true).lines().nth(1), Some("                8.4.4  2.0.12"));
    }
}
