//! Masquerading of packets from pods to addresses outside the cluster, as a network plugin such as
//! flannel adds it. Over an overlay, pods reach addresses of other nodes only this way.

use anyhow::{Context, Result};

use super::world::{Family, Node, PODS_V4, PODS_V6};
use crate::namespace::Namespace;
use crate::program::Program;

/// Loads it in a node's namespace.
pub(super) fn masquerade(namespace: &Namespace, node: Node, families: &[Family]) -> Result<()> {
    namespace.inside(|| {
        for &family in families {
            let restore = match family {
                Family::IPv4 => Program::IptablesRestore,
                Family::IPv6 => Program::Ip6tablesRestore,
            };
            restore
                .run_with_input(&["--noflush"], &rules(node, family))
                .with_context(|| format!("masquerade what pods of {} send out", node.name()))?;
        }
        Ok(())
    })
}

fn rules(node: Node, family: Family) -> String {
    let own = node.pod_range(family);
    let all = match family {
        Family::IPv4 => PODS_V4,
        Family::IPv6 => PODS_V6,
    };
    format!(
        "*nat\n\
         :CNI-MASQUERADE - [0:0]\n\
         -A POSTROUTING -s {own} -j CNI-MASQUERADE\n\
         -A CNI-MASQUERADE -d {all} -j RETURN\n\
         -A CNI-MASQUERADE -m addrtype ! --dst-type LOCAL -j MASQUERADE\n\
         COMMIT\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_between_pods_keep_their_addresses() {
        let text = rules(Node::B, Family::IPv6);
        assert!(text.contains("-s fd00:10:244:2::/64 -j CNI-MASQUERADE"));
        assert!(text.contains("-d fd00:10:244::/48 -j RETURN"));
    }
}
