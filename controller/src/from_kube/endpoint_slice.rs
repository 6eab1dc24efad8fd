//! EndpointSlices.
//!
//! An invalid endpoint is left out by itself: a Service without its whole slice would refuse all clients. An invalid
//! field of the slice itself rejects the slice.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1 as discovery;
use portolan_plan::Family;
use portolan_planner::model::{AddressType, Endpoint, EndpointSlice, SliceId, SlicePort};
use portolan_planner::{Reason, is_usable_address};

use super::field::{FieldError, address, label, name, own_names, port, port_name, protocol, value};

/// The label that names a slice's Service (S-54).
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of slices whose Service has no cluster IP (S-3).
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Maximum number of problems reported for one object. A slice may repeat a mistake for a thousand endpoints.
const MAX_REPORTED_PROBLEMS: usize = 8;
/// Maximum number of ports of a slice. A Service has no more.
const MAX_PORTS: usize = 1_000;
/// Maximum number of hints of each kind on an endpoint, as in Kubernetes. Further ones are ignored.
const MAX_HINTS: usize = 8;

/// An EndpointSlice.
///
/// # Errors
/// [`FieldError`] names an invalid field outside of `endpoints`.
pub fn endpoint_slice(object: &discovery::EndpointSlice) -> Result<EndpointSlice, FieldError> {
    let (namespace, own_name) = own_names(&object.metadata)?;
    let labels = object.metadata.labels.as_ref();
    let service = value(labels, SERVICE_NAME).filter(|text| !text.is_empty());
    let service = service.map(|text| name(text, format!("metadata.labels[{SERVICE_NAME}]")));
    let mut slice = EndpointSlice {
        id: SliceId {
            namespace,
            name: own_name,
        },
        service: service.transpose()?,
        generation: object.metadata.generation.unwrap_or(0),
        address_type: address_type(&object.address_type)?,
        ports: Vec::new(),
        endpoints: Vec::new(),
        ignored: Vec::new(),
    };
    // FQDN slices and headless Services are not served, so their endpoints take no memory.
    if slice.address_type == AddressType::Fqdn || value(labels, HEADLESS).is_some() {
        return Ok(slice);
    }
    // A slice without endpoints, of a Service without pods, has no ports either.
    if object.ports.is_some() || object.endpoints.iter().flatten().next().is_some() {
        ports(object.ports.as_deref(), &mut slice)?;
    }
    for (index, given) in object.endpoints.iter().flatten().enumerate() {
        let path = format!("endpoints[{index}]");
        let read = endpoint(given, slice.address_type, &path, &mut slice.ignored);
        slice.endpoints.extend(read);
    }
    shorten(&mut slice.ignored, "endpoints");
    Ok(slice)
}

/// Limits the problems reported for one object, so that those of other objects remain visible.
pub(super) fn shorten(reasons: &mut Vec<Reason>, field: &str) {
    let more = reasons.len().saturating_sub(MAX_REPORTED_PROBLEMS);
    if more > 0 {
        reasons.truncate(MAX_REPORTED_PROBLEMS);
        let problem = format!("{more} more values have no effect, for reasons like these");
        reasons.push(ignored(field.into(), &problem));
    }
}

fn ignored(field: String, problem: &str) -> Reason {
    Reason::Ignored {
        field,
        problem: problem.into(),
    }
}

fn address_type(text: &str) -> Result<AddressType, FieldError> {
    match text {
        "IPv4" => Ok(AddressType::Ipv4),
        "IPv6" => Ok(AddressType::Ipv6),
        "FQDN" => Ok(AddressType::Fqdn),
        _ => {
            let problem = format!("{text:?} is not an address type; write IPv4 or IPv6");
            Err(FieldError::new("addressType", problem))
        }
    }
}

