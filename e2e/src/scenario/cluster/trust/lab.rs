//! The controller over TLS, its files, its pages, and agents of all nodes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use portolan_agent::receive::{Access, Address, Tls, Trust};

use super::super::bulk::Bulk;
use super::super::rig::Rig;
use super::files::{Files, replace};
use crate::credentials::{ACCOUNT, AUDIENCE, Authority, NAME, NAMESPACE};
use crate::harness::Environment;
use crate::light_agents::LightAgents;

/// How long the controller may need to listen, on hardware.
const START: Duration = Duration::from_secs(20);

/// States of connections in `/proc/net/tcp` that the own side has not closed: `ESTABLISHED` and `CLOSE_WAIT`.
const OPEN: [&str; 2] = ["01", "08"];

/// Everything of this scenario.
pub(super) struct Lab<'a> {
    pub(super) rig: Rig<'a>,
    /// Creates many objects at once, and tokens.
    pub(super) bulk: Bulk,
    pub(super) files: Files,
    pub(super) ca: PathBuf,
    pub(super) authority: Authority,
    /// Nodes, and the tokens of their agents.
    pub(super) tokens: Vec<(String, String)>,
    address: Option<SocketAddr>,
    admin: Option<SocketAddr>,
}

impl<'a> Lab<'a> {
    pub(super) fn new(rig: Rig<'a>, bulk: Bulk, tokens: Vec<(String, String)>) -> Result<Self> {
        let authority = Authority::new("first")?;
        let files = Files {
            certificate: rig.file("tls.crt"),
            key: rig.file("tls.key"),
        };
        let identity = authority.controller()?;
        files.write(&identity.certificate, &identity.key)?;
        let ca = rig.file("ca.crt");
        replace(&ca, &authority.pem())?;
        Ok(Self {
            rig,
            bulk,
            files,
            ca,
            authority,
            tokens,
            address: None,
            admin: None,
        })
    }

    /// Starts the controller with the files; at the same address as before, if there was one.
    pub(super) fn start_controller(&mut self, more: &[&str]) -> Result<()> {
        let (certificate, key) = (&self.files.certificate, &self.files.key);
        let certificate = certificate.display().to_string();
        let key = key.display().to_string();
        let files = ["--tls-cert", &certificate, "--tls-key", &key];
        self.start_controller_showing(&[&files[..], more].concat())
    }

    /// The same with a certificate from elsewhere.
    pub(super) fn start_controller_showing(&mut self, more: &[&str]) -> Result<()> {
        let some = SocketAddr::from(([127, 0, 0, 1], 0));
        let listen = self.address.unwrap_or(some).to_string();
        let admin = self.admin.unwrap_or(some).to_string();
        let account = format!("{NAMESPACE}/{ACCOUNT}");
        let words = [
            "--listen",
            &listen,
            "--admin",
            &admin,
            "--agent-service-account",
            &account,
            "--token-audience",
            AUDIENCE,
        ];
        self.rig
            .start_controller_with(&[&words[..], more].concat())?;
        if self.address.is_none() {
            self.address = Some(self.wait_word("started", "listen=")?);
            self.admin = Some(self.wait_word("health and metrics", "address=")?);
        }
        self.wait_ready()
    }

    fn wait_word(&self, line: &str, key: &str) -> Result<SocketAddr> {
        self.rig.eventually(line, START, || {
            let said = self.rig.controller_said()?;
            let line = said.lines().find(|words| words.contains(line));
            let value = line.and_then(|line| line.split_once(key));
            let value = value.and_then(|(_, rest)| rest.split_whitespace().next());
            value
                .and_then(|value| value.parse().ok())
                .with_context(|| said.clone())
        })
    }

    fn wait_ready(&self) -> Result<()> {
        self.rig
            .eventually("the controller to be ready", START, || {
                let page = self.page("/readyz")?;
                ensure!(page.0 == 200, "{page:?}");
                Ok(())
            })
    }

    /// Where its pages are.
    pub(super) fn pages(&self) -> Result<SocketAddr> {
        self.admin.context("the controller has no pages yet")
    }

    /// A page of the controller: status and body.
    pub(super) fn page(&self, path: &str) -> Result<(u16, String)> {
        let address = self.pages()?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(START))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let status = text.split_whitespace().nth(1).context("no status")?;
        Ok((status.parse()?, text))
    }

    /// Number of refusals for this reason, from the metrics.
    pub(super) fn refused(&self, reason: &str) -> Result<u64> {
        let name = format!("portolan_controller_stream_refusals_total{{reason=\"{reason}\"}} ");
        let (status, text) = self.page("/metrics")?;
        ensure!(status == 200, "metrics answer {status}");
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(&name));
        Ok(value
            .with_context(|| format!("no {name}"))?
            .trim()
            .parse()?)
    }

    /// TokenReviews that the API server granted so far.
    pub(super) fn reviews(&self) -> Result<usize> {
        let granted = self.rig.audit()?.granted();
        Ok(granted.get("create tokenreviews").copied().unwrap_or(0))
    }

    pub(super) fn address(&self) -> Result<Address> {
        let address = self.address.context("the controller does not listen yet")?;
        Ok(Address::Tcp(address))
    }

    /// Number of connections to the address for agents that the controller has accepted and not closed.
    pub(super) fn connections(&self) -> Result<usize> {
        let address = self.address.context("the controller does not listen yet")?;
        let port = format!(":{:04X}", address.port());
        let table = std::fs::read_to_string("/proc/net/tcp")?;
        let is_open = |line: &&str| {
            let mut words = line.split_whitespace().skip(1);
            let is_its = words.next().is_some_and(|local| local.ends_with(&port));
            is_its && words.nth(1).is_some_and(|state| OPEN.contains(&state))
        };
        Ok(table.lines().filter(is_open).count())
    }

    /// The way of an agent that shows this token, or none.
    pub(super) fn access(&self, name: &str, token: Option<&str>) -> Result<Access> {
        let path = self.rig.file(&format!("token-{name}"));
        if let Some(token) = token {
            replace(&path, token)?;
        }
        Ok(Access {
            address: self.address()?,
            trust: Trust::Tls(Tls {
                ca: self.ca.clone(),
                name: NAME.to_owned().try_into()?,
                token: token.map(|_| path),
            }),
        })
    }

    /// Starts agents of the first nodes, each with its own token.
    pub(super) fn start_agents(&mut self, count: usize) -> Result<()> {
        let first = self.tokens.iter().take(count);
        let ways: Result<Vec<_>> = first
            .map(|(node, token)| Ok((node.clone(), self.access(node, Some(token))?)))
            .collect();
        let agents = LightAgents::start_with(ways?)?;
        self.rig.set_agents(agents);
        Ok(())
    }

    /// Waits until each agent has opened this number of streams since its start, and has one now.
    pub(super) fn wait_streams(&self, on_hardware: Duration, streams: u64) -> Result<()> {
        let agents = self.rig.agents()?;
        self.rig
            .eventually("all agents to have a stream", on_hardware, || {
                let trouble = agents.nodes().find_map(|node| agents.link(node).trouble);
                let count = agents.streams();
                ensure!(
                    count >= streams && trouble.is_none(),
                    "{count} streams, {trouble:?}"
                );
                Ok(())
            })
    }
}

impl Environment for Lab<'_> {
    fn check_running(&self) -> Result<()> {
        self.rig.check_running()
    }

    fn with_logs(&self, error: Error) -> Error {
        self.rig.with_logs(error)
    }
}
