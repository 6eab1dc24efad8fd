//! Tests the connection to a controller.

use std::time::Duration;

use tokio::time::timeout;

use crate::doctor::facts::ConnectError;
use crate::receive::{Access, AccessError};

/// Timeout of the test; a slower controller is of no use.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Connects, authenticates the controller, and closes the connection without sending a request.
pub(super) fn reach(access: &Access) -> (String, Result<(), ConnectError>) {
    let why = |error: AccessError| match error {
        AccessError::Tls(error) => ConnectError::Distrusted(error.to_string()),
        other => ConnectError::NoWay(other.to_string()),
    };
    (access.to_string(), connect(access).map_err(why))
}

fn connect(access: &Access) -> Result<(), AccessError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let seen = runtime.block_on(async { timeout(TIMEOUT, access.see()).await });
    seen.unwrap_or(Err(AccessError::Silent(TIMEOUT)))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::receive::Address;

    #[test]
    fn a_controller_is_reachable_if_its_port_or_socket_is_open() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let tcp = Access::insecure(Address::Tcp(address));
        assert_eq!(reach(&tcp), (address.to_string(), Ok(())));
        drop(listener);
        assert!(reach(&tcp).1.is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("controller.sock");
        let unix = Access::insecure(Address::Unix(path.clone()));
        assert!(reach(&unix).1.is_err());
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(reach(&unix).1, Ok(()));
        drop(listener);
    }
}
