//! Real connections of pods, of the node and of a host outside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nft_rs::Bytes;
use portolan_plan::{ExternalClients, Family, Policy, Protocol};
use portolan_reconcile::nftables::{SetName, SizeClass};

use crate::plan::{Kernel, Service, tables};
use crate::world::{PODS, Reached, World, connect, lan, pod, send};

fn server(reached: Reached) -> IpAddr {
    match reached {
        Reached::Server { server, .. } => server,
        other => panic!("{other:?}"),
    }
}

fn client(reached: Reached) -> IpAddr {
    match reached {
        Reached::Server { client, .. } => client,
        other => panic!("{other:?}"),
    }
}

/// How often each server was reached.
fn counts(to: SocketAddr, connections: usize) -> BTreeMap<IpAddr, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..connections {
        *counts.entry(server(connect(to, None))).or_default() += 1;
    }
    counts
}

pub(crate) fn connections_spread_over_backends() {
    let world = World::new();
    let web = Service::new("web", 20);
    Kernel::new().commit(&tables(std::slice::from_ref(&web)));
    for family in Family::BOTH {
        let to = web.at(family);
        for counts in [
            counts(to, 80),
            world.outside.run(move || counts(to, 80)),
            world.pods[0].run(move || counts(to, 80)),
        ] {
            // Each has 40 on average. Outside of these limits is one run in a million.
            let fair = counts.values().all(|count| (18..=62).contains(count));
            assert!(counts.len() == 2 && fair, "{family}: {counts:?}");
        }
    }
}

pub(crate) fn weights_are_respected() {
    let world = World::new();
    let web = Service {
        backends: vec![(5, 300), (6, 100)],
        ..Service::new("web", 20)
    };
    Kernel::new().commit(&tables(std::slice::from_ref(&web)));
    for family in Family::BOTH {
        let to = web.at(family);
        let counts = world.outside.run(move || counts(to, 200));
        let heavy = counts[&pod(family, 5)];
        assert!((115..=185).contains(&heavy), "{family}: {counts:?}");
    }
}

pub(crate) fn a_client_hash_is_stable() {
    let world = World::new();
    let web = Service {
        scheduler: Some("sh"),
        backends: vec![(5, 2), (6, 3)],
        ..Service::new("web", 20)
    };
    Kernel::new().commit(&tables(std::slice::from_ref(&web)));
    for family in Family::BOTH {
        let to = web.at(family);
        for last in [9, 10] {
            let from = Some(lan(family, last));
            let servers = world.outside.run(move || -> BTreeSet<_> {
                (0..30).map(|_| server(connect(to, from))).collect()
            });
            assert_eq!(servers.len(), 1, "{family}");
        }
    }
}

/// A packet that passes while a transaction takes effect finds the class of before with the slots of after, or no class.
pub(crate) fn a_packet_between_two_states_reaches_a_backend() {
    let world = World::new();
    let backends = vec![(5, 2), (6, 5)];
    let class = SizeClass::of(7).unwrap();
    let random = Service {
        backends: backends.clone(),
        ..Service::new("random", 20)
    };
    let hashed = Service {
        scheduler: Some("sh"),
        backends,
        ..Service::new("hashed", 21)
    };
    let services = [random, hashed];
    let mut kernel = Kernel::new();
    kernel.commit(&tables(&services));
    for family in Family::BOTH {
        let reached = |state: &str| {
            for service in &services {
                let to = service.at(family);
                let counts = world.outside.run(move || counts(to, 20));
                assert_eq!(counts.len(), 1, "{family} {}: {state}", service.name);
            }
        };
        let is_beyond_first = |key: &Bytes| !key.as_slice().ends_with(&[0; 4]);
        kernel.delete(family, SetName::Endpoint, is_beyond_first);
        reached("only the first slot");
        kernel.delete(family, SetName::Class(class), |_| true);
        reached("no class");
    }
}

