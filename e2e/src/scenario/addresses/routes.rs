//! Routes of the node inside the service range keep working, and deleted routes of the agent are
//! restored.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Checks, Lab, NODE_A, NODE_B, POD_B3, SOON, WEB, ip};
use crate::dataplane::Dataplane;
use crate::harness;
use crate::program::Program;
use crate::topology::world::Resident;
use crate::traffic::Protocol;
use crate::traffic::load::{Load, Rate};
use crate::traffic::server::Server;

/// A server beyond the LAN with addresses inside the service range.
const BEYOND: (Protocol, u16) = (Protocol::Tcp, 7777);
const NAME: &str = "beyond";
/// The range routed there before the agents start, and an address in it.
const EARLY: (&str, &str) = ("10.100.0.0/16", "10.100.0.1");
/// The range routed there while they run.
const LATE: (&str, &str) = ("10.99.0.0/16", "10.99.0.1");
const WHOLE: &str = "10.96.0.0/12 dev kube-ipvs0";

/// Adds a route into the service range on node-b, and starts the server there.
pub(super) fn before_the_agents(lab: &harness::Lab<'_>) -> Result<Server> {
    for (_, address) in [EARLY, LATE] {
        ip(
            lab,
            Resident::Outside,
            &format!("address add {address}/32 dev lo"),
        )?;
    }
    let beyond = Server::start(lab.topology.of(Resident::Outside)?, NAME, &[BEYOND])?;
    // Without a custom rule the kernel looks up the tables local and main together, and the longest
    // prefix wins. With such a rule, as many network plugins add one, the table local is looked up
    // first.
    ip(lab, NODE_B, "rule add pref 30000 lookup main")?;
    ip(
        lab,
        NODE_B,
        &format!("route add {} via 192.168.50.100", EARLY.0),
    )?;
    Ok(beyond)
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let target = |address: &str| format!("{address}:{}", BEYOND.1);
    let (early, late) = (target(EARLY.1), target(LATE.1));
    checks.check(
        "Services of a range with a route of the node inside are served (S-30)",
        left_alone(lab),
    );
    checks.check(
        "the node's own route keeps working (S-30)",
        lab.answers(NODE_B, &early, &[NAME])
            .and_then(|()| lab.answers(POD_B3, &early, &[NAME])),
    );
    let load = load(lab)?;
    let since = Instant::now();
    lab.ip(NODE_B, &format!("route del {}", EARLY.0))?;
    checks.check(
        "once that route is gone, nothing in the range leaves the node (S-30)",
        is_kept(lab, "a route that went", since, &early),
    );
    checks.check(
        "an unused address in the range is refused (S-30)",
        lab.refuses(NODE_B, &early)
            .and_then(|()| lab.refuses(NODE_B, &late)),
    );
    let since = Instant::now();
    lab.ip(NODE_B, &format!("route add {} via 192.168.50.100", LATE.0))?;
    checks.check(
        "a route that is added while the agent runs takes effect at once (S-24, S-30, S-37)",
        lab.soon_answers("a route that came", since, NODE_B, &late, &[NAME])
            .and_then(|()| lab.answers(POD_B3, &late, &[NAME]))
            .and_then(|()| left_alone(lab)),
    );
    let since = Instant::now();
    lab.ip(NODE_B, &format!("route del {}", LATE.0))?;
    checks.check(
        "once that route is gone too, nothing in the range leaves the node again (S-30)",
        is_kept(lab, "a route that went again", since, &late),
    );
    let tally = load.finish()?;
    let first = tally.failures.first();
    checks.require(
        "no connection failed with and without the route to the range (S-30)",
        first.is_none() && tally.made > PER_SECOND,
        &format!("of {} connections: {first:?}", tally.made),
    );
    put_back(lab, checks)
}

/// Waits until node-b has a route of the range to our device, or without a device refuses an unused address itself.
fn is_kept(lab: &Lab<'_>, what: &str, since: Instant, unused: &str) -> Result<()> {
    match lab.stage.dataplane {
        Dataplane::Ipvs => {
            lab.soon_routes(what, since, NODE_B, "-4", |routes| routes.contains(WHOLE))
        }
        Dataplane::Nftables => lab.soon_refuses(what, since, NODE_B, unused),
    }
}

/// node-b has no route to an IPv4 service range, rejects nothing in it, and serves Services in it.
fn left_alone(lab: &Lab<'_>) -> Result<()> {
    let routes = lab.routes(NODE_B, "-4")?;
    ensure!(!routes.contains(WHOLE), "the range is routed: {routes}");
    lab.answers(NODE_B, "10.96.2.1:80", WEB)?;
    lab.answers(POD_B3, "10.96.2.1:80", WEB)
}

const PER_SECOND: u32 = 20;

