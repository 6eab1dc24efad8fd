//! Paths of packets: who reaches a frontend, which backend answers, and which client it sees.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;

use portolan_plan::Family;
use serde_json::json;

use super::plan::{list, service};
use super::services::{
    CLUSTER_IP, EXTERNAL_IP, LOAD_BALANCER, NODE_PORT, at, dns, everywhere, frontends, texts, web,
};
use super::traffic::{Answer, TCP_PORT, is_silent, tcp, udp};
use super::world::{CLIENT, NODE, World};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// From outside, from a pod and from the node itself.
fn from_everywhere(world: &World, connect: impl Fn() + Sync) {
    world.client.inside(&connect);
    world.pods[0].space.inside(&connect);
    connect();
}

pub(crate) fn every_frontend_answers() {
    let mut world = World::new(3);
    let services = [web(&world), dns(&world)];
    world.apply(&services);
    for (kind, to) in frontends(80) {
        from_everywhere(&world, || {
            let answered: Vec<_> = (0..3).map(|_| tcp(&to)).collect();
            assert!(
                answered.iter().all(Result::is_ok),
                "{kind} {to}: {answered:?}"
            );
        });
    }
    for (kind, to) in frontends(53) {
        from_everywhere(&world, || {
            let answered = udp(0, &to);
            assert!(answered.is_ok(), "UDP {kind} {to}: {answered:?}");
        });
    }
    // S-112: about a third each; below 20 of 150 has a probability of less than one in 100,000.
    for cluster_ip in CLUSTER_IP {
        let to = at(cluster_ip, 80);
        let mut by_pod = BTreeMap::<_, usize>::new();
        world.client.inside(|| {
            for _ in 0..150 {
                *by_pod.entry(tcp(&to).unwrap().pod).or_default() += 1;
            }
        });
        assert!(
            by_pod.len() == 3 && by_pod.values().all(|count| *count > 20),
            "{by_pod:?}"
        );
    }
}

/// S-73 to S-78.
pub(crate) fn masquerade() {
    let mut world = World::new(2);
    let mut local = service("local", "TCP", &at("10.96.0.50", 80), &[]);
    let backends = [world.backends(TCP_PORT)[0].clone()];
    let external = json!({"kind": "ExternalIP", "address": "198.51.100.50", "port": 80});
    local["ports"][0]["frontends"]
        .as_array_mut()
        .unwrap()
        .push(external);
    local["ports"][0]["internal"] = list(&texts(&backends));
    local["ports"][0]["external"] = list(&texts(&backends));
    local["ports"][0]["external"]["policy"] = "Local".into();
    local["ports"][0]["external"]["scope"] = "node/node-a".into();
    let services = [web(&world), local];
    world.apply(&services);
    let own = |peer: IpAddr| NODE.contains(&&*peer.to_string()) || is_gateway(peer);
    for (kind, to) in frontends(80) {
        let outside = world.client.inside(|| tcp(&to)).unwrap();
        assert!(own(outside.peer), "{kind} {to} from outside: {outside:?}");
        let node = tcp(&to).unwrap();
        assert!(own(node.peer), "{kind} {to} from the node: {node:?}");
        hairpin_and_pod(&world, kind, &to);
    }
    let external = at("198.51.100.50", 80);
    let outside = world.client.inside(|| tcp(&external)).unwrap();
    assert_eq!(outside.peer, address(CLIENT[0]), "S-78");
    let node = tcp(&external).unwrap();
    assert!(own(node.peer), "{node:?}");
}

fn is_gateway(peer: IpAddr) -> bool {
    [address("10.244.1.1"), address("fd00:10:244:1::1")].contains(&peer)
}

/// A pod keeps its address, unless it reaches itself.
fn hairpin_and_pod(world: &World, kind: &str, to: &str) {
    let pod = &world.pods[0];
    let mut seen = BTreeMap::new();
    for _ in 0..40 {
        let Answer { pod, peer } = pod.space.inside(|| tcp(to)).unwrap();
        seen.insert(pod, peer);
    }
    let itself = seen
        .get("pod0")
        .unwrap_or_else(|| panic!("{kind} {to}: {seen:?}"));
    assert!(is_gateway(*itself), "S-74: {kind} {to}: {seen:?}");
    let other = seen
        .get("pod1")
        .unwrap_or_else(|| panic!("{kind} {to}: {seen:?}"));
    assert!(pod.addresses.contains(other), "S-73: {kind} {to}: {seen:?}");
}

/// S-21, S-27, S-224.
pub(crate) fn refusals() {
    let mut world = World::new(1);
    let services = [everywhere("TCP", 80, &[]), everywhere("UDP", 53, &[])];
    world.apply(&services);
    // A daemon of the node must not get connections to a node port.
    let _daemon = std::net::TcpListener::bind(("::", NODE_PORT)).unwrap();
    let refused = Err(ErrorKind::ConnectionRefused);
    for (kind, to) in frontends(80) {
        from_everywhere(&world, || assert_eq!(tcp(&to), refused, "{kind} {to}"));
    }
    for (kind, to) in frontends(53) {
        for space in [&world.client, &world.pods[0].space] {
            space.inside(|| assert_eq!(udp(0, &to), refused, "UDP {kind} {to}"));
        }
        assert_refused_here(&to);
    }
    for unused in [
        at(CLUSTER_IP[0], 81),
        at("10.96.200.1", 80),
        at(CLUSTER_IP[1], 81),
    ] {
        from_everywhere(&world, || assert_eq!(tcp(&unused), refused, "{unused}"));
    }
    assert_refused_here(&at(CLUSTER_IP[1], 54));
    // Backends appear, and later leave.
    let with_backends = [web(&world), dns(&world)];
    world.apply(&with_backends);
    for (kind, to) in frontends(80) {
        from_everywhere(&world, || {
            drop(tcp(&to).unwrap_or_else(|e| panic!("{kind} {to} {e}")));
        });
    }
    world.apply(&services);
    assert_eq!(world.client.inside(|| tcp(&frontends(80)[0].1)), refused);
}

