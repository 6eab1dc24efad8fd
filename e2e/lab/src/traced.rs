//! The trace of a demo: drawn, and shown in Jaeger.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::cache;
use crate::progress::in_ci;
use crate::scenarios::OnApiServer;

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
