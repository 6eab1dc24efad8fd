//! The tables as other tools see them, their size, and their end.

use std::process::Command;
use std::time::Instant;

use netlink_blocking::testing::runner::{output_of, say};
use portolan_agent::kernel::TablesKernel;
use portolan_agent::kernel::linux::{NftTables, TableChanges};
use portolan_plan::Family;
use serde_json::Value;

use super::plan::service;
use super::services::{CLUSTER_IP, at, dns, web};
use super::traffic::{TCP_PORT, tcp};
use super::world::World;

/// All programs that list rules must be able to list these.
pub(crate) fn listed() {
    let mut world = World::new(2);
    let mut sticky = web(&world);
    sticky["ports"][0]["affinitySeconds"] = 600.into();
    sticky["ports"][0]["sourceRanges"] = serde_json::json!(["192.168.50.0/24"]);
    let services = [
        sticky,
        dns(&world),
        service("empty", "TCP", "10.96.0.77:80", &[]),
    ];
    world.apply(&services);
    let to = at(CLUSTER_IP[0], 80);
    world.client.inside(|| tcp(&to)).unwrap();
    let text = output_of("nft", &["list", "ruleset"]);
    for wanted in [
        "table ip portolan",
        "table ip6 portolan",
        "map endpoint",
        "10.96.0.20 . tcp . 80",
        "10.96.0.77 . tcp . 80",
        "comment \"managed by Portolan\"",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let json: Value = serde_json::from_str(&output_of("nft", &["-j", "list", "ruleset"])).unwrap();
    let objects = json["nftables"].as_array().unwrap();
    let count = |kind: &str| objects.iter().filter(|one| one.get(kind).is_some()).count();
    assert_eq!(count("table"), 2);
    assert!(count("rule") > 200, "{}", count("rule"));
    // What the agent reads is what it wrote, so a restart changes nothing.
    let document = world.keeper.document().unwrap();
    let read = NftTables::open(TableChanges::default())
        .unwrap()
        .read()
        .unwrap();
    let tables = portolan_reconcile::nftables::Tables::of(&world.facts(&services));
    assert_eq!(read, tables.applied());
    let again = portolan_reconcile::nftables::TablesDocument::new(&read, Some(&tables));
    assert_eq!(document, again);
    assert_eq!(document.services.len(), 3);
}

pub(crate) fn cleanup() {
    let mut world = World::new(1);
    let services = [web(&world), dns(&world)];
    output_of("nft", &["add", "table", "ip", "other"]);
    let before = output_of("nft", &["list", "ruleset"]);
    world.apply(&services);
    assert_ne!(output_of("nft", &["list", "ruleset"]), before);
    // Another process may do it.
    world.restart();
    assert_eq!(world.keeper.cleanup(), Family::BOTH.map(Ok));
    assert_eq!(output_of("nft", &["list", "ruleset"]), before);
    assert_eq!(world.keeper.cleanup(), []);
    let to = at(CLUSTER_IP[0], 80);
    assert!(world.client.inside(|| tcp(&to)).is_err());
}

pub(crate) fn large() {
    let mut world = World::new(1);
    let backends: Vec<_> = (1..=10).map(|last| format!("10.244.7.{last}:80")).collect();
    let backends = super::services::texts(&backends);
    let of_number = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let at = format!("10.97.{high}.{low}:80");
        service(&format!("s{number}"), "TCP", &at, &backends)
    };
    let mut services: Vec<_> = (0..2_000).map(of_number).collect();
    services.push(web(&world));
    assert_eq!(world.backends(TCP_PORT).len(), 2);
    let begun = Instant::now();
    let operations = world.apply(&services).operations;
    say(&format!("{operations} operations in {:?}", begun.elapsed()));
    assert!(operations > 24_000);
    world.restart();
    let begun = Instant::now();
    assert_eq!(world.apply(&services).operations, 0);
    say(&format!("read and compared in {:?}", begun.elapsed()));
    let to = at(CLUSTER_IP[1], 80);
    assert!(world.client.inside(|| tcp(&to)).is_ok());
}

/// Kernels before 6.9 cannot do this, and the tables then have no owner.
pub(crate) fn owned() {
    let mut world = World::new(1);
    let release = output_of("uname", &["-r"]);
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let can_own = world.keeper.kernel().own().unwrap();
    assert_eq!(can_own, version >= (6, 9), "{release}");
    if !can_own {
        say(&format!("tables cannot have an owner on kernel {release}"));
        return;
    }
    let services = [web(&world)];
    world.apply(&services);
    let to = at(CLUSTER_IP[0], 80);
    let nft = |arguments: &[&str]| Command::new("nft").args(arguments).output().unwrap();
    let delete = ["delete", "table", "ip", "portolan"];
    assert!(
        !nft(&delete).status.success(),
        "another program is not the owner"
    );
    nft(&["flush", "ruleset"]);
    assert!(world.client.inside(|| tcp(&to)).is_ok());
    // Without an agent, the tables stay, and anyone can change them.
    for _ in 0..2 {
        world.restart();
        assert!(world.keeper.kernel().own().unwrap());
        assert_eq!(world.apply(&services).operations, 0);
        assert!(
            !nft(&delete).status.success(),
            "the next agent is the owner"
        );
    }
    world.restart();
    assert!(nft(&delete).status.success());
    assert!(world.client.inside(|| tcp(&to)).is_err());
}
