//! A difference as a table: first Services left without endpoints, then other Services, then nodes. At most 100
//! columns wide unless a single name is wider.

use portolan_plan::{Family, FrontendKind};

use super::document::{
    ChangeKind, DifferenceDocument, EndpointsDocument, NodeChangeDocument, PortFamilyDocument,
    PortFrontendDocument, ServedChangeDocument, ServiceChangeDocument, SummaryDocument,
    TermDocument,
};
use super::words::{counted, first, nodes, number, served};
use crate::output::text::{Style, hang, line};

/// Maximum number of Services shown besides those left without endpoints, and of groups of changed nodes.
const MAX_ROWS: usize = 100;
/// The column in which values begin.
const INDENT: usize = 19;

/// The difference as a table.
pub(super) fn render(document: &DifferenceDocument, colour: bool) -> String {
    let style = Style { colour };
    let mut text = String::new();
    hang(&mut text, "", 2, &style.bold(&title(document)));
    header(&mut text, document, &style);
    let mut services: Vec<_> = document.services.iter().collect();
    services.sort_by_key(|service| Left::of(service));
    let left = services
        .iter()
        .filter(|service| Left::of(service) < Left::Something);
    let shown = left.count() + MAX_ROWS;
    for service in services.iter().take(shown) {
        block(&mut text, service, &style);
    }
    more(&mut text, services.len(), shown, "Service");
    let changed = document.nodes.iter();
    let changed: Vec<_> = changed
        .filter(|node| node.change == ChangeKind::Changed)
        .collect();
    if !changed.is_empty() {
        line(&mut text, &format!("\n{}", style.bold("Nodes")));
    }
    for change in changed.iter().take(MAX_ROWS) {
        node(&mut text, change);
    }
    more(&mut text, changed.len(), MAX_ROWS, "group of nodes");
    for note in &document.notes {
        line(&mut text, "");
        hang(&mut text, "", 0, note);
    }
    text
}

/// The extent to which a Service is left without endpoints, worst first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    SomePorts,
    SomeNodes,
    Something,
}

impl Left {
    fn of(service: &ServiceChangeDocument) -> Self {
        match service {
            _ if service.left_with_nothing => Self::Nothing,
            _ if !service.empty_ports.is_empty() => Self::SomePorts,
            _ if service.emptied.count > 0 => Self::SomeNodes,
            _ => Self::Something,
        }
    }
}

fn title(document: &DifferenceDocument) -> String {
    let mut title = "What would change".to_owned();
    if let Some(diff) = &document.diff {
        title += &format!(" with {diff}");
    }
    let lost = [
        ("zone", &document.lost_zones),
        ("node", &document.lost_nodes),
    ];
    let lost = lost.iter().filter(|(_, names)| !names.is_empty());
    let lost: Vec<_> = lost
        .map(|(kind, names)| {
            let plural = if names.len() == 1 { "" } else { "s" };
            format!("{kind}{plural} {}", names.join(", "))
        })
        .collect();
    if !lost.is_empty() {
        let comma = if document.diff.is_some() { "," } else { "" };
        title += &format!("{comma} without {}", lost.join(" and "));
    }
    match &document.node {
        Some(node) => format!("{title}, on node {node}"),
        None => title,
    }
}

fn header(text: &mut String, document: &DifferenceDocument, style: &Style) {
    let summary = &document.summary;
    if document.services.is_empty() && document.nodes.is_empty() {
        let services = counted(summary.services_after, "Service");
        let nodes = match &document.node {
            Some(node) => format!("node {node}"),
            None => counted(summary.nodes_after, "node"),
        };
        hang(
            text,
            "  ",
            4,
            &format!("Nothing: {services} on {nodes}, all as they are"),
        );
        return;
    }
    let left = left(summary);
    let left = left.map_or_else(String::new, |left| format!("; {}", style.yellow(&left)));
    hang(text, "  ", 4, &format!("{}{left}", differing(document)));
    for change in &document.nodes {
        let what = match change.change {
            ChangeKind::New => "new",
            ChangeKind::Gone => "gone",
            ChangeKind::Changed => continue,
        };
        hang(text, "  ", 4, &format!("{what}: {}", nodes(&change.nodes)));
    }
}

