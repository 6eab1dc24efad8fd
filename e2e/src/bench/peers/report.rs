//! The report: a column for each proxy, and Portolan's figures in units of those of kube-proxy.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::peer::Peer;
use super::probe::Connections;
use crate::bench::figure::Figure;
use crate::console::{Console, Table};

/// Figures of one run of one proxy.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) start_s: Option<f64>,
    pub(super) cpu_s: Option<f64>,
    pub(super) rss_mb: Option<f64>,
    pub(super) changes_ms: Vec<f64>,
    pub(super) connections: Connections,
}

impl Measured {
    pub(super) fn line(&self) -> String {
        let Connections {
            per_second,
            median_us,
            ..
        } = self.connections;
        let rest = format!("{per_second:.0} connections a second, {median_us:.0} us each");
        match (self.start_s, Figure::of(self.changes_ms.clone())) {
            (Some(start), Some(change)) => format!(
                "in force after {start:.2} s, a change after {:.1} ms, {rest}",
                change.median
            ),
            _ => rest,
        }
    }
}

/// All measurements.
pub(super) struct Report {
    services: u32,
    endpoints: u32,
    measured: BTreeMap<Peer, Vec<Measured>>,
}

/// For tools: figures by name, of each proxy.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    services: u32,
    endpoints: u32,
    proxies: BTreeMap<&'static str, BTreeMap<&'static str, Figure>>,
}

/// A quantity: its name, its unit for people, and its values in a run.
struct Quantity {
    name: &'static str,
    title: &'static str,
    places: usize,
    of: fn(&Measured) -> Vec<f64>,
}

const QUANTITIES: [Quantity; 8] = [
    Quantity {
        name: "start_s",
        title: "start of the process to 32 Services served, s",
        places: 2,
        of: |run| run.start_s.into_iter().collect(),
    },
    Quantity {
        name: "cpu_s",
        title: "processor time until then, with child processes, s",
        places: 2,
        of: |run| run.cpu_s.into_iter().collect(),
    },
    Quantity {
        name: "rss_mb",
        title: "resident memory of the process, MB",
        places: 1,
        of: |run| run.rss_mb.into_iter().collect(),
    },
    Quantity {
        name: "change_ms",
        title: "endpoint stored to connections at its new address, ms",
        places: 1,
        of: |run| run.changes_ms.clone(),
    },
    Quantity {
        name: "connections_per_s",
        title: "new connections per second",
        places: 0,
        of: |run| vec![run.connections.per_second],
    },
    Quantity {
        name: "connect_us",
        title: "time to connect, us",
        places: 0,
        of: |run| vec![run.connections.median_us],
    },
    Quantity {
        name: "slow_connect_us",
        title: "… of the slowest in 100, us",
        places: 0,
        of: |run| vec![run.connections.slow_us],
    },
    Quantity {
        name: "failed_connections",
        title: "connections that failed",
        places: 0,
        of: |run| vec![run.connections.failed],
    },
];

impl Report {
    pub(super) fn new(services: u32, endpoints: u32) -> Self {
        Self {
            services,
            endpoints,
            measured: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, peer: Peer, measured: Measured) {
        self.measured.entry(peer).or_default().push(measured);
    }

    fn figure(&self, peer: Peer, quantity: &Quantity) -> Option<Figure> {
        let runs = self.measured.get(&peer)?;
        Figure::of(runs.iter().flat_map(quantity.of).collect())
    }

    pub(super) fn figures(&self) -> Result<Figures> {
        let mut proxies = BTreeMap::new();
        for peer in self.measured.keys() {
            let known = QUANTITIES.iter().filter_map(|quantity| {
                let figure = self.figure(*peer, quantity)?;
                Some((quantity.name, figure.rounded(3)))
            });
            proxies.insert(peer.title(), known.collect());
        }
        proxies.first_key_value().context("nothing was measured")?;
        Ok(Figures {
            services: self.services,
            endpoints: self.endpoints,
            proxies,
        })
    }

    pub(super) fn print(&self, console: Console) {
        console.heading(&format!(
            "{} Services x {} endpoints, median (least to most)",
            self.services, self.endpoints
        ));
        let titles = Peer::ALL.map(Peer::title);
        let header = ["WHAT"].into_iter().chain(titles).chain(["RATIO"]);
        let mut table = Table::new(header.map(str::to_uppercase));
        for quantity in &QUANTITIES {
            let figures = Peer::ALL.map(|peer| self.figure(peer, quantity));
            let cells = figures.map(|figure| cell(figure, quantity.places));
            let ratio = match figures {
                [_, Some(ours), Some(theirs)] if theirs.median > 0.0 => {
                    format!("{:.3}", ours.median / theirs.median)
                }
                _ => String::new(),
            };
            let title = [quantity.title.to_owned()].into_iter();
            table.row(title.chain(cells).chain([ratio]));
        }
        console.table(&table);
        console.line("RATIO is Portolan's median in units of kube-proxy's.");
    }
}

fn cell(figure: Option<Figure>, places: usize) -> String {
    figure.map_or_else(String::new, |Figure { median, min, max }| {
        format!("{median:.places$} ({min:.places$} to {max:.places$})")
    })
}
