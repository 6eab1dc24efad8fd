//! The registry of agents: streams write it, and one task reads which nodes have changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use portolan_plan::PlanHash;
use shuttle::future::block_on;
use shuttle::thread;
use tokio::sync::oneshot::error::TryRecvError;

use crate::agent_registry::{Acked, AgentRegistry};
use crate::troubled::Troubled;

const NODE: &str = "node-a";
/// The same for all: two streams may be opened at the same time of a clock.
const NOW: SystemTime = SystemTime::UNIX_EPOCH;

/// The reader sees the last state of every node. It would wait for ever otherwise.
pub fn every_change_reaches_the_reader() {
    const NODES: [&str; 2] = ["node-a", "node-b"];
    const LAST: u128 = 3;
    let registry: Arc<AgentRegistry> = Arc::default();
    let streams = NODES.map(|node| {
        let registry = registry.clone();
        thread::spawn(move || {
            let _stream = registry.connected(node, "0.1.0", None, NOW);
            for hash in 1..=LAST {
                let acked = Acked {
                    received: PlanHash(hash),
                    ..Acked::default()
                };
                registry.acked(node, acked, NOW);
            }
        })
    });
    let mut seen: BTreeMap<Arc<str>, u128> = BTreeMap::new();
    while NODES.iter().any(|node| seen.get(*node) != Some(&LAST)) {
        for node in block_on(registry.changes()) {
            let acked = registry.get(&node).unwrap().acked;
            let hash = acked.map_or(0, |(_, acked)| acked.received.0);
            let before = seen.insert(node, hash);
            assert!(before.is_none_or(|before| before <= hash));
        }
    }
    for stream in streams {
        stream.join().unwrap();
    }
}

/// Of two streams of a node, the newer one counts, even if the older one ends later. The older one learns of the newer.
pub fn the_late_end_of_a_stream_does_not_affect_its_successor() {
    let registry: Arc<AgentRegistry> = Arc::default();
    let opens = |ends: bool| {
        let registry = registry.clone();
        thread::spawn(move || {
            let stream = registry.connected(NODE, "0.1.0", None, NOW);
            if ends {
                registry.gone(NODE, stream.id, NOW);
            }
            (stream.id, stream.replaced)
        })
    };
    let (ends, stays) = (opens(true), opens(false));
    let (ended, _) = ends.join().unwrap();
    let (open, mut replaced) = stays.join().unwrap();
    let delivery = registry.get(NODE).unwrap();
    let is_newest = open > ended;
    assert_eq!(delivery.stream, open.max(ended));
    assert_eq!(delivery.connected, is_newest);
    assert_eq!(registry.connected_agents(), usize::from(is_newest));
    let expected = match is_newest {
        true => TryRecvError::Empty,
        false => TryRecvError::Closed,
    };
    assert_eq!(replaced.try_recv(), Err(expected));
}

/// A stream that waits learns of the next one.
pub fn a_replaced_stream_ends() {
    let registry: Arc<AgentRegistry> = Arc::default();
    let first = registry.connected(NODE, "0.1.0", None, NOW);
    let waits = thread::spawn(move || assert!(block_on(first.replaced).is_err()));
    let second = registry.connected(NODE, "0.1.0", None, NOW);
    waits.join().unwrap();
    assert!(second.id > first.id);
    assert_eq!(registry.connected_agents(), 1);
}

/// Services that fail are known before the version that they belong to counts as in force.
pub fn a_version_in_force_has_its_exceptions() {
    let registry: Arc<AgentRegistry> = Arc::default();
    let stream = registry.connected(NODE, "0.1.0", None, NOW);
    let writer = registry.clone();
    let reports = thread::spawn(move || {
        writer.troubled(NODE, Troubled::default());
        stream.in_force.reached(1);
    });
    for _ in 0..2 {
        let alone = registry.get(NODE).unwrap();
        let among_all = registry.all().remove(NODE).unwrap();
        for delivery in [alone, among_all] {
            assert!(delivery.in_force.version() == 0 || delivery.troubled.is_some());
        }
    }
    reports.join().unwrap();
}