/// S-94, S-99.
pub(crate) fn a_client_stays_with_its_backend() {
    let world = World::new();
    let mut web = Service {
        affinity: Some(60),
        ..Service::new("web", 20)
    };
    let mut kernel = Kernel::new();
    kernel.commit(&tables(std::slice::from_ref(&web)));
    for family in Family::BOTH {
        let to = web.at(family);
        let servers =
            move || -> BTreeSet<_> { (0..20).map(|_| server(connect(to, None))).collect() };
        let of_client = world.outside.run(servers);
        assert_eq!((of_client.len(), servers().len()), (1, 1), "{family}");
        assert_eq!(kernel.affinity(family).len(), 2);
        let gone = *of_client.first().unwrap();
        web.backends.retain(|(last, _)| pod(family, *last) != gone);
        let fewer = tables(std::slice::from_ref(&web));
        let transaction = kernel.commit(&fewer);
        assert!(transaction.purges.contains(&family));
        kernel.purge(&fewer);
        let other = world.outside.run(servers);
        assert!(!other.contains(&gone), "{family}: {other:?}");
        web.backends = PODS.map(|last| (last, 1)).to_vec();
        kernel.commit(&tables(std::slice::from_ref(&web)));
        assert_eq!(
            world.outside.run(servers),
            other,
            "it stays with the other one"
        );
    }
}

/// S-21, S-27, S-224.
pub(crate) fn clients_are_refused_at_once() {
    let world = World::new();
    let empty = |name, last, protocol| Service {
        backends: Vec::new(),
        node_port: Some(30_000 + u16::from(last)),
        protocol,
        ..Service::new(name, last)
    };
    let tcp = empty("tcp", 77, Protocol::Tcp);
    let udp = empty("udp", 78, Protocol::Udp);
    Kernel::new().commit(&tables(&[
        tcp.clone(),
        udp.clone(),
        Service::new("web", 20),
    ]));
    for family in Family::BOTH {
        let node = lan(family, 1);
        let unused = SocketAddr::new(Service::new("", 200).at(family).ip(), 80);
        let port = SocketAddr::new(Service::new("", 20).at(family).ip(), 81);
        let by_tcp = [tcp.at(family), unused, port, SocketAddr::new(node, 30_077)];
        let by_udp = [udp.at(family), unused, SocketAddr::new(node, 30_078)];
        for to in by_tcp {
            let all = [
                connect(to, None),
                world.outside.run(move || connect(to, None)),
                world.pods[0].run(move || connect(to, None)),
            ];
            assert_eq!(all, [Reached::Refused; 3], "TCP {to}");
        }
        for to in by_udp {
            let all = [
                send(to),
                world.outside.run(move || send(to)),
                world.pods[0].run(move || send(to)),
            ];
            assert_eq!(all, [Reached::Refused; 3], "UDP {to}");
        }
    }
}

/// S-86, S-88, S-91, S-92.
pub(crate) fn guarded_frontends_admit_their_ranges() {
    let world = World::new();
    let guarded = Service {
        sources: vec!["192.168.50.9/32", "fd00:50::9/128"],
        ..Service::balancer("guarded", 7)
    };
    let of_ipv4 = Service {
        sources: vec!["192.168.50.9/32"],
        ..Service::balancer("of-ipv4", 8)
    };
    Kernel::new().commit(&tables(&[guarded.clone(), of_ipv4.clone()]));
    for family in Family::BOTH {
        let to = guarded.at(family);
        let from = |last| {
            let from = lan(family, last);
            world.outside.run(move || connect(to, Some(from)))
        };
        assert!(matches!(from(9), Reached::Server { .. }), "{family}");
        assert_eq!(from(10), Reached::Nothing, "{family}");
        assert_eq!(connect(to, None), Reached::Nothing, "the node, {family}");
        assert_eq!(
            world.pods[0].run(move || connect(to, None)),
            Reached::Nothing
        );
    }
    let to = of_ipv4.at(Family::Ipv6);
    assert_eq!(
        world.outside.run(move || connect(to, None)),
        Reached::Nothing,
        "S-88"
    );
}

