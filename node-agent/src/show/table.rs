//! Renders a node as text: a block per Service, a line per backend, at most 100 columns wide unless an
//! address alone is wider.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Owner, Shown, ShownBackend, ShownPlan, ShownServer, State, ago};

/// Style of the output.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Colours, for terminals only.
    pub colour: bool,
    /// Include virtual servers of other programs.
    pub all: bool,
    /// The line to print if there are no virtual servers to show.
    pub nothing: &'static str,
}

/// [`Style::nothing`] if all virtual servers were requested.
pub const NOTHING: &str = "\nThe agent has no virtual servers.";
/// [`Style::nothing`] if those of one Service were requested.
pub const NO_SUCH_SERVICE: &str =
    "\nThe plan has no such Service, or the Service has no address on this node.";

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }
}

/// Renders the node as text.
pub fn render(shown: &Shown, style: Style, now: SystemTime) -> String {
    let mut text = String::new();
    head(&mut text, shown, style, now);
    let visible = |server: &&ShownServer| style.all || server.owner != Owner::Other;
    let servers: Vec<_> = shown.virtual_servers.iter().filter(visible).collect();
    let width = |texts: Vec<usize>| texts.into_iter().max().unwrap_or(0);
    let columns = Columns {
        place: width(servers.iter().map(|server| place(server).len()).collect()),
        scheduler: width(
            servers
                .iter()
                .map(|server| scheduling(server).len())
                .collect(),
        ),
        backend: width(
            servers
                .iter()
                .flat_map(|server| &server.backends)
                .map(|backend| address(backend).len())
                .collect(),
        ),
    };
    for servers in servers.chunk_by(|left, right| left.owner_name() == right.owner_name()) {
        block(&mut text, servers, shown.plan.is_some(), &columns, style);
    }
    if servers.is_empty() {
        line(&mut text, style.nothing);
    }
    sets(&mut text, shown, style);
    text
}

fn sets(text: &mut String, shown: &Shown, style: Style) {
    for set in &shown.sets {
        let Some(members) = &set.members else {
            continue;
        };
        line(text, &format!("\n{}", style.bold(&set.name)));
        for member in members {
            line(text, &format!("  {member}"));
        }
    }
}

struct Columns {
    place: usize,
    scheduler: usize,
    backend: usize,
}

fn head(text: &mut String, shown: &Shown, style: Style, now: SystemTime) {
    match &shown.plan {
        Some(plan) => line(text, &of_plan(plan, style, now)),
        None => line(
            text,
            &style.yellow(
                "No saved plan: there is nothing to compare with, and Services are unnamed.",
            ),
        ),
    }
    let servers = &shown.virtual_servers;
    let others = servers
        .iter()
        .filter(|server| server.owner == Owner::Other)
        .count();
    let is_owned = |server: &&ShownServer| server.present && server.owner != Owner::Other;
    let owned = servers.iter().filter(is_owned).count();
    let foreign = match (others, style.all) {
        (0, _) => String::new(),
        (_, true) => format!(", {others} of other programs"),
        (_, false) => format!(", {others} of other programs (--all shows them)"),
    };
    line(
        text,
        &format!("  virtual servers  {owned} of the agent{foreign}"),
    );
    let entries: usize = shown.sets.iter().map(|set| set.entries).sum();
    line(
        text,
        &format!(
            "  sets             {} with {entries} entries",
            shown.sets.len()
        ),
    );
    let drains = servers.iter().flat_map(|server| &server.backends);
    let drains = drains
        .filter(|backend| backend.state == State::Draining)
        .count();
    if let Some(problem) = shown.drains_problem.as_ref().filter(|_| drains > 0) {
        let state = style.yellow(&format!("{drains}, deadlines unknown: {problem}"));
        line(text, &format!("  draining         {state}"));
    }
    for table in &shown.tables {
        let foreign = match table.foreign_elements {
            0 => String::new(),
            count => style.yellow(&format!(", {count} elements of other programs")),
        };
        let (family, count) = (table.family, table.frontends);
        line(
            text,
            &format!("  {family} table       {count} frontends{foreign}"),
        );
    }
    for rules in &shown.rules {
        let state = match (&rules.problem, rules.loaded) {
            (Some(problem), _) => style.red(&format!("cannot be read: {problem}")),
            (None, Some(count)) if count > 0 => format!("{count} loaded"),
            _ => style.yellow("none loaded"),
        };
        line(text, &format!("  {} rules       {state}", rules.family));
    }
}

