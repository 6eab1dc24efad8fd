//! Node ports follow the addresses of the node and are never served on a virtual IP.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{Checks, Lab, NODE_A, WEB};
use crate::topology::world::{Node, Resident};

/// Address with prefix length, address as a target, and further arguments of `ip`.
const NEW: [(&str, &str, &str); 2] = [
    ("192.168.50.77/24", "192.168.50.77", ""),
    ("fd00:50::77/64", "[fd00:50::77]", " nodad"),
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for (address, host, more) in NEW {
        let target = format!("{host}:30090");
        let since = Instant::now();
        lab.ip(NODE_A, &format!("address add {address} dev eth0{more}"))?;
        checks.check(
            &format!("an address added to node-a serves node ports at once: {host} (S-37)"),
            lab.soon_answers("a new address", since, Resident::Outside, &target, WEB),
        );
        let since = Instant::now();
        lab.ip(NODE_A, &format!("address del {address} dev eth0"))?;
        let result = lab.soon("an address that is gone", since, || {
            let found = servers_at(lab, host)?;
            ensure!(found.is_none(), "there is {found:?}");
            Ok(())
        });
        checks.check(
            &format!("a removed address has no virtual server left: {host} (S-37)"),
            result,
        );
    }
    lab.set("nodePortAddresses: [203.0.113.0/24, 192.168.50.0/24, '2001:db8:113::/64']")?;
    checks.check(
        "a range of node port addresses selects the node's address (S-33)",
        lab.answers(Resident::Outside, "192.168.50.11:30090", WEB),
    );
    checks.check(
        "a family without a selected address has no node ports (S-33)",
        lab.refuses(Resident::Outside, "[fd00:50::11]:30090"),
    );
    for target in ["203.0.113.50:30090", "[2001:db8:113::50]:30090"] {
        let result = servers_at(lab, target).and_then(|found| {
            ensure!(found.is_none(), "there is a virtual server {found:?}");
            Ok(())
        });
        checks.check(
            &format!(
                "a range that covers a balancer's address adds no node port there: {target} (S-36)"
            ),
            result,
        );
    }
    on_loopback(lab, checks)?;
    lab.set("nodePortAddresses: []")
}

/// S-234: the agent proxies TCP connections of clients on the node itself.
fn on_loopback(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let places = ["127.0.0.1:30090", "[::1]:30090"];
    for target in places {
        checks.check(
            &format!("without `localhost` there is no node port on {target} (S-35)"),
            lab.refuses(NODE_A, target),
        );
    }
    let since = Instant::now();
    lab.set("nodePortAddresses: [localhost, primary]")?;
    for target in places {
        checks.check(
            &format!("with `localhost` the node's own clients are served at {target} (S-234)"),
            lab.soon_answers(
                "a node port on a loopback address",
                since,
                NODE_A,
                target,
                WEB,
            ),
        );
    }
    checks.check(
        "… and `primary` works together with it (S-234)",
        lab.answers(Resident::Outside, "192.168.50.11:30090", WEB),
    );
    Ok(())
}

/// A virtual server of node-a whose address and port begin with `place`.
fn servers_at(lab: &Lab<'_>, place: &str) -> Result<Option<String>> {
    let servers = lab.cluster.virtual_servers(Node::A)?;
    let mut texts = servers.keys().map(|key| key.address.to_string());
    Ok(texts.find(|text| text.starts_with(place)))
}
