//! EndpointSlices.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1 as discovery;
use portolan_plan::Family;
use portolan_planner::Reason;
use portolan_planner::model::{AddressType, Endpoint, EndpointSlice, SliceId, SlicePort};

use super::field::{FieldError, address, label, name, own_names, port, protocol, value};

/// The label that names a slice's Service (S-54).
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of slices whose Service has no cluster IP (S-3).
const HEADLESS: &str = "service.kubernetes.io/headless";

/// An EndpointSlice.
///
/// # Errors
/// [`FieldError`] names the field that makes no sense.
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
    // Nobody answers for names or for a headless Service, so their endpoints take no memory.
    if slice.address_type == AddressType::Fqdn || value(labels, HEADLESS).is_some() {
        return Ok(slice);
    }
    // A slice without endpoints, of a Service that has no pods, says nothing about ports either.
    if object.ports.is_some() || object.endpoints.iter().flatten().next().is_some() {
        ports(object.ports.as_deref(), &mut slice)?;
    }
    for (index, given) in object.endpoints.iter().flatten().enumerate() {
        let path = format!("endpoints[{index}]");
        match endpoint(given, slice.address_type, &path)? {
            Some(endpoint) => slice.endpoints.push(endpoint),
            None => slice.ignored.push(ignored(
                path + ".addresses",
                "empty, so the endpoint is left out",
            )),
        }
    }
    Ok(slice)
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
            let problem = format!("{text:?} is no address type; write IPv4 or IPv6");
            Err(FieldError::new("addressType", problem))
        }
    }
}

/// Ports without a name or a number serve nobody (S-9).
fn ports(
    given: Option<&[discovery::EndpointPort]>,
    slice: &mut EndpointSlice,
) -> Result<(), FieldError> {
    let Some(given) = given else {
        let problem = "missing, which means all ports; a proxy needs to know them, so the slice serves nobody";
        slice.ignored.push(ignored("ports".into(), problem));
        return Ok(());
    };
    for (index, given) in given.iter().enumerate() {
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
            name(own, path("name"))?
        };
        slice.ports.push(SlicePort {
            name,
            protocol,
            port,
        });
    }
    Ok(())
}

/// An endpoint; `None` without an address (S-9).
fn endpoint(
    given: &discovery::Endpoint,
    address_type: AddressType,
    path: &str,
) -> Result<Option<Endpoint>, FieldError> {
    // Only the first address counts (S-52).
    let Some(text) = given.addresses.first() else {
        return Ok(None);
    };
    let address = endpoint_address(text, address_type, format!("{path}.addresses[0]"))?;
    let conditions = given.conditions.as_ref();
    let hints = given.hints.as_ref();
    let nodes = hints
        .and_then(|hints| hints.for_nodes.as_ref())
        .into_iter()
        .flatten();
    let zones = hints
        .and_then(|hints| hints.for_zones.as_ref())
        .into_iter()
        .flatten();
    let present = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Ok(Some(Endpoint {
        address,
        // What is not said is ready, serving, and not terminating (S-40).
        ready: conditions
            .and_then(|conditions| conditions.ready)
            .unwrap_or(true),
        serving: conditions
            .and_then(|conditions| conditions.serving)
            .unwrap_or(true),
        terminating: conditions
            .and_then(|conditions| conditions.terminating)
            .unwrap_or(false),
        node: present(&given.node_name)
            .map(|text| name(&text, format!("{path}.nodeName")))
            .transpose()?,
        zone: present(&given.zone)
            .map(|text| label(&text, format!("{path}.zone")))
            .transpose()?,
        for_nodes: nodes
            .map(|node| name(&node.name, format!("{path}.hints.forNodes")))
            .collect::<Result<Vec<Arc<str>>, _>>()?,
        for_zones: zones
            .map(|zone| label(&zone.name, format!("{path}.hints.forZones")))
            .collect::<Result<Vec<Arc<str>>, _>>()?,
    }))
}

fn endpoint_address(
    text: &str,
    address_type: AddressType,
    field: String,
) -> Result<IpAddr, FieldError> {
    let address = address(text, field.as_str())?;
    let expected = match address_type {
        AddressType::Ipv4 => Family::Ipv4,
        AddressType::Ipv6 | AddressType::Fqdn => Family::Ipv6,
    };
    if Family::of(address) != expected {
        let problem = format!(
            "{text} is {}, addressType says {expected}",
            Family::of(address)
        );
        return Err(FieldError::new(field, problem));
    }
    Ok(address)
}
