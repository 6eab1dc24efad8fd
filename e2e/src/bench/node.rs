//! The measured node: a separate network namespace with one address, created once the kernel has
//! removed the previous ones.

use std::time::Duration;

use anyhow::{Context, Result};
use ipvs_rs::Socket;

use super::scale::ADDRESS;
use crate::namespace::{Namespace, Temporary};
use crate::program::Program;
use crate::topology::PREFIX;
use crate::waits::Waits;

/// How many virtual servers of all namespaces use the scheduler of the plans.
const USERS: &str = "/sys/module/ip_vs_rr/refcnt";
/// The longest that the kernel may need to do away with a namespace, on hardware.
const LIMIT: Duration = Duration::from_secs(60);
/// Maximum time until the kernel has the state of a plan once that is in force, on hardware.
const SETTLE: Duration = Duration::from_secs(10);
/// Time for the rest of the kernel's cleanup after the virtual servers are gone.
const REST: Duration = Duration::from_millis(300);

/// Makes nodes, one after the other.
#[derive(Debug)]
pub struct Nodes {
    waits: Waits,
    /// Users of the scheduler before the first measurement.
    users: u64,
    made: u32,
}

impl Nodes {
    /// Creates no namespace yet.
    #[must_use]
    pub fn new(waits: Waits) -> Self {
        Self {
            waits,
            users: users().unwrap_or(0),
            made: 0,
        }
    }

    /// A node whose kernel is empty. The one before has to be dropped: many full namespaces make each
    /// look-up of a virtual server slower, because the kernel has one table for all, and removing one
    /// takes it a while.
    ///
    /// # Errors
    /// It cannot be made, or the kernel does not finish removing the previous ones.
    pub fn fresh(&mut self) -> Result<Temporary> {
        let before = self.users;
        self.waits.until(
            "the kernel to remove the virtual servers of the run before",
            LIMIT,
            Duration::from_millis(50),
            || Ok(users().is_none_or(|users| users <= before).then_some(())),
            || format!("{USERS} says {:?}", users()),
        )?;
        std::thread::sleep(REST);
        self.made += 1;
        let name = format!("{PREFIX}bench-{}", self.made);
        let node = Temporary::make(&name)?;
        let lan = format!("{ADDRESS}/24");
        for words in [
            // A kernel without modules may lack dummy devices.
            &["link", "add", "eth0", "type", "veth", "peer", "eth1"][..],
            &["link", "set", "eth1", "up"],
            &["address", "add", &lan, "dev", "eth0"],
            &["link", "set", "eth0", "up"],
        ] {
            Program::Ip.run(&[&["-n", &name], words].concat())?;
        }
        Ok(node)
    }
}

/// `None` where the scheduler is no module, or not loaded yet.
fn users() -> Option<u64> {
    std::fs::read_to_string(USERS).ok()?.trim().parse().ok()
}

/// How many virtual and real servers a namespace has.
fn held(namespace: &Namespace) -> Result<(usize, usize)> {
    namespace.inside(|| {
        let mut socket = Socket::open()?;
        let services = socket.services()?;
        let mut backends = 0;
        for service in &services {
            backends += socket.destinations(&service.key)?.len();
        }
        Ok((services.len(), backends))
    })
}

/// Waits until it has this number of servers and backends: the kernel may free removed backends a little later than
/// the plan is in force.
///
/// # Errors
/// Reports the numbers that it has instead.
pub fn wait_held(namespace: &Namespace, servers: u64, backends: u64, waits: Waits) -> Result<()> {
    let wanted = (usize::try_from(servers)?, usize::try_from(backends)?);
    let mut found = (0, 0);
    let reached = waits.until(
        &format!("{servers} virtual servers and {backends} real servers in the kernel"),
        SETTLE,
        Duration::from_millis(200),
        || {
            found = held(namespace).context("count the virtual servers of the kernel")?;
            Ok((found == wanted).then_some(()))
        },
        || "others are there".into(),
    );
    reached.with_context(|| format!("there are {} and {}", found.0, found.1))
}
