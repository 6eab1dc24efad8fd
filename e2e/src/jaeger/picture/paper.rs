//! Shapes and text as SVG. Escapes external text; independent of traces.

use std::fmt::Write as _;

/// Fonts of the viewer's system: nothing is fetched.
const FONT: &str = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";
/// Its own ground, so that it reads on light and on dark pages.
const GROUND: &str = "#ffffff";
const BORDER: &str = "#dee2e6";
const GUIDE: &str = "#e9ecef";
const DARK: &str = "#212529";
const FAINT: &str = "#6c757d";

/// A picture in the making.
#[derive(Debug)]
pub(super) struct Paper(String);

/// Which part of a text stands at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How letters look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ink {
    colour: &'static str,
    size: f64,
    bold: bool,
    anchor: Anchor,
}

impl Ink {
    pub(super) fn plain() -> Self {
        Self {
            colour: DARK,
            size: 12.0,
            bold: false,
            anchor: Anchor::Start,
        }
    }

    pub(super) fn title() -> Self {
        Self {
            size: 17.0,
            bold: true,
            ..Self::plain()
        }
    }

    pub(super) fn heading() -> Self {
        Self {
            bold: true,
            ..Self::plain()
        }
    }

    pub(super) fn faint() -> Self {
        Self {
            colour: FAINT,
            size: 11.0,
            ..Self::plain()
        }
    }

    pub(super) fn on_colour() -> Self {
        Self {
            colour: GROUND,
            ..Self::faint()
        }
    }

    pub(super) fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }
}

impl Paper {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut paper = Self(String::new());
        let title = escaped(title);
        paper.put(&format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">
<title>{title}</title>
<rect x="0.5" y="0.5" width="{}" height="{}" rx="8" fill="{GROUND}" stroke="{BORDER}"/>"#,
            width - 1.0,
            height - 1.0,
        ));
        paper
    }

    pub(super) fn finish(mut self) -> String {
        self.put("</svg>");
        self.0
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, ink: Ink) {
        let Ink { colour, size, .. } = ink;
        let bold = if ink.bold {
            r#" font-weight="600""#
        } else {
            ""
        };
        let anchor = match ink.anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let text = escaped(text);
        self.put(&format!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{colour}"{bold}{anchor}>{text}</text>"#
        ));
    }

    /// A name, and more about it in faint letters.
    pub(super) fn label(&mut self, x: f64, y: f64, name: &str, beside: Option<&str>) {
        let (name, mut more) = (escaped(name), String::new());
        if let Some(beside) = beside.map(escaped) {
            more = format!(r#"<tspan dx="5" font-size="11" fill="{FAINT}">{beside}</tspan>"#);
        }
        self.put(&format!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="12" fill="{DARK}">{name}{more}</text>"#
        ));
    }

    /// Begins a group; `tip` is its tooltip.
    pub(super) fn begin(&mut self, tip: &str) {
        let tip = escaped(tip);
        self.put(&format!("<g><title>{tip}</title>"));
    }

    pub(super) fn end(&mut self) {
        self.put("</g>");
    }

    /// A span: those that have parts are pale, so that the parts stand out.
    pub(super) fn bar(&mut self, (x, width): (f64, f64), y: f64, colour: &str, pale: bool) {
        let opacity = if pale { r#" fill-opacity="0.3""# } else { "" };
        self.put(&format!(
            r#"<rect class="bar" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="12" rx="2" fill="{colour}"{opacity}/>"#
        ));
    }

    /// Around the bar of what failed.
    pub(super) fn alarm(&mut self, (x, width): (f64, f64), y: f64) {
        let (x, y) = (x - 1.5, y - 1.5);
        let width = width + 3.0;
        self.put(&format!(
            r##"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="15" rx="3" fill="none" stroke="#e03131" stroke-width="1.5"/>"##
        ));
    }

    /// Of the legend.
    pub(super) fn swatch(&mut self, x: f64, y: f64, colour: &str) {
        self.put(&format!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="11" height="11" rx="2" fill="{colour}"/>"#
        ));
    }

    /// A line from top to bottom that leads the eye.
    pub(super) fn guide(&mut self, x: f64, from: f64, to: f64) {
        self.put(&format!(
            r#"<line x1="{x:.1}" y1="{from:.1}" x2="{x:.1}" y2="{to:.1}" stroke="{GUIDE}"/>"#
        ));
    }

    /// The ground of what is looked at closer elsewhere.
    pub(super) fn shade(&mut self, x: f64, y: f64, width: f64, height: f64) {
        self.put(&format!(
            r##"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="#dbe4ff" fill-opacity="0.6"/>"##
        ));
    }

    /// From there to where it is looked at closer.
    pub(super) fn lens(&mut self, corners: [(f64, f64); 4]) {
        let points = corners.map(|(x, y)| format!("{x:.1},{y:.1}")).join(" ");
        self.put(&format!(
            r##"<polygon points="{points}" fill="#dbe4ff" fill-opacity="0.35"/>"##
        ));
    }

    fn put(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{text}");
    }
}

/// Escapes text for XML: spans may contain any text.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// The approximate width of a text: the font is unknown.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

/// As much of a text as there is room for.
pub(super) fn cut(text: &str, room: f64, size: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        if width(&short, size) + width("x…", size) > room {
            break;
        }
        short.push(c);
    }
    short + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_text_and_nothing_else() {
        let mut paper = Paper::new(10.0, 10.0, "<script>");
        paper.text(0.0, 0.0, r#"a<b>&"c" 'd'"#, Ink::plain());
        paper.begin("]]>\0\u{1b}\u{ffff}");
        let svg = paper.finish();
        assert!(svg.contains("<title>&lt;script&gt;</title>"), "{svg}");
        assert!(
            svg.contains(">a&lt;b&gt;&amp;&quot;c&quot; &#39;d&#39;<"),
            "{svg}"
        );
        let tip = "<title>]]&gt;\u{fffd}\u{fffd}\u{fffd}</title>";
        assert!(svg.contains(tip), "{svg}");
    }

    #[test]
    fn a_long_text_is_cut_and_a_short_one_is_not() {
        assert_eq!(cut("servers", 100.0, 12.0), "servers");
        let short = cut(&"x".repeat(100), 100.0, 12.0);
        assert!(
            short.ends_with('…') && width(&short, 12.0) <= 100.0,
            "{short}"
        );
    }
}