fn of_plan(plan: &ShownPlan, style: Style, now: SystemTime) -> String {
    let written = UNIX_EPOCH + Duration::from_secs(plan.written);
    format!(
        "{}, plan {} of {} Services, written {}",
        style.bold(&format!("Node {}", plan.node)),
        plan.hash,
        plan.services,
        ago(written, now)
    )
}

fn block(
    text: &mut String,
    servers: &[&ShownServer],
    compared: bool,
    columns: &Columns,
    style: Style,
) {
    let Some(first) = servers.first() else { return };
    let title = match &first.owner {
        Owner::Service {
            namespace, name, ..
        } => style.bold(&format!("{namespace}/{name}")),
        Owner::Agent if compared => {
            let left = style.yellow("Left behind");
            format!("{left}: recorded as the agent's, but not in the plan; the agent removes them")
        }
        Owner::Agent => format!("{}, according to its record", style.bold("Of the agent")),
        Owner::Other => format!("{}: never modified", style.bold("Of other programs")),
    };
    line(text, &format!("\n{title}"));
    for server in servers {
        lines(text, server, columns, style);
    }
}

fn lines(text: &mut String, server: &ShownServer, columns: &Columns, style: Style) {
    let start = format!(
        "  {:<place$}  {:<scheduler$}",
        place(server),
        scheduling(server),
        place = columns.place,
        scheduler = columns.scheduler
    );
    if !server.present {
        let state = style.red("missing: in the plan, but not in the kernel");
        line(text, &format!("{start}  {state}"));
        return;
    }
    if server.backends.is_empty() {
        line(
            text,
            &format!("{start}  {}", style.yellow("no real server")),
        );
    }
    let indent = " ".repeat(start.chars().count());
    for (number, backend) in server.backends.iter().enumerate() {
        let start = if number == 0 { &start } else { &indent };
        let address = format!("{:<width$}", address(backend), width = columns.backend);
        let weight = format!("weight {}", backend.weight);
        let connections = match backend.connections {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        let state = match backend.state {
            State::Serving => String::new(),
            State::Draining => style.yellow(&draining(backend)),
            State::Differs => style.red("differs from the plan"),
            State::Missing => style.red("missing"),
        };
        line(
            text,
            &format!("{start}  {address}  {weight:<9}  {connections:>14}  {state}"),
        );
    }
}

/// Reason and remaining time of the draining, if the agent reported them.
fn draining(backend: &ShownBackend) -> String {
    let Some(drain) = &backend.drain else {
        return "draining".into();
    };
    let left = match drain.deadline_seconds {
        Some(seconds) => format!("{seconds} s left"),
        None => "no deadline".into(),
    };
    let since = drain
        .gone_seconds
        .map(|seconds| format!(" {seconds} s ago"));
    format!(
        "draining, {left}: {}{}",
        drain.reason,
        since.unwrap_or_default()
    )
}

fn place(server: &ShownServer) -> String {
    let socket = SocketAddr::new(server.address, server.port);
    format!("{} {socket}", server.protocol)
}

fn scheduling(server: &ShownServer) -> String {
    match server.affinity_seconds {
        Some(seconds) => format!("{} (affinity {seconds} s)", server.scheduler),
        None => server.scheduler.clone(),
    }
}

fn address(backend: &ShownBackend) -> String {
    SocketAddr::new(backend.address, backend.port).to_string()
}

fn line(text: &mut String, content: &str) {
    text.push_str(content.trim_end());
    text.push('\n');
}
