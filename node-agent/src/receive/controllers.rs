//! Selection of a controller. Each node has an order of its own, so that agents spread (rendezvous hashing). An agent
//! tries the next one after the end of a stream, and returns to its first one later (`super::returning`).
//!
//! Touches: the file with their addresses, for reading.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::{Access, Address, AddressError, Trust};

/// Maximum number of controllers, more than any cluster has; further lines of a file are ignored.
const MAX_CONTROLLERS: usize = 64;
/// Interval at which an agent tries to return to its first controller. Up to the same time is added, by the node's name:
/// 5,000 agents return at less than 20 a second.
const RETURN_INTERVAL: Duration = Duration::from_secs(300);

/// Addresses of the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// These addresses, at least one.
    Listed(Vec<Address>),
    /// A file with one address per line, read before each connection; `#` begins a comment.
    File(PathBuf),
}

/// The controllers, with the credentials for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controllers {
    addresses: Addresses,
    trust: Trust,
    return_interval: Duration,
}

/// There is no controller to connect to.
#[derive(Debug, Error)]
pub enum ControllersError {
    /// The file cannot be read.
    #[error("--controllers-file {}: {error}; is the ConfigMap mounted there?", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// The file has no address.
    #[error("--controllers-file {}: it has no controller address; write one IP:PORT per line", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line of the file is not an address.
    #[error("--controllers-file {}: line {line}: {error}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The problem.
        error: AddressError,
    },
}

impl From<Access> for Controllers {
    fn from(Access { address, trust }: Access) -> Self {
        Self::new(Addresses::Listed(vec![address]), trust)
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addresses {
            Addresses::Listed(addresses) => {
                let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(", "))
            }
            Addresses::File(path) => write!(f, "those in {}", path.display()),
        }
    }
}

impl Controllers {
    /// The controllers at these addresses.
    #[must_use]
    pub fn new(addresses: Addresses, trust: Trust) -> Self {
        Self {
            addresses,
            trust,
            return_interval: RETURN_INTERVAL,
        }
    }

    /// The same, with another interval at which an agent tries to return to its first controller.
    #[must_use]
    pub fn with_return_interval(self, return_interval: Duration) -> Self {
        Self {
            return_interval,
            ..self
        }
    }

    /// The interval at which the agent of a node tries to return to its first controller.
    pub(super) fn return_interval(&self, node: &str) -> Duration {
        let share = u32::try_from(xxh3_64(node.as_bytes()) % 1024).unwrap_or(0);
        self.return_interval + self.return_interval / 1024 * share
    }

    /// The controller for the stream with this number, from 0. The order of a node's controllers depends neither on the
    /// order of the addresses nor on addresses that are added or removed.
    ///
    /// # Errors
    /// [`ControllersError`] if there is no address.
    pub fn choose(&self, node: &str, stream: usize) -> Result<Access, ControllersError> {
        let addresses = ranked(node, self.addresses()?);
        let place = stream.checked_rem(addresses.len());
        let address = place.and_then(|place| addresses.get(place)).cloned();
        match (address, &self.addresses) {
            (Some(address), _) => Ok(Access {
                address,
                trust: self.trust.clone(),
            }),
            (None, Addresses::File(path)) => Err(ControllersError::Empty { path: path.clone() }),
            (None, Addresses::Listed(_)) => Err(ControllersError::Empty {
                path: PathBuf::new(),
            }),
        }
    }

    /// The first controller of a node, if that is another one.
    pub(super) fn first(&self, node: &str, than: &Access) -> Option<Access> {
        let first = self.choose(node, 0).ok()?;
        (first != *than).then_some(first)
    }

    /// Another controller than the one at this address, for the attempt with this number; `None` if there is none.
    #[must_use]
    pub fn another(&self, node: &str, than: &Address, attempt: usize) -> Option<Access> {
        let addresses = ranked(node, self.addresses().ok()?);
        let others = addresses.iter().filter(|address| *address != than);
        let others: Vec<&Address> = others.collect();
        let address = *others.get(attempt.checked_rem(others.len())?)?;
        Some(Access {
            address: address.clone(),
            trust: self.trust.clone(),
        })
    }

    fn addresses(&self) -> Result<Cow<'_, [Address]>, ControllersError> {
        match &self.addresses {
            Addresses::Listed(addresses) => Ok(Cow::Borrowed(addresses)),
            Addresses::File(path) => read_file(path).map(Cow::Owned),
        }
    }
}

/// The addresses in the order of a node.
fn ranked(node: &str, addresses: Cow<'_, [Address]>) -> Vec<Address> {
    let mut ranked = addresses.into_owned();
    ranked.sort_by_cached_key(|address| {
        let text = address.to_string();
        (xxh3_64(format!("{node} {text}").as_bytes()), text)
    });
    ranked
}

