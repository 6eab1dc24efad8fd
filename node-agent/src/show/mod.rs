//! Compares the kernel state with the last plan for `show`. Pure: the caller reads the kernel.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use portolan_plan::{Dataplane, Family, FrontendKind, NodePlan, Protocol, ServiceId};
use portolan_reconcile::nftables::{ObservedTable, ObservedTables, Tables};
use portolan_reconcile::{
    Connections, Desired, Facts, HostNetwork, Observed, RealServerKey, RealServers, VirtualServer,
    VirtualServerKey, flags,
};
use serde::Serialize;

use crate::drains::ListedDrain;
use crate::owners::{Owned, owned};
use crate::saved::Origin;

pub use table::{NO_SUCH_SERVICE, NOTHING, Style, render};

/// The saved plan and its origin.
pub type LastPlan<'a> = Option<(&'a NodePlan, &'a Origin)>;

/// The input: everything that was read on a node.
#[derive(Debug)]
pub struct Found<'a> {
    /// The kernel state.
    pub observed: &'a Observed,
    /// The tables of nftables; `None` if there are none.
    pub tables: Option<&'a ObservedTables>,
    /// The number of connections of each real server.
    pub connections: &'a Connections,
    /// The virtual servers that are recorded as owned.
    pub recorded: &'a BTreeSet<VirtualServerKey>,
    /// The last plan.
    pub plan: LastPlan<'a>,
    /// The draining real servers that the running agent reports, or why they are unknown.
    pub drains: &'a Result<Vec<ListedDrain>, String>,
    /// Whether to show the entries of sets.
    pub entries: bool,
    /// The Service to show; `None` for all.
    pub service: Option<&'a ServiceId>,
}

/// The output for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The saved plan; `null` if there is none.
    pub plan: Option<ShownPlan>,
    /// Virtual servers by Service, then by address; those of other programs last.
    pub virtual_servers: Vec<ShownServer>,
    /// The agent's sets.
    pub sets: Vec<ShownSet>,
    /// The agent's rules of iptables, by family; empty on a node that has only the tables.
    pub rules: Vec<ShownRules>,
    /// The tables of nftables, if there are any.
    pub tables: Vec<ShownTable>,
    /// Why the deadlines of draining real servers are unknown; `null` if they are known.
    pub drains_problem: Option<String>,
}

/// The last plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownPlan {
    /// The node that it is for.
    pub node: String,
    /// Its hash, 32 hexadecimal digits.
    pub hash: String,
    /// When it was written, in seconds since 1970.
    pub written: u64,
    /// Its number of Services.
    pub services: usize,
}

/// Owner of a virtual server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Owner {
    /// A Service of the plan.
    #[serde(rename_all = "camelCase")]
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The kind of its address.
        frontend: FrontendKind,
    },
    /// Recorded as owned by the agent, but not in the plan.
    Agent,
    /// Another program: the agent never modifies it.
    Other,
}

/// A virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownServer {
    /// Its owner.
    pub owner: Owner,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Whether the kernel has it; if not, it is only in the plan.
    pub present: bool,
    /// Its scheduler.
    pub scheduler: String,
    /// Timeout of the session affinity in seconds; `null` without affinity.
    pub affinity_seconds: Option<u32>,
    /// Its real servers.
    pub backends: Vec<ShownBackend>,
}

/// State of a real server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum State {
    /// It accepts connections.
    Serving,
    /// It accepts no new connections and keeps existing ones.
    Draining,
    /// It is in the kernel, but differs from the plan.
    Differs,
    /// It is in the plan, but not in the kernel.
    Missing,
}

/// A real server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownBackend {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its weight in the kernel; that in the plan if it is missing.
    pub weight: u32,
    /// Number of its connections, established and closing.
    pub connections: u64,
    /// Its state.
    pub state: State,
    /// Reason and deadline of its draining; `null` if it does not drain or they are unknown.
    pub drain: Option<ListedDrain>,
}

/// A set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownSet {
    /// Its name.
    pub name: String,
    /// Its number of entries.
    pub entries: usize,
    /// Its maximum number of entries.
    pub max_elements: u32,
    /// The entries, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
}

