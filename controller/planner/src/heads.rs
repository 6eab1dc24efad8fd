//! The distinct heads of a Service, and which zones and nodes use them (topology hints, `externalTrafficPolicy:
//! Local`).
//!
//! A head refers to its lists by kind of scope, so all nodes with the same kinds share it. Nearly always there is one
//! head; with zone hints there are two, with node hints three, and with external policy Local one more for nodes that
//! have endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{
    ExternalClients, Family, Head, HeadPort, ListChoice, ListUse, Policy, Scope, ScopeKind,
};

use crate::limits::MAX_HEADS;
use crate::selection::Selection;

/// Collects the ports of a Service, then builds the heads.
#[derive(Debug)]
pub(crate) struct Heads {
    /// The head of nodes without lists of their own.
    head: Head,
    /// The places where nodes may use another list.
    places: Vec<Place>,
    /// For each zone with lists of its own, the choices of its nodes.
    zones: BTreeMap<Arc<str>, Vec<Seen>>,
    /// The same for each node with lists of its own.
    nodes: BTreeMap<Arc<str>, Vec<Seen>>,
}

/// A list in a head.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The index of the port in the head.
    port: usize,
    family: Family,
    group: Group,
}

/// The group of frontends that a list serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Internal,
    External,
}

/// A list choice at a place, which is given by its index.
type Seen = (usize, ListChoice);

/// Heads, and the index of the head of each zone and node that has its own.
#[derive(Debug)]
pub(crate) struct MadeHeads {
    pub(crate) heads: Vec<Arc<Head>>,
    pub(crate) of_zone: BTreeMap<Arc<str>, usize>,
    pub(crate) of_node: BTreeMap<Arc<str>, usize>,
    /// Number of zones that use another head than their own, because there are too many.
    pub(crate) left_out_zones: usize,
    /// The nodes that do.
    pub(crate) left_out_nodes: BTreeSet<Arc<str>>,
}

