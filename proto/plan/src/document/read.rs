//! Converts documents to plans.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::document::{
    DocumentError, FamilyCounts, ListDocument, PlanDocument, ServiceDocument, VERSION,
};
use crate::{
    Backend, BackendList, Entry, EntryHash, EntryKey, ExternalClients, Family, Frontend, Head,
    HeadPort, ListChoice, ListKey, ListUse, Local, LocalEndpoint, LocalEndpoints, LocalHealth,
    NodeEntry, NodePlan, Policy, ScopeKind, ServiceId,
};

impl PlanDocument {
    /// The plan that this document describes. Its entries have no hashes of their own; the caller compares the hash
    /// of the plan.
    ///
    /// # Errors
    /// [`DocumentError`] names the invalid field.
    pub fn into_plan(self) -> Result<NodePlan, DocumentError> {
        if self.version != VERSION {
            return Err(DocumentError::Version {
                found: self.version,
            });
        }
        if self.hash.len() != 32 || !self.hash.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(DocumentError::Hash { text: self.hash });
        }
        let node = NodeEntry {
            name: self.node,
            zone: self.zone,
            addresses: self.node_addresses,
            pod_cidrs: self.pod_cidrs,
            service_cidrs: self.service_cidrs,
            eligible: self.eligible,
            settings: self.settings,
        };
        let mut entries = BTreeMap::new();
        for document in self.services {
            read_service(document, &node, &mut entries)?;
        }
        // The document does not say to which Service a local endpoint belongs, and the kernel does not need it. All
        // of them are put under a Service without a name.
        let endpoints = self
            .local_endpoints
            .into_iter()
            .map(|e| LocalEndpoint {
                address: e.address,
                protocol: e.protocol,
                port: e.port,
            })
            .collect();
        let nameless = EntryKey::Local(ServiceId::new("", ""));
        entries.insert(
            nameless,
            Entry::Local(Arc::new(Local {
                endpoints,
                health: None,
            })),
        );
        for check in self.health_checks {
            let FamilyCounts { ipv4, ipv6 } = check.local_endpoints;
            let health = Some(LocalHealth {
                port: check.port,
                ipv4,
                ipv6,
            });
            let key = EntryKey::Local(ServiceId::new(check.namespace, check.name));
            entries.insert(
                key,
                Entry::Local(Arc::new(Local {
                    endpoints: LocalEndpoints::new(),
                    health,
                })),
            );
        }
        entries.insert(EntryKey::Node, Entry::Node(Arc::new(node)));
        let unhashed = |(key, entry)| (key, EntryHash::default(), entry);
        Ok(NodePlan::from_entries(entries.into_iter().map(unhashed)))
    }
}

fn read_service(
    document: ServiceDocument,
    node: &NodeEntry,
    entries: &mut BTreeMap<EntryKey, Entry>,
) -> Result<(), DocumentError> {
    let id = ServiceId::new(document.namespace, document.name);
    let mut head = Head {
        boot_critical: document.boot_critical,
        drain_seconds: document.drain_seconds,
        ..Head::default()
    };
    let mut guards = Vec::new();
    for port in document.ports {
        head.scheduler = Some(port.scheduler);
        let zero = |place: &str| DocumentError::PortZero {
            place: format!("services: {id}: port {:?}: {place}", port.name),
        };
        if port.frontends.iter().any(|frontend| frontend.port == 0) {
            return Err(zero("frontends"));
        }
        let mut served = HeadPort {
            name: port.name.clone(),
            protocol: port.protocol,
            frontends: port
                .frontends
                .iter()
                .map(|f| Frontend {
                    kind: f.kind,
                    address: f.address,
                    port: f.port,
                })
                .collect(),
            affinity_seconds: port.affinity_seconds,
            ..HeadPort::default()
        };
        if !port.source_ranges.is_empty() && head.source_ranges.is_empty() {
            head.source_ranges = port.source_ranges.clone();
        }
        guards.push((port.name.clone(), port.source_ranges));
        let mut read = |list: ListDocument| {
            if list.endpoints.iter().any(|endpoint| endpoint.port == 0) {
                return Err(zero("endpoints"));
            }
            read_list(list, &id, &served, node, entries)
        };
        let internal = read(port.internal)?;
        let external = port.external.map(read).transpose()?;
        (served.internal, served.external) = (internal, external);
        head.ports.push(served);
    }
    for (port, (name, ranges)) in head.ports.iter().zip(&guards) {
        if head.source_ranges_of(port) != ranges {
            let place = format!("services: {id}: port {name:?}: sourceRanges");
            return Err(DocumentError::SourceRanges { place });
        }
    }
    entries.insert(EntryKey::Head(id), Entry::Head(Arc::new(head)));
    Ok(())
}

fn read_list(
    list: ListDocument,
    service: &ServiceId,
    served: &HeadPort,
    node: &NodeEntry,
    entries: &mut BTreeMap<EntryKey, Entry>,
) -> Result<ListUse, DocumentError> {
    let port = &served.name;
    // Under policy Local, a list of scope `node/N` holds the node's own endpoints. If it drops external clients, or
    // under policy Cluster, it is the list that topology hints select.
    let own = match (list.policy, list.external_clients) {
        (Policy::Local, ExternalClients::Allow) => ScopeKind::Local,
        _ => ScopeKind::Node,
    };
    let kinds = [ScopeKind::Cluster, ScopeKind::Zone, own];
    let kind = kinds
        .into_iter()
        .find(|kind| node.complete(*kind).shown() == list.scope);
    let Some(kind) = kind else {
        let (service, port) = (service.clone(), port.clone());
        return Err(DocumentError::Scope {
            service,
            port,
            text: list.scope,
        });
    };
    let scope = node.complete(kind);
    for family in Family::BOTH {
        let backends: BackendList = list
            .endpoints
            .iter()
            .filter(|endpoint| Family::of(endpoint.address) == family)
            .map(|e| Backend {
                address: e.address,
                port: e.port,
                weight: e.weight,
            })
            .collect();
        if backends.is_empty() && !served.has_family(family) {
            continue;
        }
        let key = EntryKey::List(ListKey {
            service: service.clone(),
            port: port.clone(),
            family,
            scope: scope.clone(),
        });
        let entry = Entry::List(Arc::new(backends));
        if entries.get(&key).is_some_and(|other| *other != entry) {
            return Err(DocumentError::TwoLists {
                service: service.clone(),
                port: port.clone(),
                scope: list.scope,
            });
        }
        entries.insert(key, entry);
    }
    let choice = ListChoice {
        scope: kind,
        external_clients: list.external_clients,
    };
    Ok(ListUse {
        policy: list.policy,
        ipv4: choice,
        ipv6: choice,
        when_empty: list.when_empty,
    })
}
