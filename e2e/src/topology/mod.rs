//! The lab as it stands: namespaces with their cables, from [`world`] and `links`. Dropping the
//! [`Topology`] removes it. One stands at a time on a machine; a lock file makes others wait.

mod cni;
mod links;
mod lock;
pub mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub use links::Network;
use world::{Family, Node, Pod, Resident};

use crate::namespace::{FOLDERS, Namespace};
use crate::program::Program;
use crate::traffic::client::{self, Outcome};
use crate::waits::{SOON, Waits};

/// Prefix of the names of our namespaces.
pub const PREFIX: &str = "portolan-";

/// There where the kernel has IPv6.
const IPV6: &str = "/proc/net/if_inet6";
const BRIDGE_FILTERS: &str = "/proc/sys/net/bridge";

/// A lab that stands.
#[derive(Debug)]
pub struct Topology {
    network: Network,
    families: &'static [Family],
    namespaces: BTreeMap<String, Namespace>,
    _lock: lock::Lock,
}

impl Topology {
    /// Builds it and waits until packets of both families reach every resident.
    ///
    /// # Errors
    /// When another lab stands on this machine, a program or kernel feature is missing (named), or
    /// packets do not arrive.
    pub fn build(network: Network, waits: Waits) -> Result<Self> {
        let lock = lock::Lock::take(waits)?;
        // We hold the lock, so existing namespaces are leftovers of a killed run.
        end_leftovers()?;
        remove_all()?;
        if network == Network::Bridged {
            load_bridge_filters()?;
        }
        let mut topology = Self {
            network,
            families: families(),
            namespaces: BTreeMap::new(),
            _lock: lock,
        };
        let names = links::namespaces();
        let add: String = names
            .iter()
            .map(|name| format!("netns add {PREFIX}{name}\n"))
            .collect();
        Program::Ip.run_with_input(&["-batch", "-"], &add)?;
        for name in &names {
            let namespace = Namespace::open(&format!("{PREFIX}{name}"))?;
            let mut settings = links::settings(name, network);
            settings.retain(|(name, _)| !links::is_of_ipv6(name) || topology.speaks(Family::IPv6));
            namespace.set(&settings)?;
            topology.namespaces.insert(name.clone(), namespace);
        }
        topology.switch_without_filters()?;
        for (name, batch) in links::batches(network, PREFIX) {
            let batch = if topology.speaks(Family::IPv6) {
                batch
            } else {
                links::without_ipv6(&batch)
            };
            Program::Ip
                .run_with_input(&["-n", &format!("{PREFIX}{name}"), "-batch", "-"], &batch)
                .with_context(|| format!("lay the cables of {name}"))?;
        }
        for node in Node::ALL {
            cni::masquerade(topology.node(node)?, node, topology.families)?;
        }
        topology.settle(waits)?;
        Ok(topology)
    }

    /// The families that it has: both, unless this kernel has no IPv6.
    #[must_use]
    pub fn families(&self) -> &'static [Family] {
        self.families
    }

    fn speaks(&self, family: Family) -> bool {
        self.families.contains(&family)
    }

    /// The network that joins its nodes.
    #[must_use]
    pub fn network(&self) -> Network {
        self.network
    }

    /// The namespace of a resident.
    ///
    /// # Errors
    /// Never while the lab stands as built.
    pub fn of(&self, resident: Resident) -> Result<&Namespace> {
        let name = resident.name();
        self.namespaces
            .get(&name)
            .with_context(|| format!("{name} has no namespace"))
    }

    /// The namespace of a node.
    ///
    /// # Errors
    /// As [`Topology::of`].
    pub fn node(&self, node: Node) -> Result<&Namespace> {
        self.of(Resident::Node(node))
    }

    /// Where this kernel has filters of bridges at all, they are on in every new namespace.
    fn switch_without_filters(&self) -> Result<()> {
        if !Path::new(BRIDGE_FILTERS).exists() {
            return Ok(());
        }
        let off = links::BRIDGE_FILTERS.map(|name| (name.to_owned(), "0"));
        let bridges = Node::ALL.map(Node::name).into_iter();
        for name in bridges.chain([links::UNDERLAY]) {
            self.namespaces[name].set(&off)?;
        }
        Ok(())
    }

    /// Waits until neighbours are known and every pod reaches every node and pod.
    fn settle(&self, waits: Waits) -> Result<()> {
        for (from, to) in neighbours() {
            let namespace = self.of(from)?;
            for &family in self.families {
                let target = SocketAddr::new(to.address(family), 9);
                let what = format!("{} to reach {} over {family}", from.name(), to.name());
                let reached = || {
                    let limit = waits.limit(Duration::from_secs(1));
                    let outcome = client::tcp(target, limit).outcome;
                    let refused = outcome == Outcome::Refused;
                    ensure!(refused, "the last attempt ended {outcome}");
                    Ok(())
                };
                namespace.inside(|| waits.eventually(&what, SOON, reached))?;
            }
        }
        Ok(())
    }
}

fn families() -> &'static [Family] {
    if Path::new(IPV6).exists() {
        &Family::ALL
    } else {
        &[Family::IPv4]
    }
}

/// Kubernetes asks for this module wherever pods share a bridge.
pub(crate) fn load_bridge_filters() -> Result<()> {
    if Path::new(BRIDGE_FILTERS).exists() {
        return Ok(());
    }
    Program::Modprobe.run(&["br_netfilter"])?;
    if !Path::new(BRIDGE_FILTERS).exists() {
        bail!("{BRIDGE_FILTERS} is not there, although br_netfilter is loaded");
    }
    Ok(())
}

/// Pairs that together use every cable once.
fn neighbours() -> Vec<(Resident, Resident)> {
    let mut pairs: Vec<_> = Pod::all()
        .map(|pod| {
            (
                Resident::Pod(pod),
                Resident::Pod(Pod {
                    node: pod.node.other(),
                    ..pod
                }),
            )
        })
        .collect();
    pairs.push((Resident::Outside, Resident::Node(Node::A)));
    pairs.push((Resident::Outside, Resident::Node(Node::B)));
    pairs
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.namespaces.clear();
        if let Err(error) = remove_all() {
            crate::console::complain(&format!("the lab's namespaces were not removed: {error:#}"));
        }
    }
}

fn standing() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in FOLDERS
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
    {
        for entry in folder {
            names.insert(entry?.file_name().to_string_lossy().into_owned());
        }
    }
    names.retain(|name| name.starts_with(PREFIX));
    Ok(names)
}

fn remove_all() -> Result<()> {
    let remove: String = standing()?
        .iter()
        .map(|name| format!("netns delete {name}\n"))
        .collect();
    if !remove.is_empty() {
        Program::Ip.run_with_input(&["-batch", "-"], &remove)?;
    }
    Ok(())
}

/// Ends leftover processes of a killed run: only this program starts processes in these namespaces.
fn end_leftovers() -> Result<()> {
    for name in standing()? {
        for pid in Program::Ip
            .run(&["netns", "pids", &name])?
            .split_whitespace()
        {
            let pid = pid
                .parse()
                .with_context(|| format!("read process id {pid:?}"))?;
            let pid = nix::unistd::Pid::from_raw(pid);
            match nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(error) => bail!("end process {pid} left in {name}: {error}"),
            }
        }
    }
    Ok(())
}
