//! Services.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use portolan_plan::{Family, Policy, ServiceId};
use portolan_planner::Reason;
use portolan_planner::model::{NoClusterIp, Service, ServicePort};

use super::annotations::Annotations;
use super::endpoint_slice::shorten;
use super::external::external;
use super::field::{FieldError, address, bounded, own_names, port, port_name, protocol, value};

/// The label that gives a Service to another proxy (S-2).
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// The label that identifies the cluster's DNS.
const APP: &str = "k8s-app";

/// A Service.
///
/// # Errors
/// [`FieldError`] names the invalid field.
pub fn service(object: &core::Service) -> Result<Service, FieldError> {
    let metadata = &object.metadata;
    let (namespace, own_name) = own_names(metadata)?;
    let Some(spec) = &object.spec else {
        return Err(FieldError::new("spec", "missing; a Service needs one"));
    };
    let labels = metadata.labels.as_ref();
    let annotations = Annotations::read(metadata.annotations.iter().flatten());
    let mut service = Service {
        id: ServiceId::new(namespace, own_name),
        created: metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0.as_second()),
        cluster_ips: cluster_ips(spec)?,
        no_cluster_ip: no_cluster_ip(spec),
        proxy_name: value(labels, PROXY_NAME).map(Arc::from),
        app: value(labels, APP).map(Arc::from),
        ports: Vec::new(),
        internal_policy: Policy::Cluster,
        affinity_seconds: affinity(spec)?,
        boot_critical: annotations.boot_critical,
        scheduler: annotations.scheduler,
        drain_seconds: annotations.drain_seconds,
        external: None,
        ignored: annotations.ignored,
    };
    // A Service without a cluster IP is never planned and may lack ports (S-1).
    if !service.cluster_ips.is_empty() {
        ports(spec, &mut service)?;
        internal_policy(spec, &mut service);
        let (external, ignored) = external(object, spec, &service);
        service.external = external.map(Box::new);
        service.ignored.extend(ignored);
        shorten(&mut service.ignored, "spec");
    }
    Ok(service)
}

/// Why it has no cluster IP, if it declares that.
fn no_cluster_ip(spec: &core::ServiceSpec) -> Option<NoClusterIp> {
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some(NoClusterIp::ExternalName);
    }
    let texts = texts(spec);
    let headless = texts.iter().all(|(_, text)| *text == "None") && !texts.is_empty();
    headless.then_some(NoClusterIp::Headless)
}

/// The cluster IPs, matched with the families by position. Without families, the first address alone counts (S-6).
fn cluster_ips(spec: &core::ServiceSpec) -> Result<Vec<IpAddr>, FieldError> {
    let texts = texts(spec);
    let none = |text: &str| text.is_empty() || text == "None";
    if spec.type_.as_deref() == Some("ExternalName") || texts.iter().all(|(_, text)| none(text)) {
        return Ok(Vec::new());
    }
    let mut found: Vec<IpAddr> = Vec::new();
    for (index, (field, text)) in texts.iter().enumerate() {
        let address = address(text, field)?;
        let family = Family::of(address);
        if let Some(families) = spec
            .ip_families
            .as_ref()
            .filter(|families| !families.is_empty())
        {
            // An address without a family is about to be removed.
            let Some(wanted) = families.get(index) else {
                break;
            };
            if wanted != family.as_str() {
                let problem = format!("{text} is {family}, spec.ipFamilies[{index}] is {wanted:?}");
                return Err(FieldError::new(field, problem));
            }
        } else if index > 0 {
            break;
        }
        if found.iter().any(|other| Family::of(*other) == family) {
            let problem = format!("a second {family} address; there is one for each family");
            return Err(FieldError::new(field, problem));
        }
        found.push(address);
    }
    Ok(found)
}

/// The cluster IPs as written, with their fields. The API server keeps `clusterIP` equal to the first of
/// `clusterIPs`; manual manifests often have only one of the two.
fn texts(spec: &core::ServiceSpec) -> Vec<(String, &str)> {
    match spec.cluster_ips.as_deref() {
        Some(all) if !all.is_empty() => {
            let field = |index| format!("spec.clusterIPs[{index}]");
            all.iter()
                .enumerate()
                .map(|(index, text)| (field(index), text.as_str()))
                .collect()
        }
        _ => spec
            .cluster_ip
            .iter()
            .map(|text| ("spec.clusterIP".to_owned(), text.as_str()))
            .collect(),
    }
}

