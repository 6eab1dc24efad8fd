//! Attackers at addresses of their own. All of loopback belongs to this machine, so a client can choose its address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

/// Open files that the attackers need in this process.
const FILES: u64 = 4096;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// An address of attackers. Agents are at 127.0.0.1.
pub(super) fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, last)
}

/// Raises the limit of open files of this process as far as the system allows.
pub(super) fn raise_open_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    ensure!(
        maximum.is_none_or(|files| files >= FILES),
        "the limit of open files is {maximum:?}; the attackers need {FILES}: see `ulimit -Hn`"
    );
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).context("raise the limit of open files")
}

/// Connects from one of these addresses.
pub(super) async fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Starts a proxy whose connections to the controller come from this address, for clients that cannot choose theirs.
/// Returns where it listens.
pub(super) async fn proxy(from: Ipv4Addr, to: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.context("listen for attackers")?;
    let address = listener.local_addr()?;
    drop(tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((client, _)) => drop(tokio::spawn(pass(client, from, to))),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }));
    Ok(address)
}

/// Copies in both directions until either side closes.
async fn pass(mut client: TcpStream, from: Ipv4Addr, to: SocketAddr) {
    // It fails for a client that is gone.
    drop(client.set_nodelay(true));
    if let Ok(mut server) = connect(from, to).await {
        // An error means that a side has closed.
        drop(copy_bidirectional(&mut client, &mut server).await);
    }
}
