//! Health check ports of Services.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::{
    AT_ONCE, Checks, HEALTHZ, Lab, NODE, PORT, Says, ask_port, balancer, endpoints, other, says,
};
use crate::files::HEALTH;
use crate::program::Program;
use crate::topology::world::{Family, Node, Resident};
use crate::traffic::client::Outcome;
use crate::traffic::http;
use crate::waits::{ANSWER, LATER, SOON};

/// With the endpoints of the beginning.
fn ready(family: Family) -> Says {
    Says {
        status: 200,
        count: if family == Family::IPv4 { 2 } else { 1 },
        healthy: true,
    }
}

/// All clients are answered on every address of the node. A cloud agent makes the load balancer's address a local
/// one, for load balancers that check health at their own address.
pub(super) fn answered(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("health check ports");
    for family in Family::ALL {
        balancer_is_local(lab, family, "add")?;
        let places = [
            ("the node's address", NODE.address(family)),
            ("the balancer's address", balancer(family)),
        ];
        for (name, address) in places {
            for from in [Resident::Outside, Resident::Node(NODE)] {
                let target = (address, PORT).into();
                checks.check(
                    &format!("{} asks {name} over {family} (S-134 to S-142)", from.name()),
                    lab.get(from, target, "/any/path")
                        .and_then(|response| says(&response, ready(family))),
                );
            }
        }
        // node-b has one endpoint for each family.
        let target = (Node::B.address(family), PORT).into();
        let there = Says {
            count: 1,
            ..ready(family)
        };
        checks.check(
            &format!("node-b counts its own endpoints over {family} (S-136)"),
            lab.get(Resident::Outside, target, "/")
                .and_then(|response| says(&response, there)),
        );
        balancer_is_local(lab, family, "del")?;
    }
    Ok(())
}

fn balancer_is_local(lab: &Lab<'_>, family: Family, act: &str) -> Result<()> {
    let address = balancer(family).to_string();
    lab.node(NODE)?.inside(|| {
        Program::Ip.run(&[
            "route", act, "local", &address, "dev", "eth0", "table", "local",
        ])?;
        Ok(())
    })
}

/// Readiness reaches the port at once, down to none and back.
pub(super) fn readiness(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("readiness");
    for ready in [&[1][..], &[], &[3], &[1, 2]] {
        lab.write("endpoints.yaml", &endpoints(ready))?;
        let count = u32::try_from(ready.len())?;
        let status = if ready.is_empty() { 503 } else { 200 };
        let wanted = Says {
            status,
            count,
            healthy: true,
        };
        let what = format!("{count} ready endpoints are {status} within a second (S-135)");
        let reached = lab.within(&what, AT_ONCE, || {
            says(&ask_port(lab, Family::IPv4)?, wanted)
        });
        checks.check(&what, reached);
    }
    Ok(())
}

/// Polls without a pause while an unrelated Service changes repeatedly.
pub(super) fn undisturbed(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    const CHANGES: usize = 20;
    lab.heading("changes of others");
    let done = Arc::new(AtomicBool::new(false));
    let deadline = lab.limit(ANSWER);
    let mut pollers = Vec::new();
    for family in Family::ALL {
        let done = done.clone();
        let target: SocketAddr = (NODE.address(family), PORT).into();
        let poll = move || {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                says(&http::get(target, "/", deadline)?, ready(family))?;
                asked += 1;
            }
            Ok(asked)
        };
        let outside = lab.topology.of(Resident::Outside)?;
        pollers.push((family, outside.start("poller", poll)?));
    }
    for round in 1..=CHANGES {
        lab.put_on(NODE, "other.yaml", &other(round))?;
    }
    done.store(true, Ordering::Relaxed);
    for (family, poller) in pollers {
        let ended = poller.join().map_err(|_| anyhow!("a poller panicked"))?;
        let what = format!("no change of another Service disturbs the port over {family} (S-141)");
        let result = ended.and_then(|asked| {
            let console = &lab.stage.console;
            console.line(&format!("{asked} answers while {CHANGES} changes came"));
            ensure!(asked >= CHANGES, "only {asked} answers");
            Ok(())
        });
        checks.check(&what, result);
    }
    Ok(())
}

