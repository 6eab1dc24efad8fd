//! Collects the desired state, frontend by frontend.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portolan_plan::{Dataplane, Family, FrontendKind};

use super::{Desired, virtual_server};
use crate::deadlines::{DrainDeadlines, lasts};
use crate::entries::Entries;
use crate::facts::{Facts, FrontendFacts, Masquerade};
use crate::host::HostNetwork;
use crate::rules::Rules;
use crate::{SetEntry, SetRole, Timeouts, VirtualServer, VirtualServerKey};
use crate::{route, sysctls};

/// The desired state so far.
pub(super) struct Builder<'a> {
    facts: &'a Facts,
    /// Schedulers that the kernel lacks.
    lacking: &'a BTreeSet<Arc<str>>,
    desired: Desired,
    sets: Entries,
    /// The virtual servers. If several Services claim one, the last one counts.
    servers: Vec<(VirtualServerKey, VirtualServer)>,
    /// Set entries that several Services may need, once for each of them.
    shared: Vec<(SetRole, SetEntry)>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        facts: &'a Facts,
        host: &HostNetwork,
        lacking: &'a BTreeSet<Arc<str>>,
    ) -> Self {
        let node = &*facts.node;
        let settings = &node.settings;
        let desired = Desired {
            dataplane: Dataplane::Ipvs,
            node: node.name.clone(),
            device: settings.device.clone(),
            virtual_servers: BTreeMap::new(),
            boot_critical: BTreeSet::new(),
            resting: BTreeSet::new(),
            deadlines: DrainDeadlines {
                default: settings.drain.deadline.as_duration(),
                of: BTreeMap::new(),
            },
            sets: BTreeMap::new(),
            routes: route::routes(facts.ranges.iter().copied(), node, host),
            policy: route::policy(settings, host),
            rules: Vec::new(),
            sysctls: sysctls(node, host, &facts.node_ports),
            timeouts: Timeouts::of(&settings.timeouts),
            health_ports: facts.health_ports.clone(),
            service_ranges: node.service_cidrs.clone(),
            common: BTreeMap::new(),
            contested: facts.contested.clone(),
            node_ports: facts.node_ports.clone(),
            excluded: settings.exclude_cidrs.clone(),
            lacks_ipv6: facts.lacks_ipv6,
            idle: facts.idle.clone(),
            fallbacks: BTreeMap::new(),
        };
        Self {
            facts,
            lacking,
            desired,
            sets: Entries::new(),
            servers: Vec::new(),
            shared: Vec::new(),
        }
    }

    pub(super) fn frontends(&mut self) {
        let frontends = &self.facts.frontends;
        for of_service in frontends.chunk_by(|left, right| left.service == right.service) {
            for frontend in of_service {
                self.frontend(frontend);
            }
            let services = of_service
                .iter()
                .filter(|it| it.kind != FrontendKind::NodePort);
            for address in distinct(services) {
                self.shared(SetRole::Vips, address, SetEntry::Net(address.into()));
            }
            let balancers = of_service
                .iter()
                .filter(|it| it.kind == FrontendKind::LoadBalancer);
            for address in distinct(balancers) {
                if self.facts.refusing.contains(&address) {
                    self.shared(SetRole::Balancers, address, SetEntry::Net(address.into()));
                }
            }
        }
    }

    /// Adds an entry that other Services may need, too.
    fn shared(&mut self, role: SetRole, address: IpAddr, entry: SetEntry) {
        self.sets.entry(role, address, entry);
        self.shared.push((role, entry));
    }

    fn frontend(&mut self, frontend: &FrontendFacts) {
        let key = frontend.key;
        // A client that is kept out must not learn whether there are endpoints (S-93).
        if let Some(sources) = &frontend.sources {
            self.sets.guard(key, sources);
        }
        if lasts(key.protocol) {
            self.drain(frontend);
        }
        // Rules reject connections to frontends without endpoints. An empty virtual server would be worse: for UDP it
        // answers the node itself with "not permitted", and for TCP over IPv6 only after a retransmission (S-21).
        if frontend.backends.is_empty() {
            self.sets.frontend(SetRole::Refuse, key);
            return;
        }
        let scheduler = self.scheduler(frontend);
        let backends = frontend.backends.clone();
        let server = virtual_server(&scheduler, frontend.affinity_seconds, backends);
        self.servers.push((key, server));
        if frontend.boot_critical {
            self.desired.boot_critical.insert(key);
        }
        self.sets.frontend(SetRole::Frontend, key);
        match frontend.masquerade {
            Masquerade::ClusterIp => self.sets.frontend(SetRole::ClusterIp, key),
            Masquerade::External => self.sets.frontend(SetRole::Masq, key),
            Masquerade::Never => {}
        }
        if frontend.drops_external_clients {
            self.sets.frontend(SetRole::NoLocal, key);
        }
    }

    /// The scheduler of a frontend. Only one that the Service asks for itself is replaced: a missing one of the
    /// settings is the operator's to correct.
    fn scheduler(&mut self, frontend: &FrontendFacts) -> Arc<str> {
        let of_settings = &self.facts.settings().scheduler;
        match &frontend.scheduler {
            Some(asked) if asked != of_settings && self.lacking.contains(asked) => {
                let service = frontend.service.clone();
                self.desired.fallbacks.insert(service, asked.clone());
                of_settings.clone()
            }
            Some(asked) => asked.clone(),
            None => of_settings.clone(),
        }
    }

    /// The state without IPVS. Virtual servers of Services that still exist drain.
    pub(super) fn absent(mut self) -> Desired {
        let frontends = self.facts.frontends.iter();
        for frontend in frontends.filter(|frontend| lasts(frontend.key.protocol)) {
            self.drain(frontend);
            self.desired.resting.insert(frontend.key);
        }
        Desired {
            dataplane: self.facts.settings().dataplane,
            routes: BTreeSet::new(),
            policy: BTreeSet::new(),
            timeouts: Timeouts::default(),
            ..self.desired
        }
    }

    fn drain(&mut self, frontend: &FrontendFacts) {
        if let Some(seconds) = frontend.drain_seconds {
            let deadline = Duration::from_secs(seconds.into());
            self.desired.deadlines.of.insert(frontend.key, deadline);
        }
        if frontend.backends.is_empty() {
            self.desired.resting.insert(frontend.key);
        }
    }

    /// This node's endpoints, and health check ports.
    pub(super) fn local(&mut self) {
        for endpoint in &self.facts.local_endpoints {
            let (address, protocol, port) = (endpoint.address, endpoint.protocol, endpoint.port);
            let entry = SetEntry::AddressPortSource {
                address,
                protocol,
                port,
                source: address,
            };
            self.shared(SetRole::Hairpin, address, entry);
        }
        for health in &self.facts.health_ports {
            self.sets.health(health.port);
            let entry = SetEntry::Port(health.port);
            self.shared.push((SetRole::Health, entry));
        }
    }

    pub(super) fn finish(mut self) -> Desired {
        let facts = self.facts;
        for range in &facts.pods {
            self.sets.nets(SetRole::Pods, *range);
        }
        for range in &facts.ranges {
            self.sets.nets(SetRole::Ranges, *range);
        }
        let rules =
            |family: &Family| Rules::new(*family, facts.settings(), facts.recognises_pods(*family));
        self.desired.rules = facts.families.iter().map(rules).collect();
        self.shared.sort_unstable();
        let shared = self.shared.chunk_by(|left, right| left == right);
        let shared =
            shared.filter_map(|same| Some((*same.first()?, u32::try_from(same.len()).ok()?)));
        Desired {
            virtual_servers: self.servers.into_iter().collect(),
            sets: self.sets.finish(&self.desired.contested),
            common: shared.collect(),
            ..self.desired
        }
    }
}

/// The addresses of frontends.
fn distinct<'a>(frontends: impl Iterator<Item = &'a FrontendFacts>) -> Vec<IpAddr> {
    let mut addresses: Vec<_> = frontends.map(|frontend| frontend.key.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
