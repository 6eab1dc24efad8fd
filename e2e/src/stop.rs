//! One flag: a signal asked this process to end. Loops and waits check it, so that a signal leads
//! to a regular return, in which every guard removes what it created.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether a signal asked this process to end.
#[must_use]
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Fails once a signal asked this process to end; call it at the top of long loops.
///
/// # Errors
/// "ended by a signal" after SIGINT or SIGTERM.
pub fn check() -> Result<()> {
    if asked() {
        bail!("ended by a signal");
    }
    Ok(())
}

/// Listens for SIGINT and SIGTERM on its own thread.
///
/// # Errors
/// When the kernel refuses the handlers.
pub fn listen() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("start the signal listener")?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            });
            ASKED.store(true, Ordering::Relaxed);
        })?;
    Ok(())
}
