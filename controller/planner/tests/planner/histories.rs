//! Random clusters: few names and addresses, so that objects conflict.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::build::{
    GivenEndpoint, GivenExternal, GivenNode, GivenPolicy, GivenService, GivenSlice,
};
use portolan_plan::{LocalDetection, ServiceId, Settings, SettingsPatch};
use portolan_planner::model::{
    Event, Guarding, ObjectChange, Override, ProxyConfig, Revision, ServiceCidr, SliceId, Staged,
};
use portolan_rollout_policy::Reach;
use proptest::prelude::*;
use proptest::sample::select;

const NAMES: [&str; 3] = ["ns/a", "ns/b", "kube-system/c"];
const SLICES: [&str; 4] = ["ns/a", "ns/b", "kube-system/c", "default/d"];
pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
const ZONES: [&str; 3] = ["z1", "z2", "z3"];

prop_compose! {
    /// Few names and addresses, so that objects conflict: claims, moves, two copies of an endpoint.
    fn service()(
        id in select(&NAMES[..]),
        created in proptest::option::of(0..3i64),
        ips in proptest::sample::subsequence(vec!["10.96.0.1", "fd00::1"], 0..=2),
        ports in proptest::sample::subsequence(vec!["x 80/TCP", "y 80/UDP", "z 81/TCP"], 1..=3),
        proxy_name in proptest::option::weighted(0.2, select(vec!["other", "mine"])),
        affinity in proptest::option::of(1..3u32),
        internal in select(vec![GivenPolicy::Cluster, GivenPolicy::Cluster, GivenPolicy::Local]),
        external in proptest::option::of(external()),
        node_ports in node_ports(),
    ) -> Event {
        let service = GivenService {
            id: id.into(),
            created,
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            ports: ports.iter().map(ToString::to_string).collect(),
            proxy_name: proxy_name.map(Into::into),
            affinity,
            internal,
            external,
            node_ports,
            ..Default::default()
        };
        service.build().into()
    }
}

/// Addresses that may have another owner: a cluster IP, a node, a pod, an API server, or none.
const EXTERNAL: [&str; 7] = [
    "10.96.0.1",
    "192.168.1.1",
    "10.244.0.9",
    "10.244.0.1",
    "203.0.113.1",
    "127.0.0.1",
    "fd00:1::1",
];

prop_compose! {
    fn external()(
        ips in proptest::sample::subsequence(EXTERNAL.to_vec(), 0..3),
        balancer in proptest::sample::subsequence(EXTERNAL.to_vec(), 0..3),
        policy in select(vec![GivenPolicy::Cluster, GivenPolicy::Local]),
        ranges in proptest::option::of(proptest::sample::subsequence(vec!["0.0.0.0/0", "10.0.0.0/8", "fd00::/8"], 0..3)),
        health_port in proptest::option::of(select(vec![30080u16, 32000])),
    ) -> GivenExternal {
        let addresses = |texts: Vec<&str>| texts.iter().map(|text| text.parse().unwrap()).collect();
        GivenExternal {
            ips: addresses(ips),
            balancer: addresses(balancer),
            policy,
            ranges: ranges.map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect()),
            health_port,
            ..Default::default()
        }
    }
}

/// One of the numbers is also a port of a Service.
fn node_ports() -> impl Strategy<Value = BTreeMap<String, u16>> {
    let ports = proptest::sample::subsequence(vec![("x", 30080), ("y", 30080), ("z", 81)], 0..3);
    ports.prop_map(|ports| {
        ports
            .into_iter()
            .map(|(name, n)| (name.into(), n))
            .collect()
    })
}

prop_compose! {
    fn endpoint(six: bool)(
        host in 1..4u8,
        node in proptest::option::of(select(&NODES[..])),
        (ready, serving, terminating) in (any::<bool>(), any::<bool>(), any::<bool>()),
        for_nodes in hints(NODES.to_vec()),
        for_zones in hints(ZONES.to_vec()),
    ) -> GivenEndpoint {
        let address = if six { format!("fd00:244::{host}") } else { format!("10.244.0.{host}") };
        let address = address.parse().unwrap();
        let node = node.map(Into::into);
        GivenEndpoint { address, node, ready, serving, terminating, for_nodes, for_zones }
    }
}

