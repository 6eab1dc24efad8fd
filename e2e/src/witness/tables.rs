//! The tables of nftables in a namespace, as the tool `nft` prints them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{VirtualServer, VirtualServers, sorted};
use crate::namespace::Namespace;
use crate::program::Program;

/// The families of tables, as `nft` and `ip` name them.
const FAMILIES: [(&str, &str); 2] = [("ip", "-4"), ("ip6", "-6")];
const TABLE: &str = "portolan";
/// Packets add and change the elements of these, so they are not what the agent wrote.
const FILLED_BY_PACKETS: [&str; 2] = ["map affinity {", "set counted {"];

/// Frontends with their backends. The weight of a backend is the number of its slots.
///
/// # Errors
/// If `nft` fails or its output cannot be parsed.
pub fn served(namespace: &Namespace) -> Result<VirtualServers> {
    let mut served = VirtualServers::new();
    for (family, _) in families(namespace)? {
        let words = ["-j", "list", "map", family, TABLE, "endpoint"];
        let text = namespace.inside(|| Program::Nft.run(&words))?;
        add(&mut served, &text).with_context(|| format!("read the map `endpoint` of {family}"))?;
    }
    Ok(served)
}

/// Everything that a Service proxy could write in a namespace for this dataplane, as comparable text.
///
/// # Errors
/// When one of the tools fails.
pub fn everything(namespace: &Namespace) -> Result<BTreeMap<&'static str, String>> {
    let mut all = BTreeMap::new();
    for (family, option) in families(namespace)? {
        namespace.inside(|| {
            let table = Program::Nft.run(&["-s", "list", "table", family, TABLE])?;
            let routes = Program::Ip.run(&[option, "route", "show", "table", "all"])?;
            let names = match family {
                "ip" => ("IPv4 table", "IPv4 routes"),
                _ => ("IPv6 table", "IPv6 routes"),
            };
            all.insert(names.0, comparable(&table));
            all.insert(names.1, sorted(&routes));
            anyhow::Ok(())
        })?;
    }
    let links = namespace.inside(|| Program::Ip.run(&["-o", "link", "show"]))?;
    all.insert("links", links);
    let ruleset = namespace.inside(|| Program::Nft.run(&["-s", "list", "ruleset"]))?;
    all.insert("tables of others", of_others(&ruleset));
    Ok(all)
}

