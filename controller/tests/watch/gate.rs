//! The engine's handling of watch events.

use std::sync::Arc;
use std::time::Instant;

use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{ClusterSource, Engine};
use portolan_controller::manifests::FileContents;
use portolan_controller::store::Store;
use portolan_controller::watch::{Answer, Mark, ObjectUpdate};
use portolan_planner::model::{Kind, Object, ObjectId};

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

    fn receives(&mut self, answers: impl IntoIterator<Item = Answer>) {
        self.source
            .take_in(answers.into_iter().collect(), Instant::now());
    }

    /// Whether agents get a plan.
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

fn found(yaml: &str) -> Object {
    let contents = FileContents::read("test", yaml);
    assert!(contents.left_out.is_empty(), "{:?}", contents.problems);
    (*contents.objects[0].1).clone()
}

fn node() -> Object {
    found("{apiVersion: v1, kind: Node, metadata: {name: node-a}}")
}

fn service(name: &str) -> Object {
    found(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{clusterIP: 10.96.0.{}, ports: [{{port: 80}}]}}}}",
        name.len()
    ))
}

fn answer(kind: Kind, update: ObjectUpdate) -> Answer {
    Answer {
        kind,
        update: Some(update),
        mark: Mark::default(),
        arrival: None,
    }
}

fn all(kind: Kind, objects: Vec<Object>) -> Answer {
    list(kind, objects, Vec::new())
}

fn list(kind: Kind, objects: Vec<Object>, unreadable: Vec<(ObjectId, String)>) -> Answer {
    let update = ObjectUpdate::All {
        objects,
        unreadable,
    };
    answer(kind, update)
}

fn present(object: Object) -> Answer {
    answer(object.id().kind(), ObjectUpdate::Present(Box::new(object)))
}

fn unreadable(id: ObjectId, problem: &str) -> Answer {
    answer(id.kind(), ObjectUpdate::Unreadable(id, problem.into()))
}

fn deleted(id: ObjectId) -> Answer {
    answer(id.kind(), ObjectUpdate::Deleted(id))
}

/// All kinds, with these Services.
fn everything(services: Vec<Object>) -> Vec<Answer> {
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
        controller.receives(lists);
        controller.receives([present(service("ab"))]);
        assert!(!controller.has_published(), "all but {list:?}");
        controller.receives([list.clone()]);
        assert!(controller.has_published(), "after {list:?}");
    }
}

#[test]
fn waiting_events_are_bounded_by_the_number_of_objects() {
    let mut controller = Controller::new();
    let mut lists = everything(vec![service("a")]);
    let last = lists.remove(0);
    controller.receives(lists);
    for _ in 0..3 {
        controller.receives((0..5000).map(|_| present(service("ab"))));
    }
    controller.receives([deleted(service("a").id())]);
    assert!(
        controller.source.waiting() < 6000,
        "{}",
        controller.source.waiting()
    );
    controller.receives([last]);
    assert_eq!(controller.services(), ["shop/ab"]);
}

#[test]
fn a_list_replaces_what_was_known_and_keeps_the_last_form_of_what_cannot_be_read() {
    let mut controller = Controller::new();
    controller.receives(everything(vec![
        service("a"),
        service("ab"),
        service("abc"),
    ]));
    assert_eq!(controller.services(), ["shop/a", "shop/ab", "shop/abc"]);
    // S-191, S-183, I-10.
    let broken = service("ab").id();
    controller.receives([list(
        Kind::Service,
        vec![service("a")],
        vec![(broken.clone(), "spec.ports[0].port: no".into())],
    )]);
    assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
    assert!(controller.known.read().left_out.contains_key(&broken));
    controller.receives([deleted(broken)]);
    assert_eq!(controller.services(), ["shop/a"]);
    assert!(controller.known.read().left_out.is_empty());
}

#[test]
fn an_object_that_became_unreadable_stays_planned_until_it_can_be_read_or_is_gone() {
    let mut controller = Controller::new();
    controller.receives(everything(vec![service("a")]));
    let id = service("a").id();
    controller.receives([unreadable(id.clone(), "spec: no")]);
    assert_eq!(controller.services(), ["shop/a"]);
    assert_eq!(controller.known.read().left_out[&id], "spec: no");
    controller.receives([present(service("a"))]);
    assert!(controller.known.read().left_out.is_empty());
}

