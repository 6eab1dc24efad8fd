//! Runs cells: one after the other, or all at once if they only wait.

use anyhow::{Result, anyhow};

use super::cell::{Cell, attempt_all};
use crate::expectation::{Expect, Row};
use crate::harness::Lab;
use crate::traffic::client::Attempt;
use crate::traffic::server::Server;

/// The rows whose protocol this kernel has, and the number of the others.
pub(super) fn spoken_here<'row>(
    rows: impl IntoIterator<Item = &'row Row>,
) -> (Vec<&'row Row>, usize) {
    let mut rows: Vec<_> = rows.into_iter().collect();
    let all = rows.len();
    rows.retain(|row| row.protocol.is_spoken_here());
    let others = all - rows.len();
    (rows, others)
}

impl<S: Sync> Lab<'_, S> {
    /// Runs cells one after the other; those that wait for nothing wait together, at the end.
    pub(super) fn run_cells<'row>(
        &self,
        rows: impl IntoIterator<Item = &'row Row>,
    ) -> Result<Vec<Cell<'row>>> {
        let (quiet, others): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| row.expect == Expect::Silent);
        let mut cells = others
            .into_iter()
            .map(|row| self.run_cell(row))
            .collect::<Result<Vec<_>>>()?;
        let before = self.pods_reached();
        let silent = std::thread::scope(|scope| {
            let wait = |row| scope.spawn(move || self.attempt_row(row));
            let waiting: Vec<_> = quiet.iter().map(|row| wait(*row)).collect();
            let ended = waiting.into_iter().map(|thread| thread.join());
            ended
                .map(|ended| ended.map_err(|_| anyhow!("a thread that makes attempts panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        if self.pods_reached() == before {
            let judged = quiet.iter().zip(silent);
            cells.extend(
                judged.map(|(row, attempts)| Cell::judge(row, self.stage.waits, &attempts, 0)),
            );
        } else {
            // A packet got through: run each cell alone to find out which one.
            for row in quiet {
                cells.push(self.run_cell(row)?);
            }
        }
        Ok(cells)
    }

    /// Runs one cell alone.
    pub(super) fn run_cell<'row>(&self, row: &'row Row) -> Result<Cell<'row>> {
        let before = self.pods_reached();
        let attempts = self.attempt_row(row)?;
        let reached = self.pods_reached() - before;
        Ok(Cell::judge(row, self.stage.waits, &attempts, reached))
    }

    fn attempt_row(&self, row: &Row) -> Result<Vec<Attempt>> {
        let (waits, rounds) = (self.stage.waits, self.stage.dataplane.rounds());
        self.inside(row.from, || attempt_all(row, row.rounds.max(rounds), waits))
    }

    /// Number of connections and datagrams that have reached pods so far.
    fn pods_reached(&self) -> u64 {
        self.servers.pods.iter().map(Server::answered).sum()
    }
}
