//! Prometheus in a namespace, and queries of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::namespace::Namespace;
use crate::program::{Program, Running};
use crate::traffic::http;
use crate::waits::{LATER, Waits};

/// No other program listens in the namespaces of the lab.
const PORT: u16 = 9090;

/// Runs, with its store in a folder, until it is dropped.
#[derive(Debug)]
pub(crate) struct Prometheus {
    _running: Running,
    namespace: Namespace,
    waits: Waits,
}

/// A series and its value now.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Series {
    /// Its labels, its name among them.
    #[serde(rename = "metric")]
    pub(crate) labels: BTreeMap<String, String>,
    value: (f64, String),
}

/// A rule and how its last evaluation went.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// `ok`, `err`, or `unknown` before the first evaluation.
    pub(crate) health: String,
    pub(crate) last_error: Option<String>,
    /// Of an alert: `inactive`, `pending` or `firing`.
    pub(crate) state: Option<String>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.last_error.as_deref().unwrap_or_default();
        write!(f, "{} is {} {error}", self.name, self.health)
    }
}

#[derive(Debug, Deserialize)]
struct Answer<T> {
    data: T,
}

#[derive(Debug, Deserialize)]
struct Vector {
    result: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

impl Prometheus {
    /// Starts it in a namespace, with this configuration and its files in a folder, and waits until it
    /// answers.
    pub(crate) fn start(
        namespace: Namespace,
        waits: Waits,
        folder: &Path,
        configuration: &str,
    ) -> Result<Self> {
        let file = |name: &str| folder.join(name);
        std::fs::create_dir_all(folder)?;
        std::fs::write(file("prometheus.yaml"), configuration)?;
        let (log, path) = (File::create(file("log"))?, |name| {
            file(name).display().to_string()
        });
        let words = [
            format!("--config.file={}", path("prometheus.yaml")),
            format!("--storage.tsdb.path={}", path("data")),
            format!("--web.listen-address=127.0.0.1:{PORT}"),
            "--enable-feature=exemplar-storage".to_owned(),
        ];
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let running = namespace.inside(|| Program::Prometheus.start(&words, &log))?;
        let prometheus = Self {
            _running: running,
            namespace,
            waits,
        };
        let said = || std::fs::read_to_string(file("log")).unwrap_or_default();
        waits.eventually("Prometheus", LATER, || {
            prometheus.query("1").with_context(said)
        })?;
        Ok(prometheus)
    }

    /// The current value of an expression.
    pub(crate) fn query(&self, expression: &str) -> Result<Vec<Series>> {
        let scalar = format!("vector({expression})");
        // A scalar comes in another form.
        let expression = if expression.parse::<f64>().is_ok() {
            &scalar
        } else {
            expression
        };
        let path = format!("/api/v1/query?query={}", encoded(expression));
        Ok(self.ask::<Vector>(&path)?.result)
    }

    /// Its only value.
    pub(crate) fn value(&self, expression: &str) -> Result<f64> {
        let series = self.query(expression)?;
        let [only] = series.as_slice() else {
            anyhow::bail!("{expression} has {} series: {series:?}", series.len());
        };
        only.value()
    }

    /// The names of all metrics that it has samples of.
    pub(crate) fn names(&self) -> Result<BTreeSet<String>> {
        self.ask("/api/v1/label/__name__/values")
    }

    /// How its rules do.
    pub(crate) fn rules(&self) -> Result<Vec<Rule>> {
        let groups: Groups = self.ask("/api/v1/rules")?;
        Ok(groups
            .groups
            .into_iter()
            .flat_map(|group| group.rules)
            .collect())
    }

    /// Examples that it keeps of the samples of an expression, as JSON.
    pub(crate) fn exemplars(&self, expression: &str) -> Result<Vec<serde_json::Value>> {
        self.ask(&format!(
            "/api/v1/query_exemplars?query={}",
            encoded(expression)
        ))
    }

    fn ask<T: DeserializeOwned + Send>(&self, path: &str) -> Result<T> {
        let deadline = self.waits.limit(Duration::from_secs(5));
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, PORT).into();
        let ask = || http::json::<Answer<T>>(address, path, deadline);
        Ok(self.namespace.inside(ask)?.data)
    }
}

impl Series {
    /// Its value.
    pub(crate) fn value(&self) -> Result<f64> {
        let (_, text) = &self.value;
        text.parse()
            .with_context(|| format!("{text:?} of {:?}", self.labels))
    }
}

/// As a query in an address wants it.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _: fmt::Result = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_an_expression_holds_is_one_word_of_the_address() {
        assert_eq!(encoded("up{a=\"b\"} + 1"), "up%7Ba%3D%22b%22%7D%20%2B%201");
        assert_eq!(encoded("é"), "%C3%A9");
    }
}
