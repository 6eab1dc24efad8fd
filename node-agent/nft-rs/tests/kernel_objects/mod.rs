//! Tests of tables, chains, sets and rules.

mod rules;

use netlink_blocking::testing::runner::output_of;
use nft_rs::{
    Batch, Bytes, Chain, Element, Expression, Family, Field, Rule, Set, Socket, Table, TableId,
};

use crate::{frontend, nft, table, with_table};
use rules::{R0, chains, load_frontend, masquerading, rules, sets};

/// A transaction with all of this.
fn everything(family: Family) -> (Table, Batch) {
    let mut table = Table::new(family, "t");
    nft_rs::user_data::put_text(&mut table.user_data, nft_rs::user_data::COMMENT, "a test")
        .unwrap();
    nft_rs::user_data::put(&mut table.user_data, 200, &[1, 2, 3]).unwrap();
    let id = table.id();
    let mut batch = Batch::new();
    batch.add_table(&table);
    for set in sets(family) {
        batch.add_set(&id, &set);
    }
    for chain in chains() {
        batch.add_chain(&id, &chain);
    }
    for rule in rules(family) {
        batch.add_rule(&id, &rule);
    }
    (table, batch)
}

fn loaded(family: Family) -> (Table, Socket) {
    let (table, batch) = everything(family);
    let mut socket = Socket::open().unwrap();
    socket.commit(&batch).unwrap();
    (table, socket)
}

pub(super) fn every_expression_is_listed_by_nft() {
    for family in [Family::Ipv4, Family::Ipv6] {
        loaded(family);
    }
    let text = nft(&["list", "ruleset"]);
    for expected in [
        "type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service",
        "type ipv6_addr . inet_proto . inet_service . ipv6_addr : ipv6_addr . inet_service",
        "comment \"a test\"",
        "ip daddr . meta l4proto . th dport @frontend goto pick",
        "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 8 map @endpoint comment \"by chance\"",
        "dnat ip6 to ip6 daddr . meta l4proto . th dport . jhash ip6 saddr mod 8 seed 0x1234 map @endpoint",
        "numgen inc mod 4 3 return",
        "update @affinity { ct original ip daddr . ct protocol . ct original proto-dst . ct original ip saddr timeout 3h : ip daddr . th dport }",
        "oifname \"lo\" return",
        "fib saddr type local masquerade",
        "masquerade to :1024-29999 fully-random",
        "ip6 saddr != @pods masquerade fully-random",
        "iifname \"cali*\" accept",
        "reject with tcp reset",
        "udp dport 1000-2000 counter packets 0 bytes 0 jump never",
        "udp dport > 30000 drop",
        "type filter hook input priority filter - 10; policy drop;",
        "meta mark set 0x00004000",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let json = nft(&["-j", "list", "ruleset"]);
    assert!(
        json.contains("\"numgen\"") && json.contains("\"affinity\""),
        "{json}"
    );
}

pub(super) fn what_is_written_is_read_the_same() {
    for family in [Family::Ipv4, Family::Ipv6] {
        let (table, mut socket) = loaded(family);
        let id = table.id();
        let read = socket.table(&id).unwrap().unwrap();
        assert!(read.handle.is_some() && read.uses.is_some());
        assert_eq!(read.as_written(), table);
        let read = socket.sets(&id).unwrap();
        assert!(read.iter().all(|set| set.handle.is_some()));
        let read: Vec<_> = read.into_iter().map(Set::as_written).collect();
        assert_eq!(read, sets(family));
        let read = socket.chains(&id).unwrap();
        assert!(read.iter().all(|chain| chain.handle.is_some()));
        let read: Vec<_> = read.into_iter().map(Chain::as_written).collect();
        assert_eq!(read, chains());
        let read = socket.rules(&id).unwrap();
        for chain in chains() {
            let of = |rule: &Rule| rule.chain == chain.name;
            let read: Vec<_> = read
                .iter()
                .filter(|rule| of(rule))
                .cloned()
                .map(Rule::as_written)
                .collect();
            let written: Vec<_> = rules(family).into_iter().filter(of).collect();
            assert_eq!(read, written);
        }
        assert_eq!(read.len(), rules(family).len());
    }
}

/// A table as nft writes it.
const OF_NFT: &str = "table ip other {
        set frontend { type ipv4_addr . inet_proto . inet_service; }
        map ports { type inet_service : mark; elements = { 80 : 5 } }
        set names { type ifname; elements = { \"eth0\" } }
        set pods { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 } }
        set allow { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 80-90 } }
        chain x { }
        chain c {
            type nat hook postrouting priority 95;
            ip daddr . meta l4proto . th dport @frontend goto x comment \"known\"
            ct status & dnat == 0 return
            meta l4proto tcp masquerade to :1024-2999 fully-random
        }
    }";