fn differing(document: &DifferenceDocument) -> String {
    let summary = &document.summary;
    let differ = if summary.services == 1 {
        "differs"
    } else {
        "differ"
    };
    let services = match summary.services {
        0 => "No Service".into(),
        count => counted(count, "Service"),
    };
    let extent = &summary.nodes;
    match (&document.node, extent.of) {
        (_, 0) => format!("{services} {differ}; no node exists before and after"),
        (Some(node), _) => format!("{services} {differ} on node {node}"),
        (None, of) if extent.count == of && summary.services > 0 => {
            format!("{services} {differ} on {}", nodes(extent))
        }
        (None, of) => {
            let count = number(extent.count);
            format!("{services} {differ} on {count} of {}", counted(of, "node"))
        }
    }
}

fn left(summary: &SummaryDocument) -> Option<String> {
    let counts = [
        (summary.left_with_nothing, ""),
        (summary.left_in_part, " at some port"),
        (summary.left_on_some_nodes, " on some nodes"),
    ];
    let parts = counts.iter().filter(|(count, _)| *count > 0).enumerate();
    let parts: Vec<_> = parts
        .map(|(index, (count, place))| match index {
            0 => format!(
                "{} would be left with nothing{place}",
                counted(*count, "Service")
            ),
            _ => format!("{} more{place}", number(*count)),
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn more(text: &mut String, count: usize, shown: usize, noun: &str) {
    if count > shown {
        let rest = number(count - shown);
        line(
            text,
            &format!("\n… and {rest} more, each {noun} in -o json"),
        );
    }
}

fn block(text: &mut String, service: &ServiceChangeDocument, style: &Style) {
    let names = Names::of(service);
    let name = style.bold(&format!("{}/{}", service.namespace, service.name));
    line(text, "");
    hang(
        text,
        "",
        2,
        &format!("{name}: {}", fate(service, &names, style)),
    );
    frontends(text, service);
    for change in &service.endpoints {
        let endpoints = endpoints(change, service.change);
        row(
            text,
            "endpoints",
            &format!("{}: {endpoints}", names.of_port(&change.port)),
        );
    }
    for change in service.served.iter().filter(|change| !is_plain(change)) {
        let port = names.of_port(&change.port);
        let clients = match change.clients {
            "Internal" => " inside",
            "External" => " outside",
            _ => "",
        };
        let on = nodes(&change.nodes);
        row(
            text,
            "served",
            &format!("{port}{clients}: by {}, on {on}", served(change)),
        );
    }
    for change in &service.terms {
        row(text, &change.term, &term(change));
    }
    let silent = service.endpoints.is_empty() && service.served.is_empty();
    if silent && service.own_endpoints.count > 0 {
        let on = nodes(&service.own_endpoints);
        row(
            text,
            "own pods",
            &format!("differ on {on}, only in endpoints that serve no other node"),
        );
    }
}

/// The kind of change of a Service, and its nodes.
fn fate(service: &ServiceChangeDocument, names: &Names, style: &Style) -> String {
    let on = match (service.change, service.nodes.count, service.nodes.of) {
        (ChangeKind::New, ..) => return "new".into(),
        (ChangeKind::Gone, ..) => return "gone".into(),
        (ChangeKind::Changed, _, 0) => String::new(),
        (ChangeKind::Changed, 0, _) => ", but not on any remaining node".into(),
        (ChangeKind::Changed, ..) => format!(" on {}", nodes(&service.nodes)),
    };
    let ports = service.empty_ports.iter().map(|port| names.of_port(port));
    let ports: Vec<_> = ports.collect();
    let left = match Left::of(service) {
        Left::Nothing => "left with nothing".to_owned(),
        Left::SomePorts => format!("left with nothing at {}", ports.join(", ")),
        Left::SomeNodes => format!("left with nothing on {}", nodes(&service.emptied)),
        Left::Something => return format!("changed{on}"),
    };
    format!("{}; changed{on}", style.yellow(&left))
}

fn frontends(text: &mut String, service: &ServiceChangeDocument) {
    let (added, removed) = (&service.frontends.added, &service.frontends.removed);
    row(text, "frontends", &listed("+", added));
    let name = if added.is_empty() { "frontends" } else { "" };
    row(text, name, &listed("-", removed));
}

fn term(change: &TermDocument) -> String {
    // Without source ranges all clients are admitted.
    let unsaid = match &*change.term {
        "sourceRanges" => "all clients",
        _ => "none",
    };
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| unsaid.to_owned());
    let port = change.port.as_deref().filter(|port| !port.is_empty());
    let port = port.map_or_else(String::new, |port| format!("{port}: "));
    format!(
        "{port}{} instead of {}",
        value(&change.after),
        value(&change.before)
    )
}

fn row(text: &mut String, name: &str, content: &str) {
    if !content.is_empty() {
        let width = INDENT - 4;
        hang(text, &format!("  {name:<width$}  "), INDENT, content);
    }
}

/// Whether only the cluster-wide list changed, which the row of endpoints already shows.
fn is_plain(change: &ServedChangeDocument) -> bool {
    let plain = |served: &super::ServedDocument| {
        served.scope == "cluster"
            && served.external_clients == portolan_plan::ExternalClients::Allow
    };
    plain(&change.before) && plain(&change.after)
}

/// Names of ports. The family is included if IPv6 is involved.
struct Names {
    families: bool,
}

impl Names {
    fn of(service: &ServiceChangeDocument) -> Self {
        let endpoints = service.endpoints.iter().map(|change| &change.port);
        let served = service.served.iter().map(|change| &change.port);
        let mut ports = endpoints.chain(served).chain(&service.empty_ports);
        Self {
            families: ports.any(|port| port.family == Family::Ipv6),
        }
    }

    fn of_port(&self, port: &PortFamilyDocument) -> String {
        let name = match &*port.port {
            "" => port.protocol.to_string(),
            name => format!("{name}/{}", port.protocol),
        };
        match self.families {
            true => format!("{name} {}", Family::as_str(port.family)),
            false => name,
        }
    }
}

fn listed(sign: &str, frontends: &[PortFrontendDocument]) -> String {
    let frontend = |frontend: &PortFrontendDocument| {
        let kind = match frontend.kind {
            FrontendKind::ClusterIp => String::new(),
            kind => format!("{} ", kind.as_str()),
        };
        let place = match frontend.address {
            Some(address) => std::net::SocketAddr::new(address, frontend.port).to_string(),
            None => format!("*:{}", frontend.port),
        };
        format!("{sign}{kind}{place}/{}", frontend.protocol)
    };
    let frontends: Vec<_> = frontends.iter().map(frontend).collect();
    frontends.join(", ")
}

fn endpoints(change: &EndpointsDocument, of: ChangeKind) -> String {
    let refused = match (change.after, of) {
        (0, ChangeKind::New | ChangeKind::Changed) => " (refused)",
        _ => "",
    };
    let count = match change.before == change.after {
        true => format!("{} as before", number(change.after)),
        false => format!(
            "{}{refused} instead of {}",
            number(change.after),
            number(change.before)
        ),
    };
    let some = |sign: &str, some: &super::SomeEndpointsDocument| match some.count {
        0 => String::new(),
        count => format!("; {sign}{}: {}", number(count), first(&some.first, count)),
    };
    format!(
        "{count}{}{}",
        some("+", &change.added),
        some("-", &change.removed)
    )
}

fn node(text: &mut String, change: &NodeChangeDocument) {
    line(text, &format!("  {}", nodes(&change.nodes)));
    for field in &change.fields {
        let value = |value: &Option<String>| value.clone().unwrap_or("none".into());
        let (before, after) = (value(&field.before), value(&field.after));
        hang(
            text,
            "    ",
            6,
            &format!("{}: {after} instead of {before}", field.field),
        );
    }
}