/// The node's own datagrams are refused by the send call itself.
fn assert_refused_here(to: &str) {
    let kind = udp(0, to).map(drop);
    let refused = [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
    assert!(
        kind.is_err_and(|kind| refused.contains(&kind)),
        "UDP {to}: {kind:?}"
    );
}

/// S-22, S-86 to S-93.
pub(crate) fn kept_out() {
    let mut world = World::new(1);
    let mut guarded = web(&world);
    guarded["ports"][0]["sourceRanges"] = json!(["192.168.50.8/30", "10.244.1.0/24"]);
    world.apply(&[guarded.clone()]);
    let [v4, v6] = LOAD_BALANCER.map(|address| at(address, 80));
    assert!(
        world.client.inside(|| tcp(&v4)).is_ok(),
        "192.168.50.9 is in a range"
    );
    assert!(world.pods[0].space.inside(|| tcp(&v4)).is_ok());
    assert!(is_silent(&v4), "S-91: the node is in no range");
    assert!(world.client.inside(|| is_silent(&v6)), "S-88");
    guarded["ports"][0]["sourceRanges"] = json!(["192.168.50.1/32", "fd00:50::/64"]);
    world.apply(&[guarded]);
    assert!(
        world.client.inside(|| is_silent(&v4)),
        "192.168.50.9 is in no range now"
    );
    assert!(world.pods[0].space.inside(|| is_silent(&v4)), "S-92");
    assert!(tcp(&v4).is_ok(), "S-90");
    assert!(world.client.inside(|| tcp(&v6)).is_ok());
    let others = [at(EXTERNAL_IP[0], 80), at(CLUSTER_IP[0], 80)];
    world
        .client
        .inside(|| assert!(others.iter().all(|to| tcp(to).is_ok())));
    let mut elsewhere = web(&world);
    elsewhere["ports"][0]["external"]["externalClients"] = "Drop".into();
    elsewhere["ports"][0]["external"]["policy"] = "Local".into();
    elsewhere["ports"][0]["external"]["scope"] = "cluster".into();
    world.apply(&[elsewhere]);
    for (kind, to) in frontends(80) {
        let silent = world.client.inside(|| is_silent(&to));
        assert_eq!(silent, kind != "ClusterIP", "S-22: {kind} {to}");
        assert!(
            world.pods[0].space.inside(|| tcp(&to)).is_ok(),
            "S-67: {to}"
        );
        assert!(tcp(&to).is_ok(), "S-69: {to}");
    }
}

/// Each connection is counted once, from every client, also if the client stays with its backend.
pub(crate) fn counted() {
    let mut world = World::new(2);
    let mut sticky = web(&world);
    sticky["ports"][0]["affinitySeconds"] = 60.into();
    let backends = world.backends(TCP_PORT);
    let other = service(
        "other",
        "TCP",
        &at("10.96.0.50", 80),
        &texts(&backends[..1]),
    );
    world.apply(&[sticky, other]);
    assert_eq!(world.keeper.connections().unwrap(), []);
    let mut expected = BTreeMap::new();
    let others = [("ClusterIP", at("10.96.0.50", 80))];
    for (number, (_, to)) in (1..).zip(frontends(80).into_iter().chain(others)) {
        from_everywhere(&world, || {
            for _ in 0..number {
                tcp(&to).unwrap();
            }
        });
        expected.insert(to, 3 * number);
    }
    let refused = at("10.96.0.50", 81);
    assert!(world.client.inside(|| tcp(&refused)).is_err());
    let counted = world.keeper.connections().unwrap().into_iter();
    let counted: BTreeMap<_, u64> = counted
        .map(|(key, count)| (at(&key.address.to_string(), key.port), count))
        .collect();
    assert_eq!(counted, expected);
}

/// S-94, S-98, S-99.
pub(crate) fn affinity() {
    let mut world = World::new(3);
    let sticky = |world: &World, without: Option<&str>| {
        let mut backends = world.backends(TCP_PORT);
        let gone = world.pods.iter().enumerate();
        let gone = gone.filter(|(number, _)| without == Some(&*format!("pod{number}")));
        let gone: Vec<_> = gone.flat_map(|(_, pod)| pod.backends(TCP_PORT)).collect();
        backends.retain(|backend| !gone.contains(backend));
        let mut service = everywhere("TCP", 80, &texts(&backends));
        service["ports"][0]["affinitySeconds"] = 600.into();
        service
    };
    let services = [sticky(&world, None)];
    world.apply(&services);
    for (family, to) in CLUSTER_IP
        .map(|address| at(address, 80))
        .into_iter()
        .enumerate()
    {
        let first = world.client.inside(|| tcp(&to)).unwrap().pod;
        let all = |world: &World| {
            let answers = world
                .client
                .inside(|| (0..20).map(|_| tcp(&to)).collect::<Vec<_>>());
            let mut pods: Vec<_> = answers.into_iter().map(|one| one.unwrap().pod).collect();
            pods.dedup();
            pods
        };
        assert_eq!(all(&world), std::slice::from_ref(&first));
        let services = [sticky(&world, Some(&first))];
        let outcome = world.apply(&services);
        assert!(outcome.purged > 0, "{:?}", Family::BOTH[family]);
        let after = all(&world);
        assert!(after.len() == 1 && after[0] != first, "{first}: {after:?}");
        let services = [sticky(&world, None)];
        world.apply(&services);
        assert_eq!(all(&world), after, "a backend that joins moves no client");
    }
}
