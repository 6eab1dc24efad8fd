//! The address in a Node object changes while the agent runs: node ports on primary addresses
//! follow.

use std::time::Instant;

use anyhow::Result;

use super::{Checks, Lab, NODE_A, SOON, WEB};
use crate::files::CLUSTER;
use crate::harness::manifest_name;
use crate::topology::world::Resident;
use crate::waits;

const OLD: &str = "192.168.50.11";
const NEW: &str = "192.168.50.21";

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.set("nodePortAddresses: [primary]")?;
    lab.ip(NODE_A, &format!("address add {NEW}/24 dev eth0"))?;
    let [old, new] = [OLD, NEW].map(|address| format!("{address}:30090"));
    // By then, a faulty agent would have added node ports.
    waits::sleep_until(Instant::now() + lab.limit(SOON / 2))?;
    checks.check(
        "an address beside the primary one has no node ports (S-32)",
        lab.answers(Resident::Outside, &old, WEB)
            .and_then(|()| lab.refuses(Resident::Outside, &new)),
    );
    let file = manifest_name(CLUSTER[0]);
    let text = lab.stage.files.text(CLUSTER[0])?;
    let line = |address: &str| format!("{{type: InternalIP, address: {address}}}");
    let since = Instant::now();
    lab.write(&file, &text.replace(&line(OLD), &line(NEW)))?;
    checks.check(
        "node ports follow the Node's address, without a restart (S-203)",
        lab.soon_answers(
            "another address of the Node",
            since,
            Resident::Outside,
            &new,
            WEB,
        ),
    );
    checks.check(
        "the previous address of the Node has no node ports any more (S-203)",
        lab.soon_refuses("the Node's address before", since, Resident::Outside, &old),
    );
    checks.check(
        "its address of the other family keeps its node ports (S-203)",
        lab.answers(Resident::Outside, "[fd00:50::11]:30090", WEB),
    );
    let since = Instant::now();
    lab.write(&file, &text)?;
    checks.check(
        "node ports follow the address back (S-203)",
        lab.soon_answers(
            "the Node's address again",
            since,
            Resident::Outside,
            &old,
            WEB,
        ),
    );
    checks.check(
        "the temporary address has no node ports again (S-203)",
        lab.soon_refuses("the address meanwhile", since, Resident::Outside, &new),
    );
    lab.ip(NODE_A, &format!("address del {NEW}/24 dev eth0"))?;
    lab.set("nodePortAddresses: []")
}
