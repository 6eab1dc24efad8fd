//! One manual change of the kernel after the other, under load: each has to be corrected in time,
//! with no more operations than necessary.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Checks, IN_TIME, Lab, NODE, State, TURN, tables};
use crate::dataplane::Dataplane;
use crate::namespace::Namespace;
use crate::program::Program;
use crate::topology::world::Resident;
use crate::traffic::Protocol;
use crate::traffic::load::{Load, Rate};
use crate::witness;

/// State of keepalived and other programs: virtual servers elsewhere and on the node's own address, and a set; or a table
/// with our name in another family. Rules before and after ours, and a route.
pub(super) fn make_others(lab: &Lab<'_>) -> Result<()> {
    let of_dataplane: &[(Program, &str)] = match lab.stage.dataplane {
        Dataplane::Ipvs => &[
            (Program::Ipvsadm, "-A -t 203.0.113.99:80 -s wlc"),
            (
                Program::Ipvsadm,
                "-a -t 203.0.113.99:80 -r 10.244.1.11:8443 -m -w 3",
            ),
            (Program::Ipvsadm, "-A -u 192.168.50.11:5353 -s rr"),
            (Program::Ipset, "create OTHERS hash:ip"),
            (Program::Ipset, "add OTHERS 203.0.113.7"),
        ],
        Dataplane::Nftables => &[
            (Program::Nft, "add table inet others"),
            (
                Program::Nft,
                "add set inet others frontend { type ipv4_addr; }",
            ),
            (
                Program::Nft,
                "add element inet others frontend { 203.0.113.7 }",
            ),
        ],
    };
    lab.tools(NODE, of_dataplane)?;
    let lines = [
        (Program::Iptables, "-w -N OTHERS"),
        (
            Program::Iptables,
            "-w -A OTHERS -s 203.0.113.0/24 -j RETURN",
        ),
        (Program::Iptables, "-w -A INPUT -j OTHERS"),
        (Program::Iptables, "-w -t nat -A POSTROUTING -j RETURN"),
        (Program::Ip, "route add 203.0.113.128/25 via 192.168.50.100"),
    ];
    lab.tools(NODE, &lines)
}

/// A manual change, how the agent counts it, and the number of operations that correct it.
pub(super) struct Hand {
    pub(super) name: &'static str,
    program: Program,
    line: String,
    /// What the program reads on its standard input.
    input: &'static str,
    pub(super) found: String,
    /// `None` if a table is built again.
    operations: Option<u64>,
}

impl Hand {
    pub(super) fn reading(self, input: &'static str) -> Self {
        Self { input, ..self }
    }

    /// Makes the change. One program makes all of it: between two programs the agent of a slow
    /// machine has the time to correct the first half.
    pub(super) fn change(&self, node: &Namespace) -> Result<()> {
        let words: Vec<&str> = self.line.split_whitespace().collect();
        node.inside(|| self.program.run_with_input(&words, self.input).map(drop))
    }
}

pub(super) fn hand(
    name: &'static str,
    (program, line): (Program, &str),
    found: impl Into<String>,
    operations: impl Into<Option<u64>>,
) -> Hand {
    Hand {
        name,
        program,
        line: line.to_owned(),
        input: "",
        found: found.into(),
        operations: operations.into(),
    }
}

fn two_entries() -> Hand {
    let input = "del PORTOLAN-FRONTEND 10.96.2.1,tcp:80\nadd PORTOLAN-PODS 192.0.2.0/24\n";
    let name = "a foreign entry and a missing one";
    let one = hand(name, (Program::Ipset, "restore"), "2 set entries", 2);
    one.reading(input)
}

pub(super) fn weight() -> Hand {
    let line = format!("-e -t {TURN} -r 10.244.1.11:8080 -m -w 0");
    hand("a weight", (Program::Ipvsadm, &line), "1 weight", 1)
}

pub(super) fn flush(state: &State) -> Hand {
    let entries = lines_with(state, "sets", "add PORTOLAN-CLUSTERIP ");
    hand(
        "a flushed set",
        (Program::Ipset, "flush PORTOLAN-CLUSTERIP"),
        format!("{entries} set entries"),
        entries,
    )
}

pub(super) fn route() -> Hand {
    let line = "route del 10.96.0.0/12 dev kube-ipvs0";
    hand("a deleted route", (Program::Ip, line), "1 route", 1)
}

fn policy_rule() -> Hand {
    let line = "-6 rule del pref 91";
    let found = "1 policy rule";
    hand("a deleted policy rule", (Program::Ip, line), found, 1)
}

pub(super) fn chain() -> Hand {
    let line = "-w -t nat -F PORTOLAN-POSTROUTING";
    let found = "1 chain or jump";
    hand("a flushed chain", (Program::Iptables, line), found, 1)
}

