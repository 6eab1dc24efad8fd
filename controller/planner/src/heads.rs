//! The distinct heads of a Service, and who gets which.
//!
//! A head names its lists by kind of scope, so all nodes that see the same kinds share it: nearly
//! always one head, with zone hints two, with node hints three.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::{Family, Head, HeadPort, ListUse, Scope, ScopeKind};

use crate::selection::Selection;

/// Gathers what the ports of a Service need, then makes the heads.
#[derive(Debug)]
pub(crate) struct Heads {
    /// The head of nodes for which nothing of their own is made.
    head: Head,
    /// Ports, by their place in the head, with families, that have lists for zones or nodes.
    places: Vec<(usize, Family)>,
    /// For each zone that has lists, where in `places`.
    zones: BTreeMap<Arc<str>, Vec<usize>>,
    /// The same for nodes.
    nodes: BTreeMap<Arc<str>, Vec<usize>>,
}

/// Heads, and where in them the one of a zone or node is.
#[derive(Debug)]
pub(crate) struct MadeHeads {
    pub(crate) heads: Vec<Arc<Head>>,
    pub(crate) of_zone: BTreeMap<Arc<str>, usize>,
    pub(crate) of_node: BTreeMap<Arc<str>, usize>,
}

impl Heads {
    /// For a Service whose head, but for its ports, is this.
    pub(crate) fn new(head: Head) -> Self {
        Self {
            head,
            places: Vec::new(),
            zones: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// One more port, and what serves it in each of its families.
    pub(crate) fn push(&mut self, mut port: HeadPort, selections: &[(Family, Selection)]) {
        let index = self.head.ports.len();
        for (family, selection) in selections {
            set_scope(&mut port.internal, *family, selection.otherwise);
            if selection.otherwise == ScopeKind::Cluster {
                self.add_place(index, *family, selection);
            }
        }
        self.head.ports.push(port);
    }

    fn add_place(&mut self, port: usize, family: Family, selection: &Selection) {
        let place = self.places.len();
        for scope in selection.lists.keys() {
            match scope {
                Scope::Cluster => {}
                Scope::Zone(zone) => self.zones.entry(zone.clone()).or_default().push(place),
                Scope::Node(node) => self.nodes.entry(node.clone()).or_default().push(place),
            }
        }
        self.places.push((port, family));
    }

    /// The heads. Of a node that is named at some places only, the others depend on its zone.
    pub(crate) fn finish(self, zone_of: impl Fn(&Arc<str>) -> Option<Arc<str>>) -> MadeHeads {
        let plain = vec![ScopeKind::Cluster; self.places.len()];
        let with = |choices: &[ScopeKind], places: &[usize], kind: ScopeKind| {
            let mut choices = choices.to_vec();
            for place in places {
                choices[*place] = kind;
            }
            choices
        };
        let mut distinct = Distinct::new(&self.head, &self.places, plain.clone());
        let mut in_zone = BTreeMap::new();
        for (zone, places) in &self.zones {
            in_zone.insert(zone.clone(), with(&plain, places, ScopeKind::Zone));
        }
        let mut of_zone = BTreeMap::new();
        for (zone, choices) in &in_zone {
            of_zone.insert(zone.clone(), distinct.place_of(choices.clone()));
        }
        let mut of_node = BTreeMap::new();
        for (node, places) in &self.nodes {
            let zone = zone_of(node).and_then(|zone| in_zone.get(&zone));
            let choices = with(zone.unwrap_or(&plain), places, ScopeKind::Node);
            of_node.insert(node.clone(), distinct.place_of(choices));
        }
        MadeHeads {
            heads: distinct.heads,
            of_zone,
            of_node,
        }
    }
}

/// Heads by the choices that they were made for.
struct Distinct<'a> {
    plain: &'a Head,
    places: &'a [(usize, Family)],
    found: BTreeMap<Vec<ScopeKind>, usize>,
    heads: Vec<Arc<Head>>,
}

impl<'a> Distinct<'a> {
    fn new(plain: &'a Head, places: &'a [(usize, Family)], choices: Vec<ScopeKind>) -> Self {
        Self {
            plain,
            places,
            found: BTreeMap::from([(choices, 0)]),
            heads: vec![Arc::new(plain.clone())],
        }
    }

    fn place_of(&mut self, choices: Vec<ScopeKind>) -> usize {
        if let Some(place) = self.found.get(&choices) {
            return *place;
        }
        let mut head = self.plain.clone();
        for ((port, family), scope) in self.places.iter().zip(&choices) {
            set_scope(&mut head.ports[*port].internal, *family, *scope);
        }
        let place = self.heads.len();
        self.heads.push(Arc::new(head));
        self.found.insert(choices, place);
        place
    }
}

fn set_scope(list: &mut ListUse, family: Family, scope: ScopeKind) {
    match family {
        Family::Ipv4 => list.ipv4.scope = scope,
        Family::Ipv6 => list.ipv6.scope = scope,
    }
}
