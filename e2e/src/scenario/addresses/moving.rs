//! An address that is added to an interface of a node and removed again, under steady traffic: a
//! load balancer's address, and the node's own.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::{BRIEF, Checks, Lab, NODE_A, POD_A3, SOON, WEB};
use crate::dataplane::Dataplane;
use crate::topology::world::Resident;
use crate::traffic::Protocol;
use crate::traffic::load::{Load, Rate, Tally};
use crate::waits;

const PER_SECOND: u32 = 20;
/// A load that reaches less than this share of its rate proves nothing.
const ENOUGH: f64 = 0.8;
/// Pause between changes, in addition to the time allowed for following one.
const PAUSE: Duration = Duration::from_secs(2);

/// Loads that run, and moments since their beginning.
struct Watched {
    start: Instant,
    rate: Rate,
    loads: Vec<(Resident, Load)>,
}

/// Result of one load.
struct Seen {
    from: Resident,
    tally: Tally,
    wanted: u32,
}

impl Watched {
    /// Steady connections from these, for three periods of [`Self::step`].
    fn start(lab: &Lab<'_>, from: &[Resident], target: &str) -> Result<Self> {
        let rate = Rate {
            protocol: Protocol::Tcp,
            targets: vec![target.parse()?],
            per_second: PER_SECOND,
            lasts: Self::step(lab) * 3,
            deadline: lab.limit(BRIEF),
        };
        let start = Instant::now() + Duration::from_millis(200);
        let mut loads = Vec::new();
        for from in from {
            let load = Load::start(lab.topology.of(*from)?, &rate, start)?;
            loads.push((*from, load));
        }
        Ok(Self { start, rate, loads })
    }

    fn step(lab: &Lab<'_>) -> Duration {
        lab.limit(SOON) + PAUSE
    }

    /// Waits for the end of a step.
    fn reach(&self, lab: &Lab<'_>, step: u32) -> Result<()> {
        waits::sleep_until(self.start + Self::step(lab) * step)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn finish(self) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        for (from, load) in self.loads {
            let (tally, wanted) = (load.finish()?, self.rate.wanted());
            seen.push(Seen {
                from,
                tally,
                wanted,
            });
        }
        Ok(seen)
    }
}

impl Seen {
    /// Fails if a connection that began in this time failed, or too few were made at all.
    fn none_failed(&self, from: Duration, to: Duration) -> Result<()> {
        let (made, wanted) = (self.tally.made, self.wanted);
        ensure!(
            f64::from(made) >= ENOUGH * f64::from(wanted),
            "only {made} of {wanted} connections were made"
        );
        let mut failures = self.tally.failures.iter();
        if let Some((when, target, how)) = failures.find(|f| f.0 >= from && f.0 < to) {
            bail!(
                "{:.3} s after the beginning ({:.3} s after the change) {target}: {how}",
                when.as_secs_f64(),
                when.saturating_sub(from).as_secs_f64()
            );
        }
        Ok(())
    }

    /// Time from a change to the last failure before the next change.
    fn outage(&self, from: Duration, to: Duration) -> Duration {
        let failures = self.tally.failures.iter();
        let within = failures.filter(|f| f.0 >= from && f.0 < to);
        within.map(|f| f.0 - from).max().unwrap_or_default()
    }
}

const LATER: Duration = Duration::MAX;

