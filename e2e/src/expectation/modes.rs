//! Tables of modes: rows that hold with the defaults, and for each mode the differences.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::matrix::{Dimensions, Lists, Matrix, cover, expand};
use super::places::Places;
use crate::topology::Network;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    dimensions: Dimensions,
    rows: Vec<Lists>,
    modes: Vec<RawMode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMode {
    name: String,
    network: Network,
    settings: Value,
    nodes: Option<String>,
    holds: Option<String>,
    differs: Vec<Lists>,
}

/// Settings with what clients meet under them.
#[derive(Debug)]
pub struct Mode {
    /// A description.
    pub name: String,
    /// Where it is tried.
    pub network: Network,
    /// The path of manifests that take the place of the lab's Nodes.
    pub nodes: Option<String>,
    /// Text in the rules of every node, in both families, while the mode is in force.
    pub holds: Option<String>,
    /// The results of clients.
    pub matrix: Matrix,
    /// Number of cells that differ from the defaults.
    pub differing: usize,
    settings: Value,
}

impl Mode {
    /// The `ProxyConfig` of the mode.
    #[must_use]
    pub fn manifest(&self) -> String {
        proxy_config(&self.settings)
    }
}

/// The `ProxyConfig` that asks for nothing: the defaults are in force without any, too.
#[must_use]
pub fn defaults() -> String {
    proxy_config(&json!({}))
}

/// A `ProxyConfig` with these settings.
pub(super) fn proxy_config(settings: &Value) -> String {
    let object = json!({
        "apiVersion": "proxy.portolan.dev/v1alpha1",
        "kind": "ProxyConfig",
        "metadata": {"name": "default"},
        "spec": {"settings": settings},
    });
    object.to_string()
}

/// Reads a table.
///
/// # Errors
/// As for a matrix; or names the mode that differs in a cell outside of the dimensions, twice in one,
/// or in one that is just as with the defaults.
pub fn read(table: &str, places: &Places) -> Result<Vec<Mode>> {
    let table: Table = serde_saphyr::from_str(table).context("read the table of modes")?;
    let usual = cover(&table.dimensions, table.rows, places)?;
    let mut modes = Vec::new();
    for raw in table.modes {
        let mut cells = usual.clone();
        let mut differing = BTreeSet::new();
        for lists in &raw.differs {
            let name = &raw.name;
            let expanded =
                expand(&table.dimensions, lists, places).with_context(|| format!("mode {name}"))?;
            for (at, row) in expanded {
                let cell = cells.get_mut(&at);
                let cell = cell
                    .with_context(|| format!("mode {name}: {at} is outside of the dimensions"))?;
                let same = cell.expect == row.expect
                    && cell.source == row.source
                    && cell.endpoints == row.endpoints;
                ensure!(!same, "mode {name}: {at} is as with the defaults");
                *cell = row;
                ensure!(
                    differing.insert(at.clone()),
                    "mode {name}: {at} is there twice"
                );
            }
        }
        let dimensions = table.dimensions.clone();
        modes.push(Mode {
            name: raw.name,
            network: raw.network,
            nodes: raw.nodes,
            holds: raw.holds,
            settings: raw.settings,
            differing: differing.len(),
            matrix: Matrix { dimensions, cells },
        });
    }
    ensure!(!modes.is_empty(), "the table has no modes");
    Ok(modes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{EXTERNAL, Files, MODES};

    const ROWS: &str = "dimensions: {from: [outside], to: [{service: open, at: [balancer]}], protocols: [TCP], families: [IPv4, IPv6]}\n\
        rows: [{from: [outside], to: [open], at: [balancer], expect: silent, rules: [S-22]}]\n";

    fn places() -> Places {
        Places::read(&Files::at(None).text(EXTERNAL[0]).unwrap()).unwrap()
    }

    #[test]
    fn what_a_mode_does_not_name_is_as_with_the_defaults() {
        let text = Files::at(None).text(MODES).unwrap();
        let modes = read(&text, &places()).unwrap();
        for mode in &modes {
            assert_eq!(mode.matrix.cells.len(), 48, "{}", mode.name);
        }
        let first = modes.iter().find(|mode| mode.network == Network::Routed);
        assert_eq!(first.unwrap().differing, 0);
        let cluster = modes.iter().find(|mode| mode.name == "ClusterCIDR");
        assert_eq!(cluster.unwrap().differing, 8);
        assert!(cluster.unwrap().manifest().contains("10.244.0.0/16"));
    }

    #[test]
    fn a_mode_that_says_nothing_new_is_refused() {
        let refused = |differs: &str| {
            let mode = format!(
                "modes: [{{name: x, network: vxlan, settings: {{}}, differs: [{differs}]}}]"
            );
            format!(
                "{:#}",
                read(&(ROWS.to_owned() + &mode), &places()).unwrap_err()
            )
        };
        let cell = |from: &str, expect: &str| {
            format!(
                "{{from: [{from}], to: [open], at: [balancer], families: [IPv4], expect: {expect}, rules: [S-1]}}"
            )
        };
        assert!(refused(&cell("outside", "silent")).contains("as with the defaults"));
        assert!(refused(&cell("pod-a3", "refused")).contains("outside of the dimensions"));
        let twice = format!(
            "{}, {}",
            cell("outside", "refused"),
            cell("outside", "lost")
        );
        assert!(refused(&twice).contains("is there twice"));
    }
}
