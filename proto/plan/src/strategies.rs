//! Proptest strategies for plans, used by the laws of all code that handles plans. Values are drawn from small pools,
//! so that entries refer to each other, collide and repeat.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use smallvec::SmallVec;

use crate::{
    Backend, BackendList, Dataplane, Entry, EntryKey, ExternalClients, Family, Frontend,
    FrontendKind, Head, HeadPort, ListChoice, ListKey, ListUse, Local, LocalEndpoint, LocalHealth,
    NodeEntry, Period, Policy, Protocol, Scope, ScopeKind, ServiceId, Settings, WhenEmpty,
};

/// The node of the generated plans.
pub const NODE: &str = "node-a";

/// The zone of that node.
pub const ZONE: &str = "zone-1";

/// A port, mostly a common one.
pub fn port() -> impl Strategy<Value = u16> {
    prop_oneof![4 => select(vec![53u16, 80, 443, 8080]), 1 => 1..=u16::MAX]
}

/// A protocol.
pub fn protocol() -> impl Strategy<Value = Protocol> {
    select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp])
}

/// An address of a pod.
pub fn pod_address(family: Family) -> impl Strategy<Value = IpAddr> {
    (1u8..4, 1u8..12).prop_map(move |(node, pod)| match family {
        Family::Ipv4 => IpAddr::from([10, 244, node, pod]),
        Family::Ipv6 => IpAddr::from([0xfd00, 0x10, 0x244, node.into(), 0, 0, 0, pod.into()]),
    })
}

/// A cluster IP.
pub fn cluster_ip(family: Family) -> impl Strategy<Value = IpAddr> {
    (1u8..40).prop_map(move |host| match family {
        Family::Ipv4 => IpAddr::from([10, 96, 0, host]),
        Family::Ipv6 => IpAddr::from([0xfd00, 0x10, 0x96, 0, 0, 0, 0, host.into()]),
    })
}

/// Backends of one family.
pub fn backends(family: Family) -> impl Strategy<Value = BackendList> {
    let weight = prop_oneof![4 => Just(1u16), 1 => 0u16..200];
    let backend =
        (pod_address(family), port(), weight).prop_map(|(address, port, weight)| Backend {
            address,
            port,
            weight,
        });
    vec(backend, 0..6).prop_map(BackendList::new)
}

/// Under policy Local, a node uses its own endpoints. If it has none, it uses the list of policy Cluster, and drops
/// external clients if that list is not empty.
fn list_use() -> impl Strategy<Value = ListUse> {
    let shared = select(vec![ScopeKind::Cluster, ScopeKind::Zone, ScopeKind::Node]);
    let cluster = shared.prop_map(|scope| (scope, ExternalClients::Allow));
    let local = select(vec![
        (ScopeKind::Local, ExternalClients::Allow),
        (ScopeKind::Cluster, ExternalClients::Allow),
        (ScopeKind::Cluster, ExternalClients::Drop),
        (ScopeKind::Zone, ExternalClients::Drop),
        (ScopeKind::Node, ExternalClients::Drop),
    ]);
    prop_oneof![
        (Just(Policy::Cluster), vec(cluster, 2)),
        (Just(Policy::Local), vec(local, 2)),
    ]
    .prop_map(|(policy, choices)| {
        let choice = |(scope, external_clients)| ListChoice {
            scope,
            external_clients,
        };
        ListUse {
            policy,
            ipv4: choice(choices[0]),
            ipv6: choice(choices[1]),
            when_empty: WhenEmpty::Reject,
        }
    })
}

fn source_range() -> impl Strategy<Value = IpNet> {
    (any::<[u8; 4]>(), 0u8..=32).prop_map(|(address, length)| {
        IpNet::new(IpAddr::from(address), length)
            .map_or(IpNet::from(IpAddr::from(address)), |n| n.trunc())
    })
}