/// Maximum number of ports of a Service.
const MAX_PORTS: usize = 1_000;

fn ports(spec: &core::ServiceSpec, service: &mut Service) -> Result<(), FieldError> {
    let given = spec.ports.as_deref().unwrap_or_default();
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let more = given.len().saturating_sub(MAX_PORTS);
    if more > 0 {
        let problem = format!("a Service has at most {MAX_PORTS}; the last {more} are left out");
        service
            .ignored
            .push(FieldError::new("spec.ports", problem).into());
    }
    for (index, given) in given.iter().take(MAX_PORTS).enumerate() {
        let path = |field: &str| format!("spec.ports[{index}].{field}");
        let own = match given.name.as_deref() {
            None | Some("") => Arc::from(""),
            Some(text) => port_name(text, path("name"))?,
        };
        let protocol = protocol(given.protocol.as_deref(), path("protocol"))?;
        let number = match port(given.port, path("port")) {
            Err(error) if given.port == 0 => {
                // Port 0 would mean all ports to the kernel (S-111).
                service.ignored.push(error.into());
                continue;
            }
            number => number?,
        };
        // Old objects may have duplicate ports, which the API server accepted then: the first one counts (S-218).
        if !names.insert(own.clone()) {
            let problem =
                format!("{own:?} is used twice; this port is left out, give it another name");
            service
                .ignored
                .push(FieldError::new(path("name"), problem).into());
            continue;
        }
        if !numbers.insert((protocol, number)) {
            let problem = format!("{number}/{protocol} is used twice; this port is left out");
            service
                .ignored
                .push(FieldError::new(path("port"), problem).into());
            continue;
        }
        service.ports.push(ServicePort {
            name: own,
            protocol,
            port: number,
            node_port: node_port(given.node_port, path("nodePort"), &mut service.ignored),
        });
    }
    match (service.ports.is_empty(), given.len()) {
        (false, _) => Ok(()),
        (true, 0) => {
            let problem = "missing or empty; a Service with a cluster IP needs a port to answer on";
            Err(FieldError::new("spec.ports", problem))
        }
        (true, 1) => port(0, "spec.ports[0].port").map(drop),
        (true, _) => Err(FieldError::new(
            "spec.ports",
            "every port is 0; write ports from 1 to 65535",
        )),
    }
}

/// The node port; 0 if missing or not allocated (S-19). An invalid one is ignored.
fn node_port(number: Option<i32>, field: String, ignored: &mut Vec<Reason>) -> Option<u16> {
    let number = number.filter(|number| *number != 0)?;
    match port(number, field) {
        Ok(number) => Some(number),
        Err(error) => {
            ignored.push(error.with("the node port is left out").into());
            None
        }
    }
}

fn internal_policy(spec: &core::ServiceSpec, service: &mut Service) {
    let text = spec.internal_traffic_policy.as_deref();
    match policy(text, "spec.internalTrafficPolicy") {
        Ok(policy) => service.internal_policy = policy,
        Err(error) => service.ignored.push(error.into()),
    }
}

/// A traffic policy. An unknown one does not remove the Service.
pub(super) fn policy(text: Option<&str>, field: &str) -> Result<Policy, FieldError> {
    match text {
        None | Some("" | "Cluster") => Ok(Policy::Cluster),
        Some("Local") => Ok(Policy::Local),
        Some(text) => {
            let problem =
                format!("{text:?} is not known, so it counts as Cluster; write Cluster or Local");
            Err(FieldError::new(field, problem))
        }
    }
}

/// The API's default for `timeoutSeconds` of session affinity, in seconds (S-94).
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

fn affinity(spec: &core::ServiceSpec) -> Result<Option<u32>, FieldError> {
    match spec.session_affinity.as_deref() {
        None | Some("" | "None") => Ok(None),
        Some("ClientIP") => {
            let config = spec.session_affinity_config.as_ref();
            let seconds = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
            let seconds = seconds.unwrap_or(DEFAULT_AFFINITY_SECONDS);
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            Ok(Some(bounded(seconds, 1, 86_400, field)?.unsigned_abs()))
        }
        Some(text) => {
            let problem = format!("{text:?} is not known; write None or ClientIP");
            Err(FieldError::new("spec.sessionAffinity", problem))
        }
    }
}
