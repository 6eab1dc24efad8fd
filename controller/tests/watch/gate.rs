//! What the engine makes of what watches saw.

use std::sync::Arc;
use std::time::Instant;

use portolan_controller::engine::{ClusterSource, Engine};
use portolan_controller::known::Shared;
use portolan_controller::manifests::FileContents;
use portolan_controller::object::{Found, ObjectId};
use portolan_controller::store::Store;
use portolan_controller::watch::{Kind, Seen};

struct Controller {
    source: ClusterSource,
    known: Shared,
    store: Arc<Store>,
}

impl Controller {
    fn new() -> Self {
        let (known, store) = (Shared::default(), Arc::new(Store::default()));
        let engine = Engine::new(known.clone(), store.clone(), None);
        let (_, seen) = tokio::sync::mpsc::channel(1);
        Self {
            source: ClusterSource::new(engine, seen),
            known,
            store,
        }
    }

    fn sees(&mut self, seen: impl IntoIterator<Item = Seen>) {
        self.source
            .take_in(seen.into_iter().collect(), Instant::now());
    }

    /// Whether agents are told anything.
    fn has_published(&self) -> bool {
        self.store.plan("node-a").is_some()
    }

    fn services(&self) -> Vec<String> {
        let known = self.known.read();
        known
            .planner
            .services()
            .keys()
            .map(ToString::to_string)
            .collect()
    }
}

fn found(yaml: &str) -> Found {
    let contents = FileContents::read("test", yaml);
    assert!(contents.left_out.is_empty(), "{:?}", contents.problems);
    (*contents.objects[0].1).clone()
}

fn node() -> Found {
    found("{apiVersion: v1, kind: Node, metadata: {name: node-a}}")
}

fn service(name: &str) -> Found {
    found(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{clusterIP: 10.96.0.{}, ports: [{{port: 80}}]}}}}",
        name.len()
    ))
}

fn all(kind: Kind, objects: Vec<Found>) -> Seen {
    Seen::All {
        kind,
        objects,
        unreadable: Vec::new(),
    }
}

/// Everything, with these Services.
fn everything(services: Vec<Found>) -> Vec<Seen> {
    vec![
        all(Kind::Node, vec![node()]),
        all(Kind::Service, services),
        all(Kind::EndpointSlice, Vec::new()),
        all(Kind::ServiceCidr, Vec::new()),
        all(Kind::ProxyConfig, Vec::new()),
    ]
}

#[test]
fn nothing_is_streamed_before_every_kind_was_listed_once() {
    // I-10.
    for last in 0..Kind::ALL.len() {
        let mut controller = Controller::new();
        let mut lists = everything(vec![service("a")]);
        let list = lists.remove(last);
        controller.sees(lists);
        controller.sees([Seen::Present(Box::new(service("ab")))]);
        assert!(!controller.has_published(), "all but {list:?}");
        controller.sees([list.clone()]);
        assert!(controller.has_published(), "after {list:?}");
    }
}

#[test]
fn what_waits_for_a_kind_that_is_missing_is_bounded_by_the_objects_there_are() {
    let mut controller = Controller::new();
    let mut lists = everything(vec![service("a")]);
    let last = lists.remove(0);
    controller.sees(lists);
    for _ in 0..3 {
        controller.sees((0..5000).map(|_| Seen::Present(Box::new(service("ab")))));
    }
    controller.sees([Seen::Gone(service("a").id())]);
    assert!(
        controller.source.waiting() < 6000,
        "{}",
        controller.source.waiting()
    );
    controller.sees([last]);
    assert_eq!(controller.services(), ["shop/ab"]);
}

#[test]
fn a_list_replaces_what_was_known_and_keeps_the_last_form_of_what_cannot_be_read() {
    let mut controller = Controller::new();
    controller.sees(everything(vec![
        service("a"),
        service("ab"),
        service("abc"),
    ]));
    assert_eq!(controller.services(), ["shop/a", "shop/ab", "shop/abc"]);
    // S-191, S-183, I-10.
    let broken = service("ab").id();
    controller.sees([Seen::All {
        kind: Kind::Service,
        objects: vec![service("a")],
        unreadable: vec![(broken.clone(), "spec.ports[0].port: no".into())],
    }]);
    assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
    assert!(controller.known.read().left_out.contains_key(&broken));
    controller.sees([Seen::Gone(broken)]);
    assert_eq!(controller.services(), ["shop/a"]);
    assert!(controller.known.read().left_out.is_empty());
}

