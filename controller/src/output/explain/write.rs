//! Converts explanations to documents.

use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, FamilyCounts, FrontendDocument, NodeEntry, Scope, ServiceId};
use portolan_planner::explain::{
    Admission, Apart, Client, Elsewhere, ElsewhereList, ExplainedEndpoint, Explanation, Group,
    GroupExplanation, Located, Origin, PortExplanation, Reach, SchedulerSource, Served,
    SourceAddress, Treatment, Verdict,
};
use portolan_planner::{HintOutcome, HintsIgnored};

use super::Asked;
use super::document::{
    ApartDocument, ClientKind, ElsewhereDocument, EndpointDocument, ExplanationDocument,
    FromDocument, GroupKind, HealthDocument, HintsDocument, ListDocument, PortDocument, ReachKind,
    ReasonDocument, SchedulerDocument, SourceDocument, TreatmentDocument, VERSION,
};

/// Maximum number of node names per kind of list.
const MAX_NAMED_NODES: usize = 3;

/// The document of an explanation, limited to the wanted ports and the client asked about.
pub fn of_explanation(
    explanation: &Explanation,
    wanted: impl Fn(&PortExplanation) -> bool,
    asked: &Asked,
) -> ExplanationDocument {
    let mut document = empty(&explanation.node, &explanation.service);
    document.from = from(asked, &explanation.node);
    document.warnings = explanation.warnings.iter().map(|w| w.document()).collect();
    document.warnings.sort();
    match &explanation.outcome {
        Err(reason) => document.not_served = Some(reason_document(reason.code(), reason)),
        Ok(served) => {
            fill(&mut document, served);
            let ports = served.ports.iter().filter(|port| wanted(port));
            let node = &explanation.node;
            document.ports = ports.map(|port| self::port(port, node, asked)).collect();
        }
    }
    document
}

/// The document for a Service that could not be read and is therefore not planned.
pub fn not_readable(node: &NodeEntry, service: &ServiceId, problem: &str) -> ExplanationDocument {
    ExplanationDocument {
        not_served: Some(reason_document("Unreadable", &problem)),
        ..empty(node, service)
    }
}

fn empty(node: &NodeEntry, service: &ServiceId) -> ExplanationDocument {
    ExplanationDocument {
        version: VERSION,
        node: node.name.clone(),
        zone: node.zone.clone(),
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        from: None,
        not_served: None,
        boot_critical: false,
        scheduler: None,
        health_check: None,
        endpoint_slices: 0,
        ports: Vec::new(),
        warnings: Vec::new(),
    }
}

fn fill(document: &mut ExplanationDocument, served: &Served) {
    document.boot_critical = served.boot_critical;
    document.endpoint_slices = served.slices;
    document.scheduler = Some(SchedulerDocument {
        name: served.scheduler.clone(),
        from: match served.scheduler_from {
            SchedulerSource::Annotation => "annotation".into(),
            SchedulerSource::Settings => "settings".into(),
        },
    });
    document.health_check = served.health.map(|health| HealthDocument {
        port: health.port,
        local_endpoints: FamilyCounts {
            ipv4: health.ipv4,
            ipv6: health.ipv6,
        },
    });
}

fn reason_document(code: &str, message: &impl ToString) -> ReasonDocument {
    ReasonDocument {
        reason: code.to_owned(),
        message: message.to_string(),
    }
}

fn from(asked: &Asked, node: &NodeEntry) -> Option<FromDocument> {
    let (address, client, taken_for, message) = match asked {
        Asked::EveryKind => return None,
        Asked::Outside => {
            let message = "a client outside the cluster".to_owned();
            (None, Client::Outside, Client::Outside, message)
        }
        Asked::Node => (
            None,
            Client::Node,
            Client::Node,
            "the node itself".to_owned(),
        ),
        Asked::Address(located) => (
            Some(located.address),
            located.client,
            located.taken_for,
            whereabouts(located, &node.name),
        ),
    };
    Some(FromDocument {
        address,
        client: kind(client),
        taken_for: kind(taken_for),
        message,
    })
}