/// Ports without a name or a number are not served (S-9).
fn ports(
    given: Option<&[discovery::EndpointPort]>,
    slice: &mut EndpointSlice,
) -> Result<(), FieldError> {
    let Some(given) = given else {
        let problem = "missing, which means all ports; a proxy needs to know them, so the slice is not served";
        slice.ignored.push(ignored("ports".into(), problem));
        return Ok(());
    };
    let more = given.len().saturating_sub(MAX_PORTS);
    if more > 0 {
        let problem = format!("a slice has at most {MAX_PORTS}; the last {more} are left out");
        slice.ignored.push(ignored("ports".into(), &problem));
    }
    for (index, given) in given.iter().take(MAX_PORTS).enumerate() {
        let path = |field: &str| format!("ports[{index}].{field}");
        let protocol = protocol(given.protocol.as_deref(), path("protocol"))?;
        let Some(own) = given.name.as_deref() else {
            let problem =
                "missing, so the port is left out; write name: \"\" for a port without a name";
            slice.ignored.push(ignored(path("name"), problem));
            continue;
        };
        let Some(number) = given.port.filter(|number| *number != 0) else {
            slice.ignored.push(ignored(
                path("port"),
                "0 or missing, so the port is left out",
            ));
            continue;
        };
        let port = port(number, path("port"))?;
        let name = if own.is_empty() {
            "".into()
        } else {
            port_name(own, path("name"))?
        };
        slice.ports.push(SlicePort {
            name,
            protocol,
            port,
        });
    }
    Ok(())
}

const LEFT_OUT: &str = "the endpoint is left out";

/// An endpoint. Without a usable address, or with an impossible node name, it is left out (S-9). An invalid zone or
/// hint is only ignored.
fn endpoint(
    given: &discovery::Endpoint,
    address_type: AddressType,
    path: &str,
    ignored: &mut Vec<Reason>,
) -> Option<Endpoint> {
    let mut report = |error: FieldError, result: &str| ignored.push(error.with(result).into());
    // Only the first address counts (S-52).
    let first = given.addresses.first();
    let text = first.ok_or_else(|| FieldError::new(format!("{path}.addresses"), "empty"));
    let address =
        text.and_then(|text| address_of(text, address_type, format!("{path}.addresses[0]")));
    let node = present(&given.node_name).map(|text| name(text, format!("{path}.nodeName")));
    let (address, node) = match (address, node.transpose()) {
        (Ok(address), Ok(node)) => (address, node),
        (Err(error), _) | (_, Err(error)) => {
            report(error, LEFT_OUT);
            return None;
        }
    };
    let mut noted = |value: Result<Arc<str>, FieldError>, result: &str| {
        value.map_err(|error| report(error, result)).ok()
    };
    let zone = present(&given.zone).map(|text| label(text, format!("{path}.zone")));
    let zone = zone.and_then(|zone| noted(zone, "the endpoint counts as without a zone"));
    let hints = given.hints.as_ref();
    let nodes = hints.and_then(|hints| hints.for_nodes.as_ref());
    let nodes = nodes.into_iter().flatten().take(MAX_HINTS);
    let nodes = nodes.filter_map(|hint| {
        let field = format!("{path}.hints.forNodes");
        noted(name(&hint.name, field), "the hint has no effect")
    });
    let for_nodes = nodes.collect();
    let zones = hints.and_then(|hints| hints.for_zones.as_ref());
    let zones = zones.into_iter().flatten().take(MAX_HINTS);
    let zones = zones.filter_map(|hint| {
        let field = format!("{path}.hints.forZones");
        noted(label(&hint.name, field), "the hint has no effect")
    });
    let for_zones = zones.collect();
    let condition = |of: fn(&discovery::EndpointConditions) -> Option<bool>| {
        given.conditions.as_ref().and_then(of)
    };
    Some(Endpoint {
        address,
        // Missing conditions mean ready, serving and not terminating (S-40).
        ready: condition(|c| c.ready).unwrap_or(true),
        serving: condition(|c| c.serving).unwrap_or(true),
        terminating: condition(|c| c.terminating).unwrap_or(false),
        node,
        zone,
        for_nodes,
        for_zones,
    })
}

fn present(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn address_of(text: &str, address_type: AddressType, field: String) -> Result<IpAddr, FieldError> {
    let address = address(text, field.as_str())?;
    let expected = match address_type {
        AddressType::Ipv4 => Family::Ipv4,
        AddressType::Ipv6 | AddressType::Fqdn => Family::Ipv6,
    };
    if Family::of(address) != expected {
        let problem = format!(
            "{text} is {}, addressType is {expected}",
            Family::of(address)
        );
        return Err(FieldError::new(field, problem));
    }
    if !is_usable_address(address) {
        let problem = format!("{address} is loopback, link-local, multicast or unspecified");
        return Err(FieldError::new(field, problem));
    }
    Ok(address)
}