fn hands(state: &State) -> Vec<Hand> {
    // The first of the two lists has those of IPv6 as well.
    let routes: BTreeSet<_> = ["IPv4 routes", "IPv6 routes"]
        .into_iter()
        .flat_map(|part| state[part].lines())
        .filter(|line| line.contains("dev kube-ipvs0") && line.contains("proto 112"))
        .collect();
    let routes = u64::try_from(routes.len()).unwrap_or(u64::MAX);
    let real_server = format!("-d -t {TURN} -r 10.244.1.12:8080");
    let server = format!("-D -t {TURN}");
    vec![
        weight(),
        hand(
            "a deleted real server",
            (Program::Ipvsadm, &real_server),
            "1 real server",
            1,
        ),
        // With its four real servers.
        hand(
            "a deleted virtual server",
            (Program::Ipvsadm, &server),
            "1 virtual server",
            5,
        ),
        flush(state),
        two_entries(),
        chain(),
        hand(
            "a deleted jump",
            (Program::Ip6tables, "-w -D INPUT -j PORTOLAN-INPUT"),
            "1 chain or jump",
            1,
        ),
        route(),
        policy_rule(),
        hand(
            "a deleted device",
            (Program::Ip, "link del kube-ipvs0"),
            "1 device",
            1 + routes,
        ),
    ]
}

fn lines_with(state: &State, part: &str, text: &str) -> u64 {
    let lines = state[part].lines().filter(|line| line.starts_with(text));
    u64::try_from(lines.count()).unwrap_or(u64::MAX)
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("put right");
    let right = lab.all()?;
    let load = load(lab)?;
    let hands = match lab.stage.dataplane {
        Dataplane::Ipvs => hands(&right),
        Dataplane::Nftables => tables::hands(lab)?,
    };
    for hand in hands {
        let what = format!(
            "{} is corrected in time and counted (S-107, S-184)",
            hand.name
        );
        checks.check(&what, is_put_right(lab, &hand, &right));
    }
    checks.check(
        "a kernel setting is corrected in time and counted (S-184)",
        setting(lab),
    );
    let (wanted, tally) = (load.0, load.1.finish()?);
    lab.line(&format!(
        "{} of {wanted} connections were made, {} were not answered",
        tally.made,
        tally.failures.len()
    ));
    checks.check("clients are answered again (S-184)", lab.answers());
    Ok(())
}

/// Clients of the Service all the time, so that nothing is changed in a quiet kernel.
fn load(lab: &Lab<'_>) -> Result<(u32, Load)> {
    let rate = Rate {
        protocol: Protocol::Tcp,
        targets: vec![TURN.parse()?, "[fd00:10:96::201]:80".parse()?],
        per_second: 10,
        lasts: Duration::from_secs(15),
        deadline: lab.limit(Duration::from_secs(2)),
    };
    let load = Load::start(lab.topology.of(Resident::Outside)?, &rate, Instant::now())?;
    Ok((rate.wanted(), load))
}

fn is_put_right(lab: &mut Lab<'_>, hand: &Hand, right: &State) -> Result<()> {
    let before = lab.log_end(NODE)?;
    hand.change(&lab.node(NODE)?)?;
    lab.eventually(hand.name, IN_TIME, || {
        let said = lab.log_since(NODE, before)?;
        let found = found(lab.stage.dataplane, &hand.found);
        let corrected = said.contains(&found) && operations(&said).is_some();
        witness::must_equal(right, &lab.all()?).with_context(|| format!("it said {said:?}"))?;
        ensure!(corrected, "it said {said:?}");
        Ok(())
    })?;
    let said = lab.log_since(NODE, before)?;
    let made = operations(&said);
    ensure!(
        hand.operations.is_none() || made == hand.operations,
        "{:?} operations would do, and it said {said:?}",
        hand.operations
    );
    let times = said.matches("another program changed ").count();
    ensure!(times == 1, "counted {times} times: {said}");
    Ok(())
}

/// As in the agent's log.
fn found(dataplane: Dataplane, words: &str) -> String {
    match dataplane {
        Dataplane::Ipvs => format!("found={words}\n"),
        Dataplane::Nftables => format!("found={words} first="),
    }
}

/// All operations that were made for no new plan, if there were any.
fn operations(said: &str) -> Option<u64> {
    let numbers = said.lines().filter(|line| {
        line.contains("corrected drift")
            || line.contains("adapted to a change of the node's network")
    });
    let numbers = numbers.filter_map(|line| {
        let rest = line.split_once("operations=")?.1;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    });
    let numbers: Vec<u64> = numbers.collect();
    (!numbers.is_empty()).then(|| numbers.iter().sum())
}

fn setting(lab: &mut Lab<'_>) -> Result<()> {
    let file = match lab.stage.dataplane {
        Dataplane::Ipvs => "/proc/sys/net/ipv4/vs/conntrack",
        Dataplane::Nftables => "/proc/sys/net/ipv4/ip_forward",
    };
    let before = lab.log_end(NODE)?;
    let node = lab.node(NODE)?;
    node.inside(|| Ok(std::fs::write(file, "0")?))?;
    lab.eventually("a kernel setting", IN_TIME, || {
        let value = node.inside(|| Ok(std::fs::read_to_string(file)?))?;
        let said = lab.log_since(NODE, before)?;
        let right =
            value.trim() == "1" && said.contains(&found(Dataplane::Ipvs, "1 kernel setting"));
        ensure!(right, "{file} is {value:?}, and it said {said:?}");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_over_all_passes_without_a_new_plan() {
        let said = "INFO the plan is in force plan=1 operations=7 milliseconds=1\n\
                    INFO corrected drift operations=2 milliseconds=1\n\
                    INFO adapted to a change of the node's network operations=3 milliseconds=1\n";
        assert_eq!(operations(said), Some(5));
        assert_eq!(
            operations("INFO the plan is in force plan=1 operations=7"),
            None
        );
    }
}