#[test]
fn the_last_readable_form_counts_also_when_it_came_in_the_same_batch_or_had_to_wait() {
    let broken = || service("ab").id();
    let lacking = |objects| {
        let problem = "spec.ports[0].port: no".into();
        list(Kind::Service, objects, vec![(broken(), problem)])
    };
    // I-10, S-183: an object is read, then unreadable in the following list, all before the first plan.
    let mut controller = Controller::new();
    let mut lists = everything(vec![service("a"), service("ab")]);
    lists.push(lacking(vec![service("a")]));
    controller.receives(lists);
    assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
    // The same if a kind is missing until the waiting events are compacted.
    let mut controller = Controller::new();
    let mut lists = everything(vec![service("a"), service("ab")]);
    let last = lists.remove(0);
    lists.push(lacking(vec![service("a")]));
    lists.push(unreadable(service("a").id(), "spec: no"));
    controller.receives(lists);
    controller.receives((0..5000).map(|_| present(service("abc"))));
    assert!(controller.source.waiting() < 20, "it was compacted");
    controller.receives([last]);
    assert_eq!(controller.services(), ["shop/a", "shop/ab", "shop/abc"]);
    let known = controller.known.read();
    assert_eq!(known.left_out.len(), 2, "{:?}", known.left_out);
}

#[test]
fn settings_that_cannot_be_read_at_the_start_are_waited_for() {
    let mut controller = Controller::new();
    let settings = ObjectId::ProxyConfig("default".into());
    let mut lists = everything(vec![service("a")]);
    lists[4] = list(
        Kind::ProxyConfig,
        Vec::new(),
        vec![(settings.clone(), "spec.settings.scheduler: no".into())],
    );
    controller.receives(lists);
    assert!(!controller.has_published());
    let yaml = "{apiVersion: proxy.portolan.dev/v1alpha1, kind: ProxyConfig, metadata: {name: default}, spec: {}}";
    controller.receives([present(found(yaml))]);
    assert!(controller.has_published());
    // After the first plan, broken settings change nothing.
    controller.receives([unreadable(settings, "spec.settings.scheduler: no")]);
    controller.receives([present(service("ab"))]);
    assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
}

/// A ProxyConfig with held endpoints and these annotations.
fn holding(annotations: &str) -> Object {
    found(&format!(
        "{{apiVersion: proxy.portolan.dev/v1alpha1, kind: ProxyConfig, metadata: {{name: default, annotations: {{{annotations}}}}}, \
         spec: {{guard: {{mode: Hold, releaseAfter: 900000h}}}}, \
         status: {{guard: {{id: loss-1, mode: Hold, since: '2020-01-01T00:00:00Z', releaseTime: '2120-01-01T00:00:00Z', \
         lostEndpoints: 300, readyEndpoints: 300, message: ''}}}}}}"
    ))
}

#[test]
fn a_controller_that_did_not_see_the_loss_publishes_nothing_until_it_is_over() {
    let approved = holding("proxy.portolan.dev/approve: loss-1");
    let gone = deleted(approved.id());
    for end in [present(approved), gone] {
        let mut controller = Controller::new();
        let mut lists = everything(vec![service("a")]);
        lists.pop();
        controller.receives(lists);
        controller.receives([all(Kind::ProxyConfig, vec![holding("")])]);
        controller.receives([present(service("ab"))]);
        assert!(!controller.has_published());
        let other = holding("proxy.portolan.dev/approve: loss-0");
        controller.receives([present(other)]);
        assert!(!controller.has_published(), "another one was approved");
        controller.receives([end]);
        assert!(controller.has_published());
        assert_eq!(controller.services(), ["shop/a", "shop/ab"]);
        // From now on it detects losses itself.
        controller.receives([present(holding(""))]);
        controller.receives([deleted(service("a").id())]);
        assert_eq!(controller.services(), ["shop/ab"]);
    }
}
