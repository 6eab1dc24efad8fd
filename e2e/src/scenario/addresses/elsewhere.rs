//! An external address of a Service that another machine also has: nodes and pods reach the Service at its own ports,
//! and that machine at every other port.

use anyhow::Result;

use super::{Checks, Lab, NODE_A, NODE_B, POD_A3, POD_B3, WEB};
use crate::topology::world::Resident;
use crate::traffic::Protocol;
use crate::traffic::server::Server;

/// Ports of the machine: one that no Service has, and the port of the Service.
const PORTS: [(Protocol, u16); 3] = [
    (Protocol::Tcp, 2222),
    (Protocol::Udp, 2222),
    (Protocol::Tcp, 80),
];
const NAME: &str = "other-machine";
const CLIENTS: [Resident; 4] = [NODE_A, NODE_B, POD_A3, POD_B3];
/// Addresses of the Service `web`, as a target and as an argument of `ip`.
const ADDRESSES: [(&str, &str); 2] = [
    ("203.0.113.50", "203.0.113.50/32"),
    ("[2001:db8:113::50]", "2001:db8:113::50/128"),
];
/// The machine answers pods at their own addresses.
const TO_PODS: [&str; 4] = [
    "10.244.1.0/24 via 192.168.50.11",
    "10.244.2.0/24 via 192.168.50.12",
    "fd00:10:244:1::/64 via fd00:50::11",
    "fd00:10:244:2::/64 via fd00:50::12",
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for (_, address) in ADDRESSES {
        lab.ip(Resident::Outside, &format!("address add {address} dev lo"))?;
    }
    for route in TO_PODS {
        lab.ip(Resident::Outside, &format!("route add {route}"))?;
    }
    let machine = Server::start(lab.topology.of(Resident::Outside)?, NAME, &PORTS)?;
    for (address, _) in ADDRESSES {
        let (own, service) = (format!("{address}:2222"), format!("{address}:80"));
        for from in CLIENTS {
            let name = from.name();
            checks.check(
                &format!("{name} reaches another port of {address} on the machine that has it (S-18, S-214)"),
                lab.answers(from, &own, &[NAME]),
            );
            checks.check(
                &format!("{name} reaches the Service at its port of {address} (S-16, S-214)"),
                lab.answers(from, &service, WEB),
            );
        }
    }
    drop(machine);
    for route in TO_PODS {
        lab.ip(Resident::Outside, &format!("route del {route}"))?;
    }
    for (_, address) in ADDRESSES {
        lab.ip(Resident::Outside, &format!("address del {address} dev lo"))?;
    }
    Ok(())
}
