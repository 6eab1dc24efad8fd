//! A plan as a table: a block for each Service, a line for each frontend. At most 100 columns wide unless a single
//! name is wider.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use portolan_plan::{
    EndpointDocument, ExternalClients, Family, FrontendDocument, FrontendKind, ListDocument,
    PlanDocument, Policy, PortDocument, ServiceDocument,
};

use super::text::{Style, WIDTH, counted, joined, line, wrap};

/// The plan as a table.
pub(super) fn render(plan: &PlanDocument, colour: bool) -> String {
    let style = Style { colour };
    let mut text = header(plan, &style);
    let columns = Columns::of(plan);
    for service in &plan.services {
        let flags = service_flags(service);
        let name = style.bold(&format!("{}/{}", service.namespace, service.name));
        line(&mut text, &format!("\n{name}{flags}"));
        for port in &service.ports {
            port_lines(&mut text, port, plan, &columns, &style);
        }
    }
    if plan.services.is_empty() {
        line(&mut text, "\nNo Service to serve.");
    }
    if !plan.warnings.is_empty() {
        line(&mut text, &style.yellow("\nWarnings"));
        for warning in &plan.warnings {
            wrap(
                &mut text,
                &format!("{}: {}", warning.object, warning.message),
            );
        }
    }
    text
}

fn header(plan: &PlanDocument, style: &Style) -> String {
    let ports = || plan.services.iter().flat_map(|service| &service.ports);
    let frontends: usize = ports().map(|port| port.frontends.len()).sum();
    let endpoints: usize = ports().map(|port| port.internal.endpoints.len()).sum();
    let zone = plan
        .zone
        .as_deref()
        .map_or("without a zone".to_owned(), |zone| {
            format!("in zone {zone}")
        });
    let eligible = if plan.eligible {
        ""
    } else {
        ", about to be deleted: load balancers should not send traffic to it"
    };
    let mut text = String::new();
    line(
        &mut text,
        &format!(
            "{} {zone}{eligible}",
            style.bold(&format!("Node {}", plan.node))
        ),
    );
    let rows = [
        ("plan", plan.hash.clone()),
        ("addresses", joined(&plan.node_addresses)),
        ("pod ranges", joined(&plan.pod_cidrs)),
        ("service ranges", joined(&plan.service_cidrs)),
        (
            "serves",
            format!(
                "{}, {}, {} ({} on this node)",
                counted(plan.services.len(), "Service"),
                counted(frontends, "frontend"),
                counted(endpoints, "endpoint"),
                plan.local_endpoints.len()
            ),
        ),
    ];
    for (name, value) in rows {
        line(&mut text, &format!("  {name:<15} {value}"));
    }
    text
}

fn service_flags(service: &ServiceDocument) -> String {
    let mut flags = String::new();
    if service.boot_critical {
        flags += "  boot-critical";
    }
    if let Some(seconds) = service.drain_seconds {
        // Writing to a string cannot fail.
        let _ = write!(flags, "  drain {seconds}s");
    }
    flags
}

/// Column widths shared by all Services of a plan.
struct Columns {
    port: usize,
    frontend: usize,
}

impl Columns {
    fn of(plan: &PlanDocument) -> Self {
        let ports = || plan.services.iter().flat_map(|service| &service.ports);
        let widest =
            |widths: &mut dyn Iterator<Item = usize>, most| widths.max().unwrap_or(0).min(most);
        let frontends = || ports().flat_map(|port| &port.frontends);
        Self {
            port: widest(&mut ports().map(|port| port_name(port).len()), 24),
            frontend: widest(
                &mut frontends().map(|frontend| frontend_text(frontend).len()),
                40,
            ),
        }
    }
}

fn port_name(port: &PortDocument) -> String {
    match &*port.name {
        "" => port.protocol.to_string(),
        name => format!("{name}/{}", port.protocol),
    }
}

fn frontend_text(frontend: &FrontendDocument) -> String {
    let place = match frontend.address {
        Some(address) => SocketAddr::new(address, frontend.port).to_string(),
        None => format!("*:{}", frontend.port),
    };
    match frontend.kind {
        FrontendKind::ClusterIp => place,
        kind => format!("{} {place}", kind.as_str()),
    }
}

fn port_lines(
    text: &mut String,
    port: &PortDocument,
    plan: &PlanDocument,
    columns: &Columns,
    style: &Style,
) {
    let mut name = port_name(port);
    for frontend in &port.frontends {
        let list = match (&port.external, frontend.kind) {
            (_, FrontendKind::ClusterIp) | (None, _) => &port.internal,
            (Some(external), _) => external,
        };
        let start = format!(
            "  {name:<port$}  {:<frontend$}  ",
            frontend_text(frontend),
            port = columns.port,
            frontend = columns.frontend
        );
        let room = WIDTH.saturating_sub(start.chars().count());
        let served = served(list, frontend.address, room, style);
        line(text, &format!("{start}{served}"));
        name.clear();
    }
    if port.frontends.is_empty() {
        line(
            text,
            &format!(
                "  {name:<width$}  no address of its own, see the warnings",
                width = columns.port
            ),
        );
    }
    let flags = port_flags(port, plan);
    if !flags.is_empty() {
        line(
            text,
            &format!(
                "  {:<width$}  {}",
                "",
                flags.join("  "),
                width = columns.port
            ),
        );
    }
}

/// The number of endpoints that serve a frontend, and the first of them that fit into `room` columns.
fn served(list: &ListDocument, address: Option<IpAddr>, room: usize, style: &Style) -> String {
    let of_family = |endpoint: &&EndpointDocument| {
        address.is_none_or(|address| Family::of(address) == Family::of(endpoint.address))
    };
    let endpoints: Vec<_> = list.endpoints.iter().filter(of_family).collect();
    if endpoints.is_empty() {
        return style.yellow(match list.policy {
            Policy::Cluster => "(none: refused)",
            Policy::Local => "(none on this node: refused)",
        });
    }
    let mut text = format!("{:>3}  ", endpoints.len());
    for (index, endpoint) in endpoints.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let next = SocketAddr::new(endpoint.address, endpoint.port);
        let next = format!("{separator}{next}");
        // Reserve room for the ellipsis unless this is the last endpoint.
        let reserve = if index + 1 == endpoints.len() { 0 } else { 3 };
        if index > 0 && text.len() + next.len() + reserve > room {
            text.push_str(", …");
            break;
        }
        text.push_str(&next);
    }
    text
}

fn port_flags(port: &PortDocument, plan: &PlanDocument) -> Vec<String> {
    let mut flags = Vec::new();
    if port.scheduler != plan.settings.scheduler {
        flags.push(format!("scheduler {}", port.scheduler));
    }
    if let Some(seconds) = port.affinity_seconds {
        flags.push(format!("affinity {seconds}s"));
    }
    if port.internal.scope != "cluster" || port.internal.policy == Policy::Local {
        flags.push(format!("inside: {}", port.internal.scope));
    }
    if let Some(external) = &port.external {
        let external_clients = match external.external_clients {
            ExternalClients::Allow => "",
            ExternalClients::Drop => ", external clients dropped",
        };
        flags.push(format!("outside: {}{external_clients}", external.scope));
    }
    if !port.source_ranges.is_empty() {
        flags.push(format!("only from {}", joined(&port.source_ranges)));
    }
    flags
}
