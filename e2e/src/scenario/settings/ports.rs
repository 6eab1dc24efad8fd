//! S-242: whatever the range of node ports, the node keeps ports to connect from, and what the agent reserved goes with
//! the setting, or with `cleanup`.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};

use super::traffic::{LISTENS, RESERVED, read};
use super::{FILE, Lab, NODE, SOON};
use crate::checks::Checks;
use crate::harness::proxy_config;
use crate::topology::world::{Family, Resident, outside_address};
use crate::waits::ANSWER;

/// A port that another program reserves.
const OTHER: &str = "8080";
const USUAL: &str = "30000-32767";

/// Comes last: it ends with a cleanup.
pub(super) fn connects(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a node connects whatever the range of node ports is");
    let both = format!("{OTHER},{USUAL}");
    lab.node(NODE)?.set(&[(RESERVED.to_owned(), &both)])?;
    for range in ["1-65535", "1024-65535"] {
        let mark = lab.log_end(NODE)?;
        lab.write(FILE, &with_range(range))?;
        let words = ["nodePortRange", "is not reserved"];
        checks.check(
            &format!("nodePortRange {range} is not reserved, with a warning (S-242)"),
            lab.wait_logged(NODE, mark, &words, SOON),
        );
        let reserved = read(lab, RESERVED)?;
        let ports: Vec<&str> = reserved.split(',').collect();
        checks.require(
            &format!("… but the ports of others and the node ports in use (S-242), with {range}"),
            ports.contains(&OTHER) && ports.contains(&"30080") && !reserved.contains("30000"),
            &reserved,
        );
        connects_now(lab, checks, range);
    }
    lab.write(FILE, &with_range("30000-30999"))?;
    is_reserved(lab, checks, "a smaller range", "8080,30000-30999")?;
    lab.write(FILE, &lab.state.base())?;
    is_reserved(lab, checks, "without the setting, its default", &both)?;
    lab.cluster.stop_agent(NODE)?;
    lab.start_agent(NODE)?;
    is_reserved(lab, checks, "a restarted agent: the same", &both)?;
    lab.cluster.stop_agent(NODE)?;
    lab.clean_up(NODE)?;
    is_reserved(lab, checks, "after a cleanup: what others reserve", OTHER)
}

fn with_range(range: &str) -> String {
    proxy_config(&[&format!("nodePortRange: {range}")])
}

fn is_reserved(lab: &Lab<'_>, checks: &mut Checks, when: &str, wanted: &str) -> Result<()> {
    let reserved = lab.eventually(when, SOON, || {
        let reserved = read(lab, RESERVED)?;
        ensure!(reserved == wanted, "{reserved} is reserved");
        Ok(())
    });
    checks.check(&format!("{when} (S-242)"), reserved);
    connects_now(lab, checks, when);
    Ok(())
}

/// One connection to each of some servers outside.
fn connects_now(lab: &Lab<'_>, checks: &mut Checks, when: &str) {
    let limit = lab.limit(ANSWER);
    let open = |port| {
        let to = SocketAddr::new(outside_address(Family::IPv4), port);
        TcpStream::connect_timeout(&to, limit).with_context(|| format!("dial {to}"))
    };
    let opened = lab.inside(Resident::Node(NODE), || {
        LISTENS.map(open).collect::<Result<Vec<_>>>()
    });
    let what = format!("the node connects to others (S-242): {when}");
    checks.check(&what, opened.map(drop));
}
