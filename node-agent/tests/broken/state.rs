//! Problems of time, disk, plan, record and the connection to the controller.

use std::time::{Duration, UNIX_EPOCH};

use portolan_agent::doctor::Check;
use portolan_agent::doctor::facts::ConnectError;

use super::{Broken, alone, disk, fails, put_routes, set_plan, warns};
use crate::healthy::now;
use crate::running::document;

pub(super) const BROKEN: &[Broken] = &[
    alone(fails("1970", Check::Clock, "timedatectl", |facts| {
        facts.now = UNIX_EPOCH + Duration::from_secs(7);
    })),
    alone(warns(
        "a plan of tomorrow",
        Check::Clock,
        "timedatectl",
        |facts| {
            facts.now -= Duration::from_secs(86_400);
        },
    )),
    alone(warns(
        "no state directory",
        Check::StateDirectory,
        "--state-dir",
        |facts| {
            facts.state.1 = Ok(None);
        },
    )),
    alone(fails(
        "a file for a directory",
        Check::StateDirectory,
        "ls -ld",
        |facts| {
            facts.state.1 = Err("/var/lib/portolan: Not a directory".into());
        },
    )),
    fails(
        "a read-only disk",
        Check::StateDirectory,
        "remount,rw",
        |facts| {
            disk(facts).writable = false;
        },
    ),
    alone(warns(
        "little room",
        Check::StateDirectory,
        "df -h",
        |facts| {
            disk(facts).free = disk(facts).size / 25;
        },
    )),
    alone(warns(
        "little room on a small disk",
        Check::StateDirectory,
        "df -h",
        |facts| {
            (disk(facts).size, disk(facts).free) = (100_000_000, 49_000_000);
        },
    )),
    alone(fails(
        "a damaged plan",
        Check::Plan,
        "rm /var/lib/portolan/plan",
        |facts| {
            facts.plan = Err("/var/lib/portolan/plan: it is damaged".into());
        },
    )),
    alone(warns("no plan", Check::Plan, "--state-dir", |facts| {
        facts.plan = Ok(None);
    })),
    alone(fails("a copied disk", Check::Plan, "copied", |facts| {
        facts.node = Some("node-b".into());
    })),
    alone(warns(
        "other addresses",
        Check::Plan,
        "kubectl get node",
        |facts| {
            let mut document = document();
            document.node_addresses = vec!["192.168.50.77".parse().unwrap()];
            set_plan(facts, document.into_plan().unwrap());
            put_routes(facts);
        },
    )),
    warns(
        "an old plan",
        Check::Plan,
        "kubectl get proxyplans",
        |facts| {
            let (_, origin) = facts.plan.as_mut().unwrap().as_mut().unwrap();
            origin.confirmed = now() - Duration::from_secs(601);
        },
    ),
    fails(
        "a damaged record",
        Check::OwnershipRecord,
        "rm /var/lib/portolan/virtual-servers",
        |facts| {
            facts.record = Err("virtual-servers:2: \"x\" is not a virtual server".into());
        },
    ),
    alone(warns(
        "no record",
        Check::OwnershipRecord,
        "restart the agent",
        |facts| {
            facts.record = Ok(None);
        },
    )),
    fails("no controller", Check::Controller, "firewall", |facts| {
        let refused = ConnectError::NoWay("Connection refused".into());
        facts.controller = Some(("10.0.0.7:10270".into(), Err(refused)));
    }),
    fails(
        "a distrusted one",
        Check::Controller,
        "which clock",
        |facts| {
            let expired = ConnectError::Distrusted("the controller's certificate expired".into());
            facts.controller = Some(("10.0.0.7:10270".into(), Err(expired)));
        },
    ),
];
