//! The trace of a demo: parsed from its output, drawn, and shown in Jaeger.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::cache;
use crate::progress::in_ci;
use crate::scenarios::OnApiServer;

/// Prefix of the line with the trace ID.
const NAMED: &str = "The trace: ";
/// Maximum length of a line.
const LINE: usize = 200;

/// The use of the trace of the demo's change.
#[derive(Debug, Clone, Default)]
pub struct Traces {
    /// The path of its picture; default: in a folder of the lab's cache.
    pub picture: Option<PathBuf>,
    /// Whether Jaeger stays open on it until Ctrl-C.
    pub stay: bool,
}

impl Traces {
    /// For people: Jaeger stays open if there is a terminal to end it.
    #[must_use]
    pub fn shown(picture: Option<PathBuf>) -> Self {
        let person = io::stdin().is_terminal() && io::stdout().is_terminal() && !in_ci();
        Self {
            picture,
            stay: person,
        }
    }

    /// Draws the trace, prints the path of the picture, and keeps Jaeger open if wanted.
    pub(crate) fn draw(&self, on: &OnApiServer, trace: &str) -> Result<()> {
        let picture = match &self.picture {
            // The drawing program runs in another folder.
            Some(path) => std::path::absolute(path).context("resolve the path of the picture")?,
            None => cache::run_folder("traces")?.join("trace.svg"),
        };
        // Separate from the demo's output, whose last line is its verdict.
        let code = on.draw(trace, &picture, self.stay, &mut io::stderr())?;
        ensure!(code == 0, "the trace {trace} was not drawn; see above");
        Ok(())
    }
}

/// Passes on a program's output and extracts the trace ID.
pub(crate) struct Noting<'s> {
    sink: &'s mut (dyn Write + Send),
    line: Vec<u8>,
    pub(crate) trace: Option<String>,
}

impl<'s> Noting<'s> {
    pub(crate) fn new(sink: &'s mut (dyn Write + Send)) -> Self {
        Self {
            sink,
            line: Vec::new(),
            trace: None,
        }
    }
}

impl Write for Noting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        for &byte in &bytes[..count] {
            if byte == b'\n' {
                let line = String::from_utf8_lossy(&self.line);
                if let Some(trace) = line.trim_end().strip_prefix(NAMED) {
                    self.trace = Some(trace.to_owned());
                }
                self.line.clear();
            } else if self.line.len() < LINE {
                self.line.push(byte);
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_found_in_what_is_passed_on() {
        let mut out = Vec::new();
        let mut noting = Noting::new(&mut out);
        // As received from a guest: with CRLF, and split anywhere.
        for part in [
            "0.1 ms change\r\nThe tra",
            "ce: 7a01\r",
            "\nok    The trace: no\n",
        ] {
            noting.write_all(part.as_bytes()).unwrap();
        }
        noting.write_all(&[b'x'; 10_000]).unwrap();
        assert_eq!(noting.line.len(), LINE);
        assert_eq!(noting.trace.as_deref(), Some("7a01"));
        assert!(out.starts_with(b"0.1 ms change\r\nThe trace: 7a01\r\n"));
    }
}
