//! Metrics of a program as they leave it. Both programs count with `prometheus-client`, whose text is
//! OpenMetrics. Scrapers and tools that do not ask for that are given the older text format, and people
//! a table.

mod document;
mod older;

use std::fmt::Error;

use prometheus_client::registry::Registry;

pub use document::document;

/// How a page of metrics is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
    /// The text format 0.0.4 that every scraper reads and `promtool check metrics` wants.
    Text,
}

impl Format {
    /// What somebody wants who sent this `Accept`: OpenMetrics for whoever names it and does not refuse it,
    /// the older text for everybody else, and for whoever takes anything.
    #[must_use]
    pub fn wanted(accept: Option<&str>) -> Self {
        let mut ranges = accept.unwrap_or_default().split(',');
        let takes = |range: &str| {
            let mut words = range.split(';').map(str::trim);
            let kind = words.next().unwrap_or_default();
            let refused = |word: &str| {
                let quality = word.strip_prefix("q=").and_then(|q| q.parse::<f64>().ok());
                quality.is_some_and(|quality| quality <= 0.0)
            };
            kind.eq_ignore_ascii_case("application/openmetrics-text") && !words.any(refused)
        };
        if ranges.any(takes) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The `Content-Type` of such a page.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The registry as it is now.
    ///
    /// # Errors
    /// In the words of whatever metric cannot be written; none of the library's own fails.
    pub fn encode(self, registry: &Registry) -> Result<String, Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry)?;
        match self {
            Self::OpenMetrics => Ok(text),
            Self::Text => older::of(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_whoever_names_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, wanted) in [
            (None, Format::Text),
            (Some(""), Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/plain;version=0.0.4"), Format::Text),
            (Some(prometheus), Format::OpenMetrics),
            (
                Some("text/html, Application/OpenMetrics-Text"),
                Format::OpenMetrics,
            ),
            (
                Some("application/openmetrics-text; q=0.0, */*"),
                Format::Text,
            ),
            (Some("application/openmetrics-text-2"), Format::Text),
            (Some(";;,,=q"), Format::Text),
        ] {
            assert_eq!(Format::wanted(accept), wanted, "{accept:?}");
        }
    }
}
