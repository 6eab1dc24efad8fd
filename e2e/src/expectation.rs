//! Tables of the results that clients must get, read from checked-in files.

pub mod broken;
pub mod external;
pub mod matrix;
pub mod modes;
pub mod places;
pub mod settings;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::dataplane::Dataplane;
use crate::manifests::{Frontend, Manifests};
use crate::topology::world::{Family, Node, Resident};
use crate::traffic::Protocol;

/// The result that a client must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// Answers by every ready endpoint and by no other.
    Answered,
    /// A refusal at once.
    Refused,
    /// No echo reply.
    Unanswered,
    /// No answer and no refusal, and no pod gets anything.
    Silent,
    /// No answer and no refusal, although a pod gets something: the client is not kept out.
    Lost,
}

/// The client address that an endpoint must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The client itself (S-72, S-73).
    Client,
    /// The node that forwarded (S-75).
    Node,
    /// That node if the client reached itself, else the client (S-74).
    Hairpin,
    /// The address of the client's own node: the network plugin masquerades what pods send out of
    /// the cluster's range of pods (S-84).
    Sender,
}

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
    port: Option<u16>,
    protocol: Protocol,
    family: Family,
    expect: Expect,
    source: Option<Source>,
    rules: Vec<String>,
}

/// One cell, with everything it needs to be run.
#[derive(Debug, Clone)]
pub struct Row {
    /// The client.
    pub from: Resident,
    /// The Service, or `unallocated`.
    pub to: String,
    /// Where to.
    pub target: SocketAddr,
    /// How.
    pub protocol: Protocol,
    /// The expectation.
    pub expect: Expect,
    /// For answers, the client address that the endpoint must see.
    pub source: Option<Source>,
    /// The node that takes the connection.
    pub taken_by: Node,
    /// Every endpoint that must answer.
    pub endpoints: BTreeSet<SocketAddr>,
    /// Number of attempts for each endpoint.
    pub rounds: usize,
    /// Rows of the semantics table.
    pub rules: Vec<String>,
}

impl Row {
    /// The same for a dataplane that may choose endpoints at random.
    #[must_use]
    pub fn with(self, dataplane: Dataplane) -> Self {
        Self {
            rounds: dataplane.rounds(),
            ..self
        }
    }

    /// The target as text: `web TCP 80 IPv4`.
    #[must_use]
    pub fn dials(&self) -> String {
        let family = Family::of(self.target.ip());
        match self.protocol {
            Protocol::Icmp => format!("{} ping {family}", self.to),
            protocol => format!("{} {protocol} {} {family}", self.to, self.target.port()),
        }
    }
}

/// An address of no Service in each family, inside the service ranges.
const UNALLOCATED: [&str; 2] = ["10.96.99.99", "fd00:10:96::9999"];

/// Reads a table and completes its rows from the manifests.
///
/// # Errors
/// Names the row that is a duplicate, has an unknown client, has no rule, or contradicts itself.
pub fn read(table: &str, manifests: &Manifests) -> Result<Vec<Row>> {
    let table: Table = serde_saphyr::from_str(table).context("read the table of expectations")?;
    let frontends = manifests.frontends();
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for (number, raw) in table.rows.into_iter().enumerate() {
        let row = complete(raw, &frontends).with_context(|| format!("row {}", number + 1))?;
        if !seen.insert((row.from, row.protocol, row.target)) {
            bail!(
                "row {}: {} dials {} in an earlier row already",
                number + 1,
                row.from.name(),
                row.dials()
            );
        }
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "the table has no rows");
    Ok(rows)
}

