//! Address sets through netfilter's netlink, many entries in one message.

use std::collections::{BTreeMap, BTreeSet};

use ipset_rs::{CreateOptions, Entry, Set, SetType, Socket};
use portolan_plan::{Family, Protocol};
use portolan_reconcile::{LEFTOVER_SETS, ObservedSet, SPARE_SET, SetEntry, SetId, SetKind, SetOp};

use crate::kernel::KernelError;

/// The kernel's sets.
#[derive(Debug)]
pub struct Sets {
    pub(super) socket: Socket,
}

impl Sets {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel has no ipset, or this process may not use it.
    pub fn open() -> Result<Self, KernelError> {
        let socket = Socket::open().map_err(|error| KernelError::new("open ipset", &error))?;
        Ok(Self { socket })
    }

    /// The agent's sets with their entries.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn observe(&mut self) -> Result<BTreeMap<SetId, ObservedSet>, KernelError> {
        let failed = |error| KernelError::new("read sets", &error);
        let names = self.socket.names().map_err(failed)?;
        let mut sets = BTreeMap::new();
        for id in names.iter().filter_map(|name| name.parse::<SetId>().ok()) {
            if let Some(set) = self.socket.list(&id.to_string()).map_err(failed)? {
                sets.insert(id, observed(id, &set));
            }
        }
        Ok(sets)
    }

    /// The names of all sets, including those of other programs.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn names(&mut self) -> Result<Vec<String>, KernelError> {
        let names = self.socket.names();
        names.map_err(|error| KernelError::new("read sets", &error))
    }

    /// The existing sets of [`LEFTOVER_SETS`].
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn leftovers(&mut self) -> Result<BTreeSet<&'static str>, KernelError> {
        let names = self.names()?;
        let there = |name: &&str| names.iter().any(|other| other == name);
        Ok(LEFTOVER_SETS.into_iter().filter(there).collect())
    }

    /// Applies operations in order, with many entries in one message.
    pub fn apply(&mut self, ops: &[&SetOp]) -> Vec<Result<(), KernelError>> {
        let runs = ops.chunk_by(|left, right| same_message(left, right));
        runs.flat_map(|run| self.apply_run(run)).collect()
    }

    fn apply_run(&mut self, run: &[&SetOp]) -> Vec<Result<(), KernelError>> {
        let Some(op) = run.first() else {
            return Vec::new();
        };
        let result = match op {
            SetOp::AddEntry { set, .. } => return self.change(*set, run, Socket::add),
            SetOp::DeleteEntry { set, .. } => return self.change(*set, run, Socket::delete),
            SetOp::Create { set, max_elements } => {
                self.create(&set.to_string(), *set, *max_elements)
            }
            SetOp::Destroy { set } => self.socket.destroy(&set.to_string()),
            SetOp::DestroyLeftover { name } => self.socket.destroy(name),
            SetOp::Replace {
                set,
                max_elements,
                entries,
            } => self.replace(*set, *max_elements, entries),
        };
        vec![result.map_err(|error| failed(op, &error))]
    }

    /// Adds or deletes the entries of operations on one set.
    fn change(
        &mut self,
        set: SetId,
        run: &[&SetOp],
        change: impl FnOnce(&mut Socket, &str, &[Entry]) -> Vec<Result<(), ipset_rs::Error>>,
    ) -> Vec<Result<(), KernelError>> {
        let entries = run.iter().filter_map(|op| op.entry()).map(kernel_entry);
        let entries: Vec<_> = entries.collect();
        let results = change(&mut self.socket, &set.to_string(), &entries);
        let explain = |(op, result): (&&SetOp, Result<(), ipset_rs::Error>)| {
            result.map_err(|error| failed(op, &error))
        };
        run.iter().zip(results).map(explain).collect()
    }

    fn create(&mut self, name: &str, set: SetId, most: u32) -> Result<(), ipset_rs::Error> {
        let options = CreateOptions {
            max_elements: most,
            timeout: set.role.timeout_seconds(),
            ..CreateOptions::default()
        };
        self.socket.create(
            name,
            set_type(set.role.kind()),
            family(set.family),
            &options,
        )
    }

    /// Fills a spare set and swaps it in: rules see the old entries or the new ones, never none.
    fn replace(
        &mut self,
        set: SetId,
        most: u32,
        entries: &[SetEntry],
    ) -> Result<(), ipset_rs::Error> {
        // A spare set left by a crash is unused.
        match self.socket.destroy(SPARE_SET) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        self.create(SPARE_SET, set, most)?;
        let entries: Vec<_> = entries.iter().map(kernel_entry).collect();
        let filled: Result<(), _> = self.socket.add(SPARE_SET, &entries).into_iter().collect();
        let swapped = filled.and_then(|()| self.socket.swap(SPARE_SET, &set.to_string()));
        let destroyed = self.socket.destroy(SPARE_SET);
        match swapped {
            Err(error) if error.is_mismatch() => {
                destroyed?;
                self.recreate(set, most, &entries)
            }
            swapped => swapped.and(destroyed),
        }
    }

    /// Recreates a set that another program created with another type: the kernel swaps only sets of the same type.
    /// This works only if no rule uses the set.
    fn recreate(
        &mut self,
        set: SetId,
        most: u32,
        entries: &[Entry],
    ) -> Result<(), ipset_rs::Error> {
        let name = set.to_string();
        self.socket.destroy(&name)?;
        self.create(&name, set, most)?;
        self.socket.add(&name, entries).into_iter().collect()
    }
}

