//! Decodes plan entries. For any input, the result is a value or an error that names the field. Decoding never
//! panics, and never uses more memory than a small multiple of the input.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::Arc;

use portolan_plan::{
    Backend, BackendList, Entry, EntryKey, ExternalClients, Family, Frontend, FrontendKind, Head,
    HeadPort, ListChoice, ListUse, Local, LocalEndpoint, LocalHealth, NodeEntry, Policy, Protocol,
    ScopeKind, WhenEmpty,
};
use prost::Message as _;

use crate::field::{DecodeError, address, bounded, in_range, name, port, ranges};
use crate::settings;
use crate::wire;

/// Decodes the entry with this key.
///
/// # Errors
/// [`DecodeError`] names the field that cannot be decoded. Unknown fields are not an error.
pub fn decode_entry(key: &EntryKey, bytes: &[u8]) -> Result<Entry, DecodeError> {
    Ok(match key {
        EntryKey::Node => Entry::Node(Arc::new(node(wire::Node::decode(bytes)?)?)),
        EntryKey::Head(_) => Entry::Head(Arc::new(head(wire::Head::decode(bytes)?)?)),
        EntryKey::List(list_key) => {
            let message = wire::BackendList::decode(bytes)?;
            Entry::List(Arc::new(list(&message, list_key.family)?))
        }
        EntryKey::Local(_) => Entry::Local(Arc::new(local(wire::Local::decode(bytes)?)?)),
        EntryKey::Other(_) => return Err(DecodeError::Kind),
    })
}

fn node(node: wire::Node) -> Result<NodeEntry, DecodeError> {
    let addresses = node
        .addresses
        .iter()
        .map(|bytes| address(bytes, "addresses"));
    Ok(NodeEntry {
        name: node.name.into(),
        zone: node.zone.map(Into::into),
        addresses: addresses.collect::<Result<_, _>>()?,
        pod_cidrs: ranges(&node.pod_cidrs, "pod_cidrs")?,
        service_cidrs: ranges(&node.service_cidrs, "service_cidrs")?,
        eligible: node.eligible,
        settings: settings::from_wire(
            node.settings
                .ok_or(DecodeError::Missing { field: "settings" })?,
        )?,
    })
}

fn head(head: wire::Head) -> Result<Head, DecodeError> {
    let scheduler = match &head.scheduler {
        None => None,
        Some(text) => Some(name(text, 15, "scheduler")?.into()),
    };
    Ok(Head {
        boot_critical: head.boot_critical,
        drain_seconds: head.drain_seconds,
        scheduler,
        ports: head
            .ports
            .into_iter()
            .map(head_port)
            .collect::<Result<_, _>>()?,
        source_ranges: ranges(&head.source_ranges, "source_ranges")?,
    })
}

fn head_port(port: wire::HeadPort) -> Result<HeadPort, DecodeError> {
    if let Some(seconds) = port.affinity_seconds {
        in_range(seconds, 1, 86_400, "ports.affinity_seconds")?;
    }
    Ok(HeadPort {
        name: port.name.into(),
        protocol: protocol(port.protocol, "ports.protocol")?,
        frontends: port
            .frontends
            .iter()
            .map(frontend)
            .collect::<Result<_, _>>()?,
        internal: match port.internal {
            Some(internal) => list_use(&internal)?,
            None => {
                return Err(DecodeError::Missing {
                    field: "ports.internal",
                });
            }
        },
        external: port.external.as_ref().map(list_use).transpose()?,
        affinity_seconds: port.affinity_seconds,
    })
}

fn frontend(frontend: &wire::Frontend) -> Result<Frontend, DecodeError> {
    let kind = match wire::FrontendKind::try_from(frontend.kind) {
        Ok(wire::FrontendKind::ClusterIp) => FrontendKind::ClusterIp,
        Ok(wire::FrontendKind::ExternalIp) => FrontendKind::ExternalIp,
        Ok(wire::FrontendKind::LoadBalancer) => FrontendKind::LoadBalancer,
        Ok(wire::FrontendKind::NodePort) => FrontendKind::NodePort,
        Ok(wire::FrontendKind::Unspecified) | Err(_) => {
            return Err(unknown(frontend.kind, "ports.frontends.kind"));
        }
    };
    let field = "ports.frontends.address";
    let address = match kind {
        FrontendKind::NodePort if frontend.address.is_empty() => None,
        FrontendKind::NodePort => {
            return Err(DecodeError::Address {
                field,
                length: frontend.address.len(),
            });
        }
        _ => Some(address(&frontend.address, field)?),
    };
    Ok(Frontend {
        kind,
        address,
        port: port(frontend.port, "ports.frontends.port")?,
    })
}

