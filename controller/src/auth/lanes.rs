//! The budget of TokenReviews. Each kind of client has a lane of its own, and each client a share of it, so that none
//! can use up the reviews of the others.

use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bucket::{Bucket, Rate, Shares};

/// Maximum wait for a review. An agent that would wait longer is asked to retry.
pub(super) const MAX_REVIEW_WAIT: Duration = Duration::from_secs(5);
/// Reviews of tokens with a valid signature: 5,000 agents pass in less than a minute.
const GENUINE: Rate = Rate::new(100, 200);
/// Those of one node. Its agent needs one when it connects, then one every 10 minutes; but an attacker on a node
/// can request any number of tokens for it.
const GENUINE_OF_NODE: Rate = Rate::new(1, 8);
/// Reviews of other tokens from addresses of nodes: the reserve for agents while signatures cannot be verified.
const FROM_NODES: Rate = Rate::new(50, 200);
/// Those from the address of one node. Pods are often masqueraded to it, so a common budget would reserve nothing.
const FROM_NODE: Rate = Rate::new(1, 8);
/// Reviews of other tokens from all other addresses.
const FROM_OTHERS: Rate = Rate::new(20, 100);
/// Those from one such address: half of them, because all nodes may be behind one address.
const FROM_OTHER: Rate = Rate::new(10, 50);

/// Where a client connects from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its address; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether it is the address of a node.
    pub is_node: bool,
}

/// The lane of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lane {
    /// It has a valid signature, and names this node.
    Genuine(Arc<str>),
    /// Its signature could not be verified.
    Undecided(Source),
}

/// The reviews of one kind of client.
#[derive(Debug)]
struct Budget<K> {
    all: Bucket,
    clients: Shares<K>,
}

impl<K: Clone + Eq + Hash> Budget<K> {
    fn new(all: Rate, of_client: Rate) -> Self {
        Self {
            all: all.bucket(MAX_REVIEW_WAIT),
            clients: Shares::new(of_client, MAX_REVIEW_WAIT),
        }
    }

    /// The share of the client comes first: beyond it, the client takes nothing from the others.
    fn take(&mut self, client: &K, now: Instant) -> Option<Duration> {
        let own = self.clients.take(client, now)?;
        Some(own.max(self.all.take(now)?))
    }
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    genuine: Budget<Arc<str>>,
    nodes: Budget<Option<IpAddr>>,
    others: Budget<Option<IpAddr>>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            genuine: Budget::new(GENUINE, GENUINE_OF_NODE),
            nodes: Budget::new(FROM_NODES, FROM_NODE),
            others: Budget::new(FROM_OTHERS, FROM_OTHER),
        }
    }
}

impl Lanes {
    /// Takes a review and returns the wait before it. `None` if the wait would be too long.
    pub(super) fn take(&mut self, lane: &Lane, now: Instant) -> Option<Duration> {
        match lane {
            Lane::Genuine(node) => self.genuine.take(node, now),
            Lane::Undecided(from) if from.is_node => self.nodes.take(&from.address, now),
            Lane::Undecided(from) => self.others.take(&from.address, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Number of honest agents.
    const AGENTS: u8 = 200;
    /// Interval at which each of them asks.
    const INTERVAL: u64 = 10_000;

    fn genuine(node: u8) -> Lane {
        Lane::Genuine(format!("node-{node}").into())
    }

    fn from(network: u8, host: u8, is_node: bool) -> Lane {
        let address = Some(IpAddr::from([10, network, 0, host]));
        Lane::Undecided(Source { address, is_node })
    }

    /// What attackers can send: tokens of three nodes that they control, or any token from the addresses of these nodes
    /// and from 250 other addresses.
    fn flood() -> impl Strategy<Value = Lane> {
        let captured = 250..253_u8;
        prop_oneof![
            captured.clone().prop_map(genuine),
            captured.prop_map(|host| from(1, host, true)),
            (0..250_u8).prop_map(|host| from(2, host, false)),
        ]
    }

    /// Requests of the agents for a minute, in milliseconds: each asks every 10 s.
    fn honest(verified: bool, phases: &[u64]) -> Vec<(u64, Lane)> {
        let mut requests = Vec::new();
        for (agent, phase) in (0..AGENTS).zip(phases) {
            let lane = if verified {
                genuine(agent)
            } else {
                from(1, agent, true)
            };
            requests.extend((0..6).map(|round| (phase + round * INTERVAL, lane.clone())));
        }
        requests
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// S-232. Whatever others send, an agent that asks now and then is reviewed within seconds, with and without
        /// verified signatures.
        #[test]
        fn a_flood_takes_no_review_from_an_agent(
            verified in any::<bool>(),
            phases in vec(0..INTERVAL, usize::from(AGENTS)),
            attacks in vec((0..60_000_u64, 1..20_usize, flood()), 0..1500),
        ) {
            let honest = honest(verified, &phases).into_iter();
            let mut requests: Vec<_> = honest.map(|(at, lane)| (at, true, lane)).collect();
            for (at, count, lane) in attacks {
                requests.extend(std::iter::repeat_n((at, false, lane), count));
            }
            requests.sort_by_key(|(at, ..)| *at);
            let (mut lanes, start) = (Lanes::default(), Instant::now());
            for (at, is_honest, lane) in requests {
                let wait = lanes.take(&lane, start + Duration::from_millis(at));
                if is_honest {
                    let in_time = wait.is_some_and(|wait| wait <= MAX_REVIEW_WAIT);
                    prop_assert!(in_time, "{:?} at {} ms: {:?}", lane, at, wait);
                }
            }
        }

        /// Reviews stay within the sum of the lanes, however many clients send however much.
        #[test]
        fn reviews_are_bounded(
            mut requests in vec((0..10_000_u64, 1..20_usize, flood()), 0..1500),
        ) {
            requests.sort_by_key(|(at, ..)| *at);
            let (mut lanes, start, mut reviews) = (Lanes::default(), Instant::now(), 0);
            for (at, count, lane) in requests {
                let now = start + Duration::from_millis(at);
                reviews += (0..count).filter(|_| lanes.take(&lane, now).is_some()).count();
            }
            // Three nodes, three addresses of nodes, and all others, for 10 s and the longest wait.
            let captured = 3 * (8 + 15);
            prop_assert!(reviews <= 2 * captured + 100 + 20 * 15, "{}", reviews);
        }
    }

    #[test]
    fn one_address_has_half_of_the_reviews_of_others() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let mut taken = |lane: Lane| {
            let takes = (0..1000).filter(|_| lanes.take(&lane, now).is_some());
            takes.count()
        };
        assert_eq!(taken(from(2, 1, false)), 50 + 10 * 5);
        assert_eq!(taken(from(2, 2, false)), 50 + 10 * 5);
        assert_eq!(taken(from(2, 3, false)), 0);
        assert_eq!(taken(from(1, 1, true)), 8 + 5);
        assert_eq!(taken(genuine(1)), 8 + 5);
    }
}
