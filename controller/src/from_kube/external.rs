//! External addresses of a Service. Invalid values are left out, so that the cluster IPs are still served.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use portolan_plan::Policy;
use portolan_planner::Reason;
use portolan_planner::model::{External, Service};

use super::field::{FieldError, address, cidr, port};
use super::service::policy;

/// The external frontends of a Service, `None` if there are none; and the values that have no effect.
pub(super) fn external(
    object: &core::Service,
    spec: &core::ServiceSpec,
    service: &Service,
) -> (Option<External>, Vec<Reason>) {
    let mut reader = Reader::default();
    let ips = spec.external_ips.as_deref().unwrap_or_default();
    for (index, text) in ips.iter().enumerate() {
        let field = format!("spec.externalIPs[{index}]");
        let found = reader.address(text, field);
        reader.external.ips.extend(found);
    }
    reader.ingress(object);
    let is_balancer = spec.type_.as_deref() == Some("LoadBalancer");
    // On other types the field is a leftover without meaning (S-47).
    let has_policy =
        is_balancer || spec.type_.as_deref() == Some("NodePort") || !reader.external.ips.is_empty();
    if has_policy {
        let text = spec.external_traffic_policy.as_deref();
        let policy = reader.noted(policy(text, "spec.externalTrafficPolicy"));
        reader.external.policy = policy.unwrap_or_default();
    }
    if is_balancer && reader.external.policy == Policy::Local {
        reader.health_port(spec.health_check_node_port);
    }
    reader.bound(service.ports.len());
    let Reader {
        mut external,
        mut ignored,
    } = reader;
    let has_node_port = service.ports.iter().any(|port| port.node_port.is_some());
    let balancer = !external.balancer_ips.is_empty() || !external.left_to_balancer.is_empty();
    let is_external =
        balancer || has_node_port || !external.ips.is_empty() || external.health_port.is_some();
    if is_external {
        let ranges = spec.load_balancer_source_ranges.as_deref();
        let guarded = service.ports.len() * external.balancer_ips.len().max(1);
        let most = (MAX_ALLOWED_SOURCES / guarded.max(1)).min(MAX_SOURCE_RANGES);
        external.source_ranges = source_ranges(ranges.unwrap_or_default(), most, &mut ignored);
    }
    (is_external.then_some(external), ignored)
}

/// Maximum product of the external addresses and the ports of a Service. The encoded head then stays small.
const MAX_FRONTENDS: usize = 2_048;
/// Maximum number of source ranges of a Service.
const MAX_SOURCE_RANGES: usize = 1_000;
/// Maximum product of the load balancer addresses, ports and source ranges of a Service: entries of a kernel set.
const MAX_ALLOWED_SOURCES: usize = 65_536;
// At least one range is left for any number of frontends.
const _: () = assert!(MAX_ALLOWED_SOURCES >= MAX_FRONTENDS);

/// Removes duplicates; the order stays.
pub(super) fn distinct(addresses: &mut Vec<IpAddr>) {
    let mut seen = BTreeSet::new();
    addresses.retain(|address| seen.insert(*address));
}

#[derive(Default)]
struct Reader {
    external: External,
    ignored: Vec<Reason>,
}

impl Reader {
    fn noted<T>(&mut self, value: Result<T, FieldError>) -> Option<T> {
        value.map_err(|error| self.ignored.push(error.into())).ok()
    }

    /// Blank texts are ignored silently, other invalid ones with a warning (S-8).
    fn address(&mut self, text: &str, field: String) -> Option<IpAddr> {
        let text = Some(text.trim()).filter(|text| !text.is_empty())?;
        let found = address(text, field).map_err(|error| error.with("it is left out"));
        self.noted(found)
    }

    /// Host names of load balancers are not used (S-11).
    fn ingress(&mut self, object: &core::Service) {
        let status = object.status.as_ref();
        let balancer = status.and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref());
        for (index, given) in ingress.unwrap_or_default().iter().enumerate() {
            let field = format!("status.loadBalancer.ingress[{index}]");
            let text = given.ip.as_deref().unwrap_or_default();
            let Some(address) = self.address(text, format!("{field}.ip")) else {
                continue;
            };
            match given.ip_mode.as_deref() {
                None | Some("" | "VIP") => self.external.balancer_ips.push(address),
                Some("Proxy") => self.external.left_to_balancer.push(address),
                Some(text) => {
                    let problem = format!(
                        "{text:?} is not known, so nodes leave {address} to the load balancer; write VIP or \
                         Proxy"
                    );
                    let error = FieldError::new(format!("{field}.ipMode"), problem);
                    self.ignored.push(error.into());
                    self.external.left_to_balancer.push(address);
                }
            }
        }
    }

    /// Removes addresses beyond the maximum number of frontends of a Service.
    fn bound(&mut self, ports: usize) {
        let mut room = MAX_FRONTENDS / ports.max(1);
        let external = &mut self.external;
        for (field, addresses) in [
            ("status.loadBalancer.ingress", &mut external.balancer_ips),
            ("spec.externalIPs", &mut external.ips),
            (
                "status.loadBalancer.ingress",
                &mut external.left_to_balancer,
            ),
        ] {
            distinct(addresses);
            let more = addresses.len().saturating_sub(room);
            if more > 0 {
                let problem = format!(
                    "a Service has at most {MAX_FRONTENDS} addresses times ports; the last {more} \
                     addresses are left out"
                );
                self.ignored.push(FieldError::new(field, problem).into());
            }
            addresses.truncate(room);
            room -= addresses.len();
        }
    }

    /// Load balancers use the port to find nodes with endpoints (S-134).
    fn health_port(&mut self, number: Option<i32>) {
        let read = port(number.unwrap_or(0), "spec.healthCheckNodePort");
        let result = "load balancers cannot probe nodes for endpoints";
        self.external.health_port = self.noted(read.map_err(|error| error.with(result)));
    }
}

/// `None` without source ranges. Neither an unreadable range nor one beyond `most` admits a client (S-88).
fn source_ranges(texts: &[String], most: usize, ignored: &mut Vec<Reason>) -> Option<Vec<IpNet>> {
    let given = texts.iter().map(|text| text.trim()).enumerate();
    let mut given = given.filter(|(_, text)| !text.is_empty()).peekable();
    given.peek()?;
    let mut ranges = Vec::new();
    for (index, text) in given {
        if ranges.len() == most {
            let problem = if most == MAX_SOURCE_RANGES {
                format!("a Service has at most {most}; no client may connect from the others")
            } else {
                format!(
                    "load balancer addresses times ports times source ranges are at most {MAX_ALLOWED_SOURCES}, so the \
                     first {most} ranges count; no client may connect from the others"
                )
            };
            ignored.push(FieldError::new("spec.loadBalancerSourceRanges", problem).into());
            break;
        }
        match cidr(text, format!("spec.loadBalancerSourceRanges[{index}]")) {
            Ok(range) => ranges.push(range),
            Err(error) => ignored.push(error.with("no client may connect from it").into()),
        }
    }
    Some(ranges)
}
