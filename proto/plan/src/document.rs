//! A plan as people and other tools read it: resolved for its node, every key always present,
//! arrays sorted, unknown keys refused.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Backend, BackendList, Entry, EntryHash, EntryKey, Family, Frontend, FrontendKind, Head,
    HeadPort, KeyError, ListChoice, ListKey, ListUse, Local, LocalEndpoint, LocalHealth, NodeEntry,
    NodePlan, Outsiders, Policy, Protocol, Scope, ScopeKind, ServiceId, Settings, WhenEmpty,
};

/// The version of the document's shape that is written here.
const VERSION: u32 = 1;

/// One node's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanDocument {
    /// The version of this shape, 1.
    pub version: u32,
    /// The node's name.
    pub node: Arc<str>,
    /// The node's zone.
    pub zone: Option<Arc<str>>,
    /// The plan's hash, 32 hexadecimal digits.
    pub hash: String,
    /// The node's addresses in the Node object's order.
    pub node_addresses: Vec<IpAddr>,
    /// The ranges of its pods.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNet>,
    /// The ranges of cluster IPs.
    #[serde(rename = "serviceCIDRs")]
    pub service_cidrs: Vec<IpNet>,
    /// Whether balancers should send traffic here.
    pub eligible: bool,
    /// The settings in force.
    pub settings: Settings,
    /// The Services, by namespace and name.
    pub services: Vec<ServiceDocument>,
    /// This node's own endpoints.
    pub local_endpoints: Vec<LocalEndpointDocument>,
    /// Health check ports of Services.
    pub health_checks: Vec<HealthCheckDocument>,
    /// What was ignored or looks wrong in the objects the plan was made from.
    pub warnings: Vec<WarningDocument>,
}

/// A Service of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceDocument {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Programmed first at start.
    pub boot_critical: bool,
    /// Its own drain deadline in seconds.
    pub drain_seconds: Option<u32>,
    /// Its ports.
    pub ports: Vec<PortDocument>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PortDocument {
    /// Its name; empty when unnamed.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Where it answers.
    pub frontends: Vec<FrontendDocument>,
    /// What serves the cluster IPs.
    pub internal: ListDocument,
    /// What serves other frontends.
    pub external: Option<ListDocument>,
    /// Client affinity in seconds.
    pub affinity_seconds: Option<u32>,
    /// The scheduler on this node.
    pub scheduler: Arc<str>,
    /// Who may connect to load-balancer addresses; empty means everybody.
    pub source_ranges: Vec<IpNet>,
}

/// An address and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrontendDocument {
    /// What kind of address it is.
    pub kind: FrontendKind,
    /// The address; null for a node port.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// Backends of both families, and the rules around them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListDocument {
    /// The traffic policy.
    pub policy: Policy,
    /// Whose list it is: `cluster`, `zone/Z` or `node/N`.
    pub scope: String,
    /// The backends.
    pub endpoints: Vec<EndpointDocument>,
    /// What clients meet when there are none.
    pub when_empty: WhenEmpty,
    /// What happens to outsiders.
    pub outsiders: Outsiders,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointDocument {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its weight.
    pub weight: u16,
}

/// An endpoint on this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalEndpointDocument {
    /// Its address.
    pub address: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its port.
    pub port: u16,
}

/// A health check port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheckDocument {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
    /// The port.
    pub port: u16,
    /// Distinct ready local addresses.
    pub local_endpoints: FamilyCounts,
}

/// A count for each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyCounts {
    /// For IPv4.
    #[serde(rename = "IPv4")]
    pub ipv4: u32,
    /// For IPv6.
    #[serde(rename = "IPv6")]
    pub ipv6: u32,
}

/// Something that was ignored or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WarningDocument {
    /// The object, like `Service shop/cart`.
    pub object: String,
    /// A word for tools.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// A document that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// A shape that this program does not know.
    #[error("version: {found} is not known here; this program reads version {VERSION}")]
    Version {
        /// What the document says.
        found: u32,
    },
    /// The hash is not 32 hexadecimal digits.
    #[error("hash: {text:?} is not 32 hexadecimal digits")]
    Hash {
        /// What the document says.
        text: String,
    },
    /// A scope that does not exist, or is not one of this node's.
    #[error(
        "services: {service}: port {port:?}: scope: {text:?} is neither cluster, nor this node's zone/Z or node/N"
    )]
    Scope {
        /// The Service.
        service: ServiceId,
        /// The port's name.
        port: Arc<str>,
        /// What the document says.
        text: String,
    },
    /// Port 0 in a place where a real port belongs.
    #[error("{place}: port 0 is no port; write 1 to 65535")]
    PortZero {
        /// Where in the document.
        place: String,
    },
}

impl From<KeyError> for DocumentError {
    fn from(error: KeyError) -> Self {
        Self::Hash { text: error.text }
    }
}

impl PlanDocument {
    /// The plan in words; `None` while the plan does not say which node it is for.
    pub fn from_plan(plan: &NodePlan, mut warnings: Vec<WarningDocument>) -> Option<Self> {
        let node = plan.node()?;
        warnings.sort();
        warnings.dedup();
        let mut local_endpoints: Vec<_> = plan
            .locals()
            .flat_map(|(_, local)| &local.endpoints)
            .map(|e| LocalEndpointDocument {
                address: e.address,
                protocol: e.protocol,
                port: e.port,
            })
            .collect();
        local_endpoints.sort();
        local_endpoints.dedup();
        Some(Self {
            version: VERSION,
            node: node.name.clone(),
            zone: node.zone.clone(),
            hash: plan.hash().to_string(),
            node_addresses: node.addresses.clone(),
            pod_cidrs: node.pod_cidrs.clone(),
            service_cidrs: node.service_cidrs.clone(),
            eligible: node.eligible,
            settings: node.settings.clone(),
            services: plan
                .heads()
                .map(|(id, head)| service(plan, node, id, head))
                .collect(),
            local_endpoints,
            health_checks: plan
                .locals()
                .filter_map(|(id, local)| health(id, local))
                .collect(),
            warnings,
        })
    }

