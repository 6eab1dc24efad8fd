//! What `show` prints, for people and for tools.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_agent::kernel::SharedModel;
use portolan_agent::saved::Origin;
use portolan_agent::show::{Found, LastPlan, Shown, Style, render};
use portolan_plan::NodePlan;
use portolan_reconcile::{Connections, Observed, RealServerKey, VirtualServer, VirtualServerKey};
use tempfile::TempDir;

use running::{Running, document};

fn written() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn origin() -> Origin {
    Origin {
        node: "node-a".into(),
        boot: String::new(),
        written: written(),
    }
}

fn plan() -> NodePlan {
    document().into_plan().unwrap()
}

fn key(text: &str) -> VirtualServerKey {
    text.parse().unwrap()
}

/// A kernel as an agent leaves it, and what it recorded.
fn programmed() -> (Observed, BTreeSet<VirtualServerKey>) {
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document());
    let kernel = running.stop();
    let observed = kernel.lock().state.clone();
    let recorded = observed.virtual_servers.keys().copied().collect();
    (observed, recorded)
}

fn backend(text: &str) -> RealServerKey {
    let socket: std::net::SocketAddr = text.parse().unwrap();
    RealServerKey {
        address: socket.ip(),
        port: socket.port(),
    }
}

fn text(shown: &Shown, all: bool) -> String {
    let style = Style { colour: false, all };
    render(shown, style, written() + Duration::from_secs(240))
}

fn show(
    observed: &Observed,
    connections: &Connections,
    recorded: &BTreeSet<VirtualServerKey>,
    plan: LastPlan<'_>,
) -> Shown {
    Shown::of(&Found {
        observed,
        connections,
        recorded,
        plan,
    })
}

#[test]
fn a_node_in_order() {
    let (observed, recorded) = programmed();
    let mut connections = Connections::new();
    for (server, held) in &observed.virtual_servers {
        let counts = held.real_servers.keys().zip(1..);
        connections.insert(*server, counts.map(|(key, count)| (*key, count)).collect());
    }
    let (plan, origin) = (plan(), origin());
    let shown = show(&observed, &connections, &recorded, Some((&plan, &origin)));
    insta::assert_snapshot!(text(&shown, false));
    insta::assert_json_snapshot!(shown);
}

#[test]
fn a_node_at_three_in_the_morning() {
    let (mut observed, mut recorded) = programmed();
    let servers = &mut observed.virtual_servers;
    let tcp: Vec<_> = servers
        .iter()
        .filter(|(key, held)| key.to_string().starts_with("TCP") && held.real_servers.len() > 1)
        .map(|(key, _)| *key)
        .collect();
    let [drained, missing, ..] = tcp[..] else {
        panic!("the plan has too few Services");
    };
    // One by hand, one that drains, one that somebody took away, and one that came with a weight.
    let held = servers.get_mut(&drained).unwrap();
    held.real_servers.insert(backend("10.244.9.9:8080"), 0);
    let first = *held.real_servers.keys().next().unwrap();
    held.real_servers.insert(first, 7);
    servers.remove(&missing);
    let foreign = VirtualServer {
        scheduler: "wlc".into(),
        flags: 1,
        timeout: 300,
        real_servers: [(backend("192.168.9.9:53"), 1)].into(),
    };
    servers.insert(key("UDP 203.0.113.9:53"), foreign.clone());
    servers.insert(key("TCP 10.96.7.7:80"), foreign);
    recorded.insert(key("TCP 10.96.7.7:80"));
    observed.rules.clear();
    let reason = "run iptables-nft-save: somebody's rules cannot be read";
    observed
        .unread_rules
        .insert(portolan_plan::Family::Ipv6, reason.into());
    let connections: Connections = [(drained, [(backend("10.244.9.9:8080"), 3)].into())].into();
    let (plan, origin) = (plan(), origin());
    let shown = show(&observed, &connections, &recorded, Some((&plan, &origin)));
    insta::assert_snapshot!("three_in_the_morning", text(&shown, false));
    insta::assert_snapshot!("three_in_the_morning_all", text(&shown, true));
}

#[test]
fn a_node_without_a_plan_and_one_that_is_empty() {
    let (observed, recorded) = programmed();
    let shown = show(&observed, &BTreeMap::new(), &recorded, None);
    insta::assert_snapshot!("without_a_plan", text(&shown, false));
    let shown = show(
        &Observed::default(),
        &BTreeMap::new(),
        &BTreeSet::new(),
        None,
    );
    insta::assert_snapshot!("empty", text(&shown, false));
}