#[test]
fn an_object_that_became_unreadable_stays_planned_until_it_can_be_read_or_is_gone() {
    let mut controller = Controller::new();
    controller.sees(everything(vec![service("a")]));
    let id = service("a").id();
    controller.sees([Seen::Unreadable(id.clone(), "spec: no".into())]);
    assert_eq!(controller.services(), ["shop/a"]);
    assert_eq!(controller.known.read().left_out[&id], "spec: no");
    controller.sees([Seen::Present(Box::new(service("a")))]);
    assert!(controller.known.read().left_out.is_empty());
}

#[test]
fn the_last_readable_form_counts_also_when_it_came_in_the_same_batch_or_had_to_wait() {
    let broken = || service("ab").id();
    let unreadable = |objects| Seen::All {
        kind: Kind::Service,
        objects,
        unreadable: vec![(broken(), "spec.ports[0].port: no".into())],
    };
    // I-10, S-183: seen, then unreadable in the list that follows, all before anything is planned.
    let mut controller = Controller::new();
    let mut lists = everything(vec![service("a"), service("ab")]);
    lists.push(unreadable(vec![service("a")]));
    controller.sees(lists);
    assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
    // The same while a kind is missing for so long that what waits is compacted.
    let mut controller = Controller::new();
    let mut lists = everything(vec![service("a"), service("ab")]);
    let last = lists.remove(0);
    lists.push(unreadable(vec![service("a")]));
    lists.push(Seen::Unreadable(service("a").id(), "spec: no".into()));
    controller.sees(lists);
    controller.sees((0..5000).map(|_| Seen::Present(Box::new(service("abc")))));
    assert!(controller.source.waiting() < 20, "it was compacted");
    controller.sees([last]);
    assert_eq!(controller.services(), ["shop/a", "shop/ab", "shop/abc"]);
    let known = controller.known.read();
    assert_eq!(known.left_out.len(), 2, "{:?}", known.left_out);
}

#[test]
fn settings_that_cannot_be_read_at_the_start_are_waited_for() {
    let mut controller = Controller::new();
    let settings = ObjectId::ProxyConfig("default".into());
    let mut lists = everything(vec![service("a")]);
    lists[4] = Seen::All {
        kind: Kind::ProxyConfig,
        objects: Vec::new(),
        unreadable: vec![(settings.clone(), "spec.settings.scheduler: no".into())],
    };
    controller.sees(lists);
    assert!(!controller.has_published());
    let yaml = "{apiVersion: proxy.portolan.dev/v1alpha1, kind: ProxyConfig, metadata: {name: default}, spec: {}}";
    controller.sees([Seen::Present(Box::new(found(yaml)))]);
    assert!(controller.has_published());
    // Once plans are out, broken settings change nothing.
    controller.sees([Seen::Unreadable(
        settings,
        "spec.settings.scheduler: no".into(),
    )]);
    controller.sees([Seen::Present(Box::new(service("ab")))]);
    assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
}

/// A ProxyConfig by which endpoints are held, with these annotations.
fn holding(annotations: &str) -> Found {
    found(&format!(
        "{{apiVersion: proxy.portolan.dev/v1alpha1, kind: ProxyConfig, metadata: {{name: default, annotations: {{{annotations}}}}}, \
         spec: {{guard: {{mode: Hold, releaseAfter: 900000h}}}}, \
         status: {{guard: {{id: loss-1, mode: Hold, since: '2020-01-01T00:00:00Z', releaseTime: '2120-01-01T00:00:00Z', \
         lostEndpoints: 300, readyEndpoints: 300, message: ''}}}}}}"
    ))
}

#[test]
fn who_does_not_know_what_is_held_publishes_nothing_before_it_is_over() {
    let approved = holding("proxy.portolan.dev/approve: loss-1");
    let gone = Seen::Gone(approved.id());
    let present = Seen::Present(Box::new(approved));
    for end in [present, gone] {
        let mut controller = Controller::new();
        let mut lists = everything(vec![service("a")]);
        lists.pop();
        controller.sees(lists);
        controller.sees([all(Kind::ProxyConfig, vec![holding("")])]);
        controller.sees([Seen::Present(Box::new(service("ab")))]);
        assert!(!controller.has_published());
        let other = holding("proxy.portolan.dev/approve: loss-0");
        controller.sees([Seen::Present(Box::new(other))]);
        assert!(!controller.has_published(), "another one was approved");
        controller.sees([end]);
        assert!(controller.has_published());
        assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
        // From now on it sees by itself what vanishes.
        controller.sees([Seen::Present(Box::new(holding("")))]);
        controller.sees([Seen::Gone(service("a").id())]);
        assert_eq!(controller.services(), ["shop/ab"]);
    }
}
