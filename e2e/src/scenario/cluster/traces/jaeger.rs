//! Jaeger, and what it tells of a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::program::{Program, Running};
use crate::waits::Waits;

/// One question.
const QUESTION: Duration = Duration::from_secs(5);
/// Until it serves, on hardware.
const START: Duration = Duration::from_secs(20);
/// What it listens on otherwise; any free port of loopback will do.
const UNUSED: [&str; 9] = [
    "admin.http",
    "collector.grpc-server",
    "collector.http-server",
    "collector.otlp.http",
    "http-server",
    "query.grpc-server",
    "processor.jaeger-binary.server",
    "processor.jaeger-compact.server",
    "processor.zipkin-compact.server",
];

/// Runs, with its store in memory, until it is dropped.
pub(super) struct Jaeger {
    _running: Running,
    query: SocketAddr,
}

/// A trace.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trace {
    #[serde(rename = "traceID")]
    pub(super) id: String,
    pub(super) spans: Vec<Span>,
    processes: BTreeMap<String, Process>,
}

/// A part of it; times in microseconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    #[serde(rename = "spanID")]
    pub(super) id: String,
    #[serde(rename = "operationName")]
    pub(super) name: String,
    pub(super) start_time: u64,
    pub(super) duration: u64,
    references: Vec<Reference>,
    tags: Vec<Tag>,
    #[serde(rename = "processID")]
    process: String,
    warnings: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    ref_type: String,
    #[serde(rename = "traceID")]
    trace: String,
    #[serde(rename = "spanID")]
    span: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Tag {
    key: String,
    value: serde_json::Value,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    service_name: String,
    tags: Vec<Tag>,
}

#[derive(Debug, Deserialize)]
struct Answer<T> {
    data: T,
}

impl Jaeger {
    /// Starts it, and waits until it answers.
    pub(super) fn start(waits: Waits, [otlp, query]: [u16; 2], log: &Path) -> Result<Self> {
        let mut words = vec![
            format!("--collector.otlp.grpc.host-port=127.0.0.1:{otlp}"),
            format!("--query.http-server.host-port=127.0.0.1:{query}"),
        ];
        words.extend(UNUSED.map(|what| {
            format!("--{what}.host-port=127.0.0.1:0")
                .replace(".server.host-port", ".server-host-port")
        }));
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let log_file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let jaeger = Self {
            _running: Program::Jaeger.start(&words, &log_file)?,
            query: (Ipv4Addr::LOCALHOST, query).into(),
        };
        let answers = || Ok(jaeger.ask::<serde_json::Value>("/api/services").ok());
        let said = || std::fs::read_to_string(log).unwrap_or_default();
        waits.until("Jaeger", START, Duration::from_millis(100), answers, said)?;
        Ok(jaeger)
    }

    /// All traces of the controller that it has.
    pub(super) fn traces(&self) -> Result<Vec<Trace>> {
        let services: Answer<Option<Vec<String>>> = self.ask("/api/services")?;
        if !services
            .data
            .unwrap_or_default()
            .contains(&"portolan-controller".to_owned())
        {
            return Ok(Vec::new());
        }
        let path = "/api/traces?service=portolan-controller&lookback=1h&limit=500";
        Ok(self.ask::<Answer<Vec<Trace>>>(path)?.data)
    }

    fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let mut stream = TcpStream::connect_timeout(&self.query, QUESTION)?;
        stream.set_read_timeout(Some(QUESTION))?;
        // Of the older version nothing comes in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no HTTP")?;
        ensure!(head.contains(" 200 "), "{path}: {text}");
        serde_json::from_str(body).with_context(|| format!("{path}: {body}"))
    }
}

impl Trace {
    /// The span that has no parent.
    pub(super) fn root(&self) -> Result<&Span> {
        let roots: Vec<_> = self.spans.iter().filter(|s| s.parent().is_none()).collect();
        ensure!(roots.len() == 1, "{} spans have no parent", roots.len());
        Ok(roots[0])
    }

    /// All of one name.
    pub(super) fn named<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t Span> {
        self.spans.iter().filter(move |span| span.name == name)
    }

    /// The parts of a span.
    pub(super) fn below<'t>(&'t self, parent: &'t Span) -> impl Iterator<Item = &'t Span> {
        let is_below = |span: &&Span| span.parent() == Some(&parent.id);
        self.spans.iter().filter(is_below)
    }

    /// Whose it is: the service, and the node where it is an agent.
    pub(super) fn whose(&self, span: &Span) -> (&str, Option<&str>) {
        let Some(process) = self.processes.get(&span.process) else {
            return ("", None);
        };
        let node = tag(&process.tags, "k8s.node.name");
        (&process.service_name, node.and_then(|node| node.as_str()))
    }

    /// Fails unless every span has its parent, lies within it, and Jaeger finds nothing odd.
    pub(super) fn check_shape(&self) -> Result<()> {
        self.root()?;
        for span in &self.spans {
            let warnings = span.warnings.iter().flatten().next();
            ensure!(warnings.is_none(), "{}: {warnings:?}", span.name);
            let Some(parent) = span.parent() else {
                continue;
            };
            let parent = self.spans.iter().find(|other| other.id == *parent);
            let parent = parent.with_context(|| format!("{} has lost its parent", span.name))?;
            // Both are cut to whole microseconds.
            let within = span.start_time >= parent.start_time && span.end() <= parent.end() + 1;
            ensure!(within, "{} leaves {}: {self:?}", span.name, parent.name);
        }
        Ok(())
    }
}

impl Span {
    fn parent(&self) -> Option<&String> {
        let of = self.references.iter().find(|of| of.ref_type == "CHILD_OF");
        of.map(|of| &of.span)
    }

    fn end(&self) -> u64 {
        self.start_time + self.duration
    }

    /// Traces and spans that it is linked with.
    pub(super) fn links(&self) -> impl Iterator<Item = (&str, &str)> {
        let links = self
            .references
            .iter()
            .filter(|of| of.ref_type != "CHILD_OF");
        links.map(|of| (&*of.trace, &*of.span))
    }

    /// Something that it tells.
    pub(super) fn tag(&self, key: &str) -> Option<&serde_json::Value> {
        tag(&self.tags, key)
    }
}

fn tag<'t>(tags: &'t [Tag], key: &str) -> Option<&'t serde_json::Value> {
    let tag = tags.iter().find(|tag| tag.key == key);
    tag.map(|tag| &tag.value)
}
