//! Additional Services beside those of the lab's cluster: dual-stack, each with its own addresses.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Result;

use crate::topology::world::Family;

/// One such Service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extra<'a> {
    /// Which, from 0 to 99.
    pub(super) number: u8,
    /// Further fields, as YAML.
    pub(super) annotations: &'a str,
    /// Its IPv4 endpoints.
    pub(super) endpoints: &'a [&'a str],
}

impl Extra<'_> {
    /// One that endpoints of both nodes serve.
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            annotations: "",
            endpoints: &["10.244.1.11", "10.244.2.12"],
        }
    }

    pub(super) fn manifest(self) -> String {
        let Self {
            number,
            annotations,
            endpoints,
        } = self;
        let last = 100 + number;
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: extra-{number}, namespace: shop, \
             annotations: {{{annotations}}}}}\nspec:\n  \
             clusterIP: 10.96.2.{last}\n  \
             clusterIPs: [10.96.2.{last}, \"fd00:10:96::21{number}\"]\n  \
             ipFamilyPolicy: RequireDualStack\n  ipFamilies: [IPv4, IPv6]\n  ports:\n  \
             - {{name: http, protocol: TCP, port: 80, targetPort: 8080}}\n"
        );
        let families = [
            ("IPv4", endpoints),
            ("IPv6", &["fd00:10:244:1::11", "fd00:10:244:2::12"]),
        ];
        for (family, addresses) in families {
            let name = family.to_lowercase();
            let _: Result<(), std::fmt::Error> = write!(
                text,
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  \
                 {{name: extra-{number}-{name}, namespace: shop, labels: \
                 {{kubernetes.io/service-name: extra-{number}}}}}\naddressType: {family}\nports:\n\
                 - {{name: http, protocol: TCP, port: 8080}}\nendpoints:\n"
            );
            for address in addresses {
                text += &format!("- {{addresses: [\"{address}\"], conditions: {{ready: true}}}}\n");
            }
        }
        text
    }
}

pub(super) fn cluster_ip(number: u8, family: Family) -> Result<SocketAddr> {
    Ok(match family {
        Family::IPv4 => format!("10.96.2.{}:80", 100 + number).parse()?,
        Family::IPv6 => format!("[fd00:10:96::21{number}]:80").parse()?,
    })
}
