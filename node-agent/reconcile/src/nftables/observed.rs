//! The tables as they are in the kernel: read once, and then updated with every operation that succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use nft_rs::Element;
use portolan_plan::{Family, LocalEndpoint};

use super::element::TableElement;
use super::frontend::FrontendElements;
use super::print::LayoutPrint;
use super::set::SetName;
use crate::VirtualServerKey;

/// The tables of both families, as far as they exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedTables {
    /// The tables by family.
    pub tables: BTreeMap<Family, ObservedTable>,
}

/// A table, without the elements that rules add ([`SetName::is_filled_by_packets`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedTable {
    /// Its chains, rules and sets.
    pub layout: LayoutPrint,
    /// The elements that belong to a frontend.
    pub frontends: BTreeMap<VirtualServerKey, FrontendElements>,
    /// This node's endpoints.
    pub hairpins: BTreeSet<LocalEndpoint>,
    /// The ranges whose addresses count as pods.
    pub pods: BTreeSet<IpNet>,
    /// The service ranges.
    pub ranges: BTreeSet<IpNet>,
    /// The addresses of load balancers that reject connections to unused ports.
    pub balancers: BTreeSet<IpNet>,
    /// Elements that Portolan never writes.
    pub foreign: Vec<(SetName, Arc<Element>)>,
}

impl ObservedTables {
    /// The elements of a frontend.
    pub fn frontend(&self, key: &VirtualServerKey) -> Option<&FrontendElements> {
        let table = self.tables.get(&Family::of(key.address))?;
        table.frontends.get(key)
    }
}

impl ObservedTable {
    /// The ranges of a set of ranges.
    pub(super) fn ranges_of(&self, set: SetName) -> &BTreeSet<IpNet> {
        match set {
            SetName::Pods => &self.pods,
            SetName::Balancers => &self.balancers,
            _ => &self.ranges,
        }
    }

    fn ranges_mut(&mut self, set: SetName) -> &mut BTreeSet<IpNet> {
        match set {
            SetName::Pods => &mut self.pods,
            SetName::Balancers => &mut self.balancers,
            _ => &mut self.ranges,
        }
    }

    /// Adds an element.
    pub(super) fn add(&mut self, element: TableElement) {
        match element {
            TableElement::Slot { frontend, .. }
            | TableElement::Member { frontend, .. }
            | TableElement::Allow { frontend, .. } => {
                self.frontends.entry(frontend).or_default().add(&element);
            }
            TableElement::Hairpin(endpoint) => {
                self.hairpins.insert(endpoint);
            }
            TableElement::Range { set, range } => {
                self.ranges_mut(set).insert(range);
            }
            TableElement::Foreign { set, element, .. } => self.foreign.push((set, element)),
        }
    }

    /// Removes an element.
    pub(super) fn delete(&mut self, element: &TableElement) {
        match element {
            TableElement::Slot { frontend, .. }
            | TableElement::Member { frontend, .. }
            | TableElement::Allow { frontend, .. } => {
                if let Some(held) = self.frontends.get_mut(frontend) {
                    held.delete(element);
                    if held.is_empty() {
                        self.frontends.remove(frontend);
                    }
                }
            }
            TableElement::Hairpin(endpoint) => {
                self.hairpins.remove(endpoint);
            }
            TableElement::Range { set, range } => {
                self.ranges_mut(*set).remove(range);
            }
            TableElement::Foreign { set, element, .. } => {
                self.foreign.retain(|held| held != &(*set, element.clone()));
            }
        }
    }

    /// All elements.
    pub(super) fn elements(&self, family: Family) -> impl Iterator<Item = TableElement> {
        let frontends = self.frontends.iter();
        let frontends = frontends.flat_map(|(key, held)| held.elements(*key));
        let hairpins = self.hairpins.iter().copied().map(TableElement::Hairpin);
        let ranges = [SetName::Pods, SetName::Ranges, SetName::Balancers].into_iter();
        let ranges = ranges.flat_map(move |set| {
            let ranges = self.ranges_of(set).iter();
            ranges.map(move |range| TableElement::Range { set, range: *range })
        });
        let foreign = self.foreign.iter();
        let foreign = foreign.map(move |(set, element)| TableElement::Foreign {
            family,
            set: *set,
            element: element.clone(),
        });
        frontends.chain(hairpins).chain(ranges).chain(foreign)
    }
}