impl Heads {
    /// For a Service with this head, except for its ports.
    pub(crate) fn new(head: Head) -> Self {
        Self {
            head,
            places: Vec::new(),
            zones: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// Adds a port, with the selection for each of its families.
    pub(crate) fn push(&mut self, mut port: HeadPort, selections: &[(Family, Selection)]) {
        let index = self.head.ports.len();
        for (family, selection) in selections {
            set(&mut port.internal, *family, selection.internal);
            let place = |group| Place {
                port: index,
                family: *family,
                group,
            };
            if selection.internal.scope == ScopeKind::Cluster {
                self.add(place(Group::Internal), Policy::Cluster, selection);
            }
            if let (Some(external), Some(choice)) = (&mut port.external, selection.external) {
                set(external, *family, choice);
                self.add(place(Group::External), external.policy, selection);
            }
        }
        self.head.ports.push(port);
    }

    /// Adds a place, with the choices of zones and nodes.
    fn add(&mut self, place: Place, policy: Policy, selection: &Selection) {
        let number = self.places.len();
        let external_clients = match place.group {
            Group::Internal => selection.internal.external_clients,
            Group::External => selection.external.unwrap_or_default().external_clients,
        };
        let seen = |scope, external_clients| {
            (
                number,
                ListChoice {
                    scope,
                    external_clients,
                },
            )
        };
        for scope in selection.lists.keys() {
            match scope {
                Scope::Cluster => {}
                Scope::Zone(zone) => {
                    let zone = self.zones.entry(zone.clone()).or_default();
                    zone.push(seen(ScopeKind::Zone, external_clients));
                }
                Scope::Node(node) => {
                    let own = self.nodes.entry(node.clone()).or_default();
                    own.push(seen(ScopeKind::Node, external_clients));
                }
                // Scopes are in order: a local list takes precedence over one from hints (S-61).
                Scope::Local(node) if policy == Policy::Local => {
                    let own = self.nodes.entry(node.clone()).or_default();
                    own.push(seen(ScopeKind::Local, ExternalClients::Allow));
                }
                Scope::Local(_) => {}
            }
        }
        self.places.push(place);
    }

    /// Builds the heads. If a node has its own choice at some places only, its zone determines the others.
    pub(crate) fn finish(self, zone_of: impl Fn(&Arc<str>) -> Option<Arc<str>>) -> MadeHeads {
        let plain: Vec<ListChoice> = self.places.iter().map(|p| choice(&self.head, *p)).collect();
        let with = |choices: &[ListChoice], seen: &[Seen]| {
            let mut choices = choices.to_vec();
            for (place, choice) in seen {
                choices[*place] = *choice;
            }
            choices
        };
        let mut distinct = Distinct::new(&self.head, &self.places, plain.clone());
        let mut in_zone = BTreeMap::new();
        for (zone, seen) in &self.zones {
            in_zone.insert(zone.clone(), with(&plain, seen));
        }
        let mut of_zone = BTreeMap::new();
        let mut left_out_zones = 0;
        for (zone, choices) in &in_zone {
            match distinct.place_of(choices.clone()) {
                Some(place) => drop(of_zone.insert(zone.clone(), place)),
                None => left_out_zones += 1,
            }
        }
        let (mut of_node, mut left_out_nodes) = (BTreeMap::new(), BTreeSet::new());
        for (node, seen) in &self.nodes {
            let zone = zone_of(node).and_then(|zone| in_zone.get(&zone));
            match distinct.place_of(with(zone.unwrap_or(&plain), seen)) {
                Some(place) => drop(of_node.insert(node.clone(), place)),
                None => drop(left_out_nodes.insert(node.clone())),
            }
        }
        MadeHeads {
            heads: distinct.heads,
            of_zone,
            of_node,
            left_out_zones,
            left_out_nodes,
        }
    }
}

/// Heads by their list choices.
struct Distinct<'a> {
    plain: &'a Head,
    places: &'a [Place],
    found: BTreeMap<Vec<ListChoice>, usize>,
    heads: Vec<Arc<Head>>,
}

impl<'a> Distinct<'a> {
    fn new(plain: &'a Head, places: &'a [Place], choices: Vec<ListChoice>) -> Self {
        let mut distinct = Self {
            plain,
            places,
            found: BTreeMap::new(),
            heads: Vec::new(),
        };
        distinct.heads.push(Arc::new(plain.clone()));
        distinct.found.insert(choices, 0);
        distinct
    }

    /// The place of the head with these choices; `None` if there are too many heads. Different choices give different
    /// heads, because each place is a slot of its own in the head.
    fn place_of(&mut self, choices: Vec<ListChoice>) -> Option<usize> {
        if let Some(place) = self.found.get(&choices) {
            return Some(*place);
        }
        let place = self.heads.len();
        if place == MAX_HEADS {
            return None;
        }
        self.heads.push(Arc::new(self.make(&choices)));
        self.found.insert(choices, place);
        Some(place)
    }

    fn make(&self, choices: &[ListChoice]) -> Head {
        let mut head = self.plain.clone();
        for (place, choice) in self.places.iter().zip(choices) {
            let port = &mut head.ports[place.port];
            match (place.group, &mut port.external) {
                (Group::Internal, _) => set(&mut port.internal, place.family, *choice),
                (Group::External, Some(external)) => set(external, place.family, *choice),
                (Group::External, None) => {}
            }
        }
        head
    }
}

fn choice(head: &Head, place: Place) -> ListChoice {
    let port = &head.ports[place.port];
    match place.group {
        Group::Internal => port.internal.choice(place.family),
        Group::External => port.external.unwrap_or_default().choice(place.family),
    }
}

fn set(list: &mut ListUse, family: Family, choice: ListChoice) {
    match family {
        Family::Ipv4 => list.ipv4 = choice,
        Family::Ipv6 => list.ipv6 = choice,
    }
}