pub(super) fn sets_and_rules_of_nft_read_like_ours() {
    let ours = [
        Set::new(
            "frontend",
            [Field::Ipv4Address, Field::Protocol, Field::Port],
        ),
        Set::map("ports", [Field::Port], [Field::Mark]),
        Set::new("names", [Field::InterfaceName]),
        Set::new("pods", [Field::Ipv4Address]).with_intervals(),
        Set::new("allow", [Field::Ipv4Address, Field::Port]).with_intervals(),
    ];
    let file = std::env::temp_dir().join(format!("nft-rs-{}.nft", std::process::id()));
    std::fs::write(&file, OF_NFT).unwrap();
    nft(&["-f", &file.to_string_lossy()]);
    std::fs::remove_file(&file).unwrap();
    let other = TableId::new(Family::Ipv4, "other");
    let mut socket = Socket::open().unwrap();
    for (read, ours) in socket.sets(&other).unwrap().into_iter().zip(ours) {
        // What is left is a description of the types.
        let user_data = read.user_data.clone();
        assert_ne!(user_data.first(), Some(&0), "the byte order is understood");
        let ours = Set { user_data, ..ours };
        assert_eq!(read.as_written(), ours);
    }
    let mut elements = |set| socket.elements(&other, set).unwrap().unwrap();
    assert_eq!(
        elements("ports"),
        [Element::with_data(Bytes::port(80), Bytes::host_u32(5))]
    );
    assert_eq!(
        elements("names"),
        [Element::new(Bytes::interface_name("eth0"))]
    );
    let mut pods = elements("pods");
    pods.retain(|element| element.key.as_slice() != [0; 4]);
    pods.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(
        pods,
        Element::interval(&[10, 0, 0, 0], &[10, 255, 255, 255])
    );
    assert_eq!(
        elements("allow"),
        [Element::range(
            [10, 0, 0, 0, 0, 80, 0, 0],
            [10, 255, 255, 255, 0, 90, 0, 0]
        )]
    );
    assert_rules_read_like_ours(&socket.rules(&other).unwrap());
}

fn assert_rules_read_like_ours(rules: &[Rule]) {
    assert_eq!(rules[0].comment.as_deref(), Some("known"));
    let (mut known, _) = load_frontend(Family::Ipv4);
    known.extend([Expression::lookup("frontend", R0), Expression::goto("x")]);
    assert_eq!(rules[0].expressions, known);
    let port = masquerading(Family::Ipv4).remove(3).expressions;
    assert_eq!(rules[2].expressions[..2], port[..2]);
    assert!(
        rules
            .iter()
            .flat_map(|rule| &rule.expressions)
            .all(|expression| { !matches!(expression, Expression::Other { .. }) })
    );
}

