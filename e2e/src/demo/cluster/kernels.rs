//! Real servers of one virtual server in a node's kernel, polled every few milliseconds on a thread
//! inside the node's namespace, which ends when this is dropped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use ipvs_rs::{Destination, Protocol, ServiceKey, Socket};

use super::history::Latest;
use crate::namespace::Namespace;

const EVERY: Duration = Duration::from_millis(3);

/// One kernel under observation.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The real servers that take new connections; none while there is no virtual server.
    pub(super) takes: Latest,
    stop: Arc<AtomicBool>,
}

impl Kernel {
    /// Looks at the virtual server for TCP at this address.
    pub(super) fn observe(namespace: &Namespace, server: SocketAddr) -> Result<Self> {
        let kernel = Self {
            takes: Latest::default(),
            stop: Arc::default(),
        };
        let (takes, stop) = (kernel.takes.clone(), Arc::clone(&kernel.stop));
        // The thread is not joined: no one waits for its resources.
        drop(namespace.start("kernel", move || {
            let mut socket = Socket::open()?;
            let key = ServiceKey::address(Protocol::Tcp, server.ip(), server.port());
            while !stop.load(Ordering::Relaxed) {
                // An error means that the virtual server is missing; a wait for it reports that.
                let reals = socket.destinations(&key).unwrap_or_default();
                let takes_new = reals.iter().filter(|real| real.weight > 0);
                let address = |real: &Destination| SocketAddr::new(real.address, real.port);
                takes.set(takes_new.map(address).collect());
                std::thread::sleep(EVERY);
            }
            Ok(())
        })?);
        Ok(kernel)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