fn list_use(list: &wire::ListUse) -> Result<ListUse, DecodeError> {
    Ok(ListUse {
        policy: match wire::Policy::try_from(list.policy) {
            Ok(wire::Policy::Cluster) => Policy::Cluster,
            Ok(wire::Policy::Local) => Policy::Local,
            Ok(wire::Policy::Unspecified) | Err(_) => return Err(unknown(list.policy, "policy")),
        },
        ipv4: choice(list.ipv4.as_ref(), "ipv4")?,
        ipv6: choice(list.ipv6.as_ref(), "ipv6")?,
        when_empty: match wire::WhenEmpty::try_from(list.when_empty) {
            Ok(wire::WhenEmpty::Reject) => WhenEmpty::Reject,
            Ok(wire::WhenEmpty::Unspecified) | Err(_) => {
                return Err(unknown(list.when_empty, "when_empty"));
            }
        },
    })
}

fn choice(
    choice: Option<&wire::ListChoice>,
    field: &'static str,
) -> Result<ListChoice, DecodeError> {
    let choice = choice.ok_or(DecodeError::Missing { field })?;
    Ok(ListChoice {
        scope: match wire::ScopeKind::try_from(choice.scope) {
            Ok(wire::ScopeKind::Cluster) => ScopeKind::Cluster,
            Ok(wire::ScopeKind::Zone) => ScopeKind::Zone,
            Ok(wire::ScopeKind::Node) => ScopeKind::Node,
            Ok(wire::ScopeKind::Local) => ScopeKind::Local,
            Ok(wire::ScopeKind::Unspecified) | Err(_) => return Err(unknown(choice.scope, field)),
        },
        external_clients: match wire::ExternalClients::try_from(choice.external_clients) {
            Ok(wire::ExternalClients::Allow) => ExternalClients::Allow,
            Ok(wire::ExternalClients::Drop) => ExternalClients::Drop,
            Ok(wire::ExternalClients::Unspecified) | Err(_) => {
                return Err(unknown(choice.external_clients, field));
            }
        },
    })
}

pub(crate) fn list(list: &wire::BackendList, family: Family) -> Result<BackendList, DecodeError> {
    let size = match family {
        Family::Ipv4 => 4,
        Family::Ipv6 => 16,
    };
    let addresses = list.addresses.chunks_exact(size);
    if !addresses.remainder().is_empty() {
        return Err(DecodeError::Address {
            field: "addresses",
            length: list.addresses.len(),
        });
    }
    let backends = addresses.len();
    let column = |field, values: &[u32], may_be: &[usize]| {
        if may_be.contains(&values.len()) {
            return Ok(());
        }
        Err(DecodeError::Columns {
            field,
            found: values.len(),
            backends,
        })
    };
    column("ports", &list.ports, &[backends, backends.min(1)])?;
    column("weights", &list.weights, &[backends, 0])?;
    let one = |(index, bytes): (usize, &[u8])| {
        let backend_port = list.ports.get(index).or_else(|| list.ports.first());
        let weight = list.weights.get(index).copied().unwrap_or(1);
        Ok(Backend {
            address: address(bytes, "addresses")?,
            port: port(backend_port.copied().unwrap_or(0), "ports")?,
            weight: bounded(weight, u16::MAX.into(), "weights")?,
        })
    };
    addresses.enumerate().map(one).collect()
}

fn local(local: wire::Local) -> Result<Local, DecodeError> {
    let endpoint = |endpoint: wire::LocalEndpoint| {
        Ok::<_, DecodeError>(LocalEndpoint {
            address: address(&endpoint.address, "endpoints.address")?,
            protocol: protocol(endpoint.protocol, "endpoints.protocol")?,
            port: port(endpoint.port, "endpoints.port")?,
        })
    };
    Ok(Local {
        endpoints: local
            .endpoints
            .into_iter()
            .map(endpoint)
            .collect::<Result<_, _>>()?,
        health: match local.health {
            None => None,
            Some(health) => Some(LocalHealth {
                port: port(health.port, "health.port")?,
                ipv4: health.ipv4,
                ipv6: health.ipv6,
            }),
        },
    })
}

fn protocol(number: i32, field: &'static str) -> Result<Protocol, DecodeError> {
    match wire::Protocol::try_from(number) {
        Ok(wire::Protocol::Tcp) => Ok(Protocol::Tcp),
        Ok(wire::Protocol::Udp) => Ok(Protocol::Udp),
        Ok(wire::Protocol::Sctp) => Ok(Protocol::Sctp),
        Ok(wire::Protocol::Unspecified) | Err(_) => Err(unknown(number, field)),
    }
}

fn unknown(number: i32, field: &'static str) -> DecodeError {
    DecodeError::Unknown { field, number }
}
