//! Converts a difference to its document.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;

use portolan_plan::{ExternalClients, Family, ServiceId, Settings};
use portolan_planner::compare::{
    Clients, Difference, EndpointChange, Extent, Left, NodeDifference, PortFrontend, PortName,
    Presence, Served, ServedBy, ServedChange, ServiceDifference, TermChange, Was,
};
use serde_json::Value;

use super::Question;
use super::document::{
    ChangeKind, DifferenceDocument, EndpointsDocument, ExtentDocument, FieldDocument,
    FrontendsDocument, NodeChangeDocument, PortFamilyDocument, PortFrontendDocument,
    ServedChangeDocument, ServedDocument, ServiceChangeDocument, SomeEndpointsDocument,
    SummaryDocument, TermDocument, ZoneShareDocument,
};

/// Maximum number of endpoints named.
const MAX_NAMED_ENDPOINTS: usize = 10;

const HINTS: &str = "The current topology hints are used: after such a loss the EndpointSlice controller \
    would write others, and zones would share the remaining endpoints differently.";

/// The answer to a question.
pub fn document(question: &Question, difference: &Difference) -> DifferenceDocument {
    let services = difference.services.iter();
    let services: Vec<_> = services.map(|(id, found)| service(id, found)).collect();
    let hinted = services.iter().any(|service| service.hints_in_force);
    let notes = (!question.lost.is_empty() && hinted).then(|| HINTS.to_owned());
    let strings = |names: &std::collections::BTreeSet<std::sync::Arc<str>>| {
        names.iter().map(ToString::to_string).collect()
    };
    DifferenceDocument {
        version: 1,
        diff: question.diff.clone(),
        lost_zones: strings(&question.lost.zones),
        lost_nodes: strings(&question.lost.nodes),
        node: question.node.clone(),
        summary: summary(difference),
        services,
        nodes: difference.nodes.iter().map(node).collect(),
        notes: notes.into_iter().collect(),
    }
}

fn summary(difference: &Difference) -> SummaryDocument {
    let count = |wanted: fn(&&ServiceDifference) -> bool| {
        difference.services.values().filter(wanted).count()
    };
    SummaryDocument {
        services_before: difference.service_count.before,
        services_after: difference.service_count.after,
        nodes_before: difference.node_count.before,
        nodes_after: difference.node_count.after,
        services: difference.services.len(),
        left_with_nothing: count(|service| service.left == Some(Left::WithNothing)),
        left_in_part: count(|service| matches!(service.left, Some(Left::InPart(_)))),
        left_on_some_nodes: count(|service| service.left.is_none() && !service.emptied.is_empty()),
        nodes: extent(&difference.differing),
    }
}

fn extent(extent: &Extent) -> ExtentDocument {
    let zones = extent.zones.iter();
    ExtentDocument {
        count: extent.count,
        of: extent.of,
        zones: zones
            .map(|(zone, share)| ZoneShareDocument {
                zone: zone.as_ref().map(ToString::to_string),
                count: share.count,
                of: share.of,
            })
            .collect(),
        names: extent.names.iter().map(ToString::to_string).collect(),
    }
}

fn kind(presence: Presence) -> ChangeKind {
    match presence {
        Presence::New => ChangeKind::New,
        Presence::Gone => ChangeKind::Gone,
        Presence::Changed => ChangeKind::Changed,
    }
}

fn service(id: &ServiceId, found: &ServiceDifference) -> ServiceChangeDocument {
    let empty_ports = match &found.left {
        Some(Left::InPart(ports)) => ports.iter().map(|(p, f)| port_family(p, *f)).collect(),
        Some(Left::WithNothing) | None => Vec::new(),
    };
    ServiceChangeDocument {
        namespace: id.namespace.to_string(),
        name: id.name.to_string(),
        change: kind(found.presence),
        left_with_nothing: found.left == Some(Left::WithNothing),
        empty_ports,
        emptied: extent(&found.emptied),
        hints_in_force: found.hinted,
        nodes: extent(&found.nodes),
        frontends: FrontendsDocument {
            added: found.frontends_added.iter().map(frontend).collect(),
            removed: found.frontends_removed.iter().map(frontend).collect(),
        },
        endpoints: found.endpoints.iter().map(endpoints).collect(),
        terms: found.terms.iter().map(term).collect(),
        served: found.served.iter().map(served_change).collect(),
        own_endpoints: extent(&found.own),
    }
}

fn port_family(port: &PortName, family: Family) -> PortFamilyDocument {
    PortFamilyDocument {
        port: port.name.to_string(),
        protocol: port.protocol,
        family,
    }
}

