//! Small answers over HTTP/1.1: health checks, `/healthz`, metrics. One answer a request, whose body
//! is never read.
//!
//! Touches: the network.

mod guests;
mod sockets;

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use portolan_plan::{Family, ListenSettings};
use serde::Serialize;

pub use sockets::serve;

/// What is answered.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    content_type: &'static str,
    more: Option<(&'static str, String)>,
    body: Bytes,
}

impl Answer {
    /// Plain text.
    pub(crate) fn text(status: u16, text: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            more: None,
            body: text.into(),
        }
    }

    /// A value as JSON.
    pub(crate) fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self {
                content_type: "application/json",
                ..Self::text(status, body)
            },
            // No value of ours has a form that JSON lacks.
            Err(error) => Self::text(500, error.to_string()),
        }
    }

    /// The same with one more header.
    pub(crate) fn with(self, name: &'static str, value: impl Display) -> Self {
        let more = Some((name, value.to_string()));
        Self { more, ..self }
    }

    /// The same as another type of text.
    pub(crate) fn of_type(self, content_type: &'static str) -> Self {
        Self {
            content_type,
            ..self
        }
    }

    /// For a path that nobody has.
    pub(crate) fn not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// Its code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Its body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

impl From<Answer> for Response<Full<Bytes>> {
    fn from(answer: Answer) -> Self {
        let mut response = Self::new(Full::new(answer.body));
        if let Ok(status) = answer.status.try_into() {
            *response.status_mut() = status;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
        if let Some((name, value)) = answer.more
            && let Ok(value) = value.try_into()
        {
            headers.insert(HeaderName::from_static(name), value);
        }
        response
    }
}

/// Who answers at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Page {
    /// A health check of a Service, on this port over this family.
    Check(u16, Family),
    /// The node's health.
    Node,
    /// Metrics.
    Metrics,
}

/// An address and port to answer at, and who does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Where; an unspecified address is that of one family.
    pub address: SocketAddr,
    /// Who.
    pub page: Page,
}

impl Place {
    /// Where a health check port is: on all addresses, and each family counts for itself (S-142).
    pub(crate) fn of_check(port: u16) -> [Self; 2] {
        Family::BOTH.map(|family| Self {
            address: SocketAddr::new(unspecified(family), port),
            page: Page::Check(port, family),
        })
    }

    /// Where settings want a page: an unspecified address means both families (S-146), port 0 nowhere.
    pub(crate) fn of_settings(
        settings: &ListenSettings,
        page: Page,
    ) -> impl Iterator<Item = Self> + use<> {
        let (bind_address, port, on) = (settings.bind_address, settings.port, settings.is_on());
        let addresses = if bind_address.is_unspecified() {
            Family::BOTH.map(unspecified).to_vec()
        } else {
            vec![bind_address]
        };
        let place = move |address| Self {
            address: SocketAddr::new(address, port),
            page,
        };
        let addresses = addresses.into_iter().filter(move |_| on);
        addresses.map(place)
    }
}

fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}
