//! What hangs: a tool that the agent runs, and in the long form the thread of the agent that programs the kernel.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::extra::Extra;
use super::{Checks, FIRST, Lab, NODE, file};
use crate::topology::world::Family;
use crate::waits::{LATER, SOON};

/// The agent's time limit for a tool.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);
/// Time without progress after which an agent reports that it hangs.
const REPORT_AFTER: Duration = Duration::from_secs(90);
/// Time without progress after which it ends.
const END_AFTER: Duration = Duration::from_secs(600);

/// A tool that stops while a file beside it exists. Its own folder is the first in the search path.
const TOOL: &str = "iptables-nft-save";
const HANGS: &str = "hangs";
const SCRIPT: &str = "#!/bin/dash\n\
    if [ -e \"${0%/*}/hangs\" ]; then kill -STOP $$; fi\n\
    PATH=${PATH#*:}\n\
    export PATH\n\
    exec iptables-nft-save \"$@\"\n";

/// A folder with the tool, which hangs.
fn hanging_tool(lab: &Lab<'_>) -> Result<PathBuf> {
    let folder = lab.cluster.beside("tools");
    let place = |name: &str| folder.join(name);
    fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
    fs::write(place(TOOL), SCRIPT)?;
    fs::set_permissions(place(TOOL), Permissions::from_mode(0o755))?;
    File::create(place(HANGS))?;
    Ok(folder)
}

/// An agent starts while the tool that reads IPv4 rules hangs.
pub(super) fn tool(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a tool that hangs");
    let (tools, nft) = (hanging_tool(lab)?, ["--iptables", "nft"]);
    lab.cluster.stop_agent(NODE)?;
    lab.state.0 += 1;
    let number = lab.state.0;
    lab.write(&file(number), &Extra::new(number).manifest())?;
    let mark = lab.log_end(NODE)?;
    lab.cluster.start_agent_with_tools(NODE, &nft, &tools)?;
    checks.check(
        "a tool hangs: Services that were there are served",
        lab.answers(FIRST, &Family::ALL),
    );
    let words = [
        "read IPv4 rules: run iptables-nft-save: ",
        "it did not end and was killed",
    ];
    let error = ["the plan is not fully in force; retrying"];
    checks.check(
        "a tool that hangs is killed, and is one failure (S-169)",
        lab.wait_logged(NODE, mark, &error, TOOL_TIMEOUT + LATER)
            .and_then(|()| lab.logged_once(mark, &words)),
    );
    checks.check(
        "a tool hangs: Services are served, new ones too",
        lab.served(number, &Family::ALL),
    );
    let mark = lab.log_end(NODE)?;
    fs::remove_file(tools.join(HANGS))?;
    checks.check(
        "once the tool works, the plan is in force (S-169)",
        // An attempt before that still has to end.
        lab.heals_within(mark, TOOL_TIMEOUT + LATER + SOON),
    );
    let mark = lab.log_end(NODE)?;
    lab.restart_agent(NODE, &nft)?;
    lab.wait_logged(NODE, mark, &["the plan is in force"], SOON)
}

/// The thread that programs the kernel writes the ownership record to a pipe that has no reader, and waits for ever.
pub(super) fn agent(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    if !lab.stage.long {
        return Ok(());
    }
    lab.heading("an agent that hangs");
    let pipe = lab.cluster.state_folder(NODE).join("virtual-servers.new");
    mkfifo(&pipe, Mode::S_IRWXU).with_context(|| format!("make {}", pipe.display()))?;
    let hung = hangs(lab, checks);
    fs::remove_file(&pipe).with_context(|| format!("remove {}", pipe.display()))?;
    let number = hung?;
    let mark = lab.log_end(NODE)?;
    // As the kubelet or systemd does it.
    lab.cluster.start_agent(NODE)?;
    checks.check(
        "after an agent that hung, the next one applies the plan",
        lab.wait_logged(NODE, mark, &["the plan is in force"], LATER)
            .and_then(|()| lab.served(number, &Family::ALL)),
    );
    Ok(())
}

/// Waits until the agent has ended. Returns the number of the Service that it could not apply.
fn hangs(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<u8> {
    let mark = lab.log_end(NODE)?;
    lab.state.0 += 1;
    let number = lab.state.0;
    lab.write(&file(number), &Extra::new(number).manifest())?;
    let words = [
        "the thread hangs: no change reaches the kernel",
        "programmer",
    ];
    checks.check(
        "an agent that hangs reports it",
        lab.wait_logged(NODE, mark, &words, REPORT_AFTER + LATER),
    );
    checks.check(
        "the agent hangs: Services that were there are served",
        lab.answers(FIRST, &Family::ALL),
    );
    let status = lab.cluster.wait_agent_end(NODE, END_AFTER + LATER)?;
    checks.check("an agent that hangs for long ends itself", {
        let aborted = status.signal().map(Signal::try_from) == Some(Ok(Signal::SIGABRT));
        let log = lab.log_since(NODE, mark);
        log.and_then(|log| {
            ensure!(aborted, "it ended with {status}");
            ensure!(log.contains("the thread still hangs"), "{log}");
            Ok(())
        })
    });
    checks.check(
        "without an agent that hung, Services that were there are served",
        lab.answers(FIRST, &Family::ALL),
    );
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_names_of_the_tool_and_of_the_file() {
        assert!(SCRIPT.contains(&format!("exec {TOOL} ")));
        assert!(SCRIPT.contains(&format!("/{HANGS}\"")));
    }
}