/// Often not empty, so that all endpoints of a port have hints in many histories.
fn hints(names: Vec<&'static str>) -> impl Strategy<Value = Vec<String>> {
    let some = proptest::sample::subsequence(names, 1..=2);
    prop_oneof![1 => Just(Vec::new()), 4 => some]
        .prop_map(|names| names.into_iter().map(Into::into).collect())
}

fn slice() -> impl Strategy<Value = Event> {
    let endpoints =
        any::<bool>().prop_flat_map(|six| proptest::collection::vec(endpoint(six), 0..4));
    // Endpoints of the last one are API servers.
    let name = (select(&SLICES[..]), 1..3u8);
    let of = proptest::option::weighted(0.9, select(vec!["a", "b", "c", "kubernetes"]));
    let port = select(vec!["x 8080/TCP", "x 80/TCP", "y 8080/UDP"]);
    (name, of, 0..3i64, port, endpoints).prop_map(
        |((id, number), of, generation, port, endpoints)| {
            let slice = GivenSlice {
                id: format!("{id}-{number}"),
                service: of.map(Into::into),
                generation,
                ports: vec![port.into()],
                endpoints,
                ..Default::default()
            };
            slice.build().into()
        },
    )
}

fn node() -> impl Strategy<Value = Event> {
    let zone = proptest::option::of(select(&ZONES[..]));
    let addresses = proptest::sample::subsequence(vec!["192.168.1.1", "192.168.1.2"], 0..=2);
    let pods = proptest::option::weighted(0.3, select(vec!["10.244.0.8/29", "10.244.0.0/16"]));
    let pool = proptest::option::of(select(vec!["edge", "core"]));
    let rest = ((any::<bool>(), any::<bool>()), addresses, pods, pool);
    (select(&NODES[..]), zone, rest).prop_map(
        |(name, zone, ((deleted, not_ready), addresses, pods, pool))| {
            let zone = zone.map(Into::into);
            GivenNode {
                name: name.into(),
                zone,
                deleted,
                not_ready,
                labels: pool
                    .map(|pool| ("pool".into(), pool.into()))
                    .into_iter()
                    .collect(),
                addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
                pods: pods.iter().map(|text| text.parse().unwrap()).collect(),
                ..Default::default()
            }
            .build()
            .into()
        },
    )
}

fn settings() -> impl Strategy<Value = Event> {
    let allowed = proptest::option::of(select(vec!["203.0.113.0/24", "192.168.0.0/16"]));
    let staged = (
        select(vec!["one", "two"]),
        proptest::option::of(select(vec!["edge", "core"])),
        proptest::option::of(select(&NODES[..])),
    );
    let all = (select(vec!["", "", "mine"]), allowed, staged);
    all.prop_map(|(name, allowed, staged)| {
        let mut settings = Settings {
            service_proxy_name: name.into(),
            ..Settings::default()
        };
        if let Some(allowed) = allowed {
            settings.external_ips.allowed_cidrs = vec![allowed.parse().unwrap()];
        } else if name.is_empty() {
            let cluster_cidrs = vec!["203.0.113.0/24".parse().unwrap()];
            settings.local_detection = LocalDetection::ClusterCidr { cluster_cidrs };
        }
        let (device, label, canary) = staged;
        let current = Revision {
            number: Some(1),
            settings: settings.clone(),
            overrides: label.map(|label| only(label, "wlc")).into_iter().collect(),
        };
        settings.device = device.into();
        let change = Revision {
            number: Some(2),
            settings,
            overrides: label.map(|label| only(label, "mh")).into_iter().collect(),
        };
        let staged = canary.map(|canary| {
            Arc::new(Staged {
                revision: change,
                reach: Reach {
                    nodes: [canary.into()].into(),
                    zones: ["z2".into()].into(),
                    partly: None,
                },
            })
        });
        let (name, current) = (ProxyConfig::DEFAULT.into(), Arc::new(current));
        ProxyConfig {
            name,
            current,
            staged,
            guarding: Guarding::default(),
        }
        .into()
    })
}

/// Another scheduler for nodes with a label.
fn only(pool: &str, scheduler: &str) -> Override {
    Override {
        labels: [("pool".into(), pool.into())].into(),
        settings: SettingsPatch {
            scheduler: Some(scheduler.into()),
            ..SettingsPatch::default()
        },
    }
}