pub(super) fn foreign_tables_are_listed() {
    output_of("nft", &["add", "table", "inet", "filter"]);
    output_of("nft", &["add", "chain", "inet", "filter", "c"]);
    output_of(
        "nft",
        &[
            "add", "rule", "inet", "filter", "c", "limit", "rate", "5/second", "log",
        ],
    );
    output_of(
        "nft",
        &[
            "add",
            "map",
            "inet",
            "filter",
            "v",
            "{ type mark : verdict ; }",
        ],
    );
    output_of(
        "nft",
        &["add", "element", "inet", "filter", "v", "{ 1 : drop }"],
    );
    let mut socket = Socket::open().unwrap();
    let filter = TableId::new(Family::Inet, "filter");
    assert_eq!(socket.tables(None).unwrap()[0].id(), filter);
    assert_eq!(socket.tables(Some(Family::Ipv4)).unwrap(), []);
    let rules = socket.rules(&filter).unwrap();
    let names: Vec<_> = rules[0].expressions.iter().map(Expression::name).collect();
    assert_eq!(names, ["limit", "log"]);
    let elements = socket.elements(&filter, "v").unwrap().unwrap();
    assert_eq!(
        (elements[0].data.clone(), elements[0].other.len()),
        (None, 1)
    );
    assert_eq!(elements[0].key, Bytes::host_u32(1));
    assert_eq!(socket.elements(&filter, "absent").unwrap(), None);
    let absent = TableId::new(Family::Ipv6, "absent");
    assert_eq!(socket.table(&absent).unwrap(), None);
    assert_eq!(socket.sets(&absent).unwrap(), []);
    assert_eq!(socket.chains(&absent).unwrap(), []);
    assert_eq!(socket.rules(&absent).unwrap(), []);
    assert_eq!(socket.elements(&absent, "s").unwrap(), None);
}

pub(super) fn objects_are_deleted_by_name() {
    let mut socket = Socket::open().unwrap();
    let set = Set::new(
        "frontend",
        [Field::Ipv4Address, Field::Protocol, Field::Port],
    );
    let mut batch = with_table();
    batch.add_set(&table(), &set);
    batch.add_elements(
        &table(),
        "frontend",
        [Element::new(frontend([10, 0, 0, 1].into(), 80))],
    );
    batch.add_chain(&table(), &Chain::new("c"));
    for _ in 0..2 {
        batch.add_rule(&table(), &Rule::new("c", [Expression::accept()]));
    }
    socket.commit(&batch).unwrap();
    let first = socket.rules(&table()).unwrap()[0].clone();
    let mut batch = Batch::new();
    batch.delete_rule(&table(), "c", first.handle.unwrap());
    batch.add_rule(&table(), &Rule::new("c", [Expression::drop()]));
    batch.flush_set(&table(), "frontend");
    socket.commit(&batch).unwrap();
    let rules: Vec<_> = socket
        .rules(&table())
        .unwrap()
        .into_iter()
        .map(Rule::as_written)
        .collect();
    let expected = [
        Rule::new("c", [Expression::accept()]),
        Rule::new("c", [Expression::drop()]),
    ];
    assert_eq!(rules, expected);
    assert_eq!(
        socket.elements(&table(), "frontend").unwrap(),
        Some(Vec::new())
    );
    let mut batch = Batch::new();
    batch.flush_chain(&table(), "c");
    batch.delete_chain(&table(), "c");
    batch.delete_set(&table(), "frontend");
    socket.commit(&batch).unwrap();
    assert_eq!(nft(&["list", "ruleset"]), "table ip t {\n}\n");
    let mut batch = Batch::new();
    batch.delete_table(&table());
    socket.commit(&batch).unwrap();
    assert_eq!(nft(&["list", "ruleset"]), "");
}

pub(super) fn a_table_is_replaced_in_one_transaction() {
    let mut socket = Socket::open().unwrap();
    for name in ["first", "second"] {
        let mut batch = with_table();
        batch.delete_table(&table());
        batch.add_table(&Table::new(Family::Ipv4, "t"));
        batch.add_chain(&table(), &Chain::new(name));
        let before = socket.generation().unwrap().id;
        socket.commit(&batch).unwrap();
        assert_eq!(socket.generation().unwrap().id, before + 1);
        let chains = socket.chains(&table()).unwrap();
        assert_eq!(chains.len(), 1);
        assert_eq!(&*chains[0].name, name);
    }
}
