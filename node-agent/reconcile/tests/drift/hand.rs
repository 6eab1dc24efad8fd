//! What somebody may do to a kernel by hand.

use portolan_plan::Family;
use portolan_reconcile::{LocalRoute, Observed, SetEntry, SetId, SetRole};
use proptest::prelude::*;
use proptest::sample::Index;

/// What somebody does by hand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hand {
    DeleteServer,
    EditServer,
    DeleteRealServer,
    AddRealServer,
    Weight,
    FlushSet,
    AddEntry,
    DestroySet,
    FlushRules,
    DeleteRoute,
    AddRoute,
    DeleteDevice,
    Setting,
}

const HANDS: [Hand; 13] = [
    Hand::DeleteServer,
    Hand::EditServer,
    Hand::DeleteRealServer,
    Hand::AddRealServer,
    Hand::Weight,
    Hand::FlushSet,
    Hand::AddEntry,
    Hand::DestroySet,
    Hand::FlushRules,
    Hand::DeleteRoute,
    Hand::AddRoute,
    Hand::DeleteDevice,
    Hand::Setting,
];

impl Hand {
    /// Does it to what `at` says, where there is something to do it to.
    pub(crate) fn acts(self, state: &mut Observed, at: Index) {
        let pick = |count: usize| (count > 0).then(|| at.index(count));
        let keys: Vec<_> = state.virtual_servers.keys().copied().collect();
        let key = pick(keys.len()).map(|index| keys[index]);
        let mut server = key.and_then(|key| state.virtual_servers.get_mut(&key));
        let backend = server
            .as_ref()
            .and_then(|held| held.real_servers.keys().next().copied());
        let sets: Vec<_> = SetId::all().collect();
        let set = sets[at.index(sets.len())];
        match self {
            Self::DeleteServer => {
                key.map(|key| state.virtual_servers.remove(&key));
            }
            Self::EditServer => {
                server.as_mut().map(|held| held.scheduler = "sed".into());
            }
            Self::DeleteRealServer => {
                server
                    .zip(backend)
                    .map(|(held, backend)| held.real_servers.remove(&backend));
            }
            Self::AddRealServer => {
                server.zip(backend).map(|(held, mut backend)| {
                    backend.port = 1;
                    held.real_servers.insert(backend, 7)
                });
            }
            Self::Weight => {
                server
                    .zip(backend)
                    .map(|(held, backend)| held.real_servers.insert(backend, 999));
            }
            Self::FlushSet => {
                state.sets.get_mut(&set).map(|set| set.entries.clear());
            }
            Self::AddEntry => {
                let entry = match set.role {
                    SetRole::Pods | SetRole::VipNet => SetEntry::Net(match set.family {
                        Family::Ipv4 => "192.0.2.0/24".parse().unwrap(),
                        Family::Ipv6 => "2001:db8:7::/64".parse().unwrap(),
                    }),
                    SetRole::Health => SetEntry::Port(4),
                    _ => return,
                };
                state
                    .sets
                    .get_mut(&set)
                    .map(|set| set.entries.insert(entry));
            }
            Self::DestroySet => {
                // That one is empty, and made again in any case: it has to be there when needed.
                if set.role == SetRole::Hold {
                    return;
                }
                // The kernel lets nobody destroy a set that a rule uses.
                state.rules.clear();
                state.sets.remove(&set);
            }
            Self::FlushRules => state.rules.clear(),
            Self::DeleteRoute => {
                state.routes.pop_first();
            }
            Self::AddRoute => {
                let destination = "203.0.113.77/32".parse().unwrap();
                state.routes.insert(LocalRoute {
                    destination,
                    source: None,
                });
            }
            Self::DeleteDevice => {
                state.device_up = false;
                state.routes.clear();
            }
            Self::Setting => {
                let name = "net.ipv4.vs.conntrack".into();
                state.sysctls.insert(name, "0".into());
            }
        }
    }
}

pub(crate) fn hands() -> impl Strategy<Value = Vec<(Hand, Index)>> {
    let hand = (prop::sample::select(HANDS.to_vec()), any::<Index>());
    prop::collection::vec(hand, 0..6)
}

/// An index of any collection.
pub(crate) fn index(number: usize) -> Index {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let seed = [u8::try_from(number).unwrap(); 32];
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    any::<Index>().new_tree(&mut runner).unwrap().current()
}
