//! The desired kernel state as a document for people and other tools.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::Protocol;
use serde::{Deserialize, Serialize};

use crate::rules::{ObservedRules, restore_text};
use crate::{Desired, VirtualServer, VirtualServerKey, flags};

/// The desired kernel state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DesiredDocument {
    /// Virtual servers by address, port and protocol.
    pub virtual_servers: Vec<VirtualServerDocument>,
    /// Sets by name.
    pub sets: BTreeMap<String, SetDocument>,
    /// Routes as arguments of `ip route add`, or of `ip -6 route add` for IPv6.
    pub routes: Vec<String>,
    /// Policy rules of each family, as arguments of `ip rule add`.
    pub policy_rules: BTreeMap<String, Vec<String>>,
    /// The rules of each family, as text for `iptables-restore --noflush` on a node without them.
    pub rules: BTreeMap<String, String>,
    /// Health check ports.
    pub health_ports: Vec<HealthPortDocument>,
    /// Kernel settings.
    pub sysctls: BTreeMap<Arc<str>, Arc<str>>,
}

/// A virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VirtualServerDocument {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// The scheduler.
    pub scheduler: Arc<str>,
    /// Flags as `ipvsadm` names them.
    pub flags: Vec<String>,
    /// Client affinity in seconds.
    pub timeout: Option<u32>,
    /// Its real servers by address and port.
    pub real_servers: Vec<RealServerDocument>,
}

/// A real server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RealServerDocument {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The weight.
    pub weight: u32,
}

/// A set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetDocument {
    /// Its type as `ipset` spells it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its entries as `ipset save` spells them.
    pub entries: Vec<String>,
}

/// A health check port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthPortDocument {
    /// The port.
    pub port: u16,
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
}

impl From<&Desired> for DesiredDocument {
    fn from(desired: &Desired) -> Self {
        let set = |(id, set): (&crate::SetId, &crate::DesiredSet)| {
            let document = SetDocument {
                kind: id.role.kind().as_str().into(),
                entries: set.entries.iter().map(ToString::to_string).collect(),
            };
            (id.to_string(), document)
        };
        let rules = |rules: &crate::rules::Rules| {
            let text = restore_text(rules, &ObservedRules::default()).unwrap_or_default();
            (rules.family.to_string(), text)
        };
        let mut policy_rules = BTreeMap::<String, Vec<String>>::new();
        for rule in &desired.policy {
            let of_family = policy_rules.entry(rule.family.to_string()).or_default();
            of_family.push(rule.to_string());
        }
        let port = |port: &crate::HealthPort| HealthPortDocument {
            port: port.port,
            namespace: port.service.namespace.clone(),
            name: port.service.name.clone(),
        };
        Self {
            virtual_servers: desired.virtual_servers.iter().map(virtual_server).collect(),
            sets: desired.sets.iter().map(set).collect(),
            routes: desired
                .routes
                .iter()
                .map(|route| route.text(&desired.device))
                .collect(),
            policy_rules,
            rules: desired.rules.iter().map(rules).collect(),
            health_ports: desired.health_ports.iter().map(port).collect(),
            sysctls: desired.sysctls.clone(),
        }
    }
}

fn virtual_server((key, server): (&VirtualServerKey, &VirtualServer)) -> VirtualServerDocument {
    let names = [
        (flags::PERSISTENT, "persistent"),
        (flags::MH_PORT, "mh-port"),
    ];
    let persistent = server.flags & flags::PERSISTENT != 0;
    VirtualServerDocument {
        address: key.address,
        port: key.port,
        protocol: key.protocol,
        scheduler: server.scheduler.clone(),
        flags: names
            .into_iter()
            .filter(|(bit, _)| server.flags & bit != 0)
            .map(|(_, name)| name.to_owned())
            .collect(),
        timeout: persistent.then_some(server.timeout),
        real_servers: server
            .real_servers
            .iter()
            .map(|(backend, weight)| RealServerDocument {
                address: backend.address,
                port: backend.port,
                weight,
            })
            .collect(),
    }
}
