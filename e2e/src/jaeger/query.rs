//! The used part of Jaeger's query API.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Trace;
use crate::traffic::http;

/// One question.
const QUESTION: Duration = Duration::from_secs(5);
/// The service that begins traces.
const SERVICE: &str = "portolan-controller";

/// Asks a Jaeger that runs somewhere; `http://ADDRESS:PORT` when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    address: SocketAddr,
}

#[derive(Debug, Deserialize)]
struct Answer<T> {
    data: T,
}

impl Query {
    /// One of this machine.
    #[must_use]
    pub fn on_loopback(port: u16) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        Self { address }
    }

    /// Where a browser shows a trace.
    #[must_use]
    pub fn page(&self, trace: &str) -> String {
        format!("{self}/trace/{trace}")
    }

    /// Whether the API answers.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.ask::<serde_json::Value>("/api/services").is_ok()
    }

    /// All traces of the controller that it has.
    ///
    /// # Errors
    /// When it does not answer, or not as Jaeger does.
    pub fn traces(&self) -> Result<Vec<Trace>> {
        let services: Answer<Option<Vec<String>>> = self.ask("/api/services")?;
        let known = services.data.unwrap_or_default();
        if !known.iter().any(|service| service == SERVICE) {
            return Ok(Vec::new());
        }
        let path = format!("/api/traces?service={SERVICE}&lookback=1h&limit=500");
        Ok(self.ask::<Answer<Vec<Trace>>>(&path)?.data)
    }

    /// One trace.
    ///
    /// # Errors
    /// When `id` is none that a trace can have, it has no such trace, or does not answer.
    pub fn trace(&self, id: &str) -> Result<Trace> {
        let is_one = id.len() <= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(
            is_one && !id.is_empty(),
            "{id:?} is no trace: 32 hex digits are"
        );
        let mut found: Answer<Vec<Trace>> = self.ask(&format!("/api/traces/{id}"))?;
        let trace = found.data.pop();
        trace.with_context(|| format!("{self} has no trace {id}"))
    }

    fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let answer = http::json(self.address, path, QUESTION);
        answer.with_context(|| format!("ask {self}{path}"))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.address)
    }
}

impl FromStr for Query {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let address = text.strip_prefix("http://");
        match address.map(|address| address.trim_end_matches('/').parse()) {
            Some(Ok(address)) => Ok(Self { address }),
            _ => bail!("{text:?} is no address of Jaeger; write http://ADDRESS:PORT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let query: Query = "http://10.0.2.2:16686".parse().unwrap();
        assert_eq!(query.to_string(), "http://10.0.2.2:16686");
        assert_eq!(query.page("7a"), "http://10.0.2.2:16686/trace/7a");
        assert_eq!("http://10.0.2.2:16686/".parse::<Query>().unwrap(), query);
        for wrong in ["10.0.2.2:16686", "http://jaeger:16686", "http://10.0.2.2"] {
            let error = wrong.parse::<Query>().unwrap_err().to_string();
            assert!(error.contains("http://ADDRESS:PORT"), "{error}");
        }
    }

    #[test]
    fn what_is_no_trace_is_not_asked_for() {
        // No program listens there, so a request would fail with another error.
        let query = Query::on_loopback(1);
        for wrong in ["", "x", "7a HTTP/1.1", &"7".repeat(33)] {
            let error = query.trace(wrong).unwrap_err().to_string();
            assert!(error.contains("is no trace"), "{error}");
        }
    }
}