/// A table of nftables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownTable {
    /// The family.
    pub family: Family,
    /// Its number of frontends, including those that are refused.
    pub frontends: usize,
    /// Its number of elements that the agent never writes.
    pub foreign_elements: usize,
}

/// The agent's rules of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownRules {
    /// The family.
    pub family: Family,
    /// The number of the agent's loaded rules; `null` if they cannot be read.
    pub loaded: Option<usize>,
    /// Why they cannot be read.
    pub problem: Option<String>,
}

impl Shown {
    /// Builds the output.
    pub fn of(found: &Found<'_>) -> Self {
        let owners = owners(found.plan, &found.observed.host);
        let wanted = wanted(found);
        let of_tables = found.tables.map(ObservedTables::virtual_servers);
        let of_tables = of_tables.unwrap_or_default();
        let mut held = found.observed.virtual_servers.clone();
        // While a node changes to nftables, connections of before are left in IPVS.
        held.extend(of_tables.clone());
        let places: BTreeSet<_> = held.keys().chain(wanted.keys()).collect();
        let server = |place: &&VirtualServerKey| {
            let counts = found.connections.get(place);
            let is_owned = found.recorded.contains(place) || of_tables.contains_key(place);
            let other = if is_owned { Owner::Agent } else { Owner::Other };
            let owner = owners.get(place).cloned().unwrap_or(other);
            let count =
                |backend: &RealServerKey| counts.and_then(|counts| counts.get(backend).copied());
            show(**place, held.get(place), wanted.get(place), owner, &count)
        };
        let asked = |server: &ShownServer| found.service.is_none_or(|of| server.is_of(of));
        let mut virtual_servers: Vec<_> = places.iter().map(server).filter(asked).collect();
        explain_drains(
            &mut virtual_servers,
            found.drains.as_deref().unwrap_or_default(),
        );
        virtual_servers.sort_by(|left, right| left.owner_name().cmp(&right.owner_name()));
        Self {
            plan: found.plan.map(|(plan, origin)| shown_plan(plan, origin)),
            virtual_servers,
            sets: sets(found.observed, found.entries),
            rules: rules(found),
            tables: tables(found.tables),
            drains_problem: found.drains.as_ref().err().cloned(),
        }
    }
}

impl ShownServer {
    fn is_of(&self, service: &ServiceId) -> bool {
        matches!(&self.owner, Owner::Service { namespace, name, .. }
            if **namespace == *service.namespace && **name == *service.name)
    }

    /// The sort key of its group: Services first, by name.
    fn owner_name(&self) -> (u8, &str, &str) {
        match &self.owner {
            Owner::Service {
                namespace, name, ..
            } => (0, namespace, name),
            Owner::Agent => (1, "", ""),
            Owner::Other => (2, "", ""),
        }
    }
}

fn shown_plan(plan: &NodePlan, origin: &Origin) -> ShownPlan {
    let written = origin.written.duration_since(UNIX_EPOCH);
    ShownPlan {
        node: origin.node.clone(),
        hash: plan.hash().to_string(),
        written: written.unwrap_or_default().as_secs(),
        services: plan.heads().count(),
    }
}

/// The Services of the plan by their virtual servers.
fn owners(plan: LastPlan<'_>, host: &HostNetwork) -> BTreeMap<VirtualServerKey, Owner> {
    let owned = plan.map_or_else(Vec::new, |(plan, _)| owned(plan, host));
    let owner = |owned: Owned<'_>| Owner::Service {
        namespace: owned.service.namespace.to_string(),
        name: owned.service.name.to_string(),
        frontend: owned.kind,
    };
    let owners = owned.into_iter().map(|owned| (owned.place, owner(owned)));
    owners.collect()
}

