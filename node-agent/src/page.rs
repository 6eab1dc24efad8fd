//! Pages of the agent: where each is served, and HTTP responses.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use portolan_plan::{Family, ListenSettings};
use serde::Serialize;

/// An HTTP response.
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
            // Never happens: all values here can be represented in JSON.
            Err(error) => Self::text(500, error.to_string()),
        }
    }

    /// Adds a header.
    pub(crate) fn with(self, name: &'static str, value: impl Display) -> Self {
        let more = Some((name, value.to_string()));
        Self { more, ..self }
    }

    /// Sets another content type.
    pub(crate) fn of_type(self, content_type: &'static str) -> Self {
        Self {
            content_type,
            ..self
        }
    }

    /// The response for an unknown path.
    pub(crate) fn not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// Its status code.
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

/// What a socket serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Page {
    /// The health check of a Service, on this port and family.
    Check(u16, Family),
    /// The node's health.
    Node,
    /// Metrics.
    Metrics,
}

/// A listen address and what it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The listen address; an unspecified address covers one family.
    pub address: SocketAddr,
    /// What it serves.
    pub page: Page,
}

impl Place {
    /// The listen addresses of a health check port: all addresses, with a socket and a count per family (S-142).
    pub(crate) fn of_check(port: u16) -> [Self; 2] {
        Family::BOTH.map(|family| Self {
            address: SocketAddr::new(unspecified(family), port),
            page: Page::Check(port, family),
        })
    }

    /// The listen addresses of a page by its settings: an unspecified address means both families (S-146), and
    /// port 0 disables the page.
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
