//! Keeps the listening sockets (`healthCheckNodePort`, `/healthz`, metrics) equal to those that the plan requires.
//! Sockets that are still needed stay open. One that cannot be opened is reported once and retried without blocking
//! the others (S-141, S-143, S-146).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use rustix::net::{Shutdown, shutdown};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::connection_limiter::ConnectionLimiter;
use crate::health::{ClosedChecks, PassCounts};
use crate::page::{Page, Place};
use crate::pages::Pages;

/// Maximum number of connections of a socket that wait to be accepted.
const BACKLOG: u32 = 128;
/// Initial retry delay for a socket that could not be opened; it doubles for health checks, up to
/// [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Retry delay for the node's own ports (S-146).
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Serves on all required addresses until the program ends.
pub async fn serve(pages: Arc<Pages>, mut counts: watch::Receiver<PassCounts>) {
    let mut sockets = Sockets::default();
    let mut moved = None;
    loop {
        let latest = *counts.borrow_and_update();
        if moved != Some(latest.moved) {
            moved = Some(latest.moved);
            sockets.follow(pages.places()).await;
        }
        sockets.open(&pages);
        let (closed, closed_checks) = sockets.failures(&pages);
        pages.health.set_closed(closed, closed_checks);
        tokio::select! {
            changed = counts.changed() => if changed.is_err() { return },
            () = until(sockets.due()) => {}
        }
    }
}

/// Waits until this time; forever without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// All sockets.
#[derive(Default)]
struct Sockets {
    open: BTreeMap<Place, Listening>,
    closed: BTreeMap<Place, Closed>,
    limiter: Arc<ConnectionLimiter>,
}

/// A socket that is open for the lifetime of this value.
struct Listening(JoinHandle<()>);

impl Listening {
    /// Closes the socket and waits until its address is free.
    async fn close(mut self) {
        self.0.abort();
        // The task was aborted, so its result is of no interest.
        drop((&mut self.0).await);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A socket that could not be opened.
#[derive(Default)]
struct Closed {
    /// The error message; `None` if this is no problem, as without IPv6, and before the first attempt.
    why: Option<String>,
    wait: Duration,
    due: Option<Instant>,
}

impl Sockets {
    /// Closes sockets that are not needed any more, and records the ones to open. Closing is complete on return,
    /// because the next socket may use the same port on more addresses.
    async fn follow(&mut self, wanted: BTreeSet<Place>) {
        let open = std::mem::take(&mut self.open);
        for (place, listening) in open {
            if wanted.contains(&place) {
                self.open.insert(place, listening);
            } else {
                listening.close().await;
            }
        }
        self.closed.retain(|place, _| wanted.contains(place));
        for place in wanted {
            if !self.open.contains_key(&place) {
                self.closed.entry(place).or_default();
            }
        }
    }

    /// Tries to open all closed sockets: a new plan may coincide with the release of a port.
    fn open(&mut self, pages: &Arc<Pages>) {
        let now = Instant::now();
        let places: Vec<Place> = self.closed.keys().copied().collect();
        for place in places {
            match listen(place.address) {
                Ok(listener) => {
                    let listener = Listener(listener);
                    let closed = self.closed.remove(&place);
                    if closed.is_some_and(|closed| closed.why.is_some()) {
                        info!(address = %place.address, "now listening for {}", name(place.page, pages));
                    }
                    let task = accept(listener, place.page, pages.clone(), self.limiter.clone());
                    self.open.insert(place, Listening(tokio::spawn(task)));
                }
                Err(error) => {
                    let closed = self.closed.entry(place).or_default();
                    closed.fail(place, &error, pages, now);
                }
            }
        }
    }

    /// The failures of the node's own pages, and those of health check ports.
    fn failures(&self, pages: &Pages) -> (BTreeSet<String>, ClosedChecks) {
        let (mut of_node, mut of_services) = (BTreeSet::new(), ClosedChecks::new());
        for (place, closed) in &self.closed {
            let Some(why) = closed.why.clone() else {
                continue;
            };
            match place.page {
                // A port that no Service has any more is about to be closed.
                Page::Check(port, _) => {
                    let service = pages.health.service(port);
                    of_services.extend(service.map(|service| (service, why)));
                }
                Page::Node | Page::Metrics => drop(of_node.insert(why)),
            }
        }
        (of_node, of_services)
    }

    fn due(&self) -> Option<Instant> {
        self.closed.values().filter_map(|closed| closed.due).min()
    }
}

impl Closed {
    fn fail(&mut self, place: Place, error: &io::Error, pages: &Pages, now: Instant) {
        let why = words(place, error, pages);
        if let Some(why) = why.as_ref().filter(|why| self.why.as_ref() != Some(why)) {
            warn!("{why}");
        }
        self.why = why;
        // An attempt due to a new plan does not postpone the next retry.
        if self.due.is_none_or(|due| due <= now) {
            self.wait = match place.page {
                Page::Check(..) => (self.wait * 2).clamp(INITIAL_BACKOFF, MAX_BACKOFF),
                Page::Node | Page::Metrics => RETRY_DELAY,
            };
            self.due = Some(now + self.wait);
        }
    }
}

/// The message with the socket, the error of the kernel and what to check; `None` for a family that the node lacks.
fn words(place: Place, error: &io::Error, pages: &Pages) -> Option<String> {
    let (what, address) = (name(place.page, pages), place.address);
    let hint = match Errno::from_io_error(error) {
        Some(Errno::AFNOSUPPORT) => return None,
        Some(Errno::ADDRINUSE) => {
            let port = address.port();
            format!("; `ss -ltnp sport = {port}` on the node names the program that has the port")
        }
        Some(Errno::ADDRNOTAVAIL) => "; does the node have this address?".into(),
        _ => String::new(),
    };
    Some(format!("listen on {address} for {what}: {error}{hint}"))
}

fn name(page: Page, pages: &Pages) -> String {
    match page {
        Page::Check(port, _) => match pages.health.service(port) {
            Some(service) => format!("health checks of {service}"),
            None => "health checks".into(),
        },
        Page::Node => "the node's health".into(),
        Page::Metrics => "metrics".into(),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() {
        let socket = TcpSocket::new_v6()?;
        // IPv4 has a socket of its own, independent of `net.ipv6.bindv6only`.
        set_ipv6_v6only(&socket, true)?;
        socket
    } else {
        TcpSocket::new_v4()?
    };
    // Connections in TIME_WAIT must not block the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A socket that releases its address when it is dropped.
struct Listener(TcpListener);

impl Drop for Listener {
    fn drop(&mut self) {
        // Closing is not enough: a child process has a copy between fork and exec, and would keep the address in use
        // until then. It fails only if the socket does not listen any more, which is fine.
        let _ended = shutdown(&self.0, Shutdown::Read);
    }
}

/// Accepts connections. They end with the socket.
async fn accept(
    listener: Listener,
    page: Page,
    pages: Arc<Pages>,
    limiter: Arc<ConnectionLimiter>,
) {
    let errors = &pages.health.counters.accept_errors;
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.0.accept() => match taken {
                Ok((stream, _)) => limiter.serve(stream, page, &pages, &mut tasks),
                Err(error) => sleep(errors.note("http", &error)).await,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}
