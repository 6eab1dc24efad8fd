//! Whether a controller lets this node connect.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::doctor::facts::Looked;
use crate::receive::Address;

/// A controller farther away than this is of no use.
const LIMIT: Duration = Duration::from_secs(3);

/// Connects and closes; nothing is said.
pub(super) fn reach(address: &Address) -> (String, Looked<()>) {
    let reached = connect(address).map_err(|error| error.to_string());
    (address.to_string(), reached)
}

fn connect(address: &Address) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let connect = async {
        match address {
            Address::Tcp(address) => TcpStream::connect(address).await.map(drop),
            Address::Unix(path) => UnixStream::connect(path).await.map(drop),
        }
    };
    let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {LIMIT:?}"));
    runtime
        .block_on(async { timeout(LIMIT, connect).await })
        .unwrap_or_else(|_| Err(silent()))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_controller_is_reached_where_somebody_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let tcp = Address::Tcp(address);
        assert_eq!(reach(&tcp), (address.to_string(), Ok(())));
        drop(listener);
        assert!(reach(&tcp).1.is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("controller.sock");
        let unix = Address::Unix(path.clone());
        assert!(reach(&unix).1.is_err());
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(reach(&unix).1, Ok(()));
        drop(listener);
    }
}
