//! Requests to Services, and the endpoints that have to answer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::harness::Lab;
use crate::topology::world::Resident;
use crate::traffic::Protocol;
use crate::traffic::client::{self, Outcome};

/// A client and what it dials.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) from: &'static str,
    pub(super) to: &'a str,
    pub(super) protocol: Protocol,
}

/// How long an answer may take; less than TCP waits before its first retransmission.
const PATIENCE: Duration = Duration::from_millis(900);

/// A frontend of every kind of the Service `open`, in both families and over both protocols.
pub(super) const OPEN: [(&str, Protocol); 8] = [
    ("10.96.1.1:80", Protocol::Tcp),
    ("10.96.1.1:53", Protocol::Udp),
    ("203.0.113.1:80", Protocol::Tcp),
    ("203.0.113.1:53", Protocol::Udp),
    ("192.168.50.11:30080", Protocol::Tcp),
    ("[fd00:10:96::101]:80", Protocol::Tcp),
    ("[2001:db8:113::1]:53", Protocol::Udp),
    ("[fd00:50::11]:30080", Protocol::Tcp),
];
/// The pods that serve it.
pub(super) const OPEN_PODS: [&str; 2] = ["pod-a1", "pod-b1"];

impl Question<'_> {
    pub(super) fn target(&self) -> Result<SocketAddr> {
        self.to
            .parse()
            .with_context(|| format!("read {:?}", self.to))
    }

    /// One attempt.
    pub(super) fn ask(&self, lab: &Lab<'_>) -> Result<Outcome> {
        crate::stop::check()?;
        let from = Resident::named(self.from).with_context(|| format!("find {}", self.from))?;
        let (target, patience) = (self.target()?, lab.limit(PATIENCE));
        let attempt = || Ok(client::attempt(self.protocol, target, patience));
        Ok(lab.inside(from, attempt)?.outcome)
    }

    /// Checks that all of these endpoints answer at least twice as many attempts as there are endpoints, and no other.
    pub(super) fn is_answered(&self, lab: &Lab<'_>, by: &[&str]) -> Result<()> {
        let (from, to) = (self.from, self.to);
        let wanted: BTreeSet<String> = by.iter().map(ToString::to_string).collect();
        let (least, most) = (2 * by.len(), lab.stage.dataplane.rounds() * by.len());
        let mut met = BTreeSet::new();
        for attempts in 0..most {
            if attempts >= least && met == wanted {
                break;
            }
            match self.ask(lab)? {
                Outcome::Answered { by, .. } => drop(met.insert(by)),
                other => bail!("{from} -> {to}: {other} after answers by {met:?}"),
            }
        }
        ensure!(met == wanted, "{from} -> {to}: answered by {met:?}");
        Ok(())
    }

    /// Whether it ends otherwise than by an answer, in this way.
    pub(super) fn ends(&self, lab: &Lab<'_>, as_wanted: &Outcome) -> Result<()> {
        let outcome = self.ask(lab)?;
        let (from, to) = (self.from, self.to);
        ensure!(
            outcome == *as_wanted,
            "{from} -> {to}: {outcome}, not {as_wanted}"
        );
        Ok(())
    }
}

/// Whether every kind of client is served by `open` on all of its frontends.
pub(super) fn all_clients_are_served(lab: &Lab<'_>) -> Result<()> {
    for from in ["outside", "pod-a3", "node-a"] {
        for (to, protocol) in OPEN {
            let question = Question { from, to, protocol };
            question.is_answered(lab, &OPEN_PODS)?;
        }
    }
    Ok(())
}
