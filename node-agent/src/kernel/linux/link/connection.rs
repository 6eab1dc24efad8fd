//! The connection to rtnetlink. The library is asynchronous but this thread is blocking: it drives the library
//! while it waits for a reply, with a timeout. A connection that failed or did not reply is replaced by a new one
//! with the same port.

use std::future::Future;
use std::io;
use std::time::Duration;

use netlink_sys::{AsyncSocket as _, SocketAddr};
use rtnetlink::Handle;
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Why a request failed.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// The kernel refused, with this error number.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// There is no such device.
    #[error("there is no device {0}")]
    NoDevice(String),
    /// The library could not process the reply.
    #[error("{0}")]
    Library(rtnetlink::Error),
    /// The kernel did not reply in time.
    #[error("rtnetlink: no answer from the kernel within {0:?}")]
    Silent(Duration),
    /// The connection failed, so the reply is incomplete.
    #[error("rtnetlink: the connection failed before the answer was complete")]
    Broken,
    /// No socket could be opened.
    #[error("rtnetlink: cannot open a socket: {0}")]
    Io(#[from] io::Error),
}

impl Failure {
    /// The kernel's error number, if it refused.
    pub(super) fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused(errno) => Some(*errno),
            _ => None,
        }
    }

    /// Whether the request may have taken effect nevertheless.
    pub(super) fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Broken | Self::Library(_))
    }
}

impl From<rtnetlink::Error> for Failure {
    fn from(error: rtnetlink::Error) -> Self {
        match error {
            rtnetlink::Error::NetlinkError(refused) => {
                Self::Refused(refused.raw_code().saturating_neg())
            }
            rtnetlink::Error::NamespaceError(device) => Self::NoDevice(device),
            other => Self::Library(other),
        }
    }
}

pub(super) struct Connection {
    runtime: Runtime,
    /// `None` after a failure, until the next request.
    open: Option<Open>,
    port: u32,
}

struct Open {
    handle: Handle,
    /// Ends when the connection fails.
    task: JoinHandle<()>,
}

impl Connection {
    /// Opens a connection in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (open, port) = connect(&runtime, 0)?;
        Ok(Self {
            runtime,
            open: Some(open),
            port,
        })
    }

    /// The netlink port of the socket.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// Performs a request with this timeout.
    pub(super) fn ask<T, F>(
        &mut self,
        limit: Duration,
        ask: impl FnOnce(Handle) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, rtnetlink::Error>>,
    {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.reconnect()?,
        };
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, ask(open.handle.clone())).await });
        let answer = match answer {
            Ok(Ok(_)) if open.task.is_finished() => Err(Failure::Broken),
            Ok(answer) => answer.map_err(Failure::from),
            Err(_) => Err(Failure::Silent(limit)),
        };
        match &answer {
            Ok(_) | Err(Failure::Refused(_) | Failure::NoDevice(_)) => self.open = Some(open),
            // The port is free only after the task has ended and closed the socket.
            Err(_) => self.runtime.block_on(async {
                open.task.abort();
                drop(open.task.await);
            }),
        }
        answer
    }

    /// Reconnects with the same port, by which the agent recognises the events that it caused itself. If another
    /// socket has taken the port, the agent gets events of its own changes, which only costs additional reads.
    fn reconnect(&mut self) -> io::Result<Open> {
        let again = connect(&self.runtime, self.port);
        let (open, _) = again.or_else(|_| connect(&self.runtime, 0))?;
        Ok(open)
    }
}

/// Connects with this port, or with any port (0).
fn connect(runtime: &Runtime, port: u32) -> io::Result<(Open, u32)> {
    let entered = runtime.enter();
    let (mut connection, handle, _) = rtnetlink::new_connection()?;
    drop(entered);
    let socket = connection.socket_mut().socket_mut();
    socket.bind(&SocketAddr::new(port, 0))?;
    let mut bound = SocketAddr::new(0, 0);
    socket.get_address(&mut bound)?;
    let task = runtime.spawn(connection);
    Ok((Open { handle, task }, bound.port_number()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    async fn links(handle: Handle) -> Result<usize, rtnetlink::Error> {
        use futures::TryStreamExt as _;
        let mut links = handle.link().get().execute();
        let mut count = 0;
        while links.try_next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    #[test]
    fn a_failed_or_silent_connection_is_replaced_by_one_with_the_same_port() {
        let mut connection = Connection::open().unwrap();
        let port = connection.port();
        let all = connection.ask(LIMIT, links).unwrap();
        assert!(all > 0, "lo at least");
        let never = |_| std::future::pending::<Result<(), rtnetlink::Error>>();
        let silent = connection.ask(Duration::from_millis(5), never).unwrap_err();
        assert!(matches!(silent, Failure::Silent(_)) && silent.is_in_doubt());
        assert_eq!(connection.ask(LIMIT, links).unwrap(), all);
        let open = connection.open.as_ref().unwrap();
        open.task.abort();
        let broken = connection.ask(LIMIT, links).unwrap_err();
        assert!(broken.is_in_doubt(), "{broken}");
        assert_eq!(connection.ask(LIMIT, links).unwrap(), all);
        let taken = connect(&connection.runtime, port).err().unwrap();
        assert_eq!(
            taken.kind(),
            io::ErrorKind::AddrInUse,
            "the new connection has the port again"
        );
    }

    #[test]
    fn a_refusal_does_not_close_the_connection() {
        let mut connection = Connection::open().unwrap();
        let refused = connection.ask(LIMIT, |handle| async move {
            handle.link().del(u32::MAX >> 1).execute().await
        });
        let refused = refused.unwrap_err();
        assert!(
            refused.errno().is_some() && !refused.is_in_doubt(),
            "{refused}"
        );
        assert!(connection.open.is_some());
    }
}
