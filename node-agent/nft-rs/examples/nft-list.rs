//! Prints a table of this network namespace, or the names of all tables: `nft-list [ip|ip6|inet|bridge NAME]`.

use std::error::Error;
use std::io::{Write, stdout};

use nft_rs::{Family, Socket, TableId};

fn main() -> Result<(), Box<dyn Error>> {
    let mut socket = Socket::open()?;
    let mut out = stdout().lock();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [family, name] = arguments.as_slice() else {
        for table in socket.tables(None)? {
            writeln!(out, "table {}", table.id())?;
        }
        return Ok(());
    };
    let family = match family.as_str() {
        "ip" => Family::Ipv4,
        "ip6" => Family::Ipv6,
        "inet" => Family::Inet,
        "bridge" => Family::Bridge,
        other => return Err(format!("family {other:?} is not ip, ip6, inet or bridge").into()),
    };
    print(&mut socket, &TableId::new(family, name.as_str()), &mut out)
}

fn print(socket: &mut Socket, table: &TableId, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    for set in socket.sets(table)? {
        let kind = if set.data.is_some() { "map" } else { "set" };
        writeln!(out, "{kind} {}", set.name)?;
        for element in socket.elements(table, &set.name)?.unwrap_or_default() {
            writeln!(out, "  {element}")?;
        }
    }
    let rules = socket.rules(table)?;
    for chain in socket.chains(table)? {
        writeln!(out, "chain {}", chain.name)?;
        for rule in rules.iter().filter(|rule| rule.chain == chain.name) {
            let comment = rule.comment.as_deref().unwrap_or("without a comment");
            writeln!(out, "  rule ({comment})")?;
            for expression in &rule.expressions {
                writeln!(out, "    {expression}")?;
            }
        }
    }
    Ok(())
}
