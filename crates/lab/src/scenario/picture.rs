// SPDX-License-Identifier: Apache-2.0
//! A run drawn as an SVG for the README: the steps as a terminal shows them, without the commands.

use std::fmt::Write as _;

use super::story::Report;

const LINE: usize = 19;
const WIDTH: usize = 980;
const COLUMNS: usize = 116;

/// Draws the report.
pub fn svg(report: &Report) -> String {
    let mut rows: Vec<(Kind, String)> = vec![(Kind::Prompt, format!("$ ferrolb lab run {}", report.story))];
    let mut chapter = "";
    for (index, step) in report.steps.iter().enumerate() {
        if chapter != step.chapter {
            chapter = &step.chapter;
            rows.push((Kind::Heading, chapter.to_owned()));
        }
        let kind = if step.ok { Kind::Good } else { Kind::Bad };
        let observed = step.observed.split_whitespace().collect::<Vec<_>>().join(" ");
        rows.push((kind, format!("{:>2} {}: {observed}", index + 1, step.name)));
    }
    rows.push((Kind::Prompt, report.summary()));

    let height = rows.len() * LINE + 56;
    let mut out = format!(
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"13\" role=\"img\" \
         aria-label=\"What a run of the story {} printed\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10141a\"/>\n",
        escape(&report.story)
    );
    for (x, colour) in [(20, "#e5534b"), (38, "#d9a53f"), (56, "#57ab5a")] {
        let _ = writeln!(out, "<circle cx=\"{x}\" cy=\"20\" r=\"6\" fill=\"{colour}\"/>");
    }
    for (index, (kind, text)) in rows.iter().enumerate() {
        let y = 52 + index * LINE;
        let (mark, colour) = match kind {
            Kind::Prompt => ("", "#ffffff"),
            Kind::Heading => ("", "#768390"),
            Kind::Good => ("<tspan fill=\"#57ab5a\">✓</tspan> ", "#cdd9e5"),
            Kind::Bad => ("<tspan fill=\"#e5534b\">✗</tspan> ", "#f47067"),
        };
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"{y}\" fill=\"{colour}\" xml:space=\"preserve\">{mark}{}</text>",
            escape(&shorten(text))
        );
    }
    out.push_str("</svg>\n");
    out
}

#[derive(Clone, Copy)]
enum Kind {
    Prompt,
    Heading,
    Good,
    Bad,
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= COLUMNS {
        return text.into();
    }
    text.chars().take(COLUMNS - 1).chain(['…']).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::story::Step;

    #[test]
    fn text_is_escaped_and_cut_to_the_width() {
        let step = Step {
            chapter: "One & two".into(),
            name: "a <b>".into(),
            commands: vec!["kubectl get svc && true".into()],
            expected: String::new(),
            observed: "x".repeat(300),
            measured: None,
            ms: 7,
            ok: true,
        };
        let report = Report {
            story: "l2".into(),
            api: "fakekube".into(),
            steps: vec![step],
            table: None,
            ms: 1500,
            ok: true,
        };
        let drawn = svg(&report);
        assert!(drawn.contains(">One &amp; two</text>"));
        assert!(drawn.contains("a &lt;b&gt;: xxx"));
        assert!(drawn.contains("…</text>"));
        assert!(drawn.contains("1 of 1 steps as expected in 1 s"));
    }
}
