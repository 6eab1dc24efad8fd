//! Output of `show` as text and JSON.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

#[allow(dead_code, reason = "other tests need more of it")]
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_agent::drains::{Drain, ListedDrain};
use portolan_agent::kernel::SharedModel;
use portolan_agent::saved::Origin;
use portolan_agent::show::{
    Found, LastPlan, NO_SUCH_SERVICE, NOTHING, Owner, Shown, Style, render,
};
use portolan_plan::{Dataplane, FrontendKind, NodePlan, ServiceId};
use portolan_reconcile::{
    Connections, Observed, RealServerKey, RealServers, VirtualServer, VirtualServerKey,
};
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
        confirmed: written(),
    }
}

fn plan() -> NodePlan {
    document().into_plan().unwrap()
}

fn key(text: &str) -> VirtualServerKey {
    text.parse().unwrap()
}

/// The kernel state after an agent has run, and its record.
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
    let style = Style {
        colour: false,
        all,
        nothing: NOTHING,
    };
    render(shown, style, written() + Duration::from_secs(240))
}

fn show(
    observed: &Observed,
    connections: &Connections,
    recorded: &BTreeSet<VirtualServerKey>,
    plan: LastPlan<'_>,
) -> Shown {
    Shown::of(&Found {
        tables: None,
        observed,
        connections,
        recorded,
        plan,
        drains: &Err("Connection refused".into()),
        entries: false,
        service: None,
    })
}

#[test]
fn a_node_in_order() {
    let (observed, recorded) = programmed();
    let mut connections = Connections::new();
    for (server, held) in &observed.virtual_servers {
        let counts = held.real_servers.keys().zip(1..);
        connections.insert(*server, counts.collect());
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
    // A backend added by hand, a draining one, a removed virtual server, and a changed weight.
    let held = servers.get_mut(&drained).unwrap();
    held.real_servers.insert(backend("10.244.9.9:8080"), 0);
    let first = held.real_servers.keys().next().unwrap();
    held.real_servers.insert(first, 7);
    servers.remove(&missing);
    let foreign = VirtualServer {
        scheduler: "wlc".into(),
        flags: 1,
        timeout: 300,
        real_servers: RealServers::from_iter([(backend("192.168.9.9:53"), 1)]),
    };
    servers.insert(key("UDP 203.0.113.9:53"), foreign.clone());
    servers.insert(key("TCP 10.96.7.7:80"), foreign);
    recorded.insert(key("TCP 10.96.7.7:80"));
    observed.rules.clear();
    let reason = "run iptables-nft-save: Table `nat' is incompatible";
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

/// Draining real servers as the agent reports them, the filter for a Service, and the entries of sets.
#[test]
fn one_service_with_draining_servers_and_set_entries() {
    let (mut observed, recorded) = programmed();
    let server = key("TCP 10.96.0.10:53");
    let held = observed.virtual_servers.get_mut(&server).unwrap();
    let (gone, elsewhere) = (backend("10.244.9.9:53"), backend("10.244.9.8:53"));
    held.real_servers.extend([(gone, 0), (elsewhere, 0)]);
    let start = std::time::Instant::now();
    let drain = |backend, gone| {
        let drain = Drain {
            server,
            backend,
            rests: false,
            deadline: Duration::from_secs(60),
            gone,
        };
        ListedDrain::of(&drain, start + Duration::from_secs(12))
    };
    let drains = Ok(vec![drain(gone, Some(start)), drain(elsewhere, None)]);
    let (plan, origin) = (plan(), origin());
    let dns = ServiceId::new("kube-system", "dns");
    let absent = ServiceId::new("kube-system", "absent");
    let show = |service| {
        Shown::of(&Found {
            tables: None,
            observed: &observed,
            connections: &BTreeMap::new(),
            recorded: &recorded,
            plan: Some((&plan, &origin)),
            drains: &drains,
            entries: true,
            service: Some(service),
        })
    };
    insta::assert_snapshot!("one_service", text(&show(&dns), false));
    let style = Style {
        colour: false,
        all: false,
        nothing: NO_SUCH_SERVICE,
    };
    let mut shown = show(&absent);
    shown.sets.clear();
    insta::assert_snapshot!("no_such_service", render(&shown, style, written()));
}

/// A virtual server with the number of a node port, but on an address that the settings do not select, does not
/// belong to the Service (S-32).
#[test]
fn a_node_port_belongs_to_the_service_only_on_selected_addresses() {
    let (mut observed, recorded) = programmed();
    let mut document = document();
    let port = document.services[0].ports[0].clone();
    let (node, other) = ("192.168.50.1", "192.168.50.77");
    observed
        .host
        .addresses
        .push(running::address(&format!("{other}/24")));
    document.node_addresses = vec![node.parse().unwrap()];
    let mut frontend = port.frontends[0].clone();
    frontend.kind = FrontendKind::NodePort;
    (frontend.address, frontend.port) = (None, 30_999);
    document.services[0].ports[0].frontends.push(frontend);
    let foreign = VirtualServer {
        scheduler: "rr".into(),
        flags: 0,
        timeout: 0,
        real_servers: RealServers::from_iter([(backend("10.244.1.5:8080"), 1)]),
    };
    let place = |address: &str| key(&format!("{} {address}:30999", port.protocol));
    for address in [node, other] {
        observed
            .virtual_servers
            .insert(place(address), foreign.clone());
    }
    let (plan, origin) = (document.into_plan().unwrap(), origin());
    let shown = show(
        &observed,
        &BTreeMap::new(),
        &recorded,
        Some((&plan, &origin)),
    );
    let owner = |address: &str| {
        let mut servers = shown.virtual_servers.iter();
        let at = address.parse::<std::net::IpAddr>().unwrap();
        let found = servers.find(|server| server.address == at && server.port == 30_999);
        found.unwrap().owner.clone()
    };
    assert!(matches!(owner(node), Owner::Service { .. }));
    assert_eq!(owner(other), Owner::Other);
}

/// The tables of nftables are shown like virtual servers: backends with their slots as weights.
#[test]
fn a_node_with_the_nftables_dataplane() {
    let mut document = document();
    document.settings.dataplane = Dataplane::Nftables;
    let state = TempDir::new().unwrap();
    let running = Running::start(SharedModel::default(), state.path());
    running.program(document.clone());
    let kernel = running.stop();
    let observed = kernel.lock().state.clone();
    let tables = kernel.tables().lock().observed.clone();
    let mut later = document.clone();
    for service in later.services.iter_mut().filter(|it| &*it.name == "web") {
        for port in &mut service.ports {
            port.internal.endpoints.pop();
        }
    }
    let show = |plan: &NodePlan| {
        Shown::of(&Found {
            tables: Some(&tables),
            observed: &observed,
            connections: &Connections::new(),
            recorded: &BTreeSet::new(),
            plan: Some((plan, &origin())),
            drains: &Ok(Vec::new()),
            entries: false,
            service: None,
        })
    };
    let shown = show(&document.into_plan().unwrap());
    insta::assert_snapshot!("nftables", text(&shown, false));
    let shown = text(&show(&later.into_plan().unwrap()), false);
    assert!(shown.contains("differs"), "{shown}");
}
