//! Nodes and ServiceCIDRs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::networking::v1 as networking;
use portolan_planner::Reason;
use portolan_planner::model::{Node, ServiceCidr};

use super::external::distinct;
use super::field::{FieldError, address, cidr, label, own_name, value};

/// The label that names a node's zone (S-62).
const ZONE: &str = "topology.kubernetes.io/zone";
/// The taint of nodes that the autoscaler is about to delete (S-149).
const SCALED_AWAY: &str = "ToBeDeletedByClusterAutoscaler";
/// Maximum number of addresses of a node.
const MAX_ADDRESSES: usize = 64;
/// Address types that packets can have, in order of preference.
const KINDS: [&str; 2] = ["InternalIP", "ExternalIP"];
/// The problem of a Node without such an address (S-202).
const NO_ADDRESS: &str = "neither an InternalIP nor an ExternalIP; the node has no address for node \
                          ports and its own connections, check its kubelet and cloud provider";

/// A Node. Invalid fields are ignored, since a node without a plan would serve no traffic.
///
/// # Errors
/// [`FieldError`] if it has no name.
pub fn node(object: &core::Node) -> Result<Node, FieldError> {
    let mut ignored = Vec::new();
    let zone = value(object.metadata.labels.as_ref(), ZONE).filter(|zone| !zone.is_empty());
    let zone = zone.and_then(|zone| {
        noted(
            label(zone, format!("metadata.labels[{ZONE}]")),
            &mut ignored,
        )
    });
    let taints = object.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    Ok(Node {
        ready: is_ready(object),
        name: own_name(&object.metadata)?,
        zone,
        labels: labels(object),
        addresses: addresses(object, &mut ignored),
        pod_cidrs: pod_cidrs(object, &mut ignored),
        deleted: object.metadata.deletion_timestamp.is_some(),
        scaled_away: taints
            .into_iter()
            .flatten()
            .any(|taint| taint.key == SCALED_AWAY),
        ignored,
    })
}

fn is_ready(object: &core::Node) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn labels(object: &core::Node) -> BTreeMap<Arc<str>, Arc<str>> {
    let labels = object.metadata.labels.iter().flatten();
    labels
        .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
        .collect()
}

fn noted<T>(value: Result<T, FieldError>, ignored: &mut Vec<Reason>) -> Option<T> {
    match value {
        Ok(value) => Some(value),
        Err(error) => {
            ignored.push(error.into());
            None
        }
    }
}

/// Internal addresses, then external ones, without duplicates or host names. The first of a family is the node's
/// primary address, so an external one never precedes an internal one (S-34).
fn addresses(object: &core::Node, ignored: &mut Vec<Reason>) -> Vec<IpAddr> {
    let status = object.status.as_ref();
    let given = status
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default();
    let mut found = Vec::new();
    for kind in KINDS {
        for (index, given) in given
            .iter()
            .enumerate()
            .filter(|(_, given)| given.type_ == kind)
        {
            let field = format!("status.addresses[{index}].address");
            let address = noted(address(&given.address, field), ignored);
            found.extend(address);
        }
    }
    distinct(&mut found);
    let more = found.len().saturating_sub(MAX_ADDRESSES);
    if more > 0 {
        found.truncate(MAX_ADDRESSES);
        ignored.push(Reason::Ignored {
            field: "status.addresses".into(),
            problem: format!("a node has at most {MAX_ADDRESSES}; the last {more} are left out"),
        });
    }
    if !given.iter().any(|given| KINDS.contains(&&*given.type_)) {
        ignored.push(Reason::Ignored {
            field: "status.addresses".into(),
            problem: NO_ADDRESS.into(),
        });
    }
    found
}

fn pod_cidrs(object: &core::Node, ignored: &mut Vec<Reason>) -> Vec<IpNet> {
    let Some(spec) = &object.spec else {
        return Vec::new();
    };
    let all: Vec<_> = match spec.pod_cidrs.as_deref() {
        Some(all) if !all.is_empty() => {
            let field = |index| format!("spec.podCIDRs[{index}]");
            all.iter()
                .enumerate()
                .map(|(index, text)| (field(index), text))
                .collect()
        }
        _ => spec
            .pod_cidr
            .iter()
            .map(|text| ("spec.podCIDR".to_owned(), text))
            .collect(),
    };
    let present = all.into_iter().filter(|(_, text)| !text.is_empty());
    present
        .filter_map(|(field, text)| noted(cidr(text, field), ignored))
        .collect()
}

/// A ServiceCIDR.
///
/// # Errors
/// [`FieldError`] names the invalid range.
pub fn service_cidr(object: &networking::ServiceCIDR) -> Result<ServiceCidr, FieldError> {
    let given = object
        .spec
        .as_ref()
        .and_then(|spec| spec.cidrs.as_ref())
        .into_iter()
        .flatten();
    let read = |(index, text): (usize, &String)| cidr(text, format!("spec.cidrs[{index}]"));
    Ok(ServiceCidr {
        name: own_name(&object.metadata)?,
        cidrs: given.enumerate().map(read).collect::<Result<_, _>>()?,
    })
}
