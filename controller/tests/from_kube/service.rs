//! Services.

use portolan_controller::manifests::FileContents;
use portolan_plan::Policy;
use portolan_planner::model::{NoClusterIp, Object, Service};

use crate::{found, read, refused};

fn read_service(metadata: &str, spec: &str) -> FileContents {
    read(
        "Service\napiVersion: v1",
        &format!("name: web, namespace: shop{metadata}"),
        spec,
    )
}

fn service(spec: &str) -> Service {
    match found(&read_service("", &format!("spec:\n{spec}"))) {
        Object::Service(service) => service,
        other => panic!("{other:?}"),
    }
}

fn refused_service(spec: &str) -> String {
    refused(&read_service("", &format!("spec:\n{spec}")))
}

const PORTS: &str = "  ports: [{port: 80}]\n";

fn cluster_ips(spec: &str) -> Vec<String> {
    service(&format!("{spec}{PORTS}"))
        .cluster_ips
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn headless_services_and_names_have_no_cluster_ip_and_need_no_ports() {
    // S-1
    assert_eq!(
        service("  clusterIP: None\n").cluster_ips,
        [] as [std::net::IpAddr; 0]
    );
    assert_eq!(
        service("  clusterIP: ''\n").cluster_ips,
        [] as [std::net::IpAddr; 0]
    );
    let name =
        service("  type: ExternalName\n  externalName: example.org\n  clusterIP: 10.96.0.1\n");
    assert_eq!(name.cluster_ips, [] as [std::net::IpAddr; 0]);
    assert_eq!(cluster_ips("  clusterIP: 10.96.0.1\n"), ["10.96.0.1"]);
}

/// S-12: annotating a Service in a loop causes no work.
#[test]
fn fields_without_an_effect_on_the_plan_make_no_other_service() {
    let spec = "spec:\n  clusterIP: 10.96.0.1\n  ports: [{port: 80}]\n";
    let of =
        |metadata: &str, more: &str| match found(&read_service(metadata, &format!("{spec}{more}")))
        {
            Object::Service(service) => service,
            other => panic!("{other:?}"),
        };
    let plain = of("", "");
    for metadata in [
        ", annotations: {example.org/touched: '7'}",
        ", labels: {app.kubernetes.io/name: cart}",
        ", resourceVersion: '4711', generation: 3, managedFields: [{manager: kubectl}]",
    ] {
        assert_eq!(of(metadata, ""), plain, "{metadata}");
    }
    for more in [
        "  selector: {app: cart}\n",
        "  allocateLoadBalancerNodePorts: false\n",
        "  sessionAffinity: None\n",
    ] {
        assert_eq!(of("", more), plain, "{more}");
    }
    assert_ne!(of("", "  internalTrafficPolicy: Local\n"), plain);
}

#[test]
fn of_duplicate_ports_the_first_counts_and_the_others_are_served() {
    // S-218
    let ports = |text: &str| {
        let service = service(&format!("  clusterIP: 10.96.0.1\n  ports: [{text}]\n"));
        let ports = service.ports.iter();
        let ports: Vec<_> = ports
            .map(|port| format!("{} {}", port.name, port.port))
            .collect();
        let warnings: Vec<_> = service.ignored.iter().map(ToString::to_string).collect();
        (ports.join(", "), warnings.join("; "))
    };
    let (found, warnings) = ports("{name: a, port: 80}, {name: b, port: 80}, {name: c, port: 443}");
    assert_eq!(found, "a 80, c 443");
    assert!(
        warnings.contains("spec.ports[1].port: 80/TCP is used twice"),
        "{warnings}"
    );
    let (found, warnings) = ports("{name: a, port: 80}, {name: a, port: 81}");
    assert_eq!(found, "a 80");
    assert!(warnings.contains("spec.ports[1].name"), "{warnings}");
    let (found, warnings) = ports("{name: a, port: 80}, {name: b, port: 80, protocol: UDP}");
    assert_eq!((found.as_str(), warnings.as_str()), ("a 80, b 80", ""));
}

#[test]
fn a_service_without_a_cluster_ip_has_a_reason() {
    // S-1
    let why = |spec: &str| service(spec).no_cluster_ip;
    assert_eq!(why("  clusterIP: None\n"), Some(NoClusterIp::Headless));
    assert_eq!(why("  clusterIPs: [None]\n"), Some(NoClusterIp::Headless));
    let name = "  type: ExternalName\n  externalName: example.org\n  clusterIP: None\n";
    assert_eq!(why(name), Some(NoClusterIp::ExternalName));
    assert_eq!(why("  clusterIP: ''\n"), None);
    assert_eq!(why("  ports: [{port: 80}]\n"), None);
    assert_eq!(why("  clusterIP: 10.96.0.1\n  ports: [{port: 80}]\n"), None);
}

#[test]
fn families_and_addresses_belong_together_by_position() {
    // S-6
    let both = "  clusterIPs: [10.96.0.1, 'fd00::1']\n";
    assert_eq!(
        cluster_ips(&format!("{both}  ipFamilies: [IPv4, IPv6]\n")),
        ["10.96.0.1", "fd00::1"]
    );
    assert_eq!(
        cluster_ips(&format!("{both}  ipFamilies: [IPv4]\n")),
        ["10.96.0.1"]
    );
    assert_eq!(
        cluster_ips(both),
        ["10.96.0.1"],
        "without families the first counts alone"
    );
    let short = "  clusterIPs: ['fd00::1']\n  ipFamilies: [IPv6, IPv4]\n";
    assert_eq!(cluster_ips(short), ["fd00::1"]);
    let single = "  clusterIP: 10.96.0.1\n  ipFamilies: [IPv4]\n";
    assert_eq!(cluster_ips(single), ["10.96.0.1"]);
    let crossed = refused_service(&format!("{both}  ipFamilies: [IPv6, IPv4]\n{PORTS}"));
    assert_eq!(
        crossed,
        "spec.clusterIPs[0]: 10.96.0.1 is IPv4, spec.ipFamilies[0] is \"IPv6\""
    );
    let twice = "  clusterIPs: [10.96.0.1, 10.96.0.2]\n  ipFamilies: [IPv4, IPv4]\n";
    assert!(refused_service(&format!("{twice}{PORTS}")).contains("a second IPv4 address"));
}

#[test]
fn ports_are_distinguished_by_name_and_by_number_with_protocol() {
    // S-5
    let ports = |ports: &str| format!("  clusterIP: 10.96.0.1\n  ports: [{ports}]\n");
    let dns = service(&ports(
        "{name: a, port: 53, protocol: UDP}, {name: b, port: 53}",
    ));
    assert_eq!(dns.ports.len(), 2);
    // S-218
    for (twice, field) in [
        (
            "{name: a, port: 53}, {name: a, port: 54}",
            "spec.ports[1].name",
        ),
        ("{port: 53}, {port: 54}", "spec.ports[1].name"),
        (
            "{name: a, port: 53}, {name: b, port: 53}",
            "spec.ports[1].port",
        ),
    ] {
        let service = service(&ports(twice));
        assert_eq!(service.ports.len(), 1, "{twice}");
        assert_eq!(service.ports[0].port, 53, "the first one counts");
        let warning = service.ignored[0].to_string();
        assert!(warning.starts_with(field), "{warning}");
    }
    assert!(refused_service(&ports("{name: a/b, port: 53}")).contains("spec.ports[0].name"));
    assert!(
        refused_service(&ports("{port: 53, protocol: tcp}")).contains("write TCP, UDP or SCTP")
    );
    assert!(refused_service(&ports("{port: -1}")).contains("spec.ports[0].port: -1"));
    // S-111
    assert!(refused_service(&ports("{port: 0}")).contains("spec.ports[0].port"));
    assert!(refused_service(&ports("{name: a}, {name: b}")).contains("every port is 0"));
    let one = service(&ports("{name: a, port: 0}, {name: b, port: 1}"));
    assert_eq!((one.ports.len(), one.ignored.len()), (1, 1));
}

#[test]
fn affinity_lasts_three_hours_by_default() {
    // S-94
    let affinity =
        |more: &str| format!("  clusterIP: 10.96.0.1\n{PORTS}  sessionAffinity: {more}\n");
    let timeout = |seconds| {
        affinity(&format!(
            "ClientIP\n  sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {seconds}}}}}"
        ))
    };
    assert_eq!(service(&affinity("None")).affinity_seconds, None);
    assert_eq!(
        service(&affinity("ClientIP")).affinity_seconds,
        Some(10_800)
    );
    assert_eq!(service(&timeout(1)).affinity_seconds, Some(1));
    assert_eq!(service(&timeout(86_400)).affinity_seconds, Some(86_400));
    for seconds in [0, -1, 86_401] {
        let message = refused_service(&timeout(seconds));
        assert!(message.ends_with("is not between 1 and 86400"), "{message}");
    }
    assert!(refused_service(&affinity("Cookie")).contains("write None or ClientIP"));
}

#[test]
fn an_internal_policy_is_read_and_an_unknown_one_removes_nothing() {
    // S-64
    let policy = |more: &str| {
        let service = service(&format!("  clusterIP: 10.96.0.1\n{PORTS}{more}"));
        let warnings: Vec<_> = service.ignored.iter().map(ToString::to_string).collect();
        (service.internal_policy, warnings)
    };
    assert_eq!(policy(""), (Policy::Cluster, vec![]));
    let text = |text: &str| format!("  internalTrafficPolicy: {text}\n");
    assert_eq!(policy(&text("Cluster")), (Policy::Cluster, vec![]));
    assert_eq!(policy(&text("Local")), (Policy::Local, vec![]));
    let unknown = "spec.internalTrafficPolicy: \"Zone\" is not known, so it counts as Cluster; \
                   write Cluster or Local";
    assert_eq!(
        policy(&text("Zone")),
        (Policy::Cluster, vec![unknown.into()])
    );
}

/// S-101: a tenant's typing mistake does not keep any node from applying its plan.
#[test]
fn a_scheduler_that_no_kernel_has_is_a_warning_and_the_default_is_used() {
    for name in ["fair", "RR", "wlcc"] {
        let metadata = format!(", annotations: {{proxy.portolan.dev/scheduler: {name}}}");
        let spec = format!("spec:\n  clusterIP: 10.96.0.1\n{PORTS}");
        let Object::Service(service) = found(&read_service(&metadata, &spec)) else {
            panic!("no Service")
        };
        assert_eq!(service.scheduler, None);
        let texts: Vec<_> = service.ignored.iter().map(ToString::to_string).collect();
        let wanted = format!(
            "metadata.annotations[proxy.portolan.dev/scheduler]: {name:?} is not a scheduler of IPVS; \
             known are rr, wrr, lc, wlc, lblc, lblcr, sh, dh, sed, nq, mh, fo, ovf, twos"
        );
        assert_eq!(texts, [wanted]);
    }
}

/// S-104: the kernel takes 15 characters. One short warning, and the Service stays.
#[test]
fn a_scheduler_annotation_of_300_characters_is_one_short_warning() {
    let long = "x".repeat(300);
    let metadata = format!(", annotations: {{proxy.portolan.dev/scheduler: {long}}}");
    let spec = format!("spec:\n  clusterIP: 10.96.0.1\n{PORTS}");
    let Object::Service(service) = found(&read_service(&metadata, &spec)) else {
        panic!("no Service")
    };
    assert_eq!(service.scheduler, None);
    let [warning] = &service.ignored[..] else {
        panic!("{:?}", service.ignored)
    };
    let text = warning.to_string();
    assert!(
        text.starts_with("metadata.annotations[proxy.portolan.dev/scheduler]: \"xxx"),
        "{text}"
    );
    assert!(
        text.ends_with("is not 1 to 15 letters, digits, '-', '_', '.' and '@'"),
        "{text}"
    );
    assert!(text.len() < 250, "{text}");
}

#[test]
fn labels_annotations_and_age_of_a_service_are_read() {
    let metadata = ", creationTimestamp: '1970-01-02T00:00:00Z', \
                    labels: {service.kubernetes.io/service-proxy-name: '', k8s-app: kube-dns}, \
                    annotations: {proxy.portolan.dev/drain: never, proxy.portolan.dev/boot-critical: 'true'}";
    let spec = format!("spec:\n  clusterIP: 10.96.0.1\n{PORTS}");
    let Object::Service(service) = found(&read_service(metadata, &spec)) else {
        panic!("no Service")
    };
    assert_eq!(service.created, Some(86_400));
    assert_eq!(
        service.proxy_name.as_deref(),
        Some(""),
        "S-2: an empty label is one too"
    );
    assert_eq!(service.app.as_deref(), Some("kube-dns"));
    assert!(service.boot_critical);
    assert_eq!((service.drain_seconds, service.ignored.len()), (None, 1));
}

#[test]
fn a_service_has_a_bounded_number_of_ports() {
    let spec = |count: u32| {
        let port = |n| format!("{{name: p{n}, port: {}}}", n + 1);
        let ports: Vec<_> = (0..count).map(port).collect();
        format!("  clusterIP: 10.96.0.1\n  ports: [{}]\n", ports.join(", "))
    };
    assert_eq!(service(&spec(1_000)).ignored, []);
    let more = service(&spec(1_003));
    assert_eq!(more.ports.len(), 1_000);
    let ignored: Vec<_> = more.ignored.iter().map(ToString::to_string).collect();
    assert_eq!(
        ignored,
        ["spec.ports: a Service has at most 1000; the last 3 are left out"]
    );
}