/// S-22, S-66, S-67, S-69, S-78.
pub(crate) fn policy_local_keeps_the_client() {
    let world = World::new();
    let local = Service {
        policy: Policy::Local,
        ..Service::balancer("local", 7)
    };
    let elsewhere = Service {
        external_clients: ExternalClients::Drop,
        policy: Policy::Local,
        ..Service::balancer("elsewhere", 8)
    };
    Kernel::new().commit(&tables(&[local.clone(), elsewhere.clone()]));
    for family in Family::BOTH {
        let to = local.at(family);
        let from = lan(family, 9);
        let seen = world.outside.run(move || connect(to, Some(from)));
        assert_eq!(client(seen), from, "{family}");
        let to = elsewhere.at(family);
        assert_eq!(
            world.outside.run(move || connect(to, None)),
            Reached::Nothing
        );
        let of_pod = world.pods[0].run(move || connect(to, None));
        assert!(matches!(of_pod, Reached::Server { .. }), "{family}");
        assert!(
            matches!(connect(to, None), Reached::Server { .. }),
            "{family}"
        );
    }
}

/// S-73 to S-77.
pub(crate) fn masquerading_depends_on_the_client() {
    let world = World::new();
    let only = |service| Service {
        backends: vec![(5, 1)],
        ..service
    };
    let (inside, outside) = (
        only(Service::new("in", 20)),
        only(Service::balancer("out", 7)),
    );
    Kernel::new().commit(&tables(&[inside.clone(), outside.clone()]));
    for family in Family::BOTH {
        // The address of the node on the way to the pod.
        let node = pod(family, 1);
        for service in [&inside, &outside] {
            let to = service.at(family);
            let of = |reached| client(reached);
            assert_eq!(
                of(world.outside.run(move || connect(to, None))),
                node,
                "{to}"
            );
            assert_eq!(of(connect(to, None)), node, "the node itself, {to}");
            let other = world.pods[1].run(move || connect(to, None));
            assert_eq!(of(other), pod(family, 6), "another pod, {to}");
            let itself = world.pods[0].run(move || connect(to, None));
            assert_eq!(of(itself), node, "hairpin, {to}");
        }
    }
}

/// S-19, S-84.
pub(crate) fn node_ports_and_udp_are_served() {
    let world = World::new();
    let web = Service {
        node_port: Some(30_080),
        ..Service::new("web", 20)
    };
    let dns = Service {
        protocol: Protocol::Udp,
        node_port: Some(30_053),
        ..Service::new("dns", 10)
    };
    Kernel::new().commit(&tables(&[web, dns.clone()]));
    for family in Family::BOTH {
        let node = lan(family, 1);
        let (tcp, udp) = (SocketAddr::new(node, 30_080), SocketAddr::new(node, 30_053));
        let cluster_ip = dns.at(family);
        let all = move || [connect(tcp, None), send(udp), send(cluster_ip)];
        for of in [all(), world.outside.run(all), world.pods[0].run(all)] {
            let served = of.iter().all(|one| matches!(one, Reached::Server { .. }));
            assert!(served, "{family}: {of:?}");
        }
    }
}

/// Each change is one transaction, so no packet meets a frontend in between.
pub(crate) fn no_connection_fails_while_backends_change() {
    let world = World::new();
    let web = |backends: &[u8]| Service {
        backends: backends.iter().map(|last| (*last, 1)).collect(),
        ..Service::new("web", 20)
    };
    let mut kernel = Kernel::new();
    kernel.commit(&tables(&[web(&[5])]));
    let done = Arc::new(AtomicBool::new(false));
    let (stop, to) = (done.clone(), web(&[]).at(Family::Ipv4));
    let (sent, received) = std::sync::mpsc::channel();
    let outside = world.outside;
    let client = std::thread::spawn(move || {
        let outcome = outside.run(move || {
            let mut connections = 0;
            while !stop.load(Ordering::Relaxed) {
                let reached = connect(to, None);
                assert!(matches!(reached, Reached::Server { .. }), "{reached:?}");
                connections += 1;
                if connections == 1 {
                    sent.send(()).expect("the test waits");
                }
            }
            connections
        });
        (outcome, outside)
    });
    received.recv().expect("a first connection");
    for round in 0..400 {
        let backends: &[u8] = [&[5u8][..], &[5, 6], &[6]][round % 3];
        kernel.commit(&tables(&[web(backends)]));
    }
    done.store(true, Ordering::Relaxed);
    let (connections, _) = client.join().expect("no connection fails");
    assert!(connections > 50, "only {connections} connections");
}