/// An external address, as `(kind, address)`.
fn external_address() -> impl Strategy<Value = (FrontendKind, IpAddr)> {
    let kinds = vec![FrontendKind::ExternalIp, FrontendKind::LoadBalancer];
    let v4 = (1u8..5).prop_map(|host| IpAddr::from([198, 51, 100, host]));
    let v6 = (1u16..5).prop_map(|host| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]));
    (select(kinds), prop_oneof![v4, v6])
}

fn head_port(name: Arc<str>) -> impl Strategy<Value = HeadPort> {
    let frontends = prop_oneof![
        cluster_ip(Family::Ipv4).prop_map(|address| vec![address]),
        cluster_ip(Family::Ipv6).prop_map(|address| vec![address]),
        (cluster_ip(Family::Ipv4), cluster_ip(Family::Ipv6)).prop_map(|(a, b)| vec![a, b]),
    ];
    let affinity = option::of(1u32..=86_400);
    (
        protocol(),
        port(),
        (option::of(port()), vec(external_address(), 0..3)),
        frontends,
        list_use(),
        list_use(),
        affinity,
    )
        .prop_map(
            move |(
                protocol,
                port,
                (node_port, others),
                addresses,
                internal,
                external,
                affinity_seconds,
            )| {
                let frontend = |address| Frontend {
                    kind: FrontendKind::ClusterIp,
                    address,
                    port,
                };
                let cluster = addresses.into_iter().map(|address| frontend(Some(address)));
                let node = node_port.map(|port| Frontend {
                    kind: FrontendKind::NodePort,
                    address: None,
                    port,
                });
                let others = others.into_iter().map(|(kind, address)| Frontend {
                    kind,
                    address: Some(address),
                    port,
                });
                let frontends: SmallVec<_> = cluster.chain(others).chain(node).collect();
                let is_external = |f: &Frontend| f.kind != FrontendKind::ClusterIp;
                HeadPort {
                    name: name.clone(),
                    protocol,
                    external: frontends.iter().any(is_external).then_some(external),
                    frontends,
                    internal,
                    affinity_seconds,
                }
            },
        )
}

/// A Service.
pub fn head() -> impl Strategy<Value = Head> {
    let one = head_port("".into()).prop_map(|port| vec![port]);
    let two = (head_port("http".into()), head_port("dns".into())).prop_map(|(a, b)| vec![a, b]);
    let ports = prop_oneof![one, two];
    let scheduler = option::of(select(vec!["rr", "wrr", "lc", "mh"]));
    let rest = (any::<bool>(), option::of(0u32..600), scheduler);
    let ranges = vec(source_range(), 0..3);
    (rest, ports, ranges).prop_map(
        |((boot_critical, drain_seconds, scheduler), ports, ranges)| {
            let mut frontends = ports.iter().flat_map(|port| &port.frontends);
            let guards = frontends.any(|f| f.kind == FrontendKind::LoadBalancer);
            Head {
                boot_critical,
                drain_seconds,
                scheduler: scheduler.map(Into::into),
                source_ranges: if guards { ranges } else { Vec::new() },
                ports: ports.into(),
            }
        },
    )
}

/// This node's endpoints of a Service.
pub fn local() -> impl Strategy<Value = Local> {
    let family = select(vec![Family::Ipv4, Family::Ipv6]);
    let endpoint = (family.prop_flat_map(pod_address), protocol(), port()).prop_map(
        |(address, protocol, port)| LocalEndpoint {
            address,
            protocol,
            port,
        },
    );
    let health =
        (port(), 0u32..9, 0u32..9).prop_map(|(port, ipv4, ipv6)| LocalHealth { port, ipv4, ipv6 });
    (vec(endpoint, 0..4), option::of(health)).prop_map(|(mut endpoints, health)| {
        endpoints.sort_unstable();
        endpoints.dedup();
        let endpoints = endpoints.into();
        Local { endpoints, health }
    })
}