fn load(lab: &Lab<'_>) -> Result<Load> {
    let rate = Rate {
        protocol: Protocol::Tcp,
        targets: vec!["10.96.2.1:80".parse()?],
        per_second: PER_SECOND,
        // Covers both changes.
        lasts: lab.limit(SOON) * 3 + Duration::from_secs(2),
        deadline: lab.limit(Duration::from_secs(2)),
    };
    Load::start(lab.topology.of(POD_B3)?, &rate, Instant::now())
}

fn put_back(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    match lab.stage.dataplane {
        Dataplane::Ipvs => {
            routes_put_back(lab, checks)?;
            rules_put_back(lab, checks, rules_of_tools)?;
            device_put_back(lab, checks)
        }
        Dataplane::Nftables => {
            tables_put_back(lab, checks)?;
            rules_put_back(lab, checks, |_| Ok(()))
        }
    }
}

fn tables_put_back(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    for (family, target) in [("ip", "10.96.2.1:80"), ("ip6", "[fd00:10:96::201]:80")] {
        let since = Instant::now();
        lab.inside(NODE_A, || {
            Program::Nft.run(&["delete", "table", family, "portolan"])
        })?;
        checks.check(
            &format!("a deleted table of the agent is restored at once: {family} (S-26)"),
            lab.soon_answers("a deleted table", since, super::POD_A3, target, WEB)
                .and_then(|()| lab.answers(NODE_A, target, WEB)),
        );
    }
    Ok(())
}

fn routes_put_back(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    for (family, range, target) in [
        ("-4", "10.96.0.0/12", "10.96.2.1:80"),
        ("-6", "fd00:10:96::/112", "[fd00:10:96::201]:80"),
    ] {
        let wanted = format!("{range} dev kube-ipvs0");
        let since = Instant::now();
        lab.ip(
            NODE_A,
            &format!("{family} route del {range} dev kube-ipvs0"),
        )?;
        let back = lab.soon_routes("a deleted route", since, NODE_A, family, |routes| {
            routes.contains(&wanted)
        });
        checks.check(
            &format!("a deleted route of the agent is restored at once: {range} (S-26)"),
            back.and_then(|()| lab.answers(NODE_A, target, WEB)),
        );
        let since = Instant::now();
        lab.ip(NODE_A, &format!("{family} rule del pref 91"))?;
        lab.ip(NODE_A, &format!("{family} route flush table 10270"))?;
        let back = lab.soon("policy routing", since, || {
            let rules = lab.ip(NODE_A, &format!("{family} rule show"))?;
            let table = lab.ip(NODE_A, &format!("{family} route show table 10270"))?;
            let right = rules.contains("lookup 10270") && table.contains("local default");
            ensure!(right, "{rules}{table}");
            Ok(())
        });
        checks.check(
            &format!("deleted policy routing is restored at once ({family}) (S-26)"),
            back.and_then(|()| lab.answers(super::POD_A3, target, WEB)),
        );
    }
    Ok(())
}

/// The rules of the agent in the tables of iptables.
fn rules_of_tools(lab: &Lab<'_>) -> Result<()> {
    for tool in [Program::IptablesSave, Program::Ip6tablesSave] {
        let rules = lab.inside(NODE_A, || tool.run(&[]))?;
        let jumps = ["raw", "mangle", "nat", "filter"].len();
        let found = rules.matches("-j PORTOLAN-").count();
        ensure!(found > jumps, "found {found} jumps of the agent: {rules}");
    }
    Ok(())
}

fn rules_put_back(
    lab: &Lab<'_>,
    checks: &mut Checks,
    are_there: fn(&Lab<'_>) -> Result<()>,
) -> Result<()> {
    let since = Instant::now();
    lab.inside(NODE_A, || Program::Nft.run(&["flush", "ruleset"]))?;
    let back = lab.soon("a flush of all rules", since, || {
        are_there(lab)?;
        lab.answers_within(super::POD_A3, "10.96.2.1:80", WEB, super::BRIEF)
    });
    checks.check(
        "flushed rules are restored within a second (S-226)",
        back.and_then(|()| lab.answers(super::POD_A3, "10.96.2.1:80", WEB)),
    );
    Ok(())
}

fn device_put_back(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let since = Instant::now();
    lab.ip(NODE_A, "link del kube-ipvs0")?;
    let back = lab
        .soon_routes("a deleted device", since, NODE_A, "-4", |routes| {
            routes.contains(WHOLE)
        })
        .and_then(|()| {
            lab.soon_routes("and its IPv6 routes", since, NODE_A, "-6", |routes| {
                routes.contains("fd00:10:96::/112 dev kube-ipvs0")
            })
        });
    checks.check(
        "our device is restored at once with its routes after it was deleted (S-26)",
        back.and_then(|()| lab.answers(Resident::Outside, "203.0.113.50:80", WEB))
            .and_then(|()| lab.answers(NODE_A, "[fd00:10:96::201]:80", WEB)),
    );
    Ok(())
}
