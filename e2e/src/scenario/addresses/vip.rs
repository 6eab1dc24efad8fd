//! A load balancer's address in the order of kube-vip and keepalived: it is added to an interface of a node first and
//! to the status of its Service second, and removed in the same order.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{BRIEF, Checks, Lab, NODE_A, NODE_B, POD_A3, POD_B3, WEB};
use crate::topology::world::Resident;

/// The file of the Service.
const FILE: &str = "vip.yaml";
const DAEMON: &[&str] = &["daemon-of-node-a"];
const OUTSIDE: Resident = Resident::Outside;
const CLIENTS: [Resident; 5] = [OUTSIDE, NODE_A, NODE_B, POD_A3, POD_B3];

/// An address of one family.
struct Address {
    /// As arguments of `ip`.
    family: &'static str,
    prefix: &'static str,
    /// Beginning of the route that the kernel adds for it.
    local: &'static str,
    /// The port of the Service, and one of a daemon of the node.
    service: &'static str,
    daemon: &'static str,
}

const ADDRESSES: [Address; 2] = [
    Address {
        family: "-4",
        prefix: "203.0.113.70/32",
        local: "local 203.0.113.70 dev eth0",
        service: "203.0.113.70:80",
        daemon: "203.0.113.70:9999",
    },
    Address {
        family: "-6",
        prefix: "2001:db8:113::70/128",
        local: "local 2001:db8:113::70 dev eth0",
        service: "[2001:db8:113::70]:80",
        daemon: "[2001:db8:113::70]:9999",
    },
];

fn manifest(has_status: bool) -> String {
    let mut text =
        "apiVersion: v1\nkind: Service\nmetadata: {name: vip, namespace: shop}\nspec:\n  \
                    type: LoadBalancer\n  clusterIP: 10.96.2.70\n  \
                    clusterIPs: [10.96.2.70, \"fd00:10:96::270\"]\n  \
                    ipFamilyPolicy: RequireDualStack\n  ipFamilies: [IPv4, IPv6]\n  ports:\n  \
                    - {name: http, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30070}\n"
            .to_owned();
    if has_status {
        text += "status:\n  loadBalancer:\n    \
                 ingress: [{ip: 203.0.113.70}, {ip: \"2001:db8:113::70\"}]\n";
    }
    for (family, first, second) in [
        ("IPv4", "10.244.1.11", "10.244.2.11"),
        ("IPv6", "fd00:10:244:1::11", "fd00:10:244:2::11"),
    ] {
        text += &format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: vip-{}, \
             namespace: shop, labels: {{kubernetes.io/service-name: vip}}}}\naddressType: {family}\n\
             ports: [{{name: http, protocol: TCP, port: 8080}}]\nendpoints:\n\
             - {{addresses: [\"{first}\"], nodeName: node-a, conditions: {{ready: true}}}}\n\
             - {{addresses: [\"{second}\"], nodeName: node-b, conditions: {{ready: true}}}}\n",
            family.to_lowercase()
        );
    }
    text
}

/// S-214, S-216, S-227.
pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.put(FILE, &manifest(false))?;
    for address in &ADDRESSES {
        let Address { family, prefix, .. } = address;
        let since = Instant::now();
        let flags = if *family == "-6" { " nodad" } else { "" };
        lab.ip(
            NODE_A,
            &format!("{family} address add {prefix} dev eth0{flags}"),
        )?;
        let daemons = lab.soon_answers("a virtual IP", since, OUTSIDE, address.daemon, DAEMON);
        checks.check(
            &format!("{prefix} belongs to the node before a Service has it (S-214)"),
            daemons.and_then(|()| lab.is_unanswered(OUTSIDE, address.service, BRIEF)),
        );
    }
    lab.put(FILE, &manifest(true))?;
    served(lab, checks);
    for address in &ADDRESSES {
        let Address { family, prefix, .. } = address;
        let since = Instant::now();
        lab.ip(NODE_A, &format!("{family} address del {prefix} dev eth0"))?;
        checks.check(
            &format!("{prefix} is served as long as the status has it (S-17)"),
            lab.soon_answers(
                "a virtual IP that went",
                since,
                POD_A3,
                address.service,
                WEB,
            ),
        );
    }
    lab.put(FILE, &manifest(false))?;
    for address in &ADDRESSES {
        checks.check(
            &format!(
                "{} is not served once the status no longer has it (S-214)",
                address.prefix
            ),
            lab.is_unanswered(POD_A3, address.service, BRIEF),
        );
    }
    Ok(())
}

/// The Service has its port on the addresses; the node keeps the others.
fn served(lab: &Lab<'_>, checks: &mut Checks) {
    for address in &ADDRESSES {
        let prefix = address.prefix;
        for from in CLIENTS {
            checks.check(
                &format!(
                    "{} is served at {prefix} once the status has it (S-216)",
                    from.name()
                ),
                lab.answers(from, address.service, WEB),
            );
        }
        checks.check(
            &format!("other ports of {prefix} belong to the node (S-214)"),
            lab.answers(OUTSIDE, address.daemon, DAEMON),
        );
        checks.check(
            &format!("the kernel's route of {prefix} is unchanged (S-227)"),
            route_is_the_kernels(lab, address),
        );
    }
}

fn route_is_the_kernels(lab: &Lab<'_>, address: &Address) -> Result<()> {
    let Address { family, local, .. } = address;
    let routes = lab.ip(NODE_A, &format!("{family} route show table local"))?;
    let found: Vec<_> = routes
        .lines()
        .filter(|line| line.starts_with(local))
        .collect();
    let [line] = found.as_slice() else {
        anyhow::bail!("{local} is not there once: {routes}");
    };
    ensure!(line.contains("proto kernel"), "{line}");
    Ok(())
}