/// A balancer's address.
pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let (outside, daemon) = (Resident::Outside, ["daemon-of-node-a"]);
    let target = "203.0.113.50:9999";
    checks.check(
        "before the move, other ports of a balancer's address do not answer (S-214)",
        lab.is_unanswered(outside, target, BRIEF),
    );
    checks.check(
        "clients from outside are refused there at once: their packets would go back (S-247)",
        lab.refused(outside, target.parse()?),
    );
    let watched = Watched::start(lab, &[outside, POD_A3], "203.0.113.50:80")?;
    watched.reach(lab, 1)?;
    let since = Instant::now();
    lab.ip(NODE_A, "address add 203.0.113.50/32 dev eth0")?;
    checks.check(
        "on an interface of node-a, the node answers at its other ports (S-25)",
        lab.soon_answers("an address that came", since, outside, target, &daemon),
    );
    watched.reach(lab, 2)?;
    let (removed, since) = (watched.now(), Instant::now());
    lab.ip(NODE_A, "address del 203.0.113.50/32 dev eth0")?;
    checks.check(
        "once it is removed, its other ports do not answer (S-25, S-214)",
        lab.soon_unanswered("an address that went", since, outside, target),
    );
    for seen in watched.finish()? {
        let from = seen.from.name();
        checks.check(
            &format!("no connection of {from} fails while the address is added and present (S-25)"),
            seen.none_failed(Duration::ZERO, removed),
        );
        let settled = removed + lab.limit(SOON);
        checks.check(
            &format!("no connection of {from} fails after the address was removed (S-25)"),
            seen.none_failed(settled, LATER),
        );
        note_outage(lab, &seen, "the address went", removed, LATER);
    }
    let (address, target) = ("2001:db8:113::50/128", "[2001:db8:113::50]");
    let (service, other) = (format!("{target}:80"), format!("{target}:9999"));
    let since = Instant::now();
    lab.ip(NODE_A, &format!("address add {address} dev eth0 nodad"))?;
    checks.check(
        "IPv6: an added address belongs to the node, and its Service port to the Service (S-25)",
        lab.soon_answers("an IPv6 address that came", since, outside, &other, &daemon)
            .and_then(|()| lab.answers(outside, &service, WEB)),
    );
    let since = Instant::now();
    lab.ip(NODE_A, &format!("address del {address} dev eth0"))?;
    checks.check(
        "IPv6: a removed address answers only at the Service port (S-25, S-214)",
        lab.soon_unanswered("an IPv6 address that went", since, outside, &other)
            .and_then(|()| lab.answers(outside, &service, WEB)),
    );
    Ok(())
}

/// The node's own address, which its connections to cluster IPs carry.
pub(super) fn run_with_the_nodes_own(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let watched = Watched::start(lab, &[NODE_A, POD_A3], "10.96.2.3:80")?;
    watched.reach(lab, 1)?;
    let removed = watched.now();
    lab.ip(NODE_A, "address del 192.168.50.11/24 dev eth0")?;
    watched.reach(lab, 2)?;
    let back = watched.now();
    lab.ip(NODE_A, "address add 192.168.50.11/24 dev eth0")?;
    // The manager of the node's network restores these routes with the address.
    lab.ip(NODE_A, "route replace default via 192.168.50.100")?;
    lab.ip(NODE_A, "route replace 10.244.2.0/24 via 192.168.50.12")?;
    let soon = lab.limit(SOON);
    for seen in watched.finish()? {
        let from = seen.from.name();
        checks.check(
            &format!("{from} reaches a cluster IP until the node's address is taken away (S-15)"),
            seen.none_failed(Duration::ZERO, removed),
        );
        let away = "while the address, and with it the default route, is away";
        // Without a device and its routes, a node needs a route of its own for what it sends.
        if lab.stage.dataplane == Dataplane::Nftables && seen.from == NODE_A {
            let outage = seen.outage(removed, back);
            checks.require(
                &format!("{from} has no route to it {away}"),
                outage > soon,
                &format!("the last failure was after {outage:?}"),
            );
        } else {
            checks.check(
                &format!("{from} reaches it {away} (S-15, S-37)"),
                seen.none_failed(removed + soon, back),
            );
        }
        checks.check(
            &format!("{from} reaches it once the address is back (S-15, S-37)"),
            seen.none_failed(back + soon, LATER),
        );
        note_outage(lab, &seen, "the node's address went", removed, back);
        note_outage(lab, &seen, "the node's address came back", back, LATER);
    }
    Ok(())
}

fn note_outage(lab: &Lab<'_>, seen: &Seen, what: &str, from: Duration, to: Duration) {
    let what = format!("outage of {} when {what}", seen.from.name());
    let outage = seen.outage(from, to).as_millis().to_string();
    lab.state.times.borrow_mut().row([what, outage]);
}
