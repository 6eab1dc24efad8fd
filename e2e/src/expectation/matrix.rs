//! Tables of rows that stand for every combination of what they list, and together cover every
//! combination of their dimensions exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::external::endpoint;
use super::places::{Place, Places};
use super::{Expect, Row, Source, check_rules};
use crate::dataplane::Dataplane;
use crate::topology::world::{Family, Resident};
use crate::traffic::Protocol;

/// Everything that varies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dimensions {
    from: Vec<String>,
    /// Services with their places, in the order in which they are shown.
    pub to: Vec<Frontends>,
    /// Protocols, in the order in which they are shown.
    pub protocols: Vec<Protocol>,
    /// Families, in the order in which they are shown.
    pub families: Vec<Family>,
}

/// A Service and its places.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frontends {
    /// The Service.
    pub service: String,
    /// Which of its addresses are dialled.
    pub at: Vec<Place>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    dimensions: Dimensions,
    rows: Vec<Lists>,
}

/// A row of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lists {
    from: Vec<String>,
    to: Vec<String>,
    at: Vec<Place>,
    protocols: Option<Vec<Protocol>>,
    families: Option<Vec<Family>>,
    expect: Expect,
    #[serde(default)]
    by: Vec<String>,
    source: Option<Source>,
    rules: Vec<String>,
}

/// The coordinates of a cell: client, Service, address of the Service, protocol and family.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coordinates {
    /// The Service.
    pub to: String,
    /// Which of its addresses.
    pub at: Place,
    /// The protocol.
    pub protocol: Protocol,
    /// The family.
    pub family: Family,
    /// The client.
    pub from: Resident,
}

impl std::fmt::Display for Coordinates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, at) = (self.from.name(), self.at.name());
        let (to, protocol, family) = (&self.to, self.protocol, self.family);
        write!(f, "{from} -> {to} {at} {protocol} {family}")
    }
}

/// Cells by their place in the matrix.
pub type Cells = BTreeMap<Coordinates, Row>;

/// A table that was read.
#[derive(Debug)]
pub struct Matrix {
    /// Its dimensions.
    pub dimensions: Dimensions,
    /// A cell for every combination.
    pub cells: Cells,
}

/// Reads a table.
///
/// # Errors
/// Names the combination with no row or with more than one, and the row that has an unknown client,
/// has no rule, or contradicts itself.
pub fn read(table: &str, places: &Places) -> Result<Matrix> {
    let Table { dimensions, rows } =
        serde_saphyr::from_str(table).context("read the table of expectations")?;
    let cells = cover(&dimensions, rows, places)?;
    Ok(Matrix { dimensions, cells })
}

/// The cells of rows, which have to cover the dimensions exactly once.
pub(super) fn cover(dimensions: &Dimensions, rows: Vec<Lists>, places: &Places) -> Result<Cells> {
    let all = dimensions.all()?;
    let mut cells = Cells::new();
    for (number, lists) in rows.into_iter().enumerate() {
        let row = number + 1;
        let expanded = expand(dimensions, &lists, places).with_context(|| format!("row {row}"))?;
        for (at, cell) in expanded {
            ensure!(
                all.contains(&at),
                "row {row}: {at} is outside of the dimensions"
            );
            if cells.contains_key(&at) {
                bail!("row {row}: {at} is in an earlier row already");
            }
            cells.insert(at, cell);
        }
    }
    if let Some(missing) = all.iter().find(|at| !cells.contains_key(at)) {
        let more = all.len() - cells.len() - 1;
        bail!("no row has {missing}, and {more} more combinations");
    }
    Ok(cells)
}

/// The cells that one row stands for.
pub(super) fn expand(
    dimensions: &Dimensions,
    lists: &Lists,
    places: &Places,
) -> Result<Vec<(Coordinates, Row)>> {
    let answered = lists.expect == Expect::Answered;
    ensure!(
        answered == lists.source.is_some() && answered != lists.by.is_empty(),
        "by, source: answers have them, nothing else has"
    );
    check_rules(&lists.rules)?;
    let wanted = Dimensions {
        from: lists.from.clone(),
        to: lists
            .to
            .iter()
            .map(|to| Frontends {
                service: to.clone(),
                at: lists.at.clone(),
            })
            .collect(),
        protocols: lists
            .protocols
            .clone()
            .unwrap_or_else(|| dimensions.protocols.clone()),
        families: lists
            .families
            .clone()
            .unwrap_or_else(|| dimensions.families.clone()),
    };
    let coordinates = wanted.all()?;
    ensure!(!coordinates.is_empty(), "it stands for nothing");
    coordinates
        .into_iter()
        .map(|at| {
            let row = complete(&at, lists, places)?;
            Ok((at, row))
        })
        .collect()
}

