//! `portolan-controller explain`.

use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use clap::Args;
use portolan_plan::{Protocol, ServiceId};
use portolan_planner::Planner;
use portolan_planner::explain::{Explanation, PortExplanation, Unknown};

use super::near::near;
use super::plan::{ManifestArguments, planner, report, show, summary, unknown_node};
use super::{INCOMPLETE, UNUSABLE};
use crate::manifests::{Manifests, Origin, Severity};
use crate::output::Format;
use crate::output::explain::{
    Asked, ExplanationDocument, From, not_readable, of_explanation, render,
};
use portolan_planner::model::ObjectId;

#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    #[command(flatten)]
    manifests: ManifestArguments,
    #[command(flatten)]
    question: ExplainQuestion,
}

/// The client and Service to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainQuestion {
    /// Node that receives the client's packets, usually the client's own.
    #[arg(long, value_name = "NAME", env = "PORTOLAN_NODE")]
    node: String,
    /// Service, optionally with one of its ports by name or number, such as shop/cart:http.
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]")]
    service: Wanted,
    /// The client: the IP address of a pod; `outside` for a client outside the cluster; `node` for the node itself.
    /// Default: each kind of client separately.
    #[arg(long, value_name = "POD-IP|outside|node")]
    from: Option<From>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

/// A Service and optionally one of its ports.
#[derive(Debug, Clone)]
struct Wanted {
    service: ServiceId,
    port: Option<String>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write NAMESPACE/NAME, or NAMESPACE/NAME:PORT for one port".to_owned();
        let (namespace, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, Some(port.to_owned())),
            None => (rest, None),
        };
        if namespace.is_empty() || name.is_empty() || port.as_deref() == Some("") {
            return Err(wrong());
        }
        Ok(Self {
            service: ServiceId::new(namespace, name),
            port,
        })
    }
}

/// Prints the explanation on standard output and everything else on standard error.
pub(super) fn run(arguments: &ExplainArguments) -> u8 {
    let manifests = match arguments.manifests.read() {
        Ok(manifests) => manifests,
        Err(code) => return code,
    };
    answer(&arguments.question, &manifests)
}

/// Prints an explanation made from these objects on standard output. Returns the exit code.
pub(crate) fn answer(question: &ExplainQuestion, manifests: &Manifests) -> u8 {
    let planner = planner(manifests);
    let document = match document(question, manifests, &planner) {
        Ok(document) => document,
        Err(error) => return report(UNUSABLE, &error),
    };
    let colour = io::stdout().is_terminal();
    let rendered = render(&document, question.output, colour);
    match show(rendered, "the explanation") {
        Ok(()) => summary([manifests]),
        Err(error) => report(INCOMPLETE, &error),
    }
}

fn document(
    arguments: &ExplainQuestion,
    manifests: &Manifests,
    planner: &Planner,
) -> Result<ExplanationDocument, String> {
    let Wanted { service, port } = &arguments.service;
    let explanation = match planner.explain(&arguments.node, service) {
        Ok(explanation) => explanation,
        Err(Unknown::Node) => return Err(unknown_node(&arguments.node, manifests)),
        Err(Unknown::Service) => {
            let node = planner.node(&arguments.node);
            let document = node.and_then(|node| {
                let problem = left_out(service, manifests)?;
                Some(not_readable(node, service, &problem))
            });
            return document.ok_or_else(|| unknown_service(service, manifests, planner));
        }
    };
    let is_wanted = |own: &PortExplanation| port.as_ref().is_none_or(|text| is_called(own, text));
    if let (Some(port), Ok(served)) = (port, &explanation.outcome)
        && !served.ports.iter().any(is_wanted)
    {
        return Err(unknown_port(port, &explanation));
    }
    let asked = match arguments.from {
        None => Asked::EveryKind,
        Some(From::Outside) => Asked::Outside,
        Some(From::Node) => Asked::Node,
        Some(From::Address(address)) => planner
            .locate(address, &arguments.node)
            .map(Asked::Address)
            .ok_or_else(|| unknown_node(&arguments.node, manifests))?,
    };
    Ok(of_explanation(&explanation, is_wanted, &asked))
}

/// Whether `text` is the name or number of the port, with or without the protocol: `dns`, `53`, `53/UDP`.
fn is_called(port: &PortExplanation, text: &str) -> bool {
    let (text, protocol) = match text.split_once('/') {
        Some((text, protocol)) => (text, Some(protocol)),
        None => (text, None),
    };
    let same =
        |own: Protocol| protocol.is_none_or(|given| given.eq_ignore_ascii_case(own.as_str()));
    same(port.protocol) && (*port.name == *text || port.number.to_string() == text)
}

/// Why a Service in the manifests could not be read.
fn left_out(service: &ServiceId, manifests: &Manifests) -> Option<String> {
    let name = ObjectId::Service(service.clone()).to_string();
    let mut problems = manifests.problems.iter();
    let problem = problems.find(|problem| {
        problem.severity == Severity::LeftOut && problem.object.as_ref() == Some(&name)
    })?;
    Some(format!(
        "it could not be read, so it is left out: {}: {}",
        problem.place, problem.message
    ))
}

fn unknown_service(service: &ServiceId, manifests: &Manifests, planner: &Planner) -> String {
    let origin = manifests.origin;
    let known: Vec<_> = planner.model().services().map(|s| s.id.clone()).collect();
    let texts: Vec<_> = known.iter().map(ToString::to_string).collect();
    let same_name = known.iter().filter(|id| id.name == service.name);
    let mut alike: Vec<_> = same_name.map(ToString::to_string).collect();
    if alike.is_empty() {
        alike = near(&service.to_string(), texts.iter().map(String::as_str));
    }
    let hint = match (known.len(), alike.as_slice()) {
        (0, _) => format!("there is no Service in {origin} at all"),
        (count, []) => format!("there are {count} others, none of a similar name"),
        (_, alike) => format!("similar: {}", alike.join(", ")),
    };
    let next = match origin {
        Origin::Manifests => "check --service, and that the manifests cover its namespace",
        Origin::Cluster => "check --service; headless Services are served by DNS, not by nodes",
    };
    format!("error: Service {service}: not in {origin} ({hint}); {next}")
}

fn unknown_port(port: &str, explanation: &Explanation) -> String {
    let ports = explanation.outcome.iter().flat_map(|served| &served.ports);
    let ports = ports.map(|port| match &*port.name {
        "" => format!("{}/{}", port.number, port.protocol),
        name => format!("{name} {}/{}", port.number, port.protocol),
    });
    let ports: Vec<_> = ports.collect();
    format!(
        "error: Service {}: no port is called {port} (there are: {}); check --service",
        explanation.service,
        ports.join(", ")
    )
}
