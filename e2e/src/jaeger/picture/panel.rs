//! An axis, and a row for each span on it.

use super::paper::{self, Anchor, Ink, Paper};
use super::scale::{Scale, words};
use super::{LEFT, MARGIN, RIGHT, Span};

/// From the top of a panel to its axis: the heading, and the times below it.
const HEADING: f64 = 40.0;
/// From there to the first row.
const SPACE_ABOVE: f64 = 8.0;
const ROW: f64 = 20.0;
/// Of parts below what they are parts of.
const INDENT: f64 = 13.0;
/// Between a bar and its duration.
const SPACE: f64 = 5.0;

/// Spans on one axis.
#[derive(Debug)]
pub(super) struct Panel<'t> {
    pub(super) heading: String,
    pub(super) scale: Scale,
    pub(super) rows: Vec<Row<'t>>,
}

/// A span.
#[derive(Debug)]
pub(super) struct Row<'t> {
    pub(super) depth: usize,
    pub(super) span: &'t Span,
    /// The owner: an index of the colours.
    pub(super) owner: usize,
    /// More about it, in faint letters.
    pub(super) beside: Option<String>,
    pub(super) has_parts: bool,
}

impl Panel<'_> {
    /// How high it is.
    pub(super) fn height(&self) -> f64 {
        HEADING + SPACE_ABOVE + ROW * self.rows.len() as f64
    }

    /// From its top to its axis.
    pub(super) fn axis(&self) -> f64 {
        HEADING
    }

    pub(super) fn draw(&self, paper: &mut Paper, top: f64, colours: &[&str]) {
        paper.text(MARGIN, top + 14.0, &self.heading, Ink::heading());
        let bottom = top + self.height();
        for (x, time) in self.scale.ticks() {
            paper.guide(x, top + HEADING, bottom);
            let ink = Ink::faint().anchored(Anchor::Middle);
            paper.text(x, top + HEADING - 5.0, &time, ink);
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = top + HEADING + SPACE_ABOVE + ROW * number as f64;
            let colour = colours.get(row.owner).copied().unwrap_or("#868e96");
            row.draw(paper, y, self.scale, colour);
        }
    }
}

impl Row<'_> {
    fn draw(&self, paper: &mut Paper, y: f64, scale: Scale, colour: &str) {
        let Self { span, .. } = self;
        let took = words(span.duration);
        paper.begin(&self.tip(&took));
        self.label(paper, y + 10.0);
        let bar = scale.bar(span.start_time, span.duration);
        paper.bar(bar, y, colour, self.has_parts);
        if span.failure().is_some() {
            paper.alarm(bar, y);
        }
        let (x, width) = bar;
        let room = paper::width(&took, 11.0) + SPACE;
        let end = Ink::faint().anchored(Anchor::End);
        let (at, ink) = if x + width + room <= RIGHT {
            (x + width + SPACE, Ink::faint())
        } else if x - room >= LEFT {
            (x - SPACE, end)
        } else if self.has_parts {
            (x + width - SPACE, Ink::plain().anchored(Anchor::End))
        } else {
            (x + width - SPACE, Ink::on_colour().anchored(Anchor::End))
        };
        paper.text(at, y + 10.0, &took, ink);
        paper.end();
    }

    fn label(&self, paper: &mut Paper, y: f64) {
        let x = MARGIN + INDENT * self.depth as f64;
        let room = LEFT - 8.0 - x;
        let name = paper::cut(&self.span.name, room, 12.0);
        let left = room - paper::width(&name, 12.0);
        let beside = self.beside.as_deref();
        paper.label(
            x,
            y,
            &name,
            beside.filter(|text| paper::width(text, 11.0) < left),
        );
    }

    /// The full text, including what does not fit in the row.
    fn tip(&self, took: &str) -> String {
        let mut tip = self.span.name.clone();
        if let Some(beside) = &self.beside {
            tip += &format!(" {beside}");
        }
        tip += &format!(": {took}");
        let operations = self.span.tag("portolan.operations");
        if let Some(count) = operations.and_then(serde_json::Value::as_u64) {
            tip += &format!(", {count} kernel operations");
        }
        if let Some(failure) = self.span.failure() {
            tip += &format!(", failed: {failure}");
        }
        tip
    }
}
