//! The Linux kernel: the only place that opens its sockets, writes its settings or starts its
//! tools. Blocking, for one thread.

mod link;
mod rules;
mod servers;
mod sets;
mod sysctl;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use portolan_plan::Family;
use portolan_reconcile::{Observed, Op, OpKind};

use super::{Kernel, KernelError};

pub use link::{FoundLinks, Links};
pub use rules::Rules;
pub use servers::Servers;
pub use sets::Sets;
pub use sysctl::{apply as write_sysctl, read as read_sysctl};

/// The kernel of the network namespace that the opening thread was in.
#[derive(Debug)]
pub struct LinuxKernel {
    servers: Servers,
    sets: Sets,
    link: Links,
    rules: Rules,
}

/// Everything that a node lacks to be programmed.
#[derive(Debug)]
pub struct Missing {
    errors: Vec<KernelError>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this node cannot be programmed:")?;
        self.errors
            .iter()
            .try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for Missing {}

impl LinuxKernel {
    /// Opens the kernel's sockets in the network namespace of the calling thread, and looks for
    /// the tools.
    ///
    /// # Errors
    /// [`Missing`] names all that is not there at once, with what to do about each.
    pub fn open() -> Result<Self, Missing> {
        let servers = Servers::open();
        let sets = Sets::open();
        let link = Links::open();
        let rules = Rules::find();
        match (servers, sets, link, rules) {
            (Ok(servers), Ok(sets), Ok(link), Ok(rules)) => Ok(Self {
                servers,
                sets,
                link,
                rules,
            }),
            (servers, sets, link, rules) => {
                let errors = [servers.err(), sets.err(), link.err(), rules.err()];
                Err(Missing {
                    errors: errors.into_iter().flatten().collect(),
                })
            }
        }
    }

    fn apply_run(&mut self, kind: OpKind, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        match kind {
            OpKind::Ipvs => self.servers.apply(ops),
            OpKind::Set => self.sets.apply(ops),
            OpKind::Link => ops.iter().map(|op| self.link.apply(op)).collect(),
            OpKind::Rules => ops.iter().map(|op| self.rules.apply(op)).collect(),
            OpKind::Sysctl => ops.iter().map(sysctl::apply).collect(),
        }
    }
}

impl Kernel for LinuxKernel {
    fn observe(
        &mut self,
        device: &str,
        sysctls: &BTreeSet<Arc<str>>,
    ) -> Result<Observed, KernelError> {
        let link = self.link.observe(device)?;
        let rules = |family| Ok((family, self.rules.observe(family)?));
        Ok(Observed {
            device_up: link.device_up,
            routes: link.routes,
            host: link.host,
            virtual_servers: self.servers.observe()?,
            sets: self.sets.observe()?,
            rules: Family::BOTH
                .into_iter()
                .map(rules)
                .collect::<Result<_, _>>()?,
            sysctls: sysctls.iter().filter_map(sysctl::read).collect(),
        })
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        // Runs of one kind go to the kernel together: many messages in one send.
        let runs = ops.chunk_by(|left, right| left.kind() == right.kind());
        runs.flat_map(|run| run.first().map(|op| self.apply_run(op.kind(), run)))
            .flatten()
            .collect()
    }
}