fn complete(at: &Coordinates, lists: &Lists, places: &Places) -> Result<Row> {
    let target = places.find(&at.to, at.at, at.protocol, at.family)?;
    let endpoints: BTreeSet<SocketAddr> = lists
        .by
        .iter()
        .map(|name| endpoint(name, at.protocol, at.family))
        .collect::<Result<_>>()?;
    Ok(Row {
        from: at.from,
        to: format!("{} {}", at.to, at.at.name()),
        target,
        protocol: at.protocol,
        expect: lists.expect,
        source: lists.source,
        taken_by: at.at.node().unwrap_or(at.from.served_by()),
        endpoints,
        rounds: Dataplane::default().rounds(),
        rules: lists.rules.clone(),
    })
}

impl Dimensions {
    fn all(&self) -> Result<BTreeSet<Coordinates>> {
        let mut all = BTreeSet::new();
        for from in &self.from {
            let from =
                Resident::named(from).with_context(|| format!("from: unknown client {from:?}"))?;
            for Frontends {
                service,
                at: places,
            } in &self.to
            {
                for at in places {
                    for protocol in self.protocols.iter().copied() {
                        all.extend(self.families.iter().map(|family| Coordinates {
                            to: service.clone(),
                            at: *at,
                            protocol,
                            family: *family,
                            from,
                        }));
                    }
                }
            }
        }
        Ok(all)
    }

    /// The clients, in display order.
    ///
    /// # Errors
    /// If a client is unknown.
    pub fn clients(&self) -> Result<Vec<Resident>> {
        self.from
            .iter()
            .map(|name| Resident::named(name).with_context(|| format!("unknown client {name:?}")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{EXTERNAL, Files, MATRIX};

    fn places() -> Places {
        Places::read(&Files::at(None).text(EXTERNAL[0]).unwrap()).unwrap()
    }

    fn table(rows: &str) -> String {
        let dimensions = "{from: [outside, pod-a3], to: [{service: open, at: [balancer]}], protocols: [TCP], families: [IPv4]}";
        format!("dimensions: {dimensions}\nrows:\n{rows}")
    }

    #[test]
    fn the_checked_in_matrix_has_480_cells() {
        let text = Files::at(None).text(MATRIX).unwrap();
        let matrix = read(&text, &places()).unwrap();
        assert_eq!(matrix.cells.len(), 480);
        let kinds: BTreeSet<_> = matrix
            .cells
            .keys()
            .map(|at| (at.protocol, at.family))
            .collect();
        assert_eq!(kinds.len(), 6);
    }

    #[test]
    fn every_combination_has_to_be_in_exactly_one_row() {
        let row = |from: &str| {
            format!(
                "- {{from: [{from}], to: [open], at: [balancer], expect: silent, rules: [S-22]}}\n"
            )
        };
        let refused = |rows: &str| format!("{:#}", read(&table(rows), &places()).unwrap_err());
        assert_eq!(
            refused(&row("pod-a3")),
            "no row has outside -> open balancer TCP IPv4, and 0 more combinations"
        );
        let twice = row("outside, pod-a3") + &row("outside");
        assert!(
            refused(&twice).contains("row 2: outside -> open balancer TCP IPv4 is in an earlier")
        );
        assert!(refused(&row("node-a")).contains("outside of the dimensions"));
        assert!(read(&table(&row("outside, pod-a3")), &places()).is_ok());
    }

    #[test]
    fn a_row_that_contradicts_itself_or_the_manifests_is_refused() {
        let refused = |row: &str| format!("{:#}", read(&table(row), &places()).unwrap_err());
        let row = "- {from: [outside], to: [open], at: [balancer], expect: silent, by: [pod-a1], rules: [S-22]}";
        assert!(refused(row).contains("row 1: by, source"));
        let row =
            "- {from: [outside], to: [unknown], at: [balancer], expect: silent, rules: [S-22]}";
        assert!(refused(row).contains("unknown has no balancer of TCP IPv4"));
    }
}
