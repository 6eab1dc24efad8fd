//! The trace that a demo names: found in what it prints, drawn, and shown to whoever wants to look on.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::cache;
use crate::progress::in_ci;
use crate::scenarios::OnApiServer;

/// How the line begins that names it.
const NAMED: &str = "The trace: ";
/// More of one line is not kept.
const LINE: usize = 200;

/// What becomes of the trace of the change that the demo makes.
#[derive(Debug, Clone, Default)]
pub struct Traces {
    /// Where its picture goes; by default into a folder of the lab's cache.
    pub picture: Option<PathBuf>,
    /// Whether Jaeger stays open on it until Ctrl-C.
    pub stay: bool,
}

impl Traces {
    /// For a person: Jaeger stays where there is a terminal to end it from.
    #[must_use]
    pub fn shown(picture: Option<PathBuf>) -> Self {
        let person = io::stdin().is_terminal() && io::stdout().is_terminal() && !in_ci();
        Self {
            picture,
            stay: person,
        }
    }

    /// Draws it; says where the picture is, and stays if that is asked for.
    pub(crate) fn draw(&self, on: &OnApiServer, trace: &str) -> Result<()> {
        let picture = match &self.picture {
            // The program that writes it runs in another folder.
            Some(path) => std::path::absolute(path).context("where the picture goes")?,
            None => cache::run_folder("traces")?.join("trace.svg"),
        };
        // Not among what the demo prints: its last line is its verdict.
        let code = on.draw(trace, &picture, self.stay, &mut io::stderr())?;
        ensure!(code == 0, "the trace {trace} was not drawn; see above");
        Ok(())
    }
}

/// Passes on what a program prints, and notes which trace it names.
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
        // As it comes out of a guest: with line ends of its own, and cut anywhere.
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
