//! An accepted connection. It counts the bytes written, and closes if no stream is admitted on it in time.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, join, split};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use super::outgoing::Written;
use crate::open_files::Place;

/// Timeout from the accepted connection to the first admitted stream. Longer than a token review takes.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Both directions of a connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The client of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Its address, for logs.
    pub(super) from: Arc<str>,
    /// Whether it does not use TLS although this port requires it.
    pub(super) plain: bool,
    /// The bytes written to its connection.
    pub(super) written: Arc<Written>,
    known: Arc<AtomicBool>,
}

impl Peer {
    pub(super) fn new(from: String, plain: bool, known: bool) -> Self {
        Self {
            from: from.into(),
            plain,
            written: Arc::default(),
            known: Arc::new(known.into()),
        }
    }

    /// Records that a stream was admitted, so the connection may last.
    pub(super) fn let_in(&self) {
        self.known.store(true, Ordering::Relaxed);
    }
}

/// A connection.
pub(super) struct Connection {
    io: Box<dyn Io>,
    peer: Peer,
    written: Counter,
    /// The deadline until a stream is admitted.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Free again once the connection is closed.
    _place: Place,
}

impl Connection {
    pub(super) fn new(io: Box<dyn Io>, peer: Peer, written: Counter, place: Place) -> Self {
        let stranger = !peer.known.load(Ordering::Relaxed);
        Self {
            io,
            peer,
            written,
            deadline: stranger.then(|| Box::pin(sleep(ADMISSION_TIMEOUT))),
            _place: place,
        }
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
        let this = &mut *self;
        if let Some(deadline) = &mut this.deadline {
            if this.peer.known.load(Ordering::Relaxed) {
                this.deadline = None;
            } else if deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        Pin::new(&mut this.io).poll_read(context, buffer)
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
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// A connection whose first byte was already read to detect its protocol.
pub(super) fn with_first(first: u8, io: Box<dyn Io>) -> impl Io {
    let (reader, writer) = split(io);
    join(Cursor::new([first]).chain(reader), writer)
}
