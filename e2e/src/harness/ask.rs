//! Queries of a lab: the logs and tools of its nodes, and connections of its clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Lab;
use crate::dataplane::Dataplane;
use crate::namespace::Namespace;
use crate::program::Program;
use crate::topology::world::{Node, Resident};
use crate::traffic::client::{self, Outcome};
use crate::traffic::http::{self, Response};
use crate::waits::ANSWER;
use crate::witness;

/// The three kinds of clients of a node: a pod of no Service, the node itself, and an external client.
pub(crate) const fn clients_of(node: Node) -> [Resident; 3] {
    [
        Resident::Pod(node.pod(3)),
        Resident::Node(node),
        Resident::Outside,
    ]
}

impl<S> Lab<'_, S> {
    /// Prints a heading.
    pub(crate) fn heading(&self, text: &str) {
        self.stage.console.heading(text);
    }

    /// Prints a line.
    pub(crate) fn line(&self, text: &str) {
        self.stage.console.line(text);
    }

    /// A deadline on this machine.
    pub(crate) fn limit(&self, on_hardware: Duration) -> Duration {
        self.stage.waits.limit(on_hardware)
    }

    /// Retries until `ask` succeeds, while all programs run; on timeout, returns the last error.
    ///
    /// # Errors
    /// When the deadline has passed, or a program ended.
    pub(crate) fn eventually<T>(
        &self,
        what: &str,
        deadline: Duration,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let goes_on = || self.cluster.check_running();
        let waits = self.stage.waits;
        waits.eventually_while(what, deadline, goes_on, ask)
    }

    /// As [`Self::eventually`], with a deadline that the product promises.
    pub(crate) fn within<T>(
        &self,
        what: &str,
        deadline: Duration,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let goes_on = || self.cluster.check_running();
        let waits = self.stage.waits;
        waits.within(what, deadline, goes_on, ask)
    }

    /// The namespace of a node.
    pub(crate) fn node(&self, node: Node) -> Result<Namespace> {
        self.topology.node(node).cloned()
    }

    /// Does something in the namespace of a resident.
    pub(crate) fn inside<T: Send>(
        &self,
        place: Resident,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        self.topology.of(place)?.inside(work)
    }

    /// Runs a tool on a node; its arguments are separated by single spaces.
    pub(crate) fn tool(&self, node: Node, program: Program, line: &str) -> Result<String> {
        self.topology.node(node)?.inside(|| program.run_line(line))
    }

    /// Runs several tools on a node, as [`Lab::tool`].
    pub(crate) fn tools(&self, node: Node, lines: &[(Program, &str)]) -> Result<()> {
        let mut lines = lines.iter();
        lines.try_for_each(|(program, line)| self.tool(node, *program, line).map(drop))
    }

    /// Everything that a Service proxy could write on a node, as text.
    pub(crate) fn everything(&self, node: Node) -> Result<BTreeMap<&'static str, String>> {
        let namespace = self.topology.node(node)?;
        match self.stage.dataplane {
            Dataplane::Ipvs => witness::everything(namespace),
            Dataplane::Nftables => witness::tables::everything(namespace),
        }
    }

    /// The present end of the log of a node's agent, for [`Lab::log_since`].
    pub(crate) fn log_end(&self, node: Node) -> Result<usize> {
        Ok(self.cluster.said(node)?.len())
    }

    /// The log of a node's agent after position `end`.
    pub(crate) fn log_since(&self, node: Node, end: usize) -> Result<String> {
        let mut log = self.cluster.said(node)?;
        ensure!(
            end <= log.len(),
            "the log of {} became shorter",
            node.name()
        );
        Ok(log.split_off(end))
    }

    /// Waits until the agent of a node has logged all of these words since its log ended there.
    pub(crate) fn wait_logged(
        &self,
        node: Node,
        end: usize,
        words: &[&str],
        deadline: Duration,
    ) -> Result<()> {
        let what = format!("{words:?} in the log of {}", node.name());
        self.eventually(&what, deadline, || {
            let log = self.log_since(node, end)?;
            ensure!(words.iter().all(|words| log.contains(words)), "{log}");
            Ok(())
        })
    }

    /// The outcome of one TCP connection.
    pub(crate) fn dial(
        &self,
        from: Resident,
        target: SocketAddr,
        deadline: Duration,
    ) -> Result<Outcome> {
        let deadline = self.limit(deadline);
        self.inside(from, || Ok(client::tcp(target, deadline).outcome))
    }

    /// The name of the server that answers one TCP connection.
    pub(crate) fn answered(&self, from: Resident, target: SocketAddr) -> Result<String> {
        self.answered_within(from, target, ANSWER)
    }

    /// The name of the server that answers one TCP connection within a deadline.
    pub(crate) fn answered_within(
        &self,
        from: Resident,
        target: SocketAddr,
        deadline: Duration,
    ) -> Result<String> {
        match self.dial(from, target, deadline)? {
            Outcome::Answered { by, .. } => Ok(by),
            other => bail!("{} to {target}: {other}", from.name()),
        }
    }

    /// Fails unless one TCP connection is refused.
    pub(crate) fn refused(&self, from: Resident, target: SocketAddr) -> Result<()> {
        let outcome = self.dial(from, target, ANSWER)?;
        let right = outcome == Outcome::Refused;
        ensure!(right, "{} to {target}: {outcome}", from.name());
        Ok(())
    }

    /// Fails unless every kind of client of a node is answered within this time.
    pub(crate) fn all_are_answered(
        &self,
        node: Node,
        target: SocketAddr,
        deadline: Duration,
    ) -> Result<()> {
        for from in clients_of(node) {
            self.answered_within(from, target, deadline)?;
        }
        Ok(())
    }

    /// The answer to one HTTP request.
    pub(crate) fn get(&self, from: Resident, target: SocketAddr, path: &str) -> Result<Response> {
        let deadline = self.limit(ANSWER);
        self.inside(from, || http::get(target, path, deadline))
    }

    /// Fails unless nothing listens there.
    pub(crate) fn is_closed(&self, from: Resident, target: SocketAddr) -> Result<()> {
        let deadline = self.limit(ANSWER);
        self.inside(from, || http::refused(target, deadline))
    }

    /// Waits until the agent of a node has saved a plan on disk.
    pub(crate) fn wait_plan_on_disk(&self, node: Node) -> Result<()> {
        let plan = self.cluster.state_folder(node).join("plan");
        self.eventually("the plan on disk", crate::waits::LATER, || {
            plan.exists().then_some(()).context("it is not there")
        })
    }
}
