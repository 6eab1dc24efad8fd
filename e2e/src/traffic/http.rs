//! One HTTP request, as a load balancer or a scraper sends it.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;

use super::client::left;
use super::port;

/// The response.
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
/// If there is no answer in time, or it is not HTTP.
pub fn get(target: SocketAddr, path: &str, deadline: Duration) -> Result<Response> {
    get_as(target, path, "*/*", deadline)
}

/// The same with an Accept header.
///
/// # Errors
/// As [`get`].
pub fn get_as(
    target: SocketAddr,
    path: &str,
    accept: &str,
    deadline: Duration,
) -> Result<Response> {
    let start = Instant::now();
    let ask = || {
        let mut stream = port::connect(target, deadline)?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: node\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
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

/// Asks for a document in JSON, of a program that answers in any version of HTTP.
///
/// # Errors
/// If there is no answer in time, the code is not 200, or the document has another shape.
pub fn json<T: DeserializeOwned>(target: SocketAddr, path: &str, deadline: Duration) -> Result<T> {
    let start = Instant::now();
    let mut stream = port::connect(target, deadline)?;
    // Of the older version nothing comes in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    stream.set_read_timeout(Some(left(start, deadline)))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no HTTP")?;
    ensure!(head.contains(" 200 "), "{path}: {text}");
    serde_json::from_str(body).with_context(|| format!("{path}: {body}"))
}

/// Succeeds if the port does not listen.
///
/// # Errors
/// If it does, or there is no response at all.
pub fn refused(target: SocketAddr, deadline: Duration) -> Result<()> {
    match port::connect(target, deadline) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error).with_context(|| format!("connect to {target}")),
        Ok(_) => bail!("a program listens on {target}"),
    }
}
