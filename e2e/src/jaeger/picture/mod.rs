//! A trace as a picture (SVG) for a page that has no Jaeger behind it. Pure.
//!
//! One bar for each span, on a common axis. What Kubernetes needs before the controller sees a change
//! is most often hundreds of times longer than a phase in a kernel, so the rest has an axis of its own
//! below, on which it can be seen.

mod panel;
mod paper;
mod scale;

use std::collections::BTreeSet;

use anyhow::Result;

use self::panel::{Panel, Row};
use self::paper::{Anchor, Ink, Paper};
use self::scale::{Scale, words};
use super::{Span, Trace};

const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 24.0;
/// Where bars begin; names are to the left.
const LEFT: f64 = 232.0;
const RIGHT: f64 = WIDTH - MARGIN;
/// Between two panels.
const GAP: f64 = 22.0;
/// Of the controller, then of nodes in turn; they also differ in lightness, for colour-blind
/// readers.
const COLOURS: [&str; 6] = [
    "#3b5bdb", "#e8590c", "#2b8a3e", "#9c36b5", "#0b7285", "#a61e4d",
];

/// Draws a trace: which change, how long it took, and every span with its name, its time and whose it
/// is.
///
/// # Errors
/// When it has not one root.
pub fn picture(trace: &Trace) -> Result<String> {
    let root = trace.root()?;
    let owners = Owners::of(trace);
    let panels = panels(trace, root, &owners);
    let mut top = 82.0;
    let mut places = Vec::new();
    for panel in &panels {
        places.push(top);
        top += panel.height() + GAP;
    }
    let mut paper = Paper::new(WIDTH, top - GAP + MARGIN / 2.0, &title(trace, root));
    head(&mut paper, trace, root, &owners);
    if let ([whole, near], [at, below]) = (&*panels, &*places) {
        let from = whole.scale.place(near.scale.start);
        let (upper, lower) = (at + whole.height(), below + near.axis());
        paper.lens([(from, upper), (RIGHT, upper), (RIGHT, lower), (LEFT, lower)]);
        paper.shade(
            from,
            at + whole.axis(),
            RIGHT - from,
            whole.height() - whole.axis(),
        );
    }
    for (panel, top) in panels.iter().zip(places) {
        panel.draw(&mut paper, top, &owners.colours());
    }
    Ok(paper.finish())
}

/// The owners of spans: the controller first, then nodes by name.
struct Owners(Vec<String>);

impl Owners {
    fn of(trace: &Trace) -> Self {
        let all = trace.spans.iter().map(|span| {
            let (_, node) = trace.whose(span);
            (node.is_some(), name(trace, span).to_owned())
        });
        let all: BTreeSet<_> = all.collect();
        Self(all.into_iter().map(|(_, name)| name).collect())
    }

    fn number(&self, trace: &Trace, span: &Span) -> usize {
        let name = name(trace, span);
        self.0.iter().position(|own| own == name).unwrap_or(0)
    }

    fn colours(&self) -> Vec<&'static str> {
        // As many as there are, again from the second one on: the first is the controller's.
        let nodes = COLOURS[1..].iter().cycle();
        let all = COLOURS.iter().take(1).chain(nodes);
        all.copied().take(self.0.len()).collect()
    }
}

fn name<'t>(trace: &'t Trace, span: &Span) -> &'t str {
    let (service, node) = trace.whose(span);
    let service = service.strip_prefix("portolan-").unwrap_or(service);
    match node.unwrap_or(service) {
        "" => "unknown",
        name => name,
    }
}

fn title(trace: &Trace, root: &Span) -> String {
    let what = match trace.changed() {
        "" => root.name.as_str(),
        changed => changed,
    };
    if let Some(failure) = root.failure() {
        return format!("{what}: {failure}");
    }
    let took = words(root.duration);
    match root.tag("portolan.nodes.answered").and_then(|n| n.as_u64()) {
        Some(1) => format!("{what}: in force on 1 node after {took}"),
        Some(nodes) => format!("{what}: in force on {nodes} nodes after {took}"),
        None => format!("{what}: {took}"),
    }
}

/// Title and legend.
fn head(paper: &mut Paper, trace: &Trace, root: &Span, owners: &Owners) {
    let title = paper::cut(&title(trace, root), WIDTH - 2.0 * MARGIN, 17.0);
    paper.text(MARGIN, 34.0, &title, Ink::title());
    let mut x = MARGIN;
    for (name, colour) in owners.0.iter().zip(owners.colours()) {
        paper.swatch(x, 49.0, colour);
        paper.text(x + 16.0, 59.0, name, Ink::plain());
        x += 16.0 + paper::width(name, 12.0) + 22.0;
    }
    let id = format!("trace {}", trace.id);
    if x + paper::width(&id, 11.0) < RIGHT {
        paper.text(RIGHT, 59.0, &id, Ink::faint().anchored(Anchor::End));
    }
}

/// All spans in one panel, or what came before the controller saw it in one and the rest in another,
/// where that is much shorter.
fn panels<'t>(trace: &'t Trace, root: &'t Span, owners: &Owners) -> Vec<Panel<'t>> {
    let rows: Vec<Row<'t>> = trace
        .in_order()
        .into_iter()
        .map(|(depth, span)| Row {
            depth,
            span,
            owner: owners.number(trace, span),
            beside: beside(trace, span),
            has_parts: trace.below(span).next().is_some(),
        })
        .collect();
    let is_early = |row: &Row<'_>| row.depth == 0 || row.span.name == "watch";
    let late = rows.iter().filter(|row| !is_early(row));
    let seen = late.map(|row| row.span.start_time).min();
    let scale = |start| Scale::new(start, root.end(), LEFT, RIGHT);
    let whole = |rows| Panel {
        heading: format!("The whole change: {}", words(root.duration)),
        scale: scale(root.start_time),
        rows,
    };
    match seen {
        Some(seen) if root.end().saturating_sub(seen) < root.duration / 2 => {
            let (early, mut late): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_early);
            for row in &mut late {
                row.depth -= 1;
            }
            let took = words(root.end().saturating_sub(seen));
            let near = Panel {
                heading: format!("Enlarged: from when the controller saw it, {took}"),
                scale: scale(seen),
                rows: late,
            };
            vec![whole(early), near]
        }
        _ => vec![whole(rows)],
    }
}

/// The node or destination, if the name alone does not show it.
fn beside(trace: &Trace, span: &Span) -> Option<String> {
    if let Some(node) = span.node() {
        return Some(format!("to {node}"));
    }
    let whose = trace.whose(span);
    let parent = span.parent()?;
    let parent = trace.spans.iter().find(|other| other.id == *parent)?;
    let node = whose.1.filter(|_| trace.whose(parent) != whose)?;
    Some(format!("on {node}"))
}

#[cfg(test)]
mod tests;
