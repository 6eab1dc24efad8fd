//! Listening where the plan wants it: sockets that stay wanted stay open, and one that cannot be
//! opened is told once and tried again, while others go on (S-141, S-143, S-146).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_ipv6_v6only;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::guests::Guests;
use super::{Page, Place};
use crate::health::Wanted;
use crate::pages::Pages;

/// How many connections may wait to be taken at one socket.
const BACKLOG: u32 = 128;
/// When a socket that could not be opened is tried again, at first; it doubles for health checks, up
/// to [`LONGEST_BACK_OFF`].
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);
/// The same for the node's own ports (S-146).
const RETRY: Duration = Duration::from_secs(5);
/// A pause when no connection can be taken: there are too many open files.
const BREATH: Duration = Duration::from_millis(100);

/// Answers wherever it is wanted, for as long as the program runs.
pub async fn serve(pages: Arc<Pages>, mut wanted: watch::Receiver<Wanted>) {
    allow_many_files();
    let mut sockets = Sockets::default();
    let mut moved = None;
    loop {
        let news = *wanted.borrow_and_update();
        if moved != Some(news.moved) {
            moved = Some(news.moved);
            sockets.follow(pages.places()).await;
        }
        sockets.open(&pages);
        pages.health.set_closed(sockets.failures());
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = until(sockets.due()) => {}
        }
    }
}

/// Each health check port needs two files, and some systems allow a thousand by themselves.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        debug!(%error, "open files stay as limited as they are");
    }
}

/// Waits, for ever if there is no time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// All of them.
#[derive(Default)]
struct Sockets {
    open: BTreeMap<Place, Listening>,
    closed: BTreeMap<Place, Closed>,
    guests: Arc<Guests>,
}

/// A socket that is open as long as this is there.
struct Listening(JoinHandle<()>);

impl Listening {
    /// Closes it, and gives its address back before this ends.
    async fn close(mut self) {
        self.0.abort();
        // It was told to end, so how it ended says nothing.
        drop((&mut self.0).await);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One that could not be opened.
#[derive(Default)]
struct Closed {
    /// In words; `None` where nothing is wrong, as without IPv6, and before the first try.
    why: Option<String>,
    wait: Duration,
    due: Option<Instant>,
}

impl Sockets {
    /// Closes what is not wanted any more and notes what is. What is closed is closed when this ends: the
    /// next place may be the same port of more addresses.
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

    /// Tries what is not open: each plan may have come with the freeing of a port.
    fn open(&mut self, pages: &Arc<Pages>) {
        let now = Instant::now();
        let places: Vec<Place> = self.closed.keys().copied().collect();
        for place in places {
            match listen(place.address) {
                Ok(listener) => {
                    let listener = Listener(listener);
                    let closed = self.closed.remove(&place);
                    if closed.is_some_and(|closed| closed.why.is_some()) {
                        info!(address = %place.address, "open now: {}", name(place.page, pages));
                    }
                    let task = accept(listener, place.page, pages.clone(), self.guests.clone());
                    self.open.insert(place, Listening(tokio::spawn(task)));
                }
                Err(error) => {
                    let closed = self.closed.entry(place).or_default();
                    closed.fail(place, &error, pages, now);
                }
            }
        }
    }

    fn failures(&self) -> BTreeSet<String> {
        let closed = self.closed.values();
        closed.filter_map(|closed| closed.why.clone()).collect()
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
        // A try that a plan brought along puts the next one off no further.
        if self.due.is_none_or(|due| due <= now) {
            self.wait = match place.page {
                Page::Check(..) => (self.wait * 2).clamp(FIRST_BACK_OFF, LONGEST_BACK_OFF),
                Page::Node | Page::Metrics => RETRY,
            };
            self.due = Some(now + self.wait);
        }
    }
}

/// What fails, what the kernel said and what to check; `None` for a family that the node does not have.
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
        // IPv4 has a socket of its own, whatever the node's settings.
        set_ipv6_v6only(&socket, true)?;
        socket
    } else {
        TcpSocket::new_v4()?
    };
    // Connections that were closed a moment ago do not keep the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A socket that gives its address back when this is dropped.
struct Listener(TcpListener);

impl Drop for Listener {
    fn drop(&mut self) {
        // Closing is not enough: a child process has a copy of it between fork and exec, and the address would stay
        // taken until then. It fails for a socket that does not listen any more, which is what is wanted.
        let _ended = shutdown(&self.0, Shutdown::Read);
    }
}

/// Takes connections. They end with the socket.
async fn accept(listener: Listener, page: Page, pages: Arc<Pages>, guests: Arc<Guests>) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.0.accept() => match taken {
                Ok((stream, _)) => guests.welcome(stream, page, &pages, &mut tasks),
                Err(_) => sleep(BREATH).await,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}
