//! A table with the agent's name that belongs to another program: the kernel refuses each change of it by others, and
//! deletes it when that program ends.

use std::fs::File;
use std::io::{PipeWriter, Write as _};

use anyhow::{Context, Result};

use super::{Checks, Lab, NODE};
use crate::program::{Program, Running};
use crate::topology::world::Family;

/// One transaction, so that the agent cannot build its table between the two.
const TAKE: &str = "delete table ip portolan; add table ip portolan { flags owner; }\n";

/// The tool `nft` as the owner of the table. Dropping it ends it.
struct Owner {
    program: Running,
    _commands: PipeWriter,
}

impl Owner {
    fn start(lab: &Lab<'_>) -> Result<Self> {
        let (input, mut commands) = std::io::pipe().context("make a pipe")?;
        let log = File::create(lab.cluster.beside("owner.log"))?;
        let node = lab.node(NODE)?;
        let program = node.inside(|| Program::Nft.start_reading(&["-i"], input, &log))?;
        commands.write_all(TAKE.as_bytes())?;
        Ok(Self {
            program,
            _commands: commands,
        })
    }
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a table that another program owns");
    let mark = lab.log_end(NODE)?;
    let owner = Owner::start(lab)?;
    let words = ["IPv4", "nft list ruleset names the program"];
    checks.check(
        "a table that another program owns is one failure (S-169)",
        lab.fails_once(mark, &words),
    );
    checks.check(
        "the IPv4 table is not ours: IPv6 Services are served, new ones too",
        lab.follows(&[Family::IPv6]),
    );
    checks.check(
        "the IPv4 table is not ours: no other failure was logged",
        lab.logged_once(mark, &words),
    );
    let mark = lab.log_end(NODE)?;
    owner.program.ask_to_end()?;
    drop(owner);
    checks.check(
        "the plan is in force once the table has no owner (S-169)",
        {
            let newest = lab.state.0;
            lab.heals(mark)
                .and_then(|()| lab.served(newest, &Family::ALL))
        },
    );
    Ok(())
}
