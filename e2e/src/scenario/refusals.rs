//! Messages and exit codes of programs on a node that does not meet their requirements.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Checks, Scenario, Stage};
use crate::files::REFUSALS;
use crate::program::{Ended, Program};
use crate::waits::SOON;
use crate::work_folder::WorkFolder;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "refusals",
    shows: "a node without privileges, IPVS or tools, an address in use, an unreachable controller",
    run,
};

/// The program that the kernel runs to load a module.
const LOADER: &str = "/proc/sys/kernel/modprobe";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    exit: i32,
    says: String,
}

type Table = BTreeMap<String, Expected>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let table: Table = serde_saphyr::from_str(&stage.files.text(REFUSALS)?)
        .with_context(|| format!("read {REFUSALS}"))?;
    let folder = WorkFolder::make()?;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder.path, open).context("open the folder of this run")?;
    let state = folder.path.join("state");
    let state = state.to_str().context("a folder with a plain name")?;
    let socket = format!("unix:{}", folder.path.join("controller.sock").display());
    let agent = agent_arguments(&socket, state);
    let lacking = Lacking {
        stage,
        table: &table,
        arguments: &agent,
        folder: &folder.path,
    };
    let without_tools = [("PATH", Path::new("/nonexistent"))];
    checks.check(
        "no-ipvs",
        without_ipvs(stage, || lacking.goes_on("no-ipvs", &[])),
    );
    checks.check("no-tools", lacking.goes_on("no-tools", &without_tools));
    let ended: [(&str, Result<Ended>); 3] = [
        (
            "no-privileges",
            Program::Agent.try_without_privileges(&agent),
        ),
        ("port-taken", port_taken(&folder.path)),
        ("socket-taken", socket_taken(&folder.path)),
    ];
    ensure!(
        ended.len() + 3 == table.len(),
        "{REFUSALS} has {} rows",
        table.len()
    );
    for (name, ended) in ended {
        checks.check(
            name,
            ended.and_then(|ended| judge(&table, name, &ended, &folder.path)),
        );
    }
    controller_away(stage, checks, &table, &agent, &folder.path)
}

fn agent_arguments<'a>(controller: &'a str, state: &'a str) -> [&'a str; 8] {
    [
        "run",
        "--node",
        "node-a",
        "--controller",
        controller,
        "--insecure",
        "--state-dir",
        state,
    ]
}

fn judge(table: &Table, name: &str, ended: &Ended, folder: &Path) -> Result<()> {
    let expected = table
        .get(name)
        .with_context(|| format!("{REFUSALS} has no row {name}"))?;
    let said = ended
        .errors
        .replace(&folder.display().to_string(), "{folder}");
    let said = said.trim_end();
    ensure!(
        ended.status.code() == Some(expected.exit) && said == expected.says.trim_end(),
        "ended with {} and said\n{said}\ninstead of code {} and\n{}",
        ended.status,
        expected.exit,
        expected.says.trim_end()
    );
    ensure!(ended.output.is_empty(), "printed {:?}", ended.output);
    Ok(())
}

/// An agent on a node that lacks something which only one dataplane needs: the other one is possible, so it goes on.
struct Lacking<'a> {
    stage: &'a Stage,
    table: &'a Table,
    arguments: &'a [&'a str],
    folder: &'a Path,
}

impl Lacking<'_> {
    /// Checks that it logs the row's text, and runs until it is asked to end.
    fn goes_on(&self, name: &str, environment: &[(&str, &Path)]) -> Result<()> {
        let expected = self
            .table
            .get(name)
            .with_context(|| format!("{REFUSALS} has no row {name}"))?;
        let path = self.folder.join(format!("{name}.log"));
        let log = std::fs::File::create(&path).context("create the agent's log")?;
        let agent = Program::Agent.start_with(self.arguments, environment, &log)?;
        let waits = self.stage.waits;
        waits.eventually("the agent to look for its controller", SOON, || {
            let said = std::fs::read_to_string(&path).context("read the agent's log")?;
            let is_waiting = said.contains("no connection to a controller;");
            ensure!(
                is_waiting && said.contains(expected.says.trim_end()),
                "{said}"
            );
            Ok(())
        })?;
        agent.ask_to_end()?;
        let ended = waits.eventually("the agent to end", SOON, || {
            agent.ended()?.context("it goes on")
        })?;
        ensure!(
            ended.code() == Some(expected.exit),
            "it ended with {ended}, not with code {}",
            expected.exit
        );
        Ok(())
    }
}

