//! The tables as a document for people and other tools: the reverse of their elements.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Protocol, ServiceId};
use serde::{Deserialize, Serialize};

use super::frontend::FrontendElements;
use super::observed::ObservedTables;
use super::tables::Tables;
use crate::VirtualServerKey;

/// The tables of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TablesDocument {
    /// The Services with their frontends, by namespace and name. Frontends of no known Service come first.
    pub services: Vec<ServiceDocument>,
    /// This node's endpoints that are masqueraded when they connect to themselves.
    pub local_endpoints: Vec<String>,
    /// The ranges of both families.
    pub ranges: RangesDocument,
    /// The number of elements that Portolan never writes.
    pub foreign_elements: usize,
}

/// A Service and its frontends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceDocument {
    /// The namespace; `None` for frontends of no known Service.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Option<Arc<str>>,
    /// The frontends by address, port and protocol.
    pub frontends: Vec<FrontendDocument>,
}

/// A frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrontendDocument {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// The sets that contain it.
    pub sets: Vec<String>,
    /// The ranges that may connect, if it is in the set `guarded`.
    pub allowed: Vec<IpNet>,
    /// The backends by address and port.
    pub backends: Vec<BackendDocument>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackendDocument {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Its number of slots: its share of new connections, relative to the others.
    pub slots: u32,
}

/// Ranges of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RangesDocument {
    /// Those whose addresses count as pods.
    pub pods: Vec<IpNet>,
    /// The service ranges.
    pub services: Vec<IpNet>,
    /// Addresses of load balancers at whose unused ports connections from outside are rejected.
    pub balancers: Vec<IpNet>,
}

impl TablesDocument {
    /// The observed tables. The desired tables name the Services.
    pub fn new(observed: &ObservedTables, tables: Option<&Tables>) -> Self {
        let mut document = Self::default();
        let mut services = BTreeMap::<Option<&ServiceId>, Vec<FrontendDocument>>::new();
        for table in observed.tables.values() {
            for (key, held) in &table.frontends {
                let wanted = tables.and_then(|tables| tables.frontend(key));
                let service = wanted.map(|wanted| &wanted.service);
                services
                    .entry(service)
                    .or_default()
                    .push(frontend(key, held));
            }
            let hairpins = table.hairpins.iter().map(|own| VirtualServerKey {
                address: own.address,
                port: own.port,
                protocol: own.protocol,
            });
            let hairpins = hairpins.map(|own| own.to_string());
            document.local_endpoints.extend(hairpins);
            document.ranges.pods.extend(&table.pods);
            document.ranges.services.extend(&table.ranges);
            document.ranges.balancers.extend(&table.balancers);
            document.foreign_elements += table.foreign.len();
        }
        let service = |(service, frontends): (Option<&ServiceId>, _)| ServiceDocument {
            namespace: service.map(|service| service.namespace.clone()),
            name: service.map(|service| service.name.clone()),
            frontends,
        };
        document.services = services.into_iter().map(service).collect();
        document
    }
}

fn frontend(key: &VirtualServerKey, held: &FrontendElements) -> FrontendDocument {
    let backends = held.backends();
    let backends = backends.iter().map(|(backend, slots)| BackendDocument {
        address: backend.address,
        port: backend.port,
        slots,
    });
    FrontendDocument {
        address: key.address,
        port: key.port,
        protocol: key.protocol,
        sets: held.sets().iter().map(ToString::to_string).collect(),
        allowed: held.allowed().copied().collect(),
        backends: backends.collect(),
    }
}
