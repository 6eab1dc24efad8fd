//! The cluster of a node that comes up: Services of which one is needed first, and the settings of the
//! plan on disk.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Result;

use crate::topology::world::Family;

/// The Service that the cluster needs to come up.
pub(super) const FIRST: u8 = 1;
/// One that can wait.
pub(super) const SECOND: u8 = 2;

/// How long a plan on disk is young, and how long a controller is waited for, in seconds.
pub(super) fn settings(max_age: u32, grace: u32) -> String {
    format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec:\n  settings:\n    disk: {{maxAge: {max_age}s, grace: {grace}s}}\n"
    )
}

/// A Service of both families with endpoints on both nodes.
pub(super) fn service(number: u8, boot_critical: bool) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: life-{number}\n  namespace: shop\n  \
         annotations: {{proxy.portolan.dev/boot-critical: \"{boot_critical}\"}}\nspec:\n  \
         clusterIP: 10.96.3.10{number}\n  clusterIPs: [10.96.3.10{number}, \"fd00:10:96::31{number}\"]\n  \
         ipFamilyPolicy: RequireDualStack\n  ipFamilies: [IPv4, IPv6]\n  ports:\n  \
         - {{name: http, protocol: TCP, port: 80, targetPort: 8080}}\n"
    );
    for (family, addresses) in [
        ("IPv4", ["10.244.1.11", "10.244.2.12"]),
        ("IPv6", ["fd00:10:244:1::11", "fd00:10:244:2::12"]),
    ] {
        let name = family.to_lowercase();
        let _: Result<(), std::fmt::Error> = write!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  \
             {{name: life-{number}-{name}, namespace: shop, labels: {{kubernetes.io/service-name: \
             life-{number}}}}}\naddressType: {family}\nports:\n\
             - {{name: http, protocol: TCP, port: 8080}}\nendpoints:\n"
        );
        for address in addresses {
            text += &format!("- {{addresses: [\"{address}\"], conditions: {{ready: true}}}}\n");
        }
    }
    text
}

pub(super) fn cluster_ip(number: u8, family: Family) -> Result<SocketAddr> {
    Ok(match family {
        Family::IPv4 => format!("10.96.3.10{number}:80").parse()?,
        Family::IPv6 => format!("[fd00:10:96::31{number}]:80").parse()?,
    })
}