/// The ruleset without the tables of the agent.
fn of_others(ruleset: &str) -> String {
    let mut is_ours = false;
    let mut lines = Vec::new();
    for line in ruleset.lines() {
        if let Some(table) = line.strip_prefix("table ") {
            is_ours = table.split(' ').nth(1) == Some(TABLE);
        }
        if !is_ours {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// The families whose table exists.
fn families(namespace: &Namespace) -> Result<Vec<(&'static str, &'static str)>> {
    let tables = namespace.inside(|| Program::Nft.run(&["list", "tables"]))?;
    let is_there = |(family, _): &(&str, &str)| {
        let line = format!("table {family} {TABLE}");
        tables.lines().any(|other| other == line)
    };
    Ok(FAMILIES.into_iter().filter(is_there).collect())
}

/// A line for each element and rule, without the order of elements.
fn comparable(table: &str) -> String {
    let mut lines = Vec::new();
    let (mut is_filled, mut is_of_packets) = (false, false);
    for line in table.lines().map(str::trim) {
        is_filled = (is_filled || FILLED_BY_PACKETS.contains(&line)) && line != "}";
        // Elements come last in a set.
        is_of_packets = is_filled && (is_of_packets || line.starts_with("elements = {"));
        if !is_of_packets {
            let line = line.strip_prefix("elements = {").unwrap_or(line);
            lines.extend(line.trim_end_matches('}').split(',').map(str::trim));
        }
    }
    sorted(&lines.join("\n"))
}

fn add(served: &mut VirtualServers, text: &str) -> Result<()> {
    let list: Value = serde_json::from_str(text)?;
    let map = list["nftables"]
        .as_array()
        .and_then(|objects| objects.iter().find_map(|object| object.get("map")))
        .context("there is no map")?;
    // A map without elements has no such field.
    let Some(elements) = map.get("elem") else {
        return Ok(());
    };
    for element in elements.as_array().context("the elements are no list")? {
        let (server, backend) =
            read(element).with_context(|| format!("the element {element} is of no known form"))?;
        *served
            .entry(server)
            .or_default()
            .entry(backend)
            .or_default() += 1;
    }
    Ok(())
}

/// An element: address, protocol, port and slot; address and port of the backend in it.
fn read(element: &Value) -> Option<(VirtualServer, SocketAddr)> {
    let key = &element[0]["concat"];
    let server = VirtualServer {
        protocol: key[1].as_str()?.to_uppercase(),
        address: address(&key[0], &key[2])?,
    };
    let backend = &element[1]["concat"];
    Some((server, address(&backend[0], &backend[1])?))
}

fn address(address: &Value, port: &Value) -> Option<SocketAddr> {
    let address: IpAddr = address.as_str()?.parse().ok()?;
    Some((address, port.as_u64()?.try_into().ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `nft` 1.0.6 prints it.
    const PRINTED: &str = r#"{"nftables": [{"metainfo": {"json_schema_version": 1}}, {"map": {"family": "ip", "name": "endpoint", "table": "portolan", "type": ["ipv4_addr", "inet_proto", "inet_service", "mark"], "handle": 1, "map": "ipv4_addr . inet_service", "elem": [[{"concat": ["10.96.0.10", "tcp", 80, 0]}, {"concat": ["10.244.1.11", 8080]}], [{"concat": ["10.96.0.10", "tcp", 80, 1]}, {"concat": ["10.244.1.12", 8080]}], [{"concat": ["10.96.0.10", "tcp", 80, 2]}, {"concat": ["10.244.1.12", 8080]}]]}}]}"#;

    #[test]
    fn the_weight_of_a_backend_is_the_number_of_its_slots() {
        let mut served = VirtualServers::new();
        add(&mut served, PRINTED).unwrap();
        let (server, backends) = served.pop_first().unwrap();
        assert_eq!(
            format!("{} {} {backends:?}", server.protocol, server.address),
            "TCP 10.96.0.10:80 {10.244.1.11:8080: 1, 10.244.1.12:8080: 2}"
        );
        assert!(served.is_empty());
        let other = PRINTED.replace(r#""tcp""#, "6");
        assert!(add(&mut served, &other).is_err());
    }

    #[test]
    fn tables_of_others_are_those_with_another_name() {
        let ruleset = "table ip filter {\n\tchain INPUT {\n\t}\n}\ntable ip portolan {\n\tset a {\n\t}\n}\ntable ip foreign {\n\tset portolan {\n\t}\n}\n";
        let others = "table ip filter {\n\tchain INPUT {\n\t}\n}\ntable ip foreign {\n\tset portolan {\n\t}\n}";
        assert_eq!(of_others(ruleset), others);
    }

    #[test]
    fn the_order_of_elements_and_what_rules_add_are_no_difference() {
        let table = |elements: &str, learned: &str| {
            comparable(&format!(
                "table ip portolan {{\n\tset frontend {{\n\t\telements = {{ {elements} }}\n\t}}\n\tmap affinity \
                 {{\n\t\ttype ipv4_addr\n{learned}\t}}\n\tset counted {{\n\t\tsize 9\n{learned}\t}}\n\tset \
                 last {{\n\t\telements = {{ z }}\n\t}}\n}}\n"
            ))
        };
        let one = table("a,\n b,\n c", "");
        assert_eq!(one, table("b,\n c,\n a", "\t\telements = { x,\n y }\n"));
        for kept in ["type ipv4_addr", "size 9", "z"] {
            assert!(one.lines().any(|line| line.trim() == kept), "{one}");
        }
        assert_ne!(one, table("a,\n b,\n d", ""));
    }
}