/// Does something while the kernel has no IPVS and cannot load it.
fn without_ipvs(stage: &Stage, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let unloaded = || {
        let modules = std::fs::read_to_string("/proc/modules").context("read /proc/modules")?;
        let names = modules.lines().filter_map(|line| line.split(' ').next());
        let ours: Vec<_> = names.filter(|name| name.starts_with("ip_vs")).collect();
        // Schedulers and helpers use ip_vs itself, so it goes last. One still in use by a
        // namespace that is just going away goes at the next try.
        let others = ours.iter().filter(|name| **name != "ip_vs");
        for name in others.chain(&ours) {
            drop(Program::Modprobe.run(&["-r", name]));
        }
        ensure!(
            !Path::new("/proc/net/ip_vs").exists(),
            "it is in use; this scenario needs a machine for itself, the lab's guest"
        );
        Ok(())
    };
    let waits = stage.waits;
    waits.eventually("ip_vs to be unloaded", SOON, unloaded)?;
    // Only IPVS is to be missing: listing sets and tables loads what they need.
    Program::Ipset.run(&["list", "-n"])?;
    Program::Nft.run(&["list", "tables"])?;
    let loader = Loader::take_away()?;
    let result = act();
    drop(loader);
    result
}

/// The kernel's module loader, put back when this is dropped.
pub(super) struct Loader {
    before: String,
}

impl Loader {
    pub(super) fn take_away() -> Result<Self> {
        let before = std::fs::read_to_string(LOADER).with_context(|| format!("read {LOADER}"))?;
        std::fs::write(LOADER, "/nonexistent").with_context(|| format!("write {LOADER}"))?;
        Ok(Self { before })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Nothing can be done here about a kernel that takes no path it gave before; the next
        // scenario will name what it misses.
        drop(std::fs::write(LOADER, self.before.trim_end()));
    }
}

fn port_taken(folder: &Path) -> Result<Ended> {
    let taken = TcpListener::bind("127.0.0.1:0").context("take a port")?;
    let address = taken.local_addr()?.to_string();
    let mut ended = controller(folder, &address)?;
    ended.errors = ended.errors.replace(&address, "{address}");
    Ok(ended)
}

fn socket_taken(folder: &Path) -> Result<Ended> {
    let path = folder.join("taken.sock");
    let _taken = UnixListener::bind(&path).context("take a socket")?;
    controller(folder, &format!("unix:{}", path.display()))
}

fn controller(folder: &Path, listen: &str) -> Result<Ended> {
    let manifests = folder.display().to_string();
    let arguments = [
        "run",
        "--manifests",
        &manifests,
        "--listen",
        listen,
        "--insecure",
    ];
    Program::Controller.try_with_input(&arguments, "")
}

/// S-183: an agent without a controller logs that, waits, and writes nothing.
fn controller_away(
    stage: &Stage,
    checks: &mut Checks,
    table: &Table,
    arguments: &[&str],
    folder: &Path,
) -> Result<()> {
    let path = folder.join("agent.log");
    let log = std::fs::File::create(&path).context("create the agent's log")?;
    let agent = Program::Agent.start(arguments, &log)?;
    let said = || std::fs::read_to_string(&path).context("read the agent's log");
    let complaints = |text: &str| {
        text.lines()
            .filter(|line| line.contains("no connection to a controller;"))
            .count()
    };
    let what = "the agent to look for its controller more than once";
    let waited = stage.waits.eventually(what, SOON, || {
        let said = said()?;
        ensure!(complaints(&said) >= 3, "{said}");
        Ok(())
    });
    checks.check(
        "an agent without a controller logs that and retries",
        waited,
    );
    checks.check("with this message", in_these_words(table, &said()?, folder));
    let running = agent
        .ended()?
        .map_or(Ok(()), |status| Err(anyhow::anyhow!("it ended: {status}")));
    checks.check("and does not end", running);
    agent.ask_to_end()?;
    let ended = stage.waits.eventually("the agent to end", SOON, || {
        agent.ended()?.context("it goes on")
    })?;
    checks.require(
        "until it is asked to, with code 0 (S-199)",
        ended.success(),
        &format!("it ended with {ended}"),
    );
    checks.check(
        "and wrote nothing without a plan (S-183)",
        nothing_of_ours(),
    );
    Ok(())
}

/// No virtual server, and nothing that bears our name, in the namespace of the calling thread.
fn nothing_of_ours() -> Result<()> {
    let servers = Program::Ipvsadm.run(&["-Sn"])?;
    ensure!(servers.trim().is_empty(), "ipvsadm shows {servers}");
    let seen = [
        Program::Ipset.run(&["list", "-n"])?,
        Program::IptablesSave.run(&[])?,
        Program::Ip6tablesSave.run(&[])?,
        Program::Ip.run(&["link", "show"])?,
        Program::Ip.run(&["route", "show", "table", "local"])?,
    ]
    .concat();
    let ours = |line: &&str| line.contains("PORTOLAN") || line.contains("kube-ipvs0");
    let found: Vec<_> = seen.lines().filter(ours).collect();
    ensure!(found.is_empty(), "there is {found:?}");
    Ok(())
}

fn in_these_words(table: &Table, log: &str, folder: &Path) -> Result<()> {
    let first = log.lines().find_map(|line| line.split_once(" WARN "));
    let first = first.map_or("", |(_, rest)| rest);
    let said = first.replace(&folder.display().to_string(), "{folder}");
    let row = table
        .get("controller-away")
        .context("the table has no row controller-away")?;
    ensure!(
        said.trim() == row.says.trim(),
        "{said}\ninstead of\n{}",
        row.says
    );
    Ok(())
}
