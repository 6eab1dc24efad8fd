//! Changes that an operator may make to a kernel by hand.

use portolan_plan::Family;
use portolan_reconcile::{Observed, Route, SetEntry, SetId, SetRole};
use proptest::prelude::*;
use proptest::sample::Index;

/// A change made by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    DeletePolicyRule,
    Setting,
    Timeouts,
}

const HANDS: [Hand; 15] = [
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
    Hand::DeletePolicyRule,
    Hand::Setting,
    Hand::Timeouts,
];

impl Hand {
    /// Makes the change to the object selected by `at`, if there is one.
    pub(crate) fn acts(self, state: &mut Observed, at: Index) {
        let sets: Vec<_> = SetId::all().collect();
        let set = sets[at.index(sets.len())];
        match self {
            Self::DeleteServer
            | Self::EditServer
            | Self::DeleteRealServer
            | Self::AddRealServer
            | Self::Weight => self.acts_on_servers(state, at),
            Self::FlushSet => {
                if let Some(set) = state.sets.get_mut(&set) {
                    set.entries.clear();
                }
            }
            Self::AddEntry => add_entry(state, set),
            Self::DestroySet => {
                // This set is empty and is recreated in any case, because it must exist when it is needed.
                if set.role == SetRole::Hold {
                    return;
                }
                // The kernel does not destroy a set that a rule uses.
                state.rules.clear();
                state.sets.remove(&set);
            }
            Self::FlushRules => state.rules.clear(),
            Self::DeleteRoute => {
                state.routes.pop_first();
            }
            Self::AddRoute => {
                let to = "203.0.113.77/32".parse().unwrap();
                state.routes.insert(Route::Range { to, source: None });
            }
            Self::DeleteDevice => {
                state.device_up = false;
                let stays = |route: &Route| matches!(route, Route::Deliver { .. });
                state.routes.retain(stays);
            }
            Self::DeletePolicyRule => {
                state.policy.pop_first();
            }
            Self::Setting => {
                let name = "net.ipv4.vs.conntrack".into();
                state.sysctls.insert(name, "0".into());
            }
            // A timeout that the settings do not define may be changed by any program.
            Self::Timeouts if state.timeouts.udp == 0 => {}
            Self::Timeouts => state.timeouts.udp = 7,
        }
    }

    fn acts_on_servers(self, state: &mut Observed, at: Index) {
        let keys: Vec<_> = state.virtual_servers.keys().copied().collect();
        if keys.is_empty() {
            return;
        }
        let key = keys[at.index(keys.len())];
        if self == Self::DeleteServer {
            state.virtual_servers.remove(&key);
            return;
        }
        let Some(held) = state.virtual_servers.get_mut(&key) else {
            return;
        };
        if self == Self::EditServer {
            held.scheduler = "sed".into();
        }
        let Some(mut backend) = held.real_servers.keys().next() else {
            return;
        };
        match self {
            Self::DeleteRealServer => {
                held.real_servers.remove(&backend);
            }
            Self::AddRealServer => {
                backend.port = 1;
                held.real_servers.insert(backend, 7);
            }
            Self::Weight => {
                held.real_servers.insert(backend, 999);
            }
            _ => {}
        }
    }
}

fn add_entry(state: &mut Observed, set: SetId) {
    let entry = match set.role {
        SetRole::Pods | SetRole::Ranges => SetEntry::Net(match set.family {
            Family::Ipv4 => "192.0.2.0/24".parse().unwrap(),
            Family::Ipv6 => "2001:db8:7::/64".parse().unwrap(),
        }),
        SetRole::Health => SetEntry::Port(4),
        _ => return,
    };
    if let Some(set) = state.sets.get_mut(&set) {
        set.entries.insert(entry);
    }
}

pub(crate) fn hands() -> impl Strategy<Value = Vec<(Hand, Index)>> {
    let hand = (prop::sample::select(HANDS.to_vec()), any::<Index>());
    prop::collection::vec(hand, 0..6)
}

/// An index into any collection.
pub(crate) fn index(number: usize) -> Index {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let seed = [u8::try_from(number).unwrap(); 32];
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    any::<Index>().new_tree(&mut runner).unwrap().current()
}
