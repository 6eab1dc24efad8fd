//! Ports that the node's own connections do not use: node ports. If the source port of a connection is a node port, IPVS
//! would treat the reply as a new connection to that node port (S-222).

use std::collections::BTreeSet;

use portolan_plan::{PortRange, Protocol};

use crate::host::Machine;
use crate::ports::Ports;

/// Number of ports that stay available for connections of the node (S-242). Without any, the kubelet, the runtime and
/// the agent itself cannot connect. Kernels choose from 28,232 ports by default.
const AVAILABLE: usize = 8192;

/// The ports that the agent reserves: the range of node ports or, if that leaves the node too few ports to connect from,
/// the node ports in use.
pub(super) fn own(
    range: PortRange,
    machine: &Machine,
    in_use: &BTreeSet<(Protocol, u16)>,
) -> Ports {
    if unreserved(range, machine).is_some() {
        in_use.iter().map(|(_, port)| (*port, *port)).collect()
    } else {
        all_of(range)
    }
}

/// The warning for a range of node ports that is not reserved (S-242).
pub fn ports_warning(range: PortRange, machine: &Machine) -> Option<String> {
    let left = unreserved(range, machine)?;
    let all = &machine.local_ports;
    Some(format!(
        "nodePortRange {range} is not reserved: of the ports {all} from which this node connects, it would leave {left}, \
         fewer than {AVAILABLE}; only the node ports in use are reserved, so a connection of the node may fail if a new \
         Service takes its source port; choose a smaller nodePortRange, or move net.ipv4.ip_local_port_range out of it"
    ))
}

/// How many ports would be left to connect from, if the range cannot be reserved for that reason.
fn unreserved(range: PortRange, machine: &Machine) -> Option<usize> {
    let (all, range) = (&machine.local_ports, all_of(range));
    let left = available(all, &range.and(&machine.reserved_by_others));
    (left < AVAILABLE && !all.common(&range).is_empty()).then_some(left)
}

/// The number of ports from which a node connects, without these.
fn available(local: &Ports, reserved: &Ports) -> usize {
    local.without(reserved).count()
}

/// Whether a node has enough ports to connect from, and how many it has; `None` if that is unknown.
pub fn ports_to_connect_from(local: &Ports, reserved: &Ports) -> Option<(bool, usize)> {
    let left = available(local, reserved);
    // A smaller range is the choice of an administrator.
    let enough = left >= AVAILABLE || left == local.count();
    (local.count() > 0).then_some((enough, left))
}

fn all_of(range: PortRange) -> Ports {
    [(range.first, range.last)].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> Ports {
        Ports::parse(text)
    }

    fn machine(local: &str, others: &str) -> Machine {
        Machine {
            local_ports: Ports::parse_pair(local),
            reserved_by_others: ports(others),
            ..Machine::default()
        }
    }

    #[test]
    fn a_range_is_reserved_only_if_the_node_can_still_connect() {
        let in_use = [(Protocol::Tcp, 30080), (Protocol::Udp, 30080)].into();
        let reserved = |range: &str, local: &str, others: &str| {
            let machine = machine(local, others);
            let range = range.parse().unwrap();
            let warned = ports_warning(range, &machine).is_some();
            (own(range, &machine, &in_use).to_string(), warned)
        };
        let whole = |range: &str| (range.to_owned(), false);
        let in_use = || ("30080".to_owned(), true);
        for (range, local, others, wanted) in [
            ("30000-32767", "32768 60999", "", whole("30000-32767")),
            ("30000-40000", "32768 60999", "", whole("30000-40000")),
            ("1024-65535", "32768 60999", "", in_use()),
            ("1-65535", "1024 65535", "", in_use()),
            ("32768-52807", "32768 60999", "", whole("32768-52807")),
            ("32768-52808", "32768 60999", "", in_use()),
            ("32768-52807", "32768 60999", "60999", in_use()),
            // The range of local ports is small by itself: the agent may reserve what lies outside of it.
            ("30000-32767", "40000 41000", "", whole("30000-32767")),
            ("30000-40000", "40000 41000", "", in_use()),
            ("1024-65535", "unknown", "", whole("1024-65535")),
        ] {
            let found = reserved(range, local, others);
            assert_eq!(
                found, wanted,
                "S-242: {range} of {local}, others {others:?}"
            );
        }
    }
}
