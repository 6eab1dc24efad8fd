//! The Services that are not in force on a node, in a form that is small and complete: an incomplete list would say of
//! an omitted Service that it is in force, and a list that one namespace can fill would hide the others.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::ServiceId;

/// Maximum number of Services of one namespace. More count as the whole namespace.
const MAX_OF_NAMESPACE: usize = 64;

/// Maximum number of Services and namespaces. More count as every Service: one tenant cannot cause that.
pub const MAX_FAILING: usize = 1024;

/// The hashes of Services and namespaces, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failing(Box<[u64]>);

impl Failing {
    /// These Services.
    pub fn of<'a>(services: impl IntoIterator<Item = &'a ServiceId>) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for service in services {
            let hashes = by_namespace.entry(&service.namespace).or_default();
            hashes.push(hash(service));
        }
        // The largest first, until the rest fits.
        let mut total: usize = by_namespace.values().map(Vec::len).sum();
        let mut groups: Vec<_> = by_namespace.into_iter().collect();
        groups.sort_by_key(|(_, services)| Reverse(services.len()));
        let mut hashes = Vec::new();
        for (namespace, services) in groups {
            if services.len() > MAX_OF_NAMESPACE || total > MAX_FAILING {
                total -= services.len() - 1;
                hashes.push(hash_of_namespace(namespace));
            } else {
                hashes.extend(services);
            }
        }
        Self::from_hashes(hashes)
    }

    /// The hashes of a message, in any order.
    pub fn from_hashes(mut hashes: Vec<u64>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.len() > MAX_FAILING {
            return Self([hash_of_all()].into());
        }
        Self(hashes.into())
    }

    /// The hashes, in ascending order.
    pub fn hashes(&self) -> &[u64] {
        &self.0
    }

    /// Whether no Service fails.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every Service counts as failing.
    pub fn is_everything(&self) -> bool {
        self.has(hash_of_all())
    }

    /// Whether a Service is among them.
    pub fn contains(&self, service: &ServiceId) -> bool {
        if self.is_empty() {
            return false;
        }
        self.has(hash(service))
            || self.has(hash_of_namespace(&service.namespace))
            || self.is_everything()
    }

    fn has(&self, hash: u64) -> bool {
        self.0.binary_search(&hash).is_ok()
    }
}

fn hash(service: &ServiceId) -> u64 {
    xxh3_64(service.to_string().as_bytes())
}

/// No Service has an empty name, so this is the hash of no Service.
fn hash_of_namespace(namespace: &str) -> u64 {
    xxh3_64(format!("{namespace}/").as_bytes())
}

/// No namespace has an empty name.
fn hash_of_all() -> u64 {
    hash_of_namespace("")
}
