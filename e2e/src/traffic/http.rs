//! One question over HTTP, as a balancer or a scraper asks it.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::client::left;
use super::port;

/// What came back.
#[derive(Debug, Clone)]
pub struct Response {
    /// The code.
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Asks once on a connection of its own.
///
/// # Errors
/// When nobody answers in time, or not in HTTP.
pub fn get(target: SocketAddr, path: &str, deadline: Duration) -> Result<Response> {
    let start = Instant::now();
    let ask = || {
        let mut stream = port::connect(target, deadline)?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
        )?;
        stream.set_read_timeout(Some(left(start, deadline)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    let text = ask().with_context(|| format!("GET http://{target}{path}"))?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("no HTTP from {target}: {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok(Response {
        status: status.with_context(|| format!("no HTTP from {target}: {head:?}"))?,
        head: head.to_lowercase(),
        body: body.to_owned(),
    })
}

/// Succeeds if nobody listens there.
///
/// # Errors
/// When somebody does, or nothing comes back at all.
pub fn refused(target: SocketAddr, deadline: Duration) -> Result<()> {
    match port::connect(target, deadline) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error).with_context(|| format!("connect to {target}")),
        Ok(_) => bail!("somebody listens on {target}"),
    }
}
