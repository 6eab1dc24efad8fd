//! An explanation as a table: the frontends, the list for each kind of client, each endpoint with its reason. At most
//! 100 columns wide unless a single name is wider.

use std::net::SocketAddr;

use portolan_plan::{ExternalClients, Family, FrontendDocument, FrontendKind};

use super::super::text::{Style, counted, hang, joined, line, wrap};
use super::document::{
    ApartDocument, ClientKind, EndpointDocument, ExplanationDocument, GroupKind, ListDocument,
    PortDocument, TreatmentDocument,
};

/// The column in which values begin.
const VALUE_COLUMN: usize = 17;

/// The explanation as a table.
pub(super) fn render(document: &ExplanationDocument, colour: bool) -> String {
    let style = Style { colour };
    let mut text = header(document, &style);
    for port in &document.ports {
        port_lines(&mut text, port, document, &style);
    }
    // Frontends that a port lacks are already shown with the port.
    let absent = || document.ports.iter().flat_map(|port| &port.absent);
    let is_shown = |message: &str| absent().any(|absent| absent.message == message);
    let mut warnings = document
        .warnings
        .iter()
        .filter(|w| !is_shown(&w.message))
        .peekable();
    if warnings.peek().is_some() {
        line(&mut text, &style.yellow("\nWarnings"));
    }
    for warning in warnings {
        wrap(
            &mut text,
            &format!("{}: {}", warning.object, warning.message),
        );
    }
    text
}

/// Writes a row `name  value`, wrapped if needed.
fn row(text: &mut String, name: &str, value: &str) {
    let width = VALUE_COLUMN - 3;
    hang(text, &format!("  {name:<width$} "), VALUE_COLUMN, value);
}

fn header(document: &ExplanationDocument, style: &Style) -> String {
    let mut text = String::new();
    let zone = match &document.zone {
        Some(zone) => format!("in zone {zone}"),
        None => "without a zone".to_owned(),
    };
    let service = format!("{}/{}", document.namespace, document.name);
    let name = style.bold(&format!("Service {service}"));
    line(
        &mut text,
        &format!("{name} on node {} {zone}", document.node),
    );
    if let Some(reason) = &document.not_served {
        row(&mut text, &style.yellow("not served"), &reason.message);
        return text;
    }
    if let Some(from) = &document.from {
        let address = from.address.map(|address| format!("{address}, "));
        let who = format!("{}{}", address.unwrap_or_default(), from.message);
        row(&mut text, "from", &who);
        if from.client != from.taken_for {
            row(&mut text, "", &style.yellow(mistaken(from.taken_for)));
        }
    }
    of_all_ports(&mut text, document, style);
    text
}

/// Writes the rows that apply to all ports of the Service.
fn of_all_ports(text: &mut String, document: &ExplanationDocument, style: &Style) {
    if let Some(scheduler) = &document.scheduler {
        let from = match &*scheduler.from {
            "annotation" => "by the annotation proxy.portolan.dev/scheduler",
            _ => "by the settings",
        };
        row(text, "scheduler", &format!("{}, {from}", scheduler.name));
    }
    if document.boot_critical {
        row(
            text,
            "boot-critical",
            "programmed before others when the agent starts",
        );
    }
    if let Some(health) = &document.health_check {
        let local = health.local_endpoints;
        let answer = match local.ipv4 + local.ipv6 {
            0 => "no endpoint here, so load balancers skip this node".to_owned(),
            _ => format!("{} IPv4 and {} IPv6 endpoints here", local.ipv4, local.ipv6),
        };
        row(
            text,
            "health check",
            &format!("port {}: {answer}", health.port),
        );
    }
    if document.endpoint_slices == 0 {
        let missing = format!(
            "none has the label kubernetes.io/service-name: {} in namespace {}, so nothing can serve; \
             check spec.selector and that its pods exist",
            document.name, document.namespace
        );
        row(text, &style.yellow("slices"), &missing);
    }
}

fn port_lines(
    text: &mut String,
    port: &PortDocument,
    document: &ExplanationDocument,
    style: &Style,
) {
    let name = match &*port.name {
        "" => format!("port {}/{}", port.port, port.protocol),
        name => format!("{name}: port {}/{}", port.port, port.protocol),
    };
    line(text, &format!("\n{}", style.bold(&name)));
    let mut label = "answers on";
    for frontend in &port.frontends {
        row(text, label, &frontend_text(frontend, port));
        label = "";
    }
    if port.frontends.is_empty() {
        row(text, label, &style.yellow("nothing"));
    }
    let mut label = "but not on";
    for absent in &port.absent {
        row(text, label, &absent.message);
        label = "";
    }
    if let Some(seconds) = port.affinity_seconds {
        let kept = format!("a client keeps its endpoint for {seconds} s after its last connection");
        row(text, "affinity", &kept);
    }
    let client = document.from.as_ref().and_then(|from| from.address);
    if let (Some(address), true, false) = (client, port.lists.is_empty(), port.frontends.is_empty())
    {
        let family = Family::of(address);
        let nothing = format!("nothing: it is {family}, and the port has no {family} address");
        row(text, "this client", &style.yellow(&nothing));
    }
    for (index, list) in port.lists.iter().enumerate() {
        let earlier = port.lists[..index].iter();
        let same = earlier
            .rev()
            .find(|other| other.endpoints == list.endpoints);
        line(text, &format!("\n  {}", style.bold(&title(list, port))));
        let same = same.map(|same| kinds(same, port));
        list_lines(text, list, same, document, style);
    }
    apart_lines(text, &port.apart);
}