    /// The plan this document tells. Its entries have no hash of their own; the plan's hash is
    /// for the reader to compare.
    ///
    /// # Errors
    /// [`DocumentError`] names the field that makes no sense.
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
        // The document does not say whose endpoint a local one is, and the kernel does not ask:
        // all of them stand under a Service without a name.
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
                    endpoints: Vec::new(),
                    health,
                })),
            );
        }
        entries.insert(EntryKey::Node, Entry::Node(Arc::new(node)));
        let unhashed = |(key, entry)| (key, EntryHash::default(), entry);
        Ok(NodePlan::from_entries(entries.into_iter().map(unhashed)))
    }
}

fn service(plan: &NodePlan, node: &NodeEntry, id: &ServiceId, head: &Head) -> ServiceDocument {
    ServiceDocument {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        boot_critical: head.boot_critical,
        drain_seconds: head.drain_seconds,
        ports: head
            .ports
            .iter()
            .map(|port| self::port(plan, node, id, head, port))
            .collect(),
    }
}

fn port(
    plan: &NodePlan,
    node: &NodeEntry,
    id: &ServiceId,
    head: &Head,
    port: &HeadPort,
) -> PortDocument {
    let mut frontends: Vec<_> = port
        .frontends
        .iter()
        .map(|f| FrontendDocument {
            kind: f.kind,
            address: f.address,
            port: f.port,
        })
        .collect();
    frontends.sort();
    PortDocument {
        name: port.name.clone(),
        protocol: port.protocol,
        frontends,
        internal: list(plan, node, id, port, &port.internal),
        external: port
            .external
            .as_ref()
            .map(|external| list(plan, node, id, port, external)),
        affinity_seconds: port.affinity_seconds,
        scheduler: head
            .scheduler
            .clone()
            .unwrap_or_else(|| node.settings.scheduler.clone()),
        source_ranges: port.source_ranges.clone(),
    }
}

fn list(
    plan: &NodePlan,
    node: &NodeEntry,
    id: &ServiceId,
    port: &HeadPort,
    list: &ListUse,
) -> ListDocument {
    let families = Family::BOTH
        .into_iter()
        .filter(|family| port.has_family(*family));
    let first = families.clone().next().unwrap_or(Family::Ipv4);
    let choice = list.choice(first);
    let endpoints = families
        .filter_map(|family| plan.backends(id, port, list, family))
        .flat_map(|backends| backends.as_slice())
        .map(|b| EndpointDocument {
            address: b.address,
            port: b.port,
            weight: b.weight,
        })
        .collect();
    ListDocument {
        policy: list.policy,
        scope: node.complete(choice.scope).to_string(),
        endpoints,
        when_empty: list.when_empty,
        outsiders: choice.outsiders,
    }
}

fn health(id: &ServiceId, local: &Local) -> Option<HealthCheckDocument> {
    let LocalHealth { port, ipv4, ipv6 } = local.health?;
    Some(HealthCheckDocument {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        port,
        local_endpoints: FamilyCounts { ipv4, ipv6 },
    })
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
    for port in document.ports {
        head.scheduler = Some(port.scheduler);
        let zero = |place: &str| DocumentError::PortZero {
            place: format!("services: {id}: port {:?}: {place}", port.name),
        };
        if port.frontends.iter().any(|frontend| frontend.port == 0) {
            return Err(zero("frontends"));
        }
        let mut read = |list: ListDocument| {
            if list.endpoints.iter().any(|endpoint| endpoint.port == 0) {
                return Err(zero("endpoints"));
            }
            read_list(list, &id, &port.name, node, entries)
        };
        let internal = read(port.internal)?;
        let external = port.external.map(read).transpose()?;
        head.ports.push(HeadPort {
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
            internal,
            external,
            affinity_seconds: port.affinity_seconds,
            source_ranges: port.source_ranges,
            name: port.name,
        });
    }
    entries.insert(EntryKey::Head(id), Entry::Head(Arc::new(head)));
    Ok(())
}

fn read_list(
    list: ListDocument,
    service: &ServiceId,
    port: &Arc<str>,
    node: &NodeEntry,
    entries: &mut BTreeMap<EntryKey, Entry>,
) -> Result<ListUse, DocumentError> {
    let kinds = [ScopeKind::Cluster, ScopeKind::Zone, ScopeKind::Node];
    let named = list.scope.parse::<Scope>().ok();
    let kind = kinds
        .into_iter()
        .find(|kind| Some(node.complete(*kind)) == named);
    let (Some(scope), Some(kind)) = (named, kind) else {
        let (service, port) = (service.clone(), port.clone());
        return Err(DocumentError::Scope {
            service,
            port,
            text: list.scope,
        });
    };
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
        let (service, port, scope) = (service.clone(), port.clone(), scope.clone());
        let key = EntryKey::List(ListKey {
            service,
            port,
            family,
            scope,
        });
        entries.insert(key, Entry::List(Arc::new(backends)));
    }
    let choice = ListChoice {
        scope: kind,
        outsiders: list.outsiders,
    };
    Ok(ListUse {
        policy: list.policy,
        ipv4: choice,
        ipv6: choice,
        when_empty: list.when_empty,
    })
}
