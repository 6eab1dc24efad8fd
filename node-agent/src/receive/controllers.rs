//! Selection of a controller. Each node has an order of its own, so that agents spread (rendezvous hashing). An agent
//! tries the next one after the end of a stream, and returns to its first one later, so that agents spread again after
//! controllers were restarted one after the other.
//!
//! Touches: the file with their addresses, for reading, and the network.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tokio::time::sleep;
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

    /// The controller for the stream with this number, from 0. The order of the node's controllers depends neither on
    /// the order of the addresses nor on addresses that are added or removed.
    ///
    /// # Errors
    /// [`ControllersError`] if there is no address.
    pub fn choose(&self, node: &str, stream: usize) -> Result<Access, ControllersError> {
        let read;
        let addresses = match &self.addresses {
            Addresses::Listed(addresses) => addresses,
            Addresses::File(path) => {
                read = read_file(path)?;
                &read
            }
        };
        let rank = |address: &&Address| {
            let text = address.to_string();
            (xxh3_64(format!("{node} {text}").as_bytes()), text)
        };
        let mut ranked: Vec<_> = addresses.iter().collect();
        ranked.sort_by_cached_key(rank);
        let place = stream.checked_rem(ranked.len());
        let address = place.and_then(|place| ranked.get(place).copied()).cloned();
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

    /// Waits until the first controller of a node accepts connections, if that is another one than `current`.
    pub(super) async fn first_returns(&self, node: &str, current: &Access) {
        let share = u32::try_from(xxh3_64(node.as_bytes()) % 1024).unwrap_or(0);
        loop {
            sleep(self.return_interval + self.return_interval / 1024 * share).await;
            // Read each time: while a controller restarts, its address is missing.
            if let Ok(first) = self.choose(node, 0)
                && first != *current
                && first.see().await.is_ok()
            {
                return;
            }
        }
    }
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
        for missing in 0..all.len() {
            let mut others = all.clone();
            let missing = others.remove(missing).to_string();
            let four = of(&others);
            for node in nodes() {
                let [first, second] = [0, 1].map(|stream| chosen(&five, &node, stream));
                let expected = if first == missing { second } else { first };
                assert_eq!(chosen(&four, &node, 0), expected, "{node}");
                assert_eq!(chosen(&of(&reversed), &node, 0), chosen(&five, &node, 0));
            }
        }
        for address in &all {
            let has = |node: &String| chosen(&five, node, 0) == address.to_string();
            let count = nodes().filter(has).count();
            assert!((45..=120).contains(&count), "{count} of 400 for {address}");
        }
    }

    /// A return is tried again until it succeeds, also if the first controller was unknown when the stream began.
    #[tokio::test]
    async fn an_agent_waits_until_its_first_controller_accepts_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("controllers");
        let sockets = ["a", "b"].map(|name| folder.path().join(name));
        let text = sockets
            .each_ref()
            .map(|path| format!("unix:{}\n", path.display()));
        let millisecond = Duration::from_millis(1);
        let controllers = Controllers::new(Addresses::File(path.clone()), Trust::Insecure)
            .with_return_interval(millisecond);
        std::fs::write(&path, text.concat()).unwrap();
        let first = controllers.choose("node-a", 0).unwrap();
        let second = controllers.choose("node-a", 1).unwrap();
        std::fs::write(&path, format!("{second}\n")).unwrap();
        let never = async |current: &Access| {
            let returns = controllers.first_returns("node-a", current);
            tokio::time::timeout(millisecond * 50, returns)
                .await
                .is_err()
        };
        assert!(never(&second).await, "it is the only one");
        std::fs::write(&path, text.concat()).unwrap();
        assert!(never(&second).await, "the first one does not listen");
        let Address::Unix(socket) = &first.address else {
            panic!("{first} is a socket");
        };
        let _listener = tokio::net::UnixListener::bind(socket).unwrap();
        controllers.first_returns("node-a", &second).await;
        assert!(never(&first).await, "it is at its first one");
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
