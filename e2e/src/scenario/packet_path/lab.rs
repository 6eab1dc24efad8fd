//! Where cells are run: one after the other, or all at once where they only wait.

use anyhow::{Result, anyhow};

use super::cell::{Cell, attempt_all};
use crate::expectation::{Expect, Row};
use crate::topology::Topology;
use crate::traffic::client::Attempt;
use crate::traffic::server::Server;
use crate::waits::Waits;

/// Where cells are run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lab<'lab> {
    pub(super) topology: &'lab Topology,
    /// The servers of all pods.
    pub(super) pods: &'lab [Server],
    pub(super) waits: Waits,
}

impl Lab<'_> {
    /// Runs cells one after the other; those that wait for nothing wait together, at the end.
    pub(super) fn run<'row>(
        &self,
        rows: impl IntoIterator<Item = &'row Row>,
    ) -> Result<Vec<Cell<'row>>> {
        let (quiet, others): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| row.expect == Expect::Silent);
        let mut cells = others
            .into_iter()
            .map(|row| self.one(row))
            .collect::<Result<Vec<_>>>()?;
        let before = self.reached();
        let silent = std::thread::scope(|scope| {
            let wait = |row| scope.spawn(move || self.attempt(row));
            let waiting: Vec<_> = quiet.iter().map(|row| wait(*row)).collect();
            let ended = waiting.into_iter().map(|thread| thread.join());
            ended
                .map(|ended| ended.map_err(|_| anyhow!("a thread that makes attempts panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        if self.reached() == before {
            let judged = quiet.iter().zip(silent);
            cells.extend(judged.map(|(row, attempts)| Cell::judge(row, self.waits, &attempts, 0)));
        } else {
            // Something got through: by itself each cell shows whether it was its.
            for row in quiet {
                cells.push(self.one(row)?);
            }
        }
        Ok(cells)
    }

    /// Runs one cell by itself.
    pub(super) fn one<'row>(&self, row: &'row Row) -> Result<Cell<'row>> {
        let before = self.reached();
        let attempts = self.attempt(row)?;
        let reached = self.reached() - before;
        Ok(Cell::judge(row, self.waits, &attempts, reached))
    }

    fn attempt(&self, row: &Row) -> Result<Vec<Attempt>> {
        let namespace = self.topology.of(row.from)?;
        namespace.inside(|| attempt_all(row, self.waits))
    }

    /// How many connections and datagrams have reached pods so far.
    fn reached(&self) -> u64 {
        self.pods.iter().map(Server::answered).sum()
    }
}
