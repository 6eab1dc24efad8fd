//! An accepted connection. It counts the bytes written, serves one stream, and ends without one.

use std::io::{self, Cursor};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, join, split};
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::transport::server::Connected;

use super::written::Written;
use crate::open_files::Place;
use crate::room::Seat;

/// Timeout from the accepted connection to the first admitted stream. Longer than a token review takes.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of requests on a connection until a stream is admitted. Agents make one.
const MAX_REQUESTS: u32 = 4;
/// Time from the end of its stream to the end of a connection, in which the last message is written.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes that are read before a stream is admitted: several requests, and the Hello. HTTP/2 has
/// frames without effect, which would cost processor time without limit.
const MAX_STRANGER_BYTES: usize = 128 * 1024;

/// Both directions of a connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Where a client connects from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    /// Its address, without the port, which differs for each connection. `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// The same for logs.
    pub(super) text: Arc<str>,
}

/// The life of a connection. It serves one stream, so a client cannot keep connections that serve none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// No stream was admitted yet.
    Stranger {
        /// The number of requests so far.
        requests: u32,
    },
    /// Its stream is open.
    Admitted,
    /// Its stream has ended, or it had too many requests.
    Leaving,
}

/// The client of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Where it connects from.
    pub(super) origin: Origin,
    /// Whether it does not use TLS although this port requires it.
    pub(super) plain: bool,
    /// The bytes written to its connection.
    pub(super) written: Arc<Written>,
    /// `None` without authentication: such a connection serves any number of streams.
    life: Option<Arc<watch::Sender<Life>>>,
}

impl Peer {
    /// A client that has to authenticate, or that never has to.
    pub(super) fn new(origin: Origin, plain: bool, authenticates: bool) -> Self {
        let life = || Arc::new(watch::Sender::new(Life::Stranger { requests: 0 }));
        Self {
            origin,
            plain,
            written: Arc::default(),
            life: authenticates.then(life),
        }
    }

    /// Records a request. Returns false if it must be refused without a look at its token.
    pub(super) fn may_ask(&self) -> bool {
        let mut may = self.life.is_none();
        self.change(|life| match life {
            Life::Stranger { requests } if requests < MAX_REQUESTS => {
                may = true;
                Life::Stranger {
                    requests: requests + 1,
                }
            }
            Life::Stranger { .. } => Life::Leaving,
            other => other,
        });
        may
    }

    /// Records that a stream was admitted. Returns false if the connection has had one.
    pub(super) fn let_in(&self) -> bool {
        let mut is_first = self.life.is_none();
        self.change(|life| {
            is_first = matches!(life, Life::Stranger { .. });
            if is_first { Life::Admitted } else { life }
        });
        is_first
    }

    /// Records that the admitted stream has ended.
    pub(super) fn leave(&self) {
        self.change(|_| Life::Leaving);
    }

    /// Whether the connection waits for the admission of a stream.
    fn is_stranger(&self) -> bool {
        let is_stranger =
            |life: &Arc<watch::Sender<Life>>| matches!(*life.borrow(), Life::Stranger { .. });
        self.life.as_ref().is_some_and(is_stranger)
    }

    fn change(&self, change: impl FnOnce(Life) -> Life) {
        if let Some(life) = &self.life {
            life.send_if_modified(|life| {
                let before = *life;
                *life = change(before);
                *life != before
            });
        }
    }
}

/// Waits until a connection has to end: its place is needed for others, no stream is admitted in time, or its stream
/// has ended.
async fn end_of(mut life: watch::Receiver<Life>, mut seat: Seat) {
    let is_known = |life: &Life| !matches!(life, Life::Stranger { .. });
    tokio::select! {
        // A stream that is admitted while its place is taken away stays.
        biased;
        _ = life.wait_for(is_known) => {}
        () = seat.evicted() => return,
        () = sleep(ADMISSION_TIMEOUT) => return,
    }
    if *life.borrow() == Life::Leaving {
        // It had no stream, so it keeps its place to its end.
        tokio::select! {
            () = seat.evicted() => {}
            () = sleep(LEAVE_TIMEOUT) => {}
        }
        return;
    }
    drop(seat);
    drop(life.wait_for(|life| *life == Life::Leaving).await);
    sleep(LEAVE_TIMEOUT).await;
}

/// The future of [`end_of`].
type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection.
pub(super) struct Connection {
    io: Box<dyn Io>,
    peer: Peer,
    written: Counter,
    /// Completes when the connection has to end.
    end: Option<Ending>,
    is_over: bool,
    /// Number of bytes that were read.
    read: usize,
    /// Free again once the connection is closed.
    _file: Place,
}

impl Connection {
    /// A connection of a client, which takes this seat until a stream is admitted, and the file to its end.
    pub(super) fn new(
        io: Box<dyn Io>,
        peer: Peer,
        written: Counter,
        (seat, file): (Seat, Place),
    ) -> Self {
        let life = peer.life.as_ref().map(|life| life.subscribe());
        Self {
            io,
            peer,
            written,
            end: life.map(|life| -> Ending { Box::pin(end_of(life, seat)) }),
            is_over: false,
            read: 0,
            _file: file,
        }
    }

    /// Whether the connection has to end.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            self.end = None;
            self.is_over = true;
        }
        self.is_over
    }

    /// While a write waits, HTTP/2 does not read, so the end has to be noticed here, too: a client that reads nothing
    /// would stay for ever.
    fn unless_over<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_pending() && self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        done
    }

    fn count(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            let bytes = u64::try_from(*bytes).unwrap_or(0);
            self.written.inc_by(bytes);
            self.peer.written.add(bytes);
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.read > MAX_STRANGER_BYTES && self.peer.is_stranger() {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let before = buffer.filled().len();
        let done = Pin::new(&mut self.io).poll_read(context, buffer);
        self.read = self.read.saturating_add(buffer.filled().len() - before);
        done
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.count(&written);
        self.unless_over(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.count(&written);
        self.unless_over(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.unless_over(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(context);
        self.unless_over(closed, context)
    }
}

/// A connection whose first byte was already read to detect its protocol.
pub(super) fn with_first(first: u8, io: Box<dyn Io>) -> impl Io {
    let (reader, writer) = split(io);
    join(Cursor::new([first]).chain(reader), writer)
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
