//! The question as the query of a URL.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use portolan_plan::ServiceId;
use portolan_planner::model::Kind;
use thiserror::Error;

/// Maximum length of a query string, in bytes.
const MAX_QUERY_BYTES: usize = 1024;

/// A question about a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The Service.
    pub service: ServiceId,
    /// An address to which no node should send new connections any more.
    pub gone: Option<IpAddr>,
    /// For each kind, the newest object version that the answer has to include.
    pub read: BTreeMap<Kind, u64>,
}

/// An invalid question.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuestionError {
    /// The query names no Service.
    #[error("no Service: ask for ?service=NAMESPACE/NAME")]
    NoService,
    /// A part of the query is invalid.
    #[error(
        "{name}={value}: {problem}; see service=NAMESPACE/NAME, gone=IP, Service=VERSION, EndpointSlice=VERSION"
    )]
    Part {
        /// Name of the part.
        name: String,
        /// Value of the part.
        value: String,
        /// The problem.
        problem: &'static str,
    },
    /// The query is too long.
    #[error("a query of more than {MAX_QUERY_BYTES} bytes")]
    Long,
}

impl Question {
    /// Parses a query, for example `service=shop/cart&gone=10.0.0.1&EndpointSlice=7`. No value needs escapes.
    ///
    /// # Errors
    /// [`QuestionError`] names the invalid part.
    pub fn read(query: &str) -> Result<Self, QuestionError> {
        if query.len() > MAX_QUERY_BYTES {
            return Err(QuestionError::Long);
        }
        let (mut service, mut gone, mut read) = (None, None, BTreeMap::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let wrong = |problem| QuestionError::Part {
                name: name.into(),
                value: value.into(),
                problem,
            };
            match name {
                "service" => {
                    let id = value.split_once('/').filter(|(ns, name)| {
                        !ns.is_empty() && !name.is_empty() && !name.contains('/')
                    });
                    let (namespace, name) = id.ok_or_else(|| wrong("write NAMESPACE/NAME"))?;
                    service = Some(ServiceId::new(namespace, name));
                }
                "gone" => {
                    let address = value.parse().map_err(|_| wrong("expected an IP address"))?;
                    gone = Some(address);
                }
                _ => {
                    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
                    let kind = kind.ok_or_else(|| wrong("unknown parameter"))?;
                    let version = value
                        .parse()
                        .map_err(|_| wrong("expected a resource version"))?;
                    read.insert(kind, version);
                }
            }
        }
        Ok(Self {
            service: service.ok_or(QuestionError::NoService)?,
            gone,
            read,
        })
    }

    /// The query of this question.
    pub fn query(&self) -> String {
        let mut query = format!("service={}", self.service);
        // Writing into a String never fails.
        if let Some(gone) = self.gone {
            let _ = write!(query, "&gone={gone}");
        }
        for (kind, version) in &self.read {
            let _ = write!(query, "&{}={version}", kind.name());
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for gone in [None, Some("10.0.0.1"), Some("fd00::1")] {
            let question = Question {
                service: ServiceId::new("shop", "cart"),
                gone: gone.map(|address| address.parse().unwrap()),
                read: [(Kind::Service, 7), (Kind::EndpointSlice, 9)].into(),
            };
            assert_eq!(Question::read(&question.query()), Ok(question));
        }
    }

    #[test]
    fn invalid_values_are_named() {
        let long = format!("service=a/{}", "b".repeat(MAX_QUERY_BYTES));
        for (query, words) in [
            ("", "no Service"),
            ("gone=10.0.0.1", "no Service"),
            ("service=cart", "NAMESPACE/NAME"),
            ("service=a/b/c", "NAMESPACE/NAME"),
            ("service=a/b&gone=cart", "gone=cart: expected an IP address"),
            (
                "service=a/b&Service=x",
                "Service=x: expected a resource version",
            ),
            ("service=a/b&Pod=1", "Pod=1: unknown parameter"),
            (&long, "more than 1024 bytes"),
        ] {
            let error = Question::read(query).unwrap_err().to_string();
            assert!(error.contains(words), "{query}: {error}");
        }
    }
}
