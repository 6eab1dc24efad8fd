//! External addresses of Services.

use portolan_plan::Policy;
use portolan_planner::model::{External, Object, Service};

use crate::{found, read};

/// A Service with these lines in its spec, and this status.
fn service(spec: &str, status: &str) -> Service {
    let text = format!("spec:\n  clusterIP: 10.96.0.1\n{spec}status: {status}\n");
    let metadata = "name: web, namespace: shop";
    match found(&read("Service\napiVersion: v1", metadata, &text)) {
        Object::Service(service) => service,
        other => panic!("{other:?}"),
    }
}

fn external(spec: &str, status: &str) -> External {
    *service(spec, status).external.unwrap()
}

/// The warnings of a Service.
fn ignored(service: &Service) -> Vec<String> {
    service.ignored.iter().map(ToString::to_string).collect()
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn ingress(entries: &str) -> String {
    format!("{{loadBalancer: {{ingress: [{entries}]}}}}")
}

const PORTS: &str = "  ports: [{port: 80}]\n";
const NODE_PORTS: &str = "  ports: [{port: 80, nodePort: 30080}]\n";
const BALANCER: &str = "  type: LoadBalancer\n";

#[test]
fn most_services_have_nothing_external() {
    assert_eq!(service(PORTS, "{}").external, None);
    let left_over = format!("{PORTS}  externalTrafficPolicy: Local\n");
    assert_eq!(service(&left_over, "{}").external, None, "S-47");
    let host = ingress("{hostname: lb.example.org}");
    let named = service(PORTS, &host);
    assert_eq!((named.external, named.ignored.len()), (None, 0), "S-11");
}

#[test]
fn external_ips_are_read_each_once_and_junk_is_named() {
    // S-8, S-16
    let spec =
        format!("{PORTS}  externalIPs: [203.0.113.7, ' ', web, '2001:DB8::1', 203.0.113.007]\n");
    let service = service(&spec, "{}");
    let external = service.external.clone().unwrap();
    assert_eq!(texts(&external.ips), ["203.0.113.7", "2001:db8::1"]);
    assert_eq!(
        ignored(&service),
        [
            "spec.externalIPs[2]: \"web\" is not an IP address; write one like 10.96.0.10 or fd00::10; it is left out"
        ]
    );
}

#[test]
fn addresses_of_balancers_are_for_nodes_unless_the_balancer_wants_the_traffic() {
    // S-11, S-17
    let status = ingress(
        "{ip: 203.0.113.7}, {ip: 203.0.113.8, ipMode: VIP}, {ip: 203.0.113.9, ipMode: Proxy}, \
         {hostname: lb.example.org}, {ip: 203.0.113.10, ipMode: Tunnel}, {ip: nonsense}",
    );
    let service = service(&format!("{PORTS}{BALANCER}"), &status);
    let external = service.external.clone().unwrap();
    assert_eq!(
        texts(&external.balancer_ips),
        ["203.0.113.7", "203.0.113.8"]
    );
    assert_eq!(
        texts(&external.left_to_balancer),
        ["203.0.113.9", "203.0.113.10"]
    );
    let ignored = ignored(&service);
    assert_eq!(
        ignored[0],
        "status.loadBalancer.ingress[4].ipMode: \"Tunnel\" is not known, so nodes leave 203.0.113.10 to \
         the load balancer; write VIP or Proxy"
    );
    assert!(
        ignored[1].starts_with("status.loadBalancer.ingress[5].ip: \"nonsense\""),
        "{ignored:?}"
    );
    assert_eq!(ignored.len(), 2);
}

#[test]
fn node_ports_belong_to_their_ports_and_a_wrong_one_costs_only_itself() {
    // S-19
    let spec = "  ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 0}, \
                {name: c, port: 82, nodePort: 70000}]\n";
    let service = service(spec, "{}");
    let ports: Vec<_> = service.ports.iter().map(|port| port.node_port).collect();
    assert_eq!(ports, [Some(30080), None, None]);
    assert_eq!(
        ignored(&service),
        [
            "spec.ports[2].nodePort: 70000 is not a port; write one from 1 to 65535; the node port is left out"
        ]
    );
}

#[test]
fn the_external_policy_counts_for_balancers_node_ports_and_external_ips() {
    // S-45, S-47
    let local = "  externalTrafficPolicy: Local\n";
    let policy = |spec: &str, status: &str| external(&format!("{spec}{local}"), status).policy;
    let node_port = format!("{NODE_PORTS}  type: NodePort\n");
    assert_eq!(policy(&node_port, "{}"), Policy::Local);
    let ips = format!("{PORTS}  externalIPs: [203.0.113.7]\n");
    assert_eq!(policy(&ips, "{}"), Policy::Local);
    assert_eq!(
        policy(NODE_PORTS, "{}"),
        Policy::Cluster,
        "left over on type ClusterIP"
    );
    let unknown = service(&format!("{node_port}  externalTrafficPolicy: Zone\n"), "{}");
    assert_eq!(unknown.external.as_ref().unwrap().policy, Policy::Cluster);
    assert_eq!(unknown.ignored.len(), 1);
}

#[test]
fn only_balancers_with_policy_local_have_a_health_check_port() {
    // S-134
    let local = "  externalTrafficPolicy: Local\n";
    let port = "  healthCheckNodePort: 32000\n";
    let of =
        |kind: &str, rest: &str| external(&format!("{NODE_PORTS}{kind}{rest}"), "{}").health_port;
    assert_eq!(of(BALANCER, &format!("{local}{port}")), Some(32000));
    assert_eq!(of(BALANCER, port), None, "policy Cluster");
    assert_eq!(of("  type: NodePort\n", &format!("{local}{port}")), None);
    let none = service(&format!("{PORTS}{BALANCER}{local}"), "{}");
    assert_eq!(
        ignored(&none),
        [
            "spec.healthCheckNodePort: 0 or missing; write a port from 1 to 65535; load balancers cannot \
             probe nodes for endpoints"
        ]
    );
    let alone = external(&format!("{PORTS}{BALANCER}{local}{port}"), "{}");
    assert_eq!(
        alone.health_port,
        Some(32000),
        "it is asked before any address is there"
    );
}

#[test]
fn source_ranges_are_trimmed_and_a_wrong_one_opens_nothing() {
    // S-86, S-88
    let ranges = |list: &str| {
        let spec = format!("{NODE_PORTS}{BALANCER}  loadBalancerSourceRanges: {list}\n");
        let service = service(&spec, "{}");
        let ranges = service.external.clone().unwrap().source_ranges;
        (ranges.map(|ranges| texts(&ranges)), service.ignored.len())
    };
    let some = |texts: &[&str]| Some(texts.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(
        ranges("[' 198.51.100.9/24 ', '', fd00::/8]"),
        (some(&["198.51.100.0/24", "fd00::/8"]), 0)
    );
    assert_eq!(ranges("[198.51.100.0/40]"), (some(&[]), 1));
    assert_eq!(ranges("['', ' ']"), (None, 0));
    assert_eq!(ranges("[]"), (None, 0));
}

/// `count` addresses from 203.0.0.0 on.
fn many_addresses(count: u32) -> Vec<String> {
    let first = u32::from(std::net::Ipv4Addr::new(203, 0, 0, 0));
    let address = |n| std::net::Ipv4Addr::from(first + n).to_string();
    (0..count).map(address).collect()
}

#[test]
fn a_service_has_a_bounded_number_of_external_addresses_times_ports() {
    let ports = "  ports: [{name: a, port: 80}, {name: b, port: 81}]\n";
    let spec = |count| {
        let addresses = many_addresses(count).join(", ");
        format!("{ports}  externalIPs: [{addresses}]\n")
    };
    let most = service(&spec(1_024), "{}");
    assert_eq!(most.ignored, [], "two ports at 1,024 addresses fit");
    let more = service(&spec(1_028), "{}");
    let kept = more.external.clone().unwrap().ips;
    assert_eq!(texts(&kept), many_addresses(1_024));
    assert_eq!(
        ignored(&more),
        [
            "spec.externalIPs: a Service has at most 2048 addresses times ports; the last 4 \
             addresses are left out"
        ]
    );
}

#[test]
fn addresses_of_balancers_take_the_room_before_external_ips() {
    let entries: Vec<_> = many_addresses(2_047)
        .iter()
        .map(|address| format!("{{ip: {address}}}"))
        .collect();
    let spec = format!("{PORTS}{BALANCER}  externalIPs: [198.51.100.1, 198.51.100.2]\n");
    let external = service(&spec, &ingress(&entries.join(", ")))
        .external
        .unwrap();
    assert_eq!(external.balancer_ips.len(), 2_047);
    assert_eq!(texts(&external.ips), ["198.51.100.1"]);
}

#[test]
fn a_service_has_a_bounded_number_of_source_ranges_and_the_rest_opens_nothing() {
    let spec = |count| {
        let ranges = many_addresses(count).join("/32, ");
        format!("{PORTS}{BALANCER}  loadBalancerSourceRanges: [{ranges}/32]\n")
    };
    let ranges = |service: &Service| service.external.as_ref()?.source_ranges.clone();
    let status = ingress("{ip: 198.51.100.7}");
    let most = service(&spec(1_000), &status);
    assert_eq!(most.ignored, []);
    let more = service(&spec(1_001), &status);
    assert_eq!(ranges(&more), ranges(&most), "S-88");
    assert_eq!(
        ignored(&more),
        [
            "spec.loadBalancerSourceRanges: a Service has at most 1000; no client may \
             connect from the others"
        ]
    );
}

/// S-228: each combination costs an entry of a kernel set.
#[test]
fn source_ranges_times_ports_times_addresses_are_limited_and_the_rest_opens_nothing() {
    let ports: Vec<_> = (1..=191)
        .map(|port| format!("{{name: p{port}, port: {port}}}"))
        .collect();
    let ranges = many_addresses(1_000).join("/32, ");
    let spec = format!(
        "  ports: [{}]\n{BALANCER}  loadBalancerSourceRanges: [{ranges}/32]\n",
        ports.join(", ")
    );
    let service = service(&spec, &ingress("{ip: 198.51.100.7}"));
    let kept = service.external.as_ref().unwrap().source_ranges.clone();
    let kept = kept.unwrap();
    assert!(
        kept.len() * 191 <= 65_536 && kept.len() > 300,
        "{}",
        kept.len()
    );
    let first = format!("{}/32", many_addresses(1)[0]);
    assert_eq!(kept[0].to_string(), first);
    let ignored = ignored(&service);
    assert!(ignored[0].contains("are at most 65536"), "{ignored:?}");
}