/// The node entry, with a few varying settings.
pub fn node() -> impl Strategy<Value = NodeEntry> {
    let scheduler = select(vec!["rr", "lc", "mh"]);
    let udp = select(vec![0, 60]);
    let dataplane = select(vec![Dataplane::Ipvs, Dataplane::Nftables]);
    let masquerade = (any::<bool>(), 0u8..32);
    (scheduler, masquerade, any::<bool>(), udp, dataplane).prop_map(
        |(scheduler, (all, bit), eligible, udp, dataplane)| {
            let mut settings = Settings {
                dataplane,
                scheduler: scheduler.into(),
                ..Settings::default()
            };
            settings.masquerade.all = all;
            settings.masquerade.bit = bit;
            settings.timeouts.udp = Period::seconds(udp);
            NodeEntry {
                name: NODE.into(),
                zone: Some(ZONE.into()),
                addresses: vec![IpAddr::from([192, 168, 50, 1])],
                pod_cidrs: ["10.244.1.0/24", "fd00:10:244:1::/64"]
                    .iter()
                    .flat_map(|r| r.parse())
                    .collect(),
                service_cidrs: ["10.96.0.0/12", "fd00:10:96::/112"]
                    .iter()
                    .flat_map(|r| r.parse())
                    .collect(),
                eligible,
                settings,
            }
        },
    )
}

fn service_id() -> impl Strategy<Value = ServiceId> {
    (
        select(vec!["default", "shop"]),
        select(vec!["web", "dns", "db"]),
    )
        .prop_map(|(namespace, name)| ServiceId::new(namespace, name))
}

fn list_key() -> impl Strategy<Value = ListKey> {
    let scopes = vec![
        Scope::Cluster,
        Scope::Zone(ZONE.into()),
        Scope::Node(NODE.into()),
        Scope::Local(NODE.into()),
    ];
    let ports = vec!["", "http", "dns"];
    (
        service_id(),
        select(ports),
        select(Family::BOTH.to_vec()),
        select(scopes),
    )
        .prop_map(|(service, port, family, scope)| ListKey {
            service,
            port: port.into(),
            family,
            scope,
        })
}

/// A key and an entry of its kind.
pub fn entry() -> impl Strategy<Value = (EntryKey, Entry)> {
    prop_oneof![
        1 => node().prop_map(|node| (EntryKey::Node, Entry::Node(Arc::new(node)))),
        4 => (service_id(), head()).prop_map(|(id, head)| (EntryKey::Head(id), Entry::Head(Arc::new(head)))),
        4 => list_key().prop_flat_map(|key| {
            backends(key.family).prop_map(move |list| {
                (EntryKey::List(key.clone()), Entry::List(Arc::new(list)))
            })
        }),
        2 => (service_id(), local()).prop_map(|(id, local)| (EntryKey::Local(id), Entry::Local(Arc::new(local)))),
    ]
}

/// All entries of a plan, including the node.
pub fn entries() -> impl Strategy<Value = Vec<(EntryKey, Entry)>> {
    let heads = btree_map(service_id(), head(), 0..5);
    let lists = vec(
        list_key().prop_flat_map(|key| backends(key.family).prop_map(move |l| (key.clone(), l))),
        0..12,
    );
    let locals = btree_map(service_id(), local(), 0..4);
    (node(), heads, lists, locals).prop_map(|(node, heads, lists, locals)| {
        let node = (EntryKey::Node, Entry::Node(Arc::new(node)));
        let heads = heads
            .into_iter()
            .map(|(id, head)| (EntryKey::Head(id), Entry::Head(Arc::new(head))));
        let lists = lists
            .into_iter()
            .map(|(key, list)| (EntryKey::List(key), Entry::List(Arc::new(list))));
        let locals = locals
            .into_iter()
            .map(|(id, local)| (EntryKey::Local(id), Entry::Local(Arc::new(local))));
        let all = std::iter::once(node)
            .chain(heads)
            .chain(lists)
            .chain(locals);
        // Keep one entry per key.
        all.collect::<std::collections::BTreeMap<_, _>>()
            .into_iter()
            .collect()
    })
}
