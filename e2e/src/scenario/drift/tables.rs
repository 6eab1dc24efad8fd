//! Manual changes of the tables of nftables, for [`super::hand`].

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::hand::{Hand, hand};
use super::{Lab, NODE};
use crate::program::Program;

/// One transaction, so that no program sees half of it.
const TWO: &str = "add element ip portolan pods { 192.0.2.0/24 }\n\
    delete element ip portolan frontend { 10.96.2.1 . tcp . 80 }\n";

pub(super) fn hands(lab: &Lab<'_>) -> Result<Vec<Hand>> {
    let nft = |line| (Program::Nft, line);
    let flushed = elements(lab, "clusterip")?;
    Ok(vec![
        hand(
            "a deleted slot of an endpoint",
            nft("delete element ip portolan endpoint { 10.96.2.1 . tcp . 80 . 1 }"),
            "1 missing element",
            1,
        ),
        hand(
            "a deleted frontend",
            nft("delete element ip portolan frontend { 10.96.2.1 . tcp . 80 }"),
            "1 missing element",
            1,
        ),
        hand(
            "a flushed set",
            nft("flush set ip portolan clusterip"),
            format!("{flushed} missing elements"),
            flushed,
        ),
        two_elements(),
        hand(
            "a flushed chain",
            nft("flush chain ip portolan n1"),
            "1 chain or set",
            None,
        ),
        hand(
            "a foreign chain in our table",
            nft("add chain ip portolan foreign"),
            "1 chain or set",
            None,
        ),
        hand(
            "a deleted table",
            nft("delete table ip6 portolan"),
            "1 table",
            None,
        ),
    ])
}

pub(super) fn two_elements() -> Hand {
    let name = "a foreign element and a missing one";
    let found = "1 missing element, 1 unexpected element";
    let one = hand(name, (Program::Nft, "-f -"), found, 2);
    one.reading(TWO)
}

/// The number of elements of a set, at least two.
fn elements(lab: &Lab<'_>, set: &str) -> Result<u64> {
    let text = lab.tool(
        NODE,
        Program::Nft,
        &format!("-j list set ip portolan {set}"),
    )?;
    let list: Value = serde_json::from_str(&text)?;
    let mut objects = list["nftables"].as_array().into_iter().flatten();
    let elements = objects.find_map(|object| object["set"]["elem"].as_array());
    let count = elements
        .with_context(|| format!("the set {set} has no elements: {text}"))?
        .len();
    ensure!(count > 1, "the set {set} has one element: {text}");
    Ok(u64::try_from(count)?)
}
