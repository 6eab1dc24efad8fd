//! Tables of the results that clients must get at other addresses than cluster IPs: each row names
//! the endpoints.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{Expect, Row, Source, check_rules};
use crate::dataplane::Dataplane;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::Protocol;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rows: Vec<RawRow>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    from: String,
    to: String,
    dial: SocketAddr,
    protocol: Protocol,
    expect: Expect,
    #[serde(default)]
    by: Vec<String>,
    source: Option<Source>,
    rules: Vec<String>,
}

/// Reads a table.
///
/// # Errors
/// Names the row that is a duplicate, has an unknown client, has no rule, or contradicts itself.
pub fn read(table: &str) -> Result<Vec<Row>> {
    let table: Table = serde_saphyr::from_str(table).context("read the table of expectations")?;
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for (number, raw) in table.rows.into_iter().enumerate() {
        let row = complete(raw).with_context(|| format!("row {}", number + 1))?;
        let (from, to) = (row.from.name(), row.dials());
        if !seen.insert((row.from, row.protocol, row.target)) {
            bail!(
                "row {}: {from} dials {to} in an earlier row already",
                number + 1
            );
        }
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "the table has no rows");
    Ok(rows)
}

fn complete(raw: RawRow) -> Result<Row> {
    let from = Resident::named(&raw.from)
        .with_context(|| format!("from: unknown client {:?}", raw.from))?;
    let answered = raw.expect == Expect::Answered;
    ensure!(
        answered == raw.source.is_some() && answered != raw.by.is_empty(),
        "by, source: answers have them, nothing else has"
    );
    check_rules(&raw.rules)?;
    let family = Family::of(raw.dial.ip());
    let mut endpoints = BTreeSet::new();
    for name in &raw.by {
        endpoints.insert(endpoint(name, raw.protocol, family)?);
    }
    let mut nodes = Node::ALL.into_iter();
    let dialled = nodes.find(|node| node.address(family) == raw.dial.ip());
    Ok(Row {
        from,
        taken_by: dialled.unwrap_or(from.served_by()),
        to: format!("{} {}", raw.to, raw.dial.ip()),
        target: raw.dial,
        protocol: raw.protocol,
        expect: raw.expect,
        source: raw.source,
        endpoints,
        rounds: Dataplane::default().rounds(),
        rules: raw.rules,
    })
}

/// Where a pod serves.
pub(super) fn endpoint(pod: &str, protocol: Protocol, family: Family) -> Result<SocketAddr> {
    let found = Pod::all().find(|known| known.name() == pod);
    let found = found.with_context(|| format!("by: no pod is called {pod:?}"))?;
    let port = match protocol {
        Protocol::Udp => 5353,
        Protocol::Sctp => 13868,
        Protocol::Tcp | Protocol::Icmp => 8080,
    };
    Ok(SocketAddr::new(found.address(family), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_contradicts_itself_is_refused() {
        let refused = |row: &str| format!("{:#}", read(&format!("rows:\n- {row}\n")).unwrap_err());
        let row = r#"{from: outside, to: web, dial: "203.0.113.1:80", protocol: TCP, expect: silent, by: [pod-a1], rules: [S-22]}"#;
        assert!(
            refused(row).contains("row 1: by, source"),
            "{}",
            refused(row)
        );
        let row = r#"{from: outside, to: web, dial: "203.0.113.1:80", protocol: TCP, expect: answered, by: [pod-z9], source: node, rules: [S-22]}"#;
        assert!(
            refused(row).contains("no pod is called"),
            "{}",
            refused(row)
        );
        let row = r#"{from: outside, to: web, dial: "203.0.113.1:80", protocol: TCP, expect: refused, rules: []}"#;
        assert!(refused(row).contains("at least one"), "{}", refused(row));
    }
}
