//! The virtual servers of a node's kernel beside its plan: each with its Service.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, ensure};
use portolan_plan::PlanDocument;

use super::pod_at;
use crate::checks::Checks;
use crate::cluster::Cluster;
use crate::console::{Console, Table};
use crate::topology::world::Node;
use crate::witness::VirtualServer;

/// Prints the virtual servers of a node and checks that each belongs to a Service of its plan and
/// every frontend of the plan has one.
pub(super) fn show(
    console: Console,
    checks: &mut Checks,
    cluster: &Cluster,
    node: Node,
) -> Result<()> {
    let services = services(&cluster.plan(node, "json")?)?;
    let servers = cluster.virtual_servers(node)?;
    let mut table = Table::new(["VIRTUAL SERVER", "SERVICE", "REAL SERVERS (weight)"]);
    for (key, backends) in &servers {
        let reals: Vec<_> = backends
            .iter()
            .map(|(address, weight)| format!("{}:{} ({weight})", pod_at(*address), address.port()))
            .collect();
        table.row([
            format!("{} {}", key.protocol, key.address),
            services
                .get(key)
                .cloned()
                .unwrap_or_else(|| "no Service".to_owned()),
            reals.join(" "),
        ]);
    }
    console.line(&format!("{}:", node.name()));
    console.table(&table);
    checks.check(
        &format!(
            "{}: one virtual server for each frontend of the plan",
            node.name()
        ),
        {
            let same = servers.keys().eq(services.keys());
            if same {
                Ok(())
            } else {
                Err(anyhow!("{} and {}", servers.len(), services.len()))
            }
        },
    );
    Ok(())
}

/// The Service behind every frontend of a plan.
fn services(plan: &str) -> Result<BTreeMap<VirtualServer, String>> {
    let plan: PlanDocument = serde_json::from_str(plan).context("read the plan as JSON")?;
    let mut services = BTreeMap::new();
    for service in &plan.services {
        for port in &service.ports {
            for frontend in &port.frontends {
                let address = frontend.address.context("the demo has no node ports")?;
                let address = SocketAddr::new(address, frontend.port);
                let key = VirtualServer {
                    protocol: port.protocol.to_string(),
                    address,
                };
                let name = format!("{}/{}:{}", service.namespace, service.name, port.name);
                let other = services.insert(key, name);
                ensure!(other.is_none(), "two Services answer at {address}");
            }
        }
    }
    Ok(services)
}