fn whereabouts(located: &Located, here: &Arc<str>) -> String {
    let on = |node: &Arc<str>| match node == here {
        true => "this node".to_owned(),
        false => format!("node {node}"),
    };
    match &located.origin {
        Origin::Node(node) => format!("an address of {}", on(node)),
        Origin::Endpoint { slice, node } => {
            format!("a pod of {}, according to EndpointSlice {slice}", on(node))
        }
        Origin::PodRange { range, node } => {
            format!("a pod of {}, whose range {range} it is in", on(node))
        }
        Origin::Unknown => {
            "unknown: not of a Node, an endpoint or a pod range, so it counts as outside".into()
        }
    }
}

fn kind(client: Client) -> ClientKind {
    match client {
        Client::Pod => ClientKind::Pod,
        Client::OtherPod => ClientKind::OtherPod,
        Client::Node => ClientKind::Node,
        Client::Outside => ClientKind::Outside,
    }
}

fn port(port: &PortExplanation, node: &NodeEntry, asked: &Asked) -> PortDocument {
    let frontends = port.frontends.iter().map(|f| FrontendDocument {
        kind: f.kind,
        address: f.address,
        port: f.port,
    });
    let mut frontends: Vec<_> = frontends.collect();
    frontends.sort();
    let lists = port.groups.iter().filter(|group| match asked {
        Asked::Address(located) => Family::of(located.address) == group.family,
        Asked::EveryKind | Asked::Outside | Asked::Node => true,
    });
    PortDocument {
        name: port.name.clone(),
        protocol: port.protocol,
        port: port.number,
        frontends,
        absent: port
            .absent
            .iter()
            .map(|a| reason_document(a.code(), a))
            .collect(),
        affinity_seconds: port.affinity_seconds,
        source_ranges: port.source_ranges.clone(),
        lists: lists.map(|group| list(group, port, node, asked)).collect(),
        apart: port.apart.iter().map(apart).collect(),
    }
}

/// Whether the source ranges admit the client's address to load-balancer addresses of this family. The node's own
/// address is its primary one (S-86, S-90).
fn admitted(
    port: &PortExplanation,
    group: &GroupExplanation,
    node: &NodeEntry,
    asked: &Asked,
) -> Option<bool> {
    if group.group == Group::Internal || !port.has_balancer(group.family) {
        return None;
    }
    let may = |address: IpAddr| port.admits(address) != Admission::Dropped;
    let mut own = node.addresses.iter().copied();
    match asked {
        Asked::EveryKind | Asked::Outside => None,
        Asked::Address(located) => Some(may(located.address)),
        Asked::Node => own.find(|a| Family::of(*a) == group.family).map(may),
    }
}

fn list(
    group: &GroupExplanation,
    port: &PortExplanation,
    node: &NodeEntry,
    asked: &Asked,
) -> ListDocument {
    let wanted = |treatment: &&Treatment| match asked {
        Asked::EveryKind => true,
        Asked::Address(located) => treatment.client == located.taken_for,
        Asked::Outside => treatment.client == Client::Outside,
        Asked::Node => treatment.client == Client::Node,
    };
    let clients = group.clients.iter().filter(wanted);
    ListDocument {
        frontends: match group.group {
            Group::Internal => GroupKind::Internal,
            Group::External => GroupKind::External,
        },
        family: group.family,
        policy: group.policy,
        scope: group.scope.shown(),
        because: reason_document(group.because.code(), &group.because),
        hints: group
            .hints
            .as_ref()
            .map(|outcome| hints(outcome, &group.scope)),
        when_empty: group.when_empty,
        external_clients: group.external_clients,
        endpoints: group.endpoints.iter().map(endpoint).collect(),
        clients: clients
            .map(|treatment| self::treatment(treatment, group, node, asked))
            .collect(),
        admitted: admitted(port, group, node, asked),
        elsewhere: group.elsewhere.iter().map(elsewhere).collect(),
    }
}