fn complete(raw: RawRow, frontends: &[Frontend]) -> Result<Row> {
    let from = Resident::named(&raw.from)
        .with_context(|| format!("from: unknown client {:?}", raw.from))?;
    let port = raw.port.unwrap_or(0);
    ensure!(
        (port == 0) == (raw.protocol == Protocol::Icmp),
        "port: only a ping has none"
    );
    let target = SocketAddr::new(address(&raw.to, raw.family, frontends)?, port);
    let exactly =
        |frontend: &&Frontend| frontend.address == target && frontend.protocol == raw.protocol;
    let endpoints = frontends
        .iter()
        .find(exactly)
        .map(|frontend| frontend.endpoints.clone());
    let answered = raw.expect == Expect::Answered;
    ensure!(
        answered == raw.source.is_some(),
        "source: answers have one, nothing else has"
    );
    let endpoints = endpoints.unwrap_or_default();
    ensure!(
        answered != endpoints.is_empty(),
        "expect: {} endpoints are ready",
        endpoints.len()
    );
    check_rules(&raw.rules)?;
    Ok(Row {
        from,
        taken_by: from.served_by(),
        to: raw.to,
        target,
        protocol: raw.protocol,
        expect: raw.expect,
        source: raw.source,
        endpoints,
        rounds: Dataplane::default().rounds(),
        rules: raw.rules,
    })
}

/// Number of rules in the behaviour table.
const RULES: u16 = 252;

fn check_rules(rules: &[String]) -> Result<()> {
    let is_rule = |rule: &String| {
        rule.strip_prefix("S-")
            .and_then(|n| n.parse().ok())
            .is_some_and(|n: u16| (1..=RULES).contains(&n))
    };
    ensure!(
        !rules.is_empty() && rules.iter().all(is_rule),
        "rules: S-1 to S-{RULES}, at least one"
    );
    Ok(())
}

fn address(to: &str, family: Family, frontends: &[Frontend]) -> Result<IpAddr> {
    if to == "unallocated" {
        let text = if family == Family::IPv4 {
            UNALLOCATED[0]
        } else {
            UNALLOCATED[1]
        };
        return text.parse().context("read the unallocated address");
    }
    let mut addresses = frontends.iter().filter(|frontend| frontend.service == to);
    addresses
        .find(|frontend| Family::of(frontend.address.ip()) == family)
        .map(|frontend| frontend.address.ip())
        .with_context(|| format!("to: no Service {to:?} has an {family} address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{CLUSTER, Files, PACKET_PATH};

    fn built_in() -> (Manifests, Vec<Row>) {
        let files = Files::at(None);
        let mut manifests = Manifests::default();
        for path in CLUSTER {
            manifests.add(&files.text(path).unwrap()).unwrap();
        }
        let rows = read(&files.text(PACKET_PATH).unwrap(), &manifests).unwrap();
        (manifests, rows)
    }

    #[test]
    fn every_kind_of_client_has_a_row_for_every_frontend() {
        let (manifests, rows) = built_in();
        for frontend in manifests.frontends() {
            for client in ["pod-a3", "pod-b3", "node-a", "node-b", "outside"] {
                let found = rows.iter().any(|row| {
                    row.from.name() == client
                        && row.target == frontend.address
                        && row.protocol == frontend.protocol
                });
                assert!(found, "{client} does not dial {frontend:?}");
            }
        }
    }

    #[test]
    fn a_row_that_contradicts_the_manifests_is_refused() {
        let (manifests, _) = built_in();
        let refused = |row: &str| read(&format!("rows:\n- {row}\n"), &manifests).unwrap_err();
        let row = "{from: pod-a3, to: empty, port: 80, protocol: TCP, family: IPv4, expect: answered, source: client, rules: [S-15]}";
        assert!(format!("{:#}", refused(row)).contains("row 1: expect: 0 endpoints are ready"));
        let row = "{from: pod-a3, to: web, port: 80, protocol: TCP, family: IPv4, expect: refused, rules: []}";
        assert!(format!("{:#}", refused(row)).contains("row 1"));
        let row = "{from: pod-z1, to: web, port: 80, protocol: TCP, family: IPv4, expect: refused, rules: [S-1]}";
        assert!(format!("{:#}", refused(row)).contains("unknown client"));
    }
}
