//! Passes connections on from one network namespace to another: what listens in the one dials in the other.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::namespace::Namespace;

/// Poll interval for its end.
const LOOK: Duration = Duration::from_millis(20);

/// It takes connections until it is dropped; those that are open go on.
#[derive(Debug)]
pub struct Relay {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens in a namespace and dials `to` from the network of this process.
    ///
    /// # Errors
    /// When the address is not free there.
    pub fn start(namespace: &Namespace, listen: SocketAddr, to: SocketAddr) -> Result<Self> {
        let listener = namespace.inside(|| {
            let listener = TcpListener::bind(listen);
            listener.with_context(|| format!("listen on {listen}"))
        })?;
        listener.set_nonblocking(true)?;
        let ends: Arc<AtomicBool> = Arc::default();
        let stop = ends.clone();
        let accept = move || {
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A client whose connection cannot be passed on sees it closed.
                    Ok((client, _)) => drop(pass(client, to)),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(accept)?;
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot fail.
            drop(thread.join());
        }
    }
}

/// Copies both ways on their own threads, which end with the connection.
fn pass(client: TcpStream, to: SocketAddr) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let server = TcpStream::connect(to)?;
    let ways = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for (mut from, mut into) in ways {
        std::thread::Builder::new()
            .name("relayed".into())
            .spawn(move || {
                // When one end closes, the other one is closed too.
                drop(io::copy(&mut from, &mut into));
                drop(into.shutdown(Shutdown::Write));
            })?;
    }
    Ok(())
}