fn frontend_text(frontend: &FrontendDocument, port: &PortDocument) -> String {
    let place = match frontend.address {
        Some(address) => SocketAddr::new(address, frontend.port).to_string(),
        None => format!("*:{}", frontend.port),
    };
    let guarded = frontend.kind == FrontendKind::LoadBalancer && !port.source_ranges.is_empty();
    let ranges = match guarded {
        false => String::new(),
        true => format!(", only from {}", joined(&port.source_ranges)),
    };
    format!("{} {place}{ranges}", frontend.kind.as_str())
}

/// The consequence if the node's rules take an address for another kind of client.
fn mistaken(taken_for: ClientKind) -> &'static str {
    match taken_for {
        ClientKind::Outside => {
            "but the node treats it as an external client: its address is in none of its pod ranges; \
             check spec.podCIDRs of the Node and spec.settings.localDetection of the ProxyConfig"
        }
        ClientKind::Pod | ClientKind::OtherPod | ClientKind::Node => {
            "but the node treats it as a pod: its address is in one of its pod ranges"
        }
    }
}

/// The kinds of frontends that a list serves.
fn kinds(list: &ListDocument, port: &PortDocument) -> String {
    let of_list = port.frontends.iter().filter(|frontend| {
        let internal = frontend.kind == FrontendKind::ClusterIp;
        let of_family = frontend
            .address
            .is_none_or(|a| Family::of(a) == list.family);
        of_family && internal == (list.frontends == GroupKind::Internal)
    });
    let mut kinds: Vec<_> = of_list.map(|frontend| frontend.kind.as_str()).collect();
    kinds.dedup();
    format!("{} {}", list.family, kinds.join(", "))
}

fn title(list: &ListDocument, port: &PortDocument) -> String {
    let used = list.endpoints.iter().filter(|e| e.is_in).count();
    let all = list.endpoints.len();
    format!(
        "{}: {used} of {} in use, list {}",
        kinds(list, port),
        counted(all, "endpoint"),
        list.scope
    )
}

fn list_lines(
    text: &mut String,
    list: &ListDocument,
    same: Option<String>,
    document: &ExplanationDocument,
    style: &Style,
) {
    hang(text, "    ", 6, &list.because.message);
    if let Some(hints) = &list.hints {
        hang(text, "    ", 6, &hints.message);
    }
    match same {
        Some(same) if !list.endpoints.is_empty() => {
            line(text, &format!("    the same endpoints as for {same}"));
        }
        _ => endpoint_lines(text, list),
    }
    if list.endpoints.iter().all(|e| !e.is_in) {
        line(
            text,
            &format!("    {}", style.yellow("no endpoint: refused at once")),
        );
    } else if list.external_clients == ExternalClients::Drop {
        let silence = "external clients are dropped, so that balancers try another node";
        line(text, &format!("    {}", style.yellow(silence)));
    }
    line(text, "    clients");
    for (who, treatment) in together(&list.clients) {
        let who = match document.from {
            Some(_) => "this client".to_owned(),
            None => who,
        };
        hang(text, &format!("      {who}: "), 8, &treatment.message);
    }
    if list.admitted == Some(false) {
        let shut = "dropped at LoadBalancer addresses: not in their source ranges";
        hang(text, "      ", 8, &style.yellow(shut));
    }
    if !list.elsewhere.is_empty() {
        line(text, "    other nodes");
    }
    for elsewhere in &list.elsewhere {
        hang(text, "      ", 8, &elsewhere.message);
    }
}

fn endpoint_lines(text: &mut String, list: &ListDocument) {
    let place = |e: &EndpointDocument| SocketAddr::new(e.address, e.port).to_string();
    let node = |e: &EndpointDocument| e.node.as_deref().unwrap_or("-").to_owned();
    let zone = |e: &EndpointDocument| e.zone.as_deref().unwrap_or("-").to_owned();
    let widest = |of: &dyn Fn(&EndpointDocument) -> String| {
        let widths = list.endpoints.iter().map(|e| of(e).chars().count());
        widths.max().unwrap_or(0)
    };
    let (places, nodes, zones) = (widest(&place), widest(&node), widest(&zone));
    for e in &list.endpoints {
        let (place, node, zone) = (place(e), node(e), zone(e));
        let verdict = if e.is_in { "in " } else { "out" };
        let start = format!("    {verdict}  {place:<places$}  {node:<nodes$}  {zone:<zones$}  ");
        hang(text, &start, 9, &e.message);
    }
}

fn subject(client: ClientKind) -> &'static str {
    match client {
        ClientKind::Pod => "pods of this node",
        ClientKind::OtherPod => "pods of other nodes",
        ClientKind::Node => "the node itself",
        ClientKind::Outside => "other clients",
    }
}

/// Merges clients with the same treatment into one line.
fn together(clients: &[TreatmentDocument]) -> Vec<(String, &TreatmentDocument)> {
    let mut found: Vec<(String, &TreatmentDocument)> = Vec::new();
    for client in clients {
        let who = subject(client.client);
        match found
            .iter_mut()
            .find(|(_, other)| other.message == client.message)
        {
            Some((names, _)) => *names += &format!(", {who}"),
            None => found.push((who.to_owned(), client)),
        }
    }
    found
}

fn apart_lines(text: &mut String, apart: &[ApartDocument]) {
    if !apart.is_empty() {
        line(text, "\n  endpoints not used for this port");
    }
    for apart in apart {
        let paragraph = format!(
            "{} of EndpointSlice {}: {}",
            joined(&apart.endpoints),
            apart.slice,
            apart.message
        );
        hang(text, "    ", 6, &paragraph);
    }
}
