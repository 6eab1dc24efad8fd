//! A root shell in a guest that is kept running.
//!
//! Touches: the guest's socket, the terminal's settings.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::progress::say;
use crate::{cache, process};

/// Init's message after the end of a shell. It starts another one at once, which is not used.
const END: &[u8] = b"[the guest shell ended]";

/// Connects this terminal to the newest guest with a shell. `exit` or Ctrl-D disconnects.
///
/// # Errors
/// No guest with a shell is running, or the connection broke.
pub fn connect() -> Result<()> {
    let Some(stream) = newest_guest()? else {
        bail!("no guest is kept running; start one with `cargo demo --keep` in another terminal");
    };
    let interactive = io::stdin().is_terminal();
    let terminal = interactive.then(RawTerminal::new).transpose()?;
    if interactive {
        say("Connected to the guest; `exit` or Ctrl-D leaves it.\r");
    }
    let mut to_guest = stream.try_clone().context("opening the guest's shell")?;
    thread::spawn(move || send(&mut to_guest, interactive));
    let result = receive(stream);
    drop(terminal);
    say("");
    result
}

fn send(guest: &mut UnixStream, interactive: bool) -> io::Result<()> {
    if interactive {
        guest.write_all(b"\r")?;
    }
    io::copy(&mut io::stdin().lock(), guest)?;
    // Ctrl-D, as the guest's terminal driver expects it.
    guest.write_all(b"\rexit\r")
}

fn receive(mut guest: UnixStream) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut buffer = [0; 4096];
    let mut last: Vec<u8> = Vec::new();
    loop {
        let count = guest
            .read(&mut buffer)
            .context("reading from the guest's shell")?;
        if count == 0 {
            say("\r\nThe guest is gone.\r");
            return Ok(());
        }
        out.write_all(&buffer[..count])?;
        out.flush()?;
        last.extend_from_slice(&buffer[..count]);
        if ends_here(&last) {
            return Ok(());
        }
        let spare = last.len().saturating_sub(END.len());
        last.drain(..spare);
    }
}

fn ends_here(bytes: &[u8]) -> bool {
    bytes.windows(END.len()).any(|window| window == END)
}

fn newest_guest() -> Result<Option<UnixStream>> {
    let runs = cache::by_age(&cache::folder("runs")?)?;
    let mut newest_first = runs.iter().rev();
    Ok(newest_first.find_map(|(_, folder)| open(folder)))
}

/// The path of the socket may exceed the limit of a socket address, so it is accessed through the open folder.
fn open(folder: &Path) -> Option<UnixStream> {
    let handle = File::open(folder).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/shell", handle.as_raw_fd()));
    UnixStream::connect(path).ok()
}

/// Puts the terminal into raw mode while it lives.
struct RawTerminal {
    before: String,
}

impl RawTerminal {
    fn new() -> Result<Self> {
        let before = stty(&["-g"])?;
        stty(&["raw", "-echo"])?;
        Ok(Self {
            before: before.trim().to_owned(),
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Err(error) = stty(&[&self.before]) {
            say(&format!(
                "the terminal stays raw ({error:#}); type `stty sane`"
            ));
        }
    }
}

fn stty(arguments: &[&str]) -> Result<String> {
    let mut command = process::program("stty")?;
    command.args(arguments).stdin(Stdio::inherit());
    let output = command.output().context("starting `stty`")?;
    if !output.status.success() {
        bail!("`stty` failed: {}", process::last_lines(&output.stderr, 3));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_seen_also_when_it_came_in_two_pieces() {
        let mut last = b"x\r\n[the guest sh".to_vec();
        assert!(!ends_here(&last));
        last.extend_from_slice(b"ell ended]\r\n");
        assert!(ends_here(&last));
    }
}
