//! Counts, nodes and lists as words.

use portolan_plan::ExternalClients;

use super::document::{ExtentDocument, ServedChangeDocument, ServedDocument};

/// Maximum number of names before the ellipsis.
const MAX_NAMES: usize = 3;

/// A count with thousands separators: `5,000`.
pub(super) fn number(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 node`, `5,000 nodes`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", number(count))
}

/// The first few names, with an ellipsis if `count` is higher.
pub(super) fn first(names: &[String], count: usize) -> String {
    let shown = names.len().min(MAX_NAMES);
    let more = if count > shown { ", …" } else { "" };
    format!("{}{more}", names[..shown].join(", "))
}

/// The nodes as text that follows "on".
pub(super) fn nodes(extent: &ExtentDocument) -> String {
    let names = || first(&extent.names, extent.count);
    let whole = |zone: &super::ZoneShareDocument| zone.count == zone.of;
    let zones: Vec<_> = extent
        .zones
        .iter()
        .map(|zone| zone.zone.as_deref())
        .collect();
    match (extent.count, &zones[..]) {
        (0, _) => "no node".into(),
        (1, _) => format!("node {}", names()),
        (count, _) if count == extent.of => format!("all {}", counted(count, "node")),
        (count, [Some(zone)]) if extent.zones.iter().all(whole) => {
            format!("all {} of zone {zone}", counted(count, "node"))
        }
        (count, [Some(zone), Some(other)]) if extent.zones.iter().all(whole) => {
            format!("all {} of zones {zone} and {other}", counted(count, "node"))
        }
        (count, _) if count <= MAX_NAMES => format!("nodes {}", names()),
        (count, _) => format!(
            "{} of {} ({})",
            number(count),
            counted(extent.of, "node"),
            names()
        ),
    }
}

/// The lists that serve nodes before and after, as text that follows "by".
pub(super) fn served(change: &ServedChangeDocument) -> String {
    let (before, after) = (&change.before, &change.after);
    if before == after {
        return format!(
            "other endpoints{}, {} as before",
            of(after),
            number(after.endpoints)
        );
    }
    let same_list =
        (&before.scope, before.external_clients) == (&after.scope, after.external_clients);
    let instead = match before.endpoints {
        0 => "none".into(),
        _ if same_list => number(before.endpoints),
        count => format!("{}{}", number(count), of(before)),
    };
    match after.endpoints {
        0 => format!(
            "no endpoint (refused) instead of {}{}",
            instead,
            if same_list { of(before) } else { String::new() }
        ),
        count => format!(
            "{}{} instead of {instead}",
            counted(count, "endpoint"),
            of(after)
        ),
    }
}

fn of(served: &ServedDocument) -> String {
    let whose = match served.scope.split_once('/') {
        Some((_, zone)) => format!(" of zone {zone}"),
        None if served.scope == "local" => " of the node's own".into(),
        None if served.scope == "node" => " hinted for the node".into(),
        None => " of the cluster".into(),
    };
    let external_clients = match served.external_clients {
        ExternalClients::Allow => "",
        ExternalClients::Drop => " (external clients dropped)",
    };
    whose + external_clients
}
