//! A Service of policy Local over a DaemonSet: a list for each of 5,000 nodes.

use divan::Bencher;
use portolan_plan::Policy;
use portolan_planner::Planner;
use portolan_planner::model::Event;

use crate::changes::apply;
use crate::cluster::{self, NODES};

fn events() -> Vec<Event> {
    let service = cluster::service(1, Policy::Local);
    let service = portolan_planner::model::Service {
        id: portolan_plan::ServiceId::new("team-000", "service-00000"),
        ..service
    };
    let slices = cluster::daemon_set().into_iter().map(Event::from);
    std::iter::once(service.into()).chain(slices).collect()
}

pub(crate) fn planned() -> Planner {
    let mut planner = Planner::default();
    planner.apply(events());
    let service = planner.services().values().next().unwrap();
    assert_eq!((service.heads.len(), service.lists.len()), (1, NODES));
    planner
}

/// One pod in the middle of the DaemonSet that comes and goes.
#[derive(Default)]
pub(crate) struct Pod {
    count: usize,
}

impl Pod {
    pub(crate) fn next(&mut self) -> Event {
        self.count += 1;
        let unready = (!self.count.is_multiple_of(2)).then_some(50);
        cluster::daemon_slice(25, unready).into()
    }
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn internal_policy_local_from_scratch(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(events).bench_local_values(|events| {
        let mut planner = Planner::default();
        planner.apply(events);
        planner
    });
}

#[divan::bench]
fn internal_policy_local_one_pod(bencher: Bencher<'_, '_>) {
    let mut planner = planned();
    let mut pod = Pod::default();
    let first = planner.apply([pod.next()]);
    assert_eq!((first.planned, first.services.len()), (1, 1));
    bencher
        .with_inputs(|| pod.next())
        .bench_local_values(|event| apply(&mut planner, event));
}
