//! A connection that has begun. It counts what is written, and ends by itself if nobody is let in on it.

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

/// How long a connection may be open before a stream on it is let in; longer than reviews take.
const STRANGER: Duration = Duration::from_secs(30);

/// Both ways on one connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Who is at the other end.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Its address, for logs.
    pub(super) from: Arc<str>,
    /// Whether it speaks no TLS where it should.
    pub(super) plain: bool,
    /// What was written to its connection.
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

    /// It was let in: its connection may last.
    pub(super) fn let_in(&self) {
        self.known.store(true, Ordering::Relaxed);
    }
}

/// A connection.
pub(super) struct Connection {
    io: Box<dyn Io>,
    peer: Peer,
    written: Counter,
    /// Until somebody is let in.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn new(io: Box<dyn Io>, peer: Peer, written: Counter) -> Self {
        let stranger = !peer.known.load(Ordering::Relaxed);
        Self {
            io,
            peer,
            written,
            deadline: stranger.then(|| Box::pin(sleep(STRANGER))),
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

/// A connection of which a first byte was read already, to see what it is.
pub(super) fn with_first(first: u8, io: Box<dyn Io>) -> impl Io {
    let (reader, writer) = split(io);
    join(Cursor::new([first]).chain(reader), writer)
}
