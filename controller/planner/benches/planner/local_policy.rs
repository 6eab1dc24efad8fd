//! A Service of policy Local over a DaemonSet: a list for each of 5,000 nodes.

use divan::Bencher;
use portolan_plan::Policy;
use portolan_planner::Planner;
use portolan_planner::model::{Event, Service};

use crate::changes::apply;
use crate::cluster::{self, DAEMON_SET, NODES};

/// The policy that is Local.
#[derive(Debug, Clone, Copy)]
enum Local {
    /// `internalTrafficPolicy`
    Internal,
    /// `externalTrafficPolicy`, with a load balancer address, a node port and a health check port.
    External,
}

const BOTH: [Local; 2] = [Local::Internal, Local::External];

fn service(local: Local) -> Service {
    let mut service = cluster::service(DAEMON_SET);
    match local {
        Local::Internal => service.internal_policy = Policy::Local,
        Local::External => {
            service = cluster::with_balancer(service, DAEMON_SET);
            let external = service.external.as_mut().unwrap();
            external.policy = Policy::Local;
            external.health_port = Some(32_000);
        }
    }
    service
}

fn events(local: Local) -> Vec<Event> {
    let slices = cluster::daemon_set().into_iter().map(Event::from);
    std::iter::once(service(local).into())
        .chain(slices)
        .collect()
}

fn planned(local: Local) -> Planner {
    let mut planner = Planner::default();
    planner.apply(events(local));
    let service = planner.services().values().next().unwrap();
    let counts = (service.heads.len(), service.lists.len());
    match local {
        Local::Internal => assert_eq!(counts, (1, NODES)),
        Local::External => assert_eq!(counts, (2, NODES + 1)),
    }
    planner
}

/// One pod in the middle of the DaemonSet that alternates between ready and not ready.
#[derive(Default)]
struct Pod {
    count: usize,
}

impl Pod {
    fn next(&mut self) -> Event {
        self.count += 1;
        let unready = (!self.count.is_multiple_of(2)).then_some(50);
        cluster::daemon_slice(25, unready).into()
    }
}

#[divan::bench(args = BOTH, sample_count = 20, sample_size = 1)]
fn from_scratch(bencher: Bencher<'_, '_>, local: Local) {
    bencher
        .with_inputs(|| events(local))
        .bench_local_values(|events| {
            let mut planner = Planner::default();
            planner.apply(events);
            planner
        });
}

#[divan::bench(args = BOTH)]
fn one_pod(bencher: Bencher<'_, '_>, local: Local) {
    let mut planner = planned(local);
    let mut pod = Pod::default();
    let first = planner.apply([pod.next()]);
    assert_eq!((first.planned, first.services.len()), (1, 1));
    bencher
        .with_inputs(|| pod.next())
        .bench_local_values(|event| apply(&mut planner, event));
}
