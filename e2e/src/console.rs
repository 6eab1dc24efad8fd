//! Output for readers: headings, lines, aligned tables, optional colour. Everything goes to
//! standard output line by line, which also works over an emulated serial line.

use std::io::{IsTerminal, Write};

/// Colours of single words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Success.
    Green,
    /// Failure.
    Red,
    /// Secondary.
    Dim,
    /// Headings.
    Bold,
}

/// Where a scenario writes.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    colour: bool,
}

impl Console {
    /// Colour on a terminal or with `COLOR=1`, never with `NO_COLOR`.
    #[must_use]
    pub fn from_environment() -> Self {
        let wanted = std::env::var("COLOR").is_ok_and(|value| value == "1")
            || std::io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colour: wanted && !refused,
        }
    }

    /// Never colour.
    #[must_use]
    pub fn plain() -> Self {
        Self { colour: false }
    }

    /// A word in a colour.
    #[must_use]
    pub fn paint(self, colour: Colour, word: &str) -> String {
        let code = match colour {
            Colour::Green => "32",
            Colour::Red => "31",
            Colour::Dim => "2",
            Colour::Bold => "1",
        };
        if self.colour {
            format!("\x1b[{code}m{word}\x1b[0m")
        } else {
            word.to_owned()
        }
    }

    /// A line.
    pub fn line(self, text: &str) {
        // Standard output may be closed; the exit status still reports the result.
        let _written = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// A short heading.
    pub fn heading(self, text: &str) {
        self.line("");
        self.line(&self.paint(Colour::Bold, &format!("== {text}")));
    }

    /// One check with its verdict.
    pub fn verdict(self, passed: bool, text: &str) {
        let word = if passed {
            self.paint(Colour::Green, "ok    ")
        } else {
            self.paint(Colour::Red, "FAILED")
        };
        self.line(&format!("{word} {text}"));
    }

    /// A table with aligned columns.
    pub fn table(self, table: &Table) {
        for (number, line) in table.lines().enumerate() {
            if number == 0 {
                self.line(&self.paint(Colour::Dim, &line));
            } else {
                self.line(&line);
            }
        }
    }
}

/// A word to standard error, from places that have no console (guards being dropped).
pub fn complain(text: &str) {
    let _written = writeln!(std::io::stderr().lock(), "portolan-scenarios: {text}");
}

/// Rows of cells under a header.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one with its header.
    #[must_use]
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self {
            rows: vec![header.into_iter().map(Into::into).collect()],
        }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Number of rows below its header.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len() - 1
    }

    /// Whether it has only its header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its lines: two spaces between columns, nothing after the last cell.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        self.rows.iter().map(move |row| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "PORT"]);
        table.row(["web", "80"]);
        table.row(["kube-dns", "53"]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines, ["NAME      PORT", "web       80", "kube-dns  53"]);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn without_colour_words_stay_as_they_are() {
        assert_eq!(Console::plain().paint(Colour::Red, "no"), "no");
    }
}