fn frontend(frontend: &PortFrontend) -> PortFrontendDocument {
    PortFrontendDocument {
        name: frontend.port.name.to_string(),
        protocol: frontend.port.protocol,
        kind: frontend.frontend.kind,
        address: frontend.frontend.address,
        port: frontend.frontend.port,
    }
}

fn endpoints(change: &EndpointChange) -> EndpointsDocument {
    let some = |endpoints: &[SocketAddr]| SomeEndpointsDocument {
        count: endpoints.len(),
        first: endpoints
            .iter()
            .take(MAX_NAMED_ENDPOINTS)
            .map(ToString::to_string)
            .collect(),
    };
    EndpointsDocument {
        port: port_family(&change.port, change.family),
        before: change.before,
        after: change.after,
        added: some(&change.added),
        removed: some(&change.removed),
    }
}

fn term(change: &TermChange) -> TermDocument {
    TermDocument {
        port: change.port.as_ref().map(|port| port.name.to_string()),
        term: change.term.to_string(),
        before: change.before.clone(),
        after: change.after.clone(),
    }
}

fn served_change(change: &ServedChange) -> ServedChangeDocument {
    ServedChangeDocument {
        port: port_family(&change.port, change.family),
        clients: match change.clients {
            Clients::All => "All",
            Clients::Internal => "Internal",
            Clients::External => "External",
        },
        before: served(&change.before),
        after: served(&change.after),
        nodes: extent(&change.nodes),
    }
}

fn served(served: &Served) -> ServedDocument {
    ServedDocument {
        scope: match &served.by {
            ServedBy::Cluster => "cluster".into(),
            ServedBy::Zone(zone) => format!("zone/{zone}"),
            ServedBy::Node => "node".into(),
            ServedBy::Local => "local".into(),
        },
        endpoints: served.endpoints,
        external_clients: match served.drops_external_clients {
            true => ExternalClients::Drop,
            false => ExternalClients::Allow,
        },
    }
}

fn node(found: &NodeDifference) -> NodeChangeDocument {
    let fields = &found.fields;
    let changed = [
        field("zone", &fields.zone, |zone| {
            zone.as_ref().map(ToString::to_string)
        }),
        field("nodeAddresses", &fields.addresses, |all| joined(all)),
        field("podCIDRs", &fields.pod_cidrs, |all| joined(all)),
        field("serviceCIDRs", &fields.service_cidrs, |all| joined(all)),
        field("eligible", &fields.eligible, |value| {
            Some(value.to_string())
        }),
    ];
    let settings = found.settings.iter().flat_map(settings);
    NodeChangeDocument {
        change: kind(found.presence),
        fields: changed.into_iter().flatten().chain(settings).collect(),
        nodes: extent(&found.nodes),
    }
}

fn field<T>(
    name: &str,
    was: &Option<Was<T>>,
    text: impl Fn(&T) -> Option<String>,
) -> Option<FieldDocument> {
    let was = was.as_ref()?;
    Some(FieldDocument {
        field: name.to_owned(),
        before: text(&was.before),
        after: text(&was.after),
    })
}

fn joined(values: &[impl Display]) -> Option<String> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// The settings that differ, each by its path, without the unchanged ones.
fn settings(was: &Was<Settings>) -> Vec<FieldDocument> {
    let leaves = |settings| {
        let mut leaves = BTreeMap::new();
        // Settings always serialize to JSON: they are read and published that way.
        let value = serde_json::to_value(settings).unwrap_or_default();
        add_leaves("settings", &value, &mut leaves);
        leaves
    };
    let (before, after) = (leaves(&was.before), leaves(&was.after));
    let mut fields: Vec<_> = before.keys().chain(after.keys()).collect();
    fields.sort_unstable();
    fields.dedup();
    let differing = fields
        .into_iter()
        .filter(|path| before.get(*path) != after.get(*path));
    differing
        .map(|path| FieldDocument {
            field: path.clone(),
            before: before.get(path).cloned(),
            after: after.get(path).cloned(),
        })
        .collect()
}

fn add_leaves(path: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                add_leaves(&format!("{path}.{name}"), value, leaves);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(leaves.insert(path.to_owned(), text.clone())),
        Value::Array(values) if values.iter().all(Value::is_string) => {
            let texts = values.iter().filter_map(Value::as_str);
            let text = texts.collect::<Vec<_>>().join(", ");
            leaves.insert(path.to_owned(), text);
        }
        other => drop(leaves.insert(path.to_owned(), other.to_string())),
    }
}
