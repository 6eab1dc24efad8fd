//! Queries the agent that runs on this node, on its metrics port.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use portolan_plan::{ListenSettings, NodePlan};

use crate::drains::ListedDrain;

/// Timeout of each step: an agent on the same node answers at once, or does not run.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum size of an answer in bytes; an agent never sends more.
const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// The draining real servers that the agent reports. The error is one line with the reason.
pub(super) fn drains(plan: Option<&NodePlan>) -> Result<Vec<ListedDrain>, String> {
    let node = plan.and_then(NodePlan::node);
    let settings = node.map(|node| node.settings.metrics.clone());
    let settings = settings.unwrap_or_else(|| portolan_plan::Settings::default().metrics);
    if !settings.is_on() {
        return Err(
            "the agent reports them on its metrics port, which is off (settings.metrics)".into(),
        );
    }
    let address = where_from(&settings);
    let failed = |problem: &dyn std::fmt::Display| format!("http://{address}/drains: {problem}");
    let body = get(address, "/drains").map_err(|error| failed(&error))?;
    serde_json::from_str(&body).map_err(|error| failed(&error))
}

/// The address at which a process on this node reaches the metrics port.
fn where_from(settings: &ListenSettings) -> SocketAddr {
    let address = match settings.bind_address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    SocketAddr::new(address, settings.port)
}

fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // One write: a server that answers early may close the connection before the rest is written.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut text)?;
    let other = || io::Error::other("the answer is not from an agent of this version");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(other)?;
    let code = head.split(' ').nth(1);
    (code == Some("200"))
        .then(|| body.to_owned())
        .ok_or_else(other)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answered(answer: &'static str) -> io::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            let mut byte = [0];
            while !request.ends_with("\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                request.push(byte[0].into());
            }
            stream.write_all(answer.as_bytes()).unwrap();
            request
        });
        let answer = get(address, "/drains");
        assert!(
            server
                .join()
                .unwrap()
                .starts_with("GET /drains HTTP/1.1\r\n")
        );
        answer
    }

    #[test]
    fn an_answer_is_read_and_everything_else_is_an_error() {
        assert_eq!(
            answered("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]").unwrap(),
            "[]"
        );
        let old = "HTTP/1.1 404 Not Found\r\n\r\n404 page not found\n";
        assert!(
            answered(old)
                .unwrap_err()
                .to_string()
                .contains("not from an agent of this version")
        );
        assert!(answered("").is_err());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let closed = listener.local_addr().unwrap();
        drop(listener);
        assert!(get(closed, "/drains").is_err());
    }

    #[test]
    fn an_unspecified_address_is_queried_on_loopback() {
        for (bound, asked) in [
            ("0.0.0.0", "127.0.0.1:10249"),
            ("::", "[::1]:10249"),
            ("192.168.50.1", "192.168.50.1:10249"),
        ] {
            let settings = ListenSettings {
                bind_address: bound.parse().unwrap(),
                port: 10249,
            };
            assert_eq!(where_from(&settings).to_string(), asked);
        }
    }
}
