//! Daemons on the nodes' own addresses: as endpoints of a Service, and on the number of a node port.

use anyhow::{Result, ensure};

use super::ask::{OPEN_PODS, Question};
use crate::checks::Checks;
use crate::harness::Lab;
use crate::program::Program;
use crate::topology::world::{Family, Node, OUTSIDE, outside_address};
use crate::traffic::Protocol;
use crate::traffic::client::Outcome;
use crate::traffic::server::Server;

/// Every kind of frontend of the Service `host`.
const HOST: [(&str, Protocol); 8] = [
    ("10.96.1.20:80", Protocol::Tcp),
    ("10.96.1.20:53", Protocol::Udp),
    ("203.0.113.61:80", Protocol::Tcp),
    ("192.168.50.11:30090", Protocol::Tcp),
    ("192.168.50.12:30092", Protocol::Udp),
    ("[fd00:10:96::120]:80", Protocol::Tcp),
    ("[2001:db8:113::61]:53", Protocol::Udp),
    ("[fd00:50::11]:30090", Protocol::Tcp),
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for from in [OUTSIDE, "pod-a3", "node-a", "node-b"] {
        // A daemon that receives datagrams on all addresses answers a pod of its node from the address of the pod's
        // gateway, and no proxy can match that answer to a request.
        let lost = |protocol| from == "pod-a3" && protocol == Protocol::Udp;
        let mut asked = HOST.into_iter().filter(|(_, protocol)| !lost(*protocol));
        let served = asked.try_for_each(|(to, protocol)| {
            let question = Question { from, to, protocol };
            question.is_answered(lab, &["daemon-of-node-a", "daemon-of-node-b"])
        });
        let over = if lost(Protocol::Udp) {
            "TCP"
        } else {
            "TCP and UDP"
        };
        let what = format!("daemons of both nodes serve {from} over {over} as endpoints (S-55)");
        checks.check(&what, served);
    }
    without_endpoints(lab, checks)?;
    listener(lab, checks)
}

/// Ports of the Service `empty` on node-a: its node ports, and those of its external IPs.
const EMPTY: [(Protocol, u16); 6] = [
    (Protocol::Tcp, 30095),
    (Protocol::Udp, 30096),
    (Protocol::Sctp, 30097),
    (Protocol::Tcp, 8085),
    (Protocol::Udp, 8086),
    (Protocol::Sctp, 8087),
];

/// S-224: a daemon on the port of a frontend without endpoints receives nothing.
fn without_endpoints(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let mut served = EMPTY.to_vec();
    served.retain(|(protocol, _)| protocol.is_spoken_here());
    let daemon = Server::start(&lab.node(Node::A)?, "squatter", &served)?;
    for (protocol, port) in served {
        for address in ["192.168.50.11", "[fd00:50::11]"] {
            let to: &str = &format!("{address}:{port}");
            let refused = [OUTSIDE, "pod-a3", "pod-b3", "node-b"]
                .into_iter()
                .try_for_each(|from| {
                    let question = Question { from, to, protocol };
                    question.ends(lab, &Outcome::Refused)
                });
            let what = format!("{to}/{protocol} without endpoints refuses all clients (S-224)");
            checks.check(&what, refused);
        }
    }
    let received = daemon.answered();
    checks.require(
        "… and a daemon on the same ports receives nothing (S-224)",
        received == 0,
        &format!("it received {received} requests"),
    );
    daemon.end()
}

fn listener(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let ports = [(Protocol::Tcp, 30080), (Protocol::Udp, 30053)];
    let squatter = Server::start(&lab.node(Node::A)?, "squatter", &ports)?;
    let served = [
        ("192.168.50.11:30080", Protocol::Tcp),
        ("192.168.50.11:30053", Protocol::Udp),
        ("[fd00:50::11]:30080", Protocol::Tcp),
    ]
    .into_iter()
    .try_for_each(|(to, protocol)| {
        [OUTSIDE, "pod-a3", "node-a"]
            .into_iter()
            .try_for_each(|from| Question { from, to, protocol }.is_answered(lab, &OPEN_PODS))
    });
    let missed = squatter.answered();
    let alone = served.and_then(|()| {
        ensure!(missed == 0, "the listener got {missed} of them");
        Ok(())
    });
    checks.check(
        "a node port takes precedence over a listener on the same port (S-31)",
        alone,
    );
    let question = Question {
        from: "node-a",
        to: "127.0.0.1:30080",
        protocol: Protocol::Tcp,
    };
    let kept = question.is_answered(lab, &["squatter"]);
    checks.check("… which keeps the loopback address (S-35)", kept);
    other_address(lab, checks)?;
    squatter.end()
}

/// Node ports answer on the node's primary addresses here, so its other addresses are free for
/// daemons.
fn other_address(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let node = lab.node(Node::A)?;
    let address = |act| {
        let words = ["address", act, "192.168.50.21/24", "dev", "eth0"];
        node.inside(|| Program::Ip.run(&words))
    };
    address("add")?;
    let to = "192.168.50.21:30080";
    let (from, protocol) = (OUTSIDE, Protocol::Tcp);
    let outcome = Question { from, to, protocol }.ask(lab)?;
    let wanted = Outcome::Answered {
        by: "squatter".to_owned(),
        seen: outside_address(Family::IPv4),
    };
    let what =
        "a daemon on an address without node ports keeps its port and sees its clients (S-158)";
    checks.require(what, outcome == wanted, &format!("{outcome}, not {wanted}"));
    address("del").map(drop)
}