/// A host with INPUT policy DROP still admits health checks of load balancers.
pub(super) fn firewall(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("INPUT policy DROP");
    let policy = |lab: &Lab<'_>, policy: &str| -> Result<()> {
        for program in [Program::Iptables, Program::Ip6tables] {
            lab.tool(NODE, program, &format!("-w -P INPUT {policy}"))?;
        }
        Ok(())
    };
    // Without it, neighbour discovery fails and no client reaches the node over IPv6.
    lab.tool(NODE, Program::Ip6tables, "-w -A INPUT -p icmpv6 -j ACCEPT")?;
    policy(lab, "DROP")?;
    for family in Family::ALL {
        let what = format!("the port is let in over {family} whatever the policy of INPUT (S-144)");
        let asked = ask_port(lab, family).and_then(|response| says(&response, ready(family)));
        checks.check(&what, asked);
    }
    let node: SocketAddr = (NODE.address(Family::IPv4), HEALTHZ).into();
    let outcome = lab.dial(Resident::Outside, node, Duration::from_millis(500))?;
    checks.require(
        "the host's firewall decides about the node's own health port",
        outcome == Outcome::Silent,
        &outcome.to_string(),
    );
    policy(lab, "ACCEPT")?;
    lab.tool(NODE, Program::Ip6tables, "-w -D INPUT -p icmpv6 -j ACCEPT")?;
    Ok(())
}

/// A health check port that another program uses.
pub(super) fn taken(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    const TAKEN: u16 = 32_111;
    lab.heading("a port that is taken");
    let listen = || TcpListener::bind(("0.0.0.0", TAKEN)).context("take the port");
    let squatter = lab.inside(Resident::Node(NODE), listen)?;
    let mark = lab.log_end(NODE)?;
    let text = lab.stage.files.text(HEALTH)?;
    let second = text
        .replace("name: counted", "name: second")
        .replace("10.96.4.1", "10.96.4.3")
        .replace("::401", "::403")
        .replace("32110", &TAKEN.to_string())
        .replace("30110", "30111")
        .replace("71\"}", "72\"}");
    lab.write("second.yaml", &second)?;
    let words = format!(
        "listen on 0.0.0.0:{TAKEN} for health checks of shop/second: Address already in use"
    );
    let named = lab.eventually("the port to be named", SOON, || {
        let said = lab.log_since(NODE, mark)?;
        ensure!(said.contains(&words), "{said}");
        Ok(())
    });
    checks.check(
        "a port that is taken is named with its Service (S-143)",
        named,
    );
    let target = (NODE.address(Family::IPv6), TAKEN).into();
    let over_ipv6 = lab.eventually("the other family", SOON, || {
        let response = lab.get(Resident::Outside, target, "/")?;
        ensure!(response.status == 503, "{response:?}");
        Ok(())
    });
    checks.check("the other family of it is answered (S-143)", over_ipv6);
    checks.check("others are answered meanwhile (S-143)", {
        let response = ask_port(lab, Family::IPv4);
        response.and_then(|response| says(&response, ready(Family::IPv4)))
    });
    std::thread::sleep(lab.limit(Duration::from_secs(2)));
    let times = lab.log_since(NODE, mark)?.matches(&words).count();
    checks.check("it is named once, however often it is tried (S-143)", {
        ensure_once(times)
    });
    drop(squatter);
    let target = (NODE.address(Family::IPv4), TAKEN).into();
    let healed = lab.eventually("the port to be opened", LATER + SOON, || {
        let response = lab.get(Resident::Outside, target, "/")?;
        ensure!(
            response.body.contains("\"name\":\"second\""),
            "{response:?}"
        );
        Ok(())
    });
    checks.check(
        "it is opened once it is free, without a change (S-143)",
        healed,
    );
    Ok(())
}

fn ensure_once(times: usize) -> Result<()> {
    ensure!(times == 1, "{times} times");
    Ok(())
}

/// The port moves, and goes with the Service.
pub(super) fn moved(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    const MOVED: u16 = 32_119;
    lab.heading("a port that moves");
    let text = lab.stage.files.text(HEALTH)?;
    let moved = text.replace(&PORT.to_string(), &MOVED.to_string());
    lab.write("services.yaml", &moved)?;
    for family in Family::ALL {
        let target = (NODE.address(family), MOVED).into();
        let what = format!("the new port answers over {family} (S-141)");
        let answered = lab.eventually(&what, SOON, || {
            says(&lab.get(Resident::Outside, target, "/")?, ready(family))
        });
        checks.check(&what, answered);
        let what = format!("the old port is closed over {family} (S-141)");
        let closed = lab.eventually(&what, SOON, || {
            lab.is_closed(Resident::Outside, (NODE.address(family), PORT).into())
        });
        checks.check(&what, closed);
    }
    std::fs::remove_file(lab.cluster.manifests().join("services.yaml"))?;
    for family in Family::ALL {
        let what = format!("the port is closed with its Service over {family} (S-141)");
        let closed = lab.eventually(&what, SOON, || {
            lab.is_closed(Resident::Outside, (NODE.address(family), MOVED).into())
        });
        checks.check(&what, closed);
    }
    Ok(())
}
