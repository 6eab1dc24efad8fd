//! `portolan-scenarios trace`: writes a trace of Jaeger as a picture to a file, and optionally
//! keeps the UI of Jaeger running.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::{Query, picture};
use crate::console::Console;
use crate::stop;

/// Which one, and where to.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where Jaeger is asked.
    #[arg(long, value_name = "http://ADDRESS:PORT")]
    jaeger: Query,
    /// The trace, as logs name it (`trace_id`).
    #[arg(long, value_name = "HEX")]
    id: String,
    /// Where the picture goes: SVG.
    #[arg(long, value_name = "FILE")]
    picture: PathBuf,
    /// Prints the URL of the trace, and runs until SIGINT or SIGTERM.
    #[arg(long)]
    stay: bool,
}

/// Draws it, and stays if that is asked for.
///
/// # Errors
/// When Jaeger does not answer or does not have it, or the file cannot be written.
pub fn run(console: Console, arguments: &Arguments) -> Result<()> {
    let Arguments { jaeger, id, .. } = arguments;
    let drawn = picture(&jaeger.trace(id)?)?;
    let path = &arguments.picture;
    std::fs::write(path, drawn).with_context(|| format!("write {}", path.display()))?;
    console.line(&format!("Picture of the trace: {}", path.display()));
    if !arguments.stay {
        return Ok(());
    }
    let page = jaeger.page(id);
    console.line(&format!("Jaeger shows it until Ctrl-C: {page}"));
    while !stop::asked() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
