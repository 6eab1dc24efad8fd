//! The exposition formats of a program's metrics. Both programs use `prometheus-client`, which writes OpenMetrics.
//! Scrapers and tools that do not ask for OpenMetrics get the older text format, and people get a table.
#![forbid(unsafe_code)]

mod document;
mod older;

use std::fmt::Error;

use prometheus_client::registry::Registry;

pub use document::document;

/// The format of a metrics page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, with exemplars.
    OpenMetrics,
    /// The text format 0.0.4, which every scraper reads and `promtool check metrics` requires.
    Text,
}

impl Format {
    /// Selects the format for an `Accept` header: OpenMetrics if the header names it without `q=0`, otherwise the
    /// older text format. `*/*` and a missing header also select the text format.
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

    /// The `Content-Type` of a page in this format.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Encodes the current values of the registry.
    ///
    /// # Errors
    /// The error of a metric that cannot be encoded. The library's own metrics never fail.
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
    fn openmetrics_is_selected_only_by_name() {
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
