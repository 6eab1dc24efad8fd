//! Selection of a controller. Agents start with different ones, so that they spread, and each tries the next one
//! after the end of a stream.
//!
//! Touches: the file with their addresses, for reading.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::{Access, Address, AddressError, Trust};

/// Maximum number of controllers, more than any cluster has; further lines of a file are ignored.
const MAX_CONTROLLERS: usize = 64;

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
        Self { addresses, trust }
    }

    /// The controller for the stream with this number, from 0.
    ///
    /// # Errors
    /// [`ControllersError`] if there is no address.
    pub fn choose(&self, node: &str, stream: usize) -> Result<Access, ControllersError> {
        let addresses = self.addresses()?;
        let place = start(node).wrapping_add(stream);
        let place = place.checked_rem(addresses.len());
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

    /// Another controller than the one at this address, for the attempt with this number; `None` if there is none.
    #[must_use]
    pub fn another(&self, node: &str, than: &Address, attempt: usize) -> Option<Access> {
        let addresses = self.addresses().ok()?;
        let others = addresses.iter().filter(|address| *address != than);
        let others: Vec<&Address> = others.collect();
        let place = start(node).wrapping_add(attempt);
        let address = *others.get(place.checked_rem(others.len())?)?;
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

/// The place of a node's first controller, from which it counts.
fn start(node: &str) -> usize {
    node.bytes().fold(0, |sum: usize, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    })
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

    fn listed(count: u16) -> Controllers {
        let address = |port| Address::Tcp(([192, 168, 50, 1], port).into());
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
        let firsts: BTreeSet<_> = (0..9).map(first).collect();
        assert_eq!(firsts.len(), 3);
        let tried: BTreeSet<_> = (0..3)
            .map(|stream| chosen(&three, "node-a", stream))
            .collect();
        assert_eq!(tried.len(), 3);
        assert_eq!(chosen(&three, "node-a", 3), chosen(&three, "node-a", 0));
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