fn failed(op: &SetOp, error: &ipset_rs::Error) -> KernelError {
    match op {
        SetOp::Create { set, .. } | SetOp::Replace { set, .. } if error.is_unsupported() => {
            KernelError::new(op, &no_type(set.role.kind()))
        }
        SetOp::Replace { set, .. } if error.is_in_use() => KernelError::new(op, &in_use(*set)),
        _ => KernelError::new(op, &error.reason()).in_doubt_if(error.is_of_socket()),
    }
}

/// The message for a missing type. The module is named after the type.
fn no_type(kind: SetKind) -> String {
    let kind = kind.as_str();
    let module = kind.replace(':', "_").replace(',', "");
    format!(
        "the kernel has no sets of type {kind}: load its module (modprobe ip_set_{module}), or install the \
         package with this kernel's modules (linux-modules-extra, kernel-modules)"
    )
}

fn in_use(set: SetId) -> String {
    let kind = set.role.kind().as_str();
    format!(
        "another program created a set with this name that is not a {kind} of {}, and rules use it: find \
         them with `iptables-save | grep {set}` and `ip6tables-save | grep {set}`, and remove them; the \
         agent then recreates the set",
        set.family
    )
}

fn same_message(left: &SetOp, right: &SetOp) -> bool {
    match (left, right) {
        (SetOp::AddEntry { set: left, .. }, SetOp::AddEntry { set: right, .. })
        | (SetOp::DeleteEntry { set: left, .. }, SetOp::DeleteEntry { set: right, .. }) => {
            left == right
        }
        _ => false,
    }
}

fn observed(id: SetId, set: &Set) -> ObservedSet {
    // The kernel does not report a maximum for bitmaps: they can hold every port.
    let bitmap = set.header.set_type() == Some(SetType::BitmapPort);
    let kind = id.role.kind();
    let is_like = set.header.set_type() == Some(set_type(kind))
        && (bitmap || set.header.family == Some(family(id.family)));
    ObservedSet {
        // A set of another type or family is not one of the agent's.
        kind: is_like.then_some(kind),
        max_elements: if bitmap {
            SetKind::PORTS
        } else {
            set.header.max_elements
        },
        timeout_seconds: set.header.timeout,
        entries: set.entries.iter().filter_map(known_entry).collect(),
    }
}

fn set_type(kind: SetKind) -> SetType {
    match kind {
        SetKind::HashIpPort => SetType::HashIpPort,
        SetKind::HashNet => SetType::HashNet,
        SetKind::HashIpPortIp => SetType::HashIpPortIp,
        SetKind::HashIpPortNet => SetType::HashIpPortNet,
        SetKind::BitmapPort => SetType::BitmapPort,
    }
}

fn family(family: Family) -> ipset_rs::Family {
    match family {
        Family::Ipv4 => ipset_rs::Family::Ipv4,
        Family::Ipv6 => ipset_rs::Family::Ipv6,
    }
}

fn kernel_protocol(protocol: Protocol) -> ipset_rs::Protocol {
    match protocol {
        Protocol::Tcp => ipset_rs::Protocol::Tcp,
        Protocol::Udp => ipset_rs::Protocol::Udp,
        Protocol::Sctp => ipset_rs::Protocol::Sctp,
    }
}

fn known_protocol(protocol: ipset_rs::Protocol) -> Protocol {
    match protocol {
        ipset_rs::Protocol::Tcp => Protocol::Tcp,
        ipset_rs::Protocol::Udp => Protocol::Udp,
        ipset_rs::Protocol::Sctp => Protocol::Sctp,
    }
}

fn kernel_entry(entry: &SetEntry) -> Entry {
    match *entry {
        SetEntry::AddressPort {
            address,
            protocol,
            port,
        } => Entry::IpPort {
            address,
            protocol: kernel_protocol(protocol),
            port,
        },
        SetEntry::Net(net) => Entry::Net(net),
        SetEntry::Port(port) => Entry::Port(port),
        SetEntry::AddressPortSource {
            address,
            protocol,
            port,
            source,
        } => Entry::IpPortIp {
            address,
            protocol: kernel_protocol(protocol),
            port,
            source,
        },
        SetEntry::AddressPortNet {
            address,
            protocol,
            port,
            net,
        } => Entry::IpPortNet {
            address,
            protocol: kernel_protocol(protocol),
            port,
            net,
        },
    }
}

/// Converts an entry; `None` for kinds that the agent's sets do not use.
fn known_entry(entry: &Entry) -> Option<SetEntry> {
    Some(match *entry {
        Entry::IpPort {
            address,
            protocol,
            port,
        } => SetEntry::AddressPort {
            address,
            protocol: known_protocol(protocol),
            port,
        },
        Entry::Net(net) => SetEntry::Net(net),
        Entry::Port(port) => SetEntry::Port(port),
        Entry::IpPortIp {
            address,
            protocol,
            port,
            source,
        } => SetEntry::AddressPortSource {
            address,
            protocol: known_protocol(protocol),
            port,
            source,
        },
        Entry::IpPortNet {
            address,
            protocol,
            port,
            net,
        } => SetEntry::AddressPortNet {
            address,
            protocol: known_protocol(protocol),
            port,
            net,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use portolan_reconcile::SetRole;

    use super::*;
    use crate::kernel::linux::MODULES;

    /// S-180.
    #[test]
    fn the_message_for_a_missing_type_names_a_required_module() {
        for role in SetRole::ALL {
            let message = no_type(role.kind());
            let (_, rest) = message.split_once("(modprobe ").unwrap();
            let (module, _) = rest.split_once(')').unwrap();
            assert!(MODULES.contains(&module), "{message}");
        }
    }
}