fn read_file(path: &PathBuf) -> Result<Vec<Address>, ControllersError> {
    let text = std::fs::read_to_string(path).map_err(|error| ControllersError::File {
        path: path.clone(),
        error,
    })?;
    let mut addresses = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || addresses.len() == MAX_CONTROLLERS {
            continue;
        }
        let address = line.parse().map_err(|error| ControllersError::Line {
            path: path.clone(),
            line: number + 1,
            error,
        })?;
        addresses.push(address);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn address(port: u16) -> Address {
        Address::Tcp(([192, 168, 50, 1], port).into())
    }

    fn listed(count: u16) -> Controllers {
        let addresses = (1..=count).map(address).collect();
        Controllers::new(Addresses::Listed(addresses), Trust::Insecure)
    }

    fn chosen(controllers: &Controllers, node: &str, stream: usize) -> String {
        controllers.choose(node, stream).unwrap().to_string()
    }

    #[test]
    fn agents_spread_and_each_tries_all_controllers_in_turn() {
        let three = listed(3);
        let first = |node: usize| chosen(&three, &format!("node-{node}"), 0);
        let firsts: BTreeSet<_> = (0..30).map(first).collect();
        assert_eq!(firsts.len(), 3);
        let tried: BTreeSet<_> = (0..3)
            .map(|stream| chosen(&three, "node-a", stream))
            .collect();
        assert_eq!(tried.len(), 3);
        assert_eq!(chosen(&three, "node-a", 3), chosen(&three, "node-a", 0));
    }

    /// A restarted controller is missing in the list for a while.
    #[test]
    fn a_missing_controller_moves_only_its_own_agents() {
        let all: Vec<_> = (1..=5).map(address).collect();
        let nodes = || (0..400).map(|number| format!("node-{number}"));
        let of = |addresses: &[Address]| {
            let addresses = Addresses::Listed(addresses.to_vec());
            Controllers::new(addresses, Trust::Insecure)
        };
        let five = of(&all);
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        let reversed = of(&reversed);
        for missing in 0..all.len() {
            let mut others = all.clone();
            let missing = others.remove(missing).to_string();
            let four = of(&others);
            for node in nodes() {
                let [first, second] = [0, 1].map(|stream| chosen(&five, &node, stream));
                assert_eq!(chosen(&reversed, &node, 0), first, "{node}");
                let expected = if first == missing { second } else { first };
                assert_eq!(chosen(&four, &node, 0), expected, "{node}");
            }
        }
        for address in &all {
            let has = |node: &String| chosen(&five, node, 0) == address.to_string();
            let count = nodes().filter(has).count();
            assert!((45..=120).contains(&count), "{count} of 400 for {address}");
        }
    }

    #[test]
    fn agents_return_at_different_times() {
        let controllers = listed(2).with_return_interval(Duration::from_secs(1024));
        let interval = |node: usize| controllers.return_interval(&format!("node-{node}"));
        let all: BTreeSet<_> = (0..50).map(interval).collect();
        assert!(all.len() > 40, "{all:?}");
        let within = Duration::from_secs(1024)..Duration::from_secs(2048);
        assert!(
            all.iter().all(|interval| within.contains(interval)),
            "{all:?}"
        );
    }

    /// An agent of an outdated controller asks only others.
    #[test]
    fn another_controller_is_never_the_same_and_each_has_its_turn() {
        let three = listed(3);
        for node in ["node-a", "node-b", "node-c"] {
            let own = three.choose(node, 0).unwrap();
            let other = |attempt| three.another(node, &own.address, attempt).unwrap();
            let asked: BTreeSet<_> = (0..2).map(|attempt| other(attempt).to_string()).collect();
            assert_eq!(asked.len(), 2, "{asked:?}");
            assert!(!asked.contains(&own.to_string()), "{asked:?}");
            assert_eq!(other(2), other(0));
        }
        let only = listed(1);
        let own = only.choose("node-a", 0).unwrap();
        assert_eq!(only.another("node-a", &own.address, 0), None);
    }

    #[test]
    fn a_file_is_read_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("controllers");
        let controllers = Controllers::new(Addresses::File(path.clone()), Trust::Insecure);
        let problem = || controllers.choose("node-a", 0).unwrap_err().to_string();
        assert!(
            problem().contains("is the ConfigMap mounted there?"),
            "{}",
            problem()
        );
        std::fs::write(&path, "# none yet\n\n").unwrap();
        assert!(
            problem().contains("it has no controller address"),
            "{}",
            problem()
        );
        std::fs::write(&path, "10.0.0.1:6600\nportolan:6600\n").unwrap();
        assert!(
            problem().contains("line 2: \"portolan:6600\" is not"),
            "{}",
            problem()
        );
        std::fs::write(&path, "10.0.0.1:6600 # this one\n").unwrap();
        assert_eq!(chosen(&controllers, "node-a", 7), "10.0.0.1:6600");
        std::fs::write(&path, "[fd00::1]:6600\n").unwrap();
        assert_eq!(chosen(&controllers, "node-a", 7), "[fd00::1]:6600");
    }
}
