//! A node that serves on loopback, with a clock controlled by the test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portolan_agent::health::Changes;
use portolan_agent::health::{Facts, FactsChange, Health, Moment, PassReport};
use portolan_agent::http;
use portolan_agent::metrics::{Metrics, Sources};
use portolan_agent::pages::Pages;
use portolan_agent::programmer::FlowCounters;
use portolan_plan::{
    Entry, EntryHash, EntryKey, Family, ListenSettings, Local, LocalHealth, NodeEntry, NodePlan,
    ServiceId, Settings,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ports::free_port;

/// The start time of all tests.
const BEGINNING: &str = "2026-01-01T00:00:00Z";

pub(crate) struct TestNode {
    pub(crate) health: Arc<Health>,
    seconds: Arc<AtomicU64>,
    pub(crate) settings: Settings,
    pub(crate) eligible: bool,
    pub(crate) checks: BTreeMap<ServiceId, LocalHealth>,
}

pub(crate) fn service(name: &str) -> ServiceId {
    ServiceId::new("shop", name)
}

pub(crate) fn loopback(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::LOCALHOST.into(),
        Family::Ipv6 => Ipv6Addr::LOCALHOST.into(),
    }
}

/// A `Health` whose clock shows the number of seconds in the second value.
pub(crate) fn health() -> (Arc<Health>, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(0));
    let clock = seconds.clone();
    let health = Arc::new(Health::new(Box::new(move || {
        let running = Duration::from_secs(clock.load(Ordering::SeqCst));
        let beginning: jiff::Timestamp = BEGINNING.parse().unwrap();
        Moment {
            running,
            wall: beginning + running,
        }
    })));
    (health, seconds)
}

impl TestNode {
    /// A node with unused ports for its own pages.
    pub(crate) async fn start() -> Self {
        let (health, seconds) = health();
        let listen = |port| ListenSettings {
            bind_address: Ipv4Addr::UNSPECIFIED.into(),
            port,
        };
        let settings = Settings {
            healthz: listen(free_port()),
            metrics: listen(free_port()),
            ..Settings::default()
        };
        health.queued(1, Changes::default());
        Self {
            health,
            seconds,
            settings,
            eligible: true,
            checks: BTreeMap::new(),
        }
    }

    /// Opens its sockets. With a plan before this, the default ports are never opened.
    pub(crate) fn open(&self) {
        self.open_with(FlowCounters::new());
    }

    /// Opens its sockets, with these counters of stale flows.
    pub(crate) fn open_with(&self, flows: FlowCounters) {
        let metrics = Metrics::new(Sources {
            health: self.health.clone(),
            applied: tokio::sync::watch::channel(Default::default()).1,
            flows: tokio::sync::watch::channel(flows).1,
            draining: tokio::sync::watch::channel(Default::default()).1,
            traffic: None,
        });
        let pages = Arc::new(Pages::new(
            self.health.clone(),
            metrics,
            tokio::sync::watch::channel(Vec::new()).1,
        ));
        drop(tokio::spawn(http::serve(pages, self.health.pass_counts())));
    }

    pub(crate) fn set_second(&self, second: u64) {
        self.seconds.store(second, Ordering::SeqCst);
    }

    /// Gives a health check port to a Service.
    pub(crate) fn check(&mut self, name: &str, port: u16, ipv4: u32, ipv6: u32) {
        let health = LocalHealth { port, ipv4, ipv6 };
        self.checks.insert(service(name), health);
    }

    fn plan(&self, of: impl Fn(&ServiceId) -> bool) -> Facts {
        let of = self.checks.iter().filter(|(service, _)| of(service));
        let entries = of.map(|(service, health)| {
            let local = Local {
                health: Some(*health),
                ..Local::default()
            };
            let key = EntryKey::Local(service.clone());
            (key, EntryHash::default(), Entry::Local(Arc::new(local)))
        });
        Facts::of(&NodePlan::from_entries(entries))
    }

    /// Reports a complete pass.
    pub(crate) fn passes(&self, generation: u64, failed: &[Family]) {
        let facts = FactsChange::All(self.plan(|_| true));
        self.passed(generation, failed, facts);
    }

    /// Reports a pass over one Service with this change.
    pub(crate) fn passes_over(&mut self, name: &str, change: impl FnOnce(&mut Self)) {
        let one = service(name);
        let before = self.plan(|service| *service == one);
        change(self);
        let after = self.plan(|service| *service == one);
        self.passed(1, &[], FactsChange::Some(before, after));
    }

    fn passed(&self, generation: u64, failed: &[Family], facts: FactsChange) {
        let node = NodeEntry {
            eligible: self.eligible,
            settings: self.settings.clone(),
            ..NodeEntry::default()
        };
        self.health.passed(PassReport {
            generation,
            node: Arc::new(node),
            complete: true,
            facts,
            failed_families: failed.iter().copied().collect::<BTreeSet<_>>(),
            unloaded_rules: BTreeMap::new(),
            operations: 0,
            failed: failed.len(),
            took: Duration::from_millis(3),
        });
    }
}

/// The complete response to one request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("{request}\r\nhost: node\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Repeats the request until the result is as expected, because sockets follow a plan with a delay.
pub(crate) async fn ask_until(
    address: SocketAddr,
    request: &str,
    holds: impl Fn(&std::io::Result<String>) -> bool,
) -> std::io::Result<String> {
    for _ in 0..100_000 {
        let answer = ask(address, request).await;
        if holds(&answer) {
            return answer;
        }
        tokio::task::yield_now().await;
    }
    panic!("this did not come from {address}")
}
