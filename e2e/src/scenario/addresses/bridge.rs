//! A bridge that becomes the gateway of pods: from then on, bridged packets pass the iptables
//! rules.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{Checks, Lab, NODE_B};
use crate::topology::load_bridge_filters;
use crate::topology::world::Node;

const SETTINGS: [&str; 2] = [
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    load_bridge_filters()?;
    let off = SETTINGS.map(|name| (name.to_owned(), "0"));
    lab.node(Node::B)?.set(&off)?;
    lab.ip(NODE_B, "link add cni9 type bridge")?;
    lab.ip(NODE_B, "address add 172.31.0.1/16 dev cni9")?;
    // Node ports on its address show that the agent has observed the interface, so its settings can be checked.
    let seen = lab.soon("a bridge of others", Instant::now(), || {
        let servers = lab.cluster.virtual_servers(Node::B)?;
        let mut addresses = servers.keys().map(|key| key.address.to_string());
        ensure!(
            addresses.any(|address| address.starts_with("172.31.0.1:")),
            "no node port is on it"
        );
        Ok(())
    });
    let untouched = seen.and_then(|()| {
        let values = values(lab)?;
        ensure!(values == ["0", "0"], "{SETTINGS:?} are {values:?}");
        Ok(())
    });
    checks.check(
        "a bridge without pods changes no setting of bridges (S-82)",
        untouched,
    );
    let since = Instant::now();
    lab.ip(NODE_B, "address add 10.244.2.254/32 dev cni9")?;
    let called = lab.soon("a bridge that pods hang on", since, || {
        let values = values(lab)?;
        ensure!(values == ["1", "1"], "{SETTINGS:?} are {values:?}");
        Ok(())
    });
    checks.check(
        "a bridge that pods hang on calls the rules at once (S-82)",
        called,
    );
    lab.ip(NODE_B, "link del cni9")?;
    Ok(())
}

fn values(lab: &Lab<'_>) -> Result<Vec<String>> {
    SETTINGS.iter().map(|name| setting(lab, name)).collect()
}

fn setting(lab: &Lab<'_>, name: &str) -> Result<String> {
    let path = Path::new("/proc/sys").join(name);
    lab.node(Node::B)?.inside(|| {
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim().to_owned())
    })
}