fn removal() -> impl Strategy<Value = Event> {
    let id = select(&NAMES[..]).prop_map(|id| id.split_once('/').unwrap());
    let slice_id = select(&SLICES[..]).prop_map(|id| id.split_once('/').unwrap());
    prop_oneof![
        id.clone().prop_map(|(namespace, name)| {
            Event::Service(ObjectChange::Remove(ServiceId::new(namespace, name)))
        }),
        (slice_id, 1..3u8).prop_map(|((namespace, name), number)| {
            let (namespace, name) = (namespace.into(), format!("{name}-{number}").into());
            Event::EndpointSlice(ObjectChange::Remove(SliceId { namespace, name }))
        }),
        select(&NODES[..]).prop_map(|name| Event::Node(ObjectChange::Remove(name.into()))),
        Just(Event::ProxyConfig(ObjectChange::Remove(
            ProxyConfig::DEFAULT.into()
        ))),
        Just(Event::ServiceCidr(ObjectChange::Replace(Vec::new()))),
        Just(Event::EndpointSlice(ObjectChange::Replace(Vec::new()))),
        Just(Event::Service(ObjectChange::Replace(Vec::new()))),
    ]
}

fn service_cidr() -> impl Strategy<Value = Event> {
    select(vec!["10.96.0.0/16", "10.97.0.0/16"]).prop_map(|range| {
        let (name, cidrs) = (range.replace('/', "-").into(), vec![range.parse().unwrap()]);
        ServiceCidr { name, cidrs }.into()
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let seldom = prop_oneof![settings(), service_cidr()];
    prop_oneof![4 => service(), 6 => slice(), 3 => node(), 1 => seldom, 2 => removal()]
}

pub(crate) fn history() -> impl Strategy<Value = Vec<Event>> {
    prop_oneof![
        2 => proptest::collection::vec(event(), 0..40),
        1 => quiet_history(),
    ]
}

/// One Service whose endpoints are all ready and have hints, a port by nodes and a port by zones, while endpoints
/// move and nodes join, leave and change their zones. Random histories seldom reach this.
fn quiet_history() -> impl Strategy<Value = Vec<Event>> {
    let internal = select(vec![
        GivenPolicy::Cluster,
        GivenPolicy::Cluster,
        GivenPolicy::Local,
    ]);
    let external = proptest::option::of(select(vec![GivenPolicy::Cluster, GivenPolicy::Local]));
    let service = (internal, external).prop_map(|(internal, external)| -> Event {
        let external = external.map(|policy| GivenExternal {
            ips: vec![
                "203.0.113.1".parse().unwrap(),
                "192.168.1.1".parse().unwrap(),
            ],
            policy,
            ..Default::default()
        });
        let service = GivenService {
            id: NAMES[0].into(),
            ips: vec!["10.96.0.1".parse().unwrap()],
            ports: vec!["x 80/TCP".into(), "y 80/UDP".into()],
            internal,
            external,
            ..Default::default()
        };
        service.build().into()
    });
    let hosts = proptest::sample::subsequence(vec![1, 2, 3u8], 1..=3);
    let names = proptest::collection::vec((select(&NODES[..]), select(&ZONES[..])), 3);
    let slice = (any::<bool>(), hosts, names).prop_map(|(by_node, hosts, names)| -> Event {
        let endpoint = |(host, (node, zone)): (u8, (&str, &str))| GivenEndpoint {
            address: format!("10.244.0.{host}").parse().unwrap(),
            node: Some(node.into()),
            ready: true,
            serving: true,
            terminating: false,
            for_nodes: by_node.then(|| node.into()).into_iter().collect(),
            for_zones: (!by_node).then(|| zone.into()).into_iter().collect(),
        };
        let port = if by_node { "x 8080/TCP" } else { "y 8080/UDP" };
        let slice = GivenSlice {
            id: format!("{}-{}", NAMES[0], if by_node { 1 } else { 2 }),
            service: Some("a".into()),
            ports: vec![port.into()],
            endpoints: hosts.into_iter().zip(names).map(endpoint).collect(),
            ..Default::default()
        };
        slice.build().into()
    });
    let gone = select(&NODES[..]).prop_map(|name| Event::Node(ObjectChange::Remove(name.into())));
    let rest = prop_oneof![3 => slice, 3 => node(), 1 => gone];
    (service, proptest::collection::vec(rest, 0..30))
        .prop_map(|(service, rest)| std::iter::once(service).chain(rest).collect())
}
