//! A privileged pod on each node, in the node's network, which reads the programmed kernel state.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::cluster::{AGNHOST, Cluster, image};
use crate::stage::Stage;

const NAMESPACE: &str = "inspector";
const STARTED: Duration = Duration::from_secs(240);

/// Everything that an agent programs, as the usual programs print it, without counters.
const LOOK: &str = "iptables-save; ip6tables-save; ipset list -n; ip rule; ip -6 rule; ip route show table all; \
    ip -6 route show table all; ipvsadm -Sn; ls /sys/class/net; \
    sysctl -a 2>/dev/null | grep -E '^net\\.(ipv4|ipv6|netfilter|bridge|core)\\.'";

/// Lines with these are of pods that come and go, or count something.
const OTHERS: [&str; 8] = [
    "veth",
    "cni0",
    "CNI-",
    "nf_conntrack_count",
    "net.ipv4.neigh",
    "net.ipv6.neigh",
    "stable_secret",
    "net.netfilter.nf_log",
];

/// The kernel state of a node.
#[derive(Debug)]
pub(super) struct Picture {
    node: String,
    lines: BTreeSet<String>,
}

impl Picture {
    fn read(node: &str, said: &str) -> Self {
        let lines = said.lines().map(str::trim).filter(|line| {
            !line.is_empty()
                && !line.starts_with(['#', '*'])
                && !OTHERS.iter().any(|part| line.contains(part))
        });
        Self {
            node: node.to_owned(),
            lines: lines.map(without_counters).collect(),
        }
    }

    /// Lines that one has and the other has not.
    pub(super) fn differs(&self, now: &Self) -> Vec<String> {
        let gone = self
            .lines
            .difference(&now.lines)
            .map(|line| format!("{}: gone: {line}", self.node));
        let new = now
            .lines
            .difference(&self.lines)
            .map(|line| format!("{}: new: {line}", self.node));
        gone.chain(new).collect()
    }
}

/// `:CHAIN ACCEPT [12:345]` counts packets.
fn without_counters(line: &str) -> String {
    match line.split_once(" [") {
        Some((chain, _)) if chain.starts_with(':') => chain.to_owned(),
        _ => line.to_owned(),
    }
}

/// Starts them, and waits until they run.
pub(super) fn start(stage: &Stage, cluster: &Cluster) -> Result<()> {
    cluster.make_namespace(stage, NAMESPACE)?;
    let image = image(AGNHOST)?;
    let pod = |node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": node, "namespace": NAMESPACE},
            "spec": {
                "nodeName": node, "hostNetwork": true, "hostPID": true,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "inspector", "image": image, "args": ["pause"],
                    "securityContext": {"privileged": true},
                }],
            },
        })
    };
    let items: Vec<Value> = cluster.node_names().map(pod).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    cluster.plane.apply(&list.to_string())?;
    cluster.wait_for_pods(stage, NAMESPACE, STARTED)
}

/// The kernel state of each node.
pub(super) fn pictures(cluster: &Cluster) -> Result<Vec<Picture>> {
    let look = |node| Ok(Picture::read(node, &inside(cluster, node, LOOK)?));
    cluster.node_names().map(look).collect()
}

/// Restarts a node at once, without a shutdown.
pub(super) fn restart(cluster: &Cluster, node: &str) -> Result<()> {
    // The answer is lost with the node.
    drop(inside(
        cluster,
        node,
        "sync; (sleep 1; echo b > /proc/sysrq-trigger) >/dev/null 2>&1 &",
    ));
    Ok(())
}

fn inside(cluster: &Cluster, node: &str, script: &str) -> Result<String> {
    let words = ["exec", node, "-n", NAMESPACE, "--", "sh", "-c", script];
    cluster.plane.kubectl(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_differ_by_lines_and_not_by_counters_or_pods() {
        let before = Picture::read(
            "a",
            "# at noon\n:INPUT ACCEPT [1:60]\n-A INPUT -j X\n10.0.0.2 dev veth1\n",
        );
        let now = Picture::read("a", "# later\n:INPUT ACCEPT [7:99]\n-A INPUT -j Y\n");
        assert_eq!(
            before.differs(&now),
            ["a: gone: -A INPUT -j X", "a: new: -A INPUT -j Y"]
        );
        assert!(before.differs(&before).is_empty());
    }
}
