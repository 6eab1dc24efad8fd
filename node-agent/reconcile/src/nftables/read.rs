//! Makes the observed state of a table from what the kernel lists.

use std::net::IpAddr;
use std::sync::Arc;

use nft_rs::{Chain, Element, KeyReader, Rule, Set};
use portolan_plan::Family;

use super::element::{self, TableElement};
use super::observed::ObservedTable;
use super::print::LayoutPrint;
use super::set::SetName;
use crate::VirtualServerKey;

impl ObservedTable {
    /// A table with these chains, sets and rules, as the kernel lists them, but without elements.
    pub fn new(chains: &[Chain], sets: &[Set], rules: &[Rule]) -> Self {
        Self {
            layout: LayoutPrint::new(chains, sets, rules),
            ..Self::default()
        }
    }

    /// Adds all elements of a set. Those that rules add and those of sets of other programs are ignored: a table with the
    /// latter is rebuilt.
    pub fn read(&mut self, family: Family, set: &str, elements: impl IntoIterator<Item = Element>) {
        match set.parse() {
            Ok(set @ (SetName::Pods | SetName::Ranges | SetName::Balancers)) => {
                for element in ranges(family, set, elements.into_iter().collect()) {
                    self.add(element);
                }
            }
            Ok(set) if !set.is_filled_by_packets() => {
                for element in elements {
                    self.add(TableElement::decode(family, set, &element));
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// The connections that frontends have counted, from the elements of [`SetName::Counted`]. Elements of other programs are
/// left out.
pub fn counted(
    family: Family,
    elements: impl IntoIterator<Item = Element>,
) -> impl Iterator<Item = (VirtualServerKey, u64)> {
    elements.into_iter().filter_map(move |element| {
        let frontend = element::frontend(family, &mut KeyReader::new(&element.key))?;
        Some((frontend, element.count()?.packets))
    })
}

/// The ranges of a set, whose elements are the starts and ends of ranges.
fn ranges(family: Family, set: SetName, mut elements: Vec<Element>) -> Vec<TableElement> {
    // One range may end where the next one starts.
    elements.sort_by(|left, right| {
        (&left.key, !left.interval_end).cmp(&(&right.key, !right.interval_end))
    });
    let mut found = Vec::new();
    let mut elements = elements.into_iter().peekable();
    while let Some(start) = elements.next() {
        let end = elements.next_if(|next| !start.interval_end && next.interval_end);
        let range = range(family, set, &start, end.as_ref());
        match range {
            Some(range) => found.push(range),
            None => {
                let foreign = |element| TableElement::Foreign {
                    family,
                    set,
                    element: Arc::new(element),
                };
                found.extend([Some(start), end].into_iter().flatten().map(foreign));
            }
        }
    }
    found
}

fn range(
    family: Family,
    set: SetName,
    start: &Element,
    end: Option<&Element>,
) -> Option<TableElement> {
    let read = |element: &Element| element::address(family, &mut KeyReader::new(&element.key));
    let first = read(start)?;
    let last = match end {
        Some(end) => before(read(end)?)?,
        None => highest(family),
    };
    let range = element::range(first, last)?;
    let range = TableElement::Range { set, range };
    let found: Vec<_> = [Some(start), end].into_iter().flatten().cloned().collect();
    (range.encode().as_slice() == found.as_slice()).then_some(range)
}

fn before(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(v4) => IpAddr::V4(u32::from(v4).checked_sub(1)?.into()),
        IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).checked_sub(1)?.into()),
    })
}

fn highest(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => IpAddr::from([255; 4]),
        Family::Ipv6 => IpAddr::from([255; 16]),
    }
}