fn show(
    place: VirtualServerKey,
    held: Option<&VirtualServer>,
    wanted: Option<&VirtualServer>,
    owner: Owner,
    count: &dyn Fn(&RealServerKey) -> Option<u64>,
) -> ShownServer {
    // A virtual server outside of the plan has no wanted state to compare with.
    let compared = matches!(owner, Owner::Service { .. });
    let weights = |server: Option<&VirtualServer>| {
        server.map_or_else(RealServers::new, |server| server.real_servers.clone())
    };
    let (has, wants) = (weights(held), weights(wanted));
    let keys: BTreeSet<_> = has.keys().chain(wants.keys()).collect();
    let backend = |key: &RealServerKey| {
        let state = match (has.get(key), wants.get(key)) {
            (None, _) => State::Missing,
            (Some(weight), Some(wanted)) if weight == wanted => State::Serving,
            (Some(0), _) => State::Draining,
            (Some(_), _) if compared => State::Differs,
            (Some(_), _) => State::Serving,
        };
        ShownBackend {
            address: key.address,
            port: key.port,
            weight: has.get(key).or(wants.get(key)).unwrap_or(0),
            connections: count(key).unwrap_or(0),
            state,
            drain: None,
        }
    };
    let backends = keys.iter().map(backend).collect();
    let server = held.or(wanted);
    let persistent = server.filter(|server| server.flags & flags::PERSISTENT != 0);
    ShownServer {
        owner,
        protocol: place.protocol,
        address: place.address,
        port: place.port,
        present: held.is_some(),
        scheduler: server.map_or_else(String::new, |server| server.scheduler.to_string()),
        affinity_seconds: persistent.map(|server| server.timeout),
        backends,
    }
}

/// Adds the agent's information about draining real servers.
fn explain_drains(servers: &mut [ShownServer], drains: &[ListedDrain]) {
    let drains: BTreeMap<_, _> = drains.iter().map(|drain| (drain.key(), drain)).collect();
    for server in servers {
        let place = VirtualServerKey {
            address: server.address,
            port: server.port,
            protocol: server.protocol,
        };
        let draining = server.backends.iter_mut();
        for backend in draining.filter(|backend| backend.state == State::Draining) {
            let key = RealServerKey {
                address: backend.address,
                port: backend.port,
            };
            backend.drain = drains.get(&(place, key)).map(|drain| (*drain).clone());
        }
    }
}

fn sets(observed: &Observed, entries: bool) -> Vec<ShownSet> {
    let set =
        |(id, set): (&portolan_reconcile::SetId, &portolan_reconcile::ObservedSet)| ShownSet {
            name: id.to_string(),
            entries: set.entries.len(),
            max_elements: set.max_elements,
            members: entries.then(|| set.entries.iter().map(ToString::to_string).collect()),
        };
    observed.sets.iter().map(set).collect()
}

fn rules(found: &Found<'_>) -> Vec<ShownRules> {
    let observed = found.observed;
    let of_family = |family: Family| ShownRules {
        family,
        loaded: observed.rules.get(&family).map(|rules| rules.len()),
        problem: observed.unread_rules.get(&family).cloned(),
    };
    let all = Family::BOTH.into_iter().map(of_family);
    let has_tables = !tables(found.tables).is_empty();
    all.filter(|rules| !has_tables || rules.loaded.is_some_and(|count| count > 0))
        .collect()
}

fn tables(tables: Option<&ObservedTables>) -> Vec<ShownTable> {
    let tables = tables.into_iter().flat_map(|tables| &tables.tables);
    let table = |(family, table): (&Family, &ObservedTable)| ShownTable {
        family: *family,
        frontends: table.frontends.len(),
        foreign_elements: table.foreign.len(),
    };
    tables.map(table).collect()
}

/// The virtual servers of the plan, in the dataplane of its settings.
fn wanted(found: &Found<'_>) -> BTreeMap<VirtualServerKey, VirtualServer> {
    let host = &found.observed.host;
    let facts = found.plan.and_then(|(plan, _)| Facts::new(plan, host));
    let of = |facts: Facts| match facts.settings().dataplane {
        Dataplane::Ipvs => Desired::of(&facts, host, &BTreeSet::new()).virtual_servers,
        Dataplane::Nftables => Tables::of(&facts).applied().virtual_servers(),
    };
    facts.map(of).unwrap_or_default()
}

/// Formats the time since `then`, for example `3 min ago`.
pub(crate) fn ago(then: SystemTime, now: SystemTime) -> String {
    let Ok(age) = now.duration_since(then) else {
        return "in the future: is the clock correct?".into();
    };
    match age.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s ago"),
        seconds @ 120..=7199 => format!("{} min ago", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}
