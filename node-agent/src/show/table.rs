//! A node for a person: a block for each Service, a line for each backend, at most 100 columns wide
//! unless an address alone is wider.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Owner, Shown, ShownBackend, ShownPlan, ShownServer, State, ago};

/// How it looks.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Colours, for terminals only.
    pub colour: bool,
    /// Virtual servers of others, too.
    pub all: bool,
    /// What is said where there is no virtual server to show.
    pub nothing: &'static str,
}

/// Where all were asked for.
pub const NOTHING: &str = "\nNo virtual server of ours.";
/// Where those of one Service were.
pub const NOTHING_OF_IT: &str =
    "\nThe plan has no such Service, or it answers nowhere on this node.";

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

/// The node as text.
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
            &style.yellow("No plan on disk: nothing can be compared, and Services have no names."),
        ),
    }
    let servers = &shown.virtual_servers;
    let others = servers
        .iter()
        .filter(|server| server.owner == Owner::Other)
        .count();
    let is_ours = |server: &&ShownServer| server.present && server.owner != Owner::Other;
    let ours = servers.iter().filter(is_ours).count();
    let foreign = match (others, style.all) {
        (0, _) => String::new(),
        (_, true) => format!(", {others} of others"),
        (_, false) => format!(", {others} of others (--all shows them)"),
    };
    line(text, &format!("  virtual servers  {ours} of ours{foreign}"));
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
        let told = style.yellow(&format!("{drains}, deadlines not known: {problem}"));
        line(text, &format!("  draining         {told}"));
    }
    for rules in &shown.rules {
        let told = match (&rules.problem, rules.loaded) {
            (Some(problem), _) => style.red(&format!("cannot be read: {problem}")),
            (None, Some(count)) if count > 0 => format!("{count} loaded"),
            _ => style.yellow("none of ours"),
        };
        line(text, &format!("  {} rules       {told}", rules.family));
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
        Owner::Ours if compared => {
            let left = style.yellow("Left behind");
            format!("{left}: on record as ours, in no plan")
        }
        Owner::Ours => format!("{}, by the record", style.bold("Ours")),
        Owner::Other => format!("{}: never touched", style.bold("Of others")),
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
        let told = style.red("missing: the plan wants it, and the kernel does not have it");
        line(text, &format!("{start}  {told}"));
        return;
    }
    if server.backends.is_empty() {
        line(text, &format!("{start}  {}", style.yellow("no backend")));
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
            State::Differs => style.red("not as the plan wants it"),
            State::Missing => style.red("missing"),
        };
        line(
            text,
            &format!("{start}  {address}  {weight:<9}  {connections:>14}  {state}"),
        );
    }
}

/// Why it drains and for how long, as far as anybody knows.
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
        Some(seconds) => format!("{} (client {seconds} s)", server.scheduler),
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
