//! Readiness of a part of the control plane, checked over the network at the part itself.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};

use super::{ControlPlane, Part, START};
use crate::program::Running;

/// One question; a server that is just starting may hang.
const QUESTION: Duration = Duration::from_secs(2);

impl ControlPlane {
    /// Waits until the API server says that it is ready, the store below it included.
    ///
    /// # Errors
    /// When it does not in time or has ended; with the last log lines of each part.
    pub fn wait_ready(&self) -> Result<()> {
        self.wait_serving(Part::ApiServer)
            .map_err(|error| self.with_logs(error))
    }

    pub(super) fn wait_serving(&self, part: Part) -> Result<()> {
        let runs = || {
            let running = self.running.get(&part);
            if let Some(status) = running.map_or(Ok(None), Running::ended)? {
                bail!("{} ended with {status}", part.name());
            }
            Ok(())
        };
        let what = format!("{} to serve", part.name());
        let waits = self.waits;
        waits.eventually_while(&what, START, runs, || self.ask(part))
    }

    fn ask(&self, part: Part) -> Result<()> {
        match part {
            Part::Etcd => ask_etcd(self.ports.etcd),
            Part::ApiServer => {
                self.kubectl(&["get", "--raw=/readyz", "--request-timeout=2s"])?;
                self.kubectl(&["get", "namespace", "default", "--request-timeout=2s"])
                    .map(drop)
            }
            Part::ControllerManager => {
                let server = format!(
                    "--server=https://127.0.0.1:{}",
                    self.ports.controller_manager
                );
                self.kubectl(&[&server, "get", "--raw=/healthz", "--request-timeout=2s"])
                    .map(drop)
            }
        }
    }
}

/// etcd says in one line of JSON whether it has a leader.
fn ask_etcd(port: u16) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, QUESTION)?;
    stream.set_read_timeout(Some(QUESTION))?;
    stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(64 << 10).read_to_string(&mut answer)?;
    if !answer.contains(r#""health":"true""#) {
        bail!(
            "etcd answers {:?}",
            answer.lines().last().unwrap_or_default()
        );
    }
    Ok(())
}