fn hints(outcome: &HintOutcome, scope: &Scope) -> HintsDocument {
    let (used, message) = match (outcome, scope) {
        (HintOutcome::Used(kind), _) => {
            let kind = kind.as_str();
            (
                Some(kind.to_owned()),
                format!("hints that name {kind}s are in force"),
            )
        }
        (HintOutcome::Ignored(HintsIgnored::PolicyLocal), _) | (_, Scope::Local(_)) => (
            None,
            "hints are ignored: they never apply to policy Local".into(),
        ),
        (HintOutcome::Ignored(reason), _) => (None, format!("hints are ignored because {reason}")),
    };
    HintsDocument { used, message }
}

fn endpoint(endpoint: &ExplainedEndpoint) -> EndpointDocument {
    let (is_in, reason, message) = match &endpoint.verdict {
        Verdict::In(why) => (true, why.code(), why.to_string()),
        Verdict::Out(why) => (false, why.code(), why.to_string()),
    };
    EndpointDocument {
        address: endpoint.address,
        port: endpoint.port,
        node: endpoint.node.clone(),
        zone: endpoint.zone.clone(),
        slice: endpoint.slice.to_string(),
        is_in,
        reason: reason.to_owned(),
        message,
    }
}

fn treatment(
    treatment: &Treatment,
    group: &GroupExplanation,
    node: &NodeEntry,
    asked: &Asked,
) -> TreatmentDocument {
    let source = treatment.source.map(|source| match source {
        SourceAddress::Kept(why) => (false, why.code()),
        SourceAddress::Masqueraded(why) => (true, why.code()),
    });
    let mut message = treatment.to_string();
    if let Some((false, _)) = source {
        message += reaching_itself(group, node, asked, treatment.client);
    }
    TreatmentDocument {
        client: kind(treatment.client),
        reach: match treatment.reach {
            Reach::Served => ReachKind::Served,
            Reach::Refused => ReachKind::Refused,
            Reach::Dropped => ReachKind::Dropped,
        },
        source: source.map(|(masqueraded, reason)| SourceDocument {
            masqueraded,
            reason: reason.to_owned(),
        }),
        message,
    }
}

/// A pod that connects to itself is masqueraded; otherwise it would reply to itself directly (S-74).
fn reaching_itself(
    group: &GroupExplanation,
    node: &NodeEntry,
    asked: &Asked,
    client: Client,
) -> &'static str {
    let own = |endpoint: &&ExplainedEndpoint| endpoint.node.as_ref() == Some(&node.name);
    let mut own = group.used().filter(own);
    match asked {
        Asked::Address(located) if own.any(|e| e.address == located.address) => {
            "; masqueraded to itself"
        }
        Asked::EveryKind if client == Client::Pod && own.next().is_some() => {
            "; masqueraded to themselves"
        }
        _ => "",
    }
}

fn elsewhere(elsewhere: &Elsewhere) -> ElsewhereDocument {
    let first = elsewhere.nodes.iter().take(MAX_NAMED_NODES);
    ElsewhereDocument {
        scope: match &elsewhere.list {
            ElsewhereList::Cluster => "cluster".into(),
            ElsewhereList::Zone(zone) => format!("zone/{zone}"),
            ElsewhereList::Node => "node".into(),
            ElsewhereList::Local | ElsewhereList::LocalEmpty => "local".into(),
            ElsewhereList::Nowhere => "none".into(),
        },
        external_clients: elsewhere.external_clients,
        nodes: elsewhere.nodes.len(),
        first_nodes: first.cloned().collect(),
        fewest_endpoints: elsewhere.fewest,
        most_endpoints: elsewhere.most,
        message: elsewhere.to_string(),
    }
}

fn apart(apart: &Apart) -> ApartDocument {
    ApartDocument {
        slice: apart.slice.to_string(),
        reason: apart.reason.code().to_owned(),
        message: apart.reason.to_string(),
        endpoints: apart.endpoints.clone(),
    }
}
