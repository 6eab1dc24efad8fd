//! The endpoints that new connections of a client in a zone must reach, computed from the slices
//! that Kubernetes wrote for one Service, one port and one family, independently of the programs
//! under test. Pure. Covers policy Cluster without hints for nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// Ready endpoints: those hinted for the zone if every ready one has hints for zones and one of them
/// names this zone (S-59), else all (S-60). What cannot be read is left out.
pub(super) fn endpoints<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
    zone: Option<&str>,
) -> BTreeSet<SocketAddr> {
    let ready: Vec<(Vec<SocketAddr>, Vec<&str>)> = slices
        .flat_map(|slice| {
            let ready = slice.endpoints.iter().flatten().filter(is_ready);
            ready.map(|endpoint| (addresses(slice, endpoint), zones(endpoint)))
        })
        .collect();
    let hinted = ready.iter().all(|(_, zones)| !zones.is_empty());
    let named = |zones: &[&str]| zone.is_some_and(|zone| zones.contains(&zone));
    let choose = hinted && ready.iter().any(|(_, zones)| named(zones));
    let chosen = ready
        .iter()
        .filter(|(_, zones)| !choose || named(zones))
        .flat_map(|(addresses, _)| addresses);
    chosen.copied().collect()
}

/// No condition means ready.
fn is_ready(endpoint: &&Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|some| some.ready).unwrap_or(true)
}

fn zones(endpoint: &Endpoint) -> Vec<&str> {
    let hints = endpoint.hints.as_ref();
    let zones = hints.and_then(|hints| hints.for_zones.as_deref());
    let zones = zones.unwrap_or_default().iter();
    zones.map(|zone| zone.name.as_str()).collect()
}

fn addresses(slice: &EndpointSlice, endpoint: &Endpoint) -> Vec<SocketAddr> {
    let ports = slice.ports.iter().flatten();
    let ports = ports.filter_map(|port| u16::try_from(port.port?).ok());
    ports
        .flat_map(|port| {
            let addresses = endpoint.addresses.iter();
            addresses.filter_map(move |ip| Some(SocketAddr::new(ip.parse().ok()?, port)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A slice of endpoints given by address, readiness and the zones that they are hinted for.
    fn slice(endpoints: &[(&str, Option<bool>, &[&str])]) -> EndpointSlice {
        let endpoint = |(address, ready, zones): &(&str, Option<bool>, &[&str])| {
            let zones: Vec<Value> = zones.iter().map(|zone| json!({"name": zone})).collect();
            let hints = (!zones.is_empty()).then(|| json!({"forZones": zones}));
            json!({"addresses": [address], "conditions": {"ready": ready}, "hints": hints})
        };
        serde_json::from_value(json!({
            "metadata": {"name": "web-1"}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080}],
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    fn in_zone(slices: &[EndpointSlice], zone: Option<&str>) -> Vec<String> {
        let found = endpoints(slices.iter(), zone);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hints_choose_when_every_ready_endpoint_has_some_and_one_names_the_zone() {
        let slices = [
            slice(&[("10.0.0.1", Some(true), &["one"])]),
            slice(&[("10.0.0.2", None, &["two", "three"])]),
        ];
        assert_eq!(in_zone(&slices, Some("one")), ["10.0.0.1:8080"], "S-59");
        assert_eq!(in_zone(&slices, Some("three")), ["10.0.0.2:8080"], "S-59");
    }

    #[test]
    fn all_ready_endpoints_are_used_where_no_hint_names_the_zone() {
        let all = ["10.0.0.1:8080", "10.0.0.2:8080"];
        let slices = [slice(&[
            ("10.0.0.1", Some(true), &["one"]),
            ("10.0.0.2", Some(true), &["one"]),
        ])];
        assert_eq!(in_zone(&slices, Some("two")), all, "S-60");
        assert_eq!(in_zone(&slices, None), all, "S-60: a node without a zone");
    }

    #[test]
    fn one_ready_endpoint_without_hints_turns_them_off_and_an_unready_one_does_not() {
        let hinted = ("10.0.0.1", Some(true), &["one"][..]);
        let slices = [slice(&[hinted, ("10.0.0.2", Some(true), &[])])];
        let all = ["10.0.0.1:8080", "10.0.0.2:8080"];
        assert_eq!(in_zone(&slices, Some("one")), all, "S-57");
        let other = ("10.0.0.3", Some(true), &["two"][..]);
        let slices = [slice(&[hinted, other, ("10.0.0.2", Some(false), &[])])];
        assert_eq!(in_zone(&slices, Some("one")), ["10.0.0.1:8080"], "S-57");
    }

    #[test]
    fn no_endpoint_is_wanted_if_none_is_ready() {
        let slices = [slice(&[("10.0.0.1", Some(false), &["one"])])];
        assert!(in_zone(&slices, Some("one")).is_empty());
        assert!(in_zone(&[], None).is_empty());
    }
}
