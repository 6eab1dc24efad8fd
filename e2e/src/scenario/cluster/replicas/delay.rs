//! A proxy to the API server that can stop passing responses: its clients get no more events, and no error.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

const LOOK: Duration = Duration::from_millis(10);
const LOCAL: &str = "https://127.0.0.1:";

/// The proxy; dropping it ends its connections.
pub(super) struct Delay {
    held: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Delay {
    /// Starts a proxy to the server of a kubeconfig, and changes the kubeconfig to use the proxy.
    pub(super) fn before(kubeconfig: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let (_, rest) = text.split_once(LOCAL).context("no server on loopback")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        let digits = digits.context("no port")?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, digits.parse().context("its port")?));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (from, by) = (
            format!("{LOCAL}{digits}"),
            format!("{LOCAL}{}", address.port()),
        );
        std::fs::write(kubeconfig, text.replace(&from, &by))?;
        let (held, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (holds, ends) = (held.clone(), over.clone());
        let thread = std::thread::Builder::new()
            .name("delay".into())
            .spawn(move || accept(&listener, to, &holds, &ends))?;
        Ok(Self {
            held,
            over,
            thread: Some(thread),
        })
    }

    /// Stops or resumes passing responses.
    pub(super) fn hold(&self, holds: bool) {
        self.held.store(holds, Ordering::Release);
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has closed its connections.
            drop(thread.join());
        }
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, held: &AtomicBool, over: &AtomicBool) {
    std::thread::scope(|scope| {
        while !over.load(Ordering::Acquire) {
            let Ok((client, _)) = listener.accept() else {
                std::thread::sleep(LOOK);
                continue;
            };
            let Ok(server) = TcpStream::connect(to) else {
                continue;
            };
            let (Ok(back), Ok(forth)) = (client.try_clone(), server.try_clone()) else {
                continue;
            };
            scope.spawn(move || copy(client, server, None, over));
            scope.spawn(move || copy(forth, back, Some(held), over));
        }
    });
}

/// Copies until either end closes.
fn copy(mut from: TcpStream, mut to: TcpStream, held: Option<&AtomicBool>, over: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    let waits = || held.is_some_and(|held| held.load(Ordering::Acquire));
    // The timeout lets the thread notice the end while nothing arrives.
    let patience = from
        .set_nonblocking(false)
        .and_then(|()| from.set_read_timeout(Some(LOOK * 10)));
    while patience.is_ok() && !over.load(Ordering::Acquire) {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if is_silence(&error) => continue,
            Err(_) => break,
        };
        while waits() && !over.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The peer may be gone already.
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

fn is_silence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
