//! Cost of one change in a planned cluster, at three sizes.

use std::cell::RefCell;

use divan::Bencher;
use portolan_planner::Planner;
use portolan_planner::model::{Event, ObjectChange};

use crate::cluster::{self, NODES};

/// Numbers of Services.
const SIZES: [usize; 3] = [100, 1_000, 10_000];

/// An endpoint that alternates between ready and not ready.
#[derive(Default)]
pub(crate) struct Flips {
    /// Number of changes so far.
    count: usize,
}

impl Flips {
    /// The slice of a Service whose third endpoint alternates.
    pub(crate) fn next(&mut self, service: usize) -> Event {
        self.count += 1;
        let unready: &[usize] = if self.count.is_multiple_of(2) {
            &[]
        } else {
            &[3]
        };
        cluster::slice(service, unready).into()
    }
}

/// Plans a change and drops what it replaced, as the controller does.
pub(crate) fn apply(planner: &mut Planner, event: Event) {
    drop(planner.apply([event]));
}

fn flip(bencher: Bencher<'_, '_>, services: usize, of: usize) {
    let mut planner = cluster::planned(services);
    let mut flips = Flips::default();
    let first = planner.apply([flips.next(of)]);
    assert_eq!((first.planned, first.services.len()), (1, 1));
    bencher
        .with_inputs(|| flips.next(of))
        .bench_local_values(|event| apply(&mut planner, event));
}

/// One port on its cluster IP, no hints.
pub(crate) const PLAIN: usize = 1;
/// Two ports, zone hints.
pub(crate) const HINTED: usize = 12;

#[divan::bench(args = SIZES, sample_count = 1000)]
fn endpoint_readiness_of_a_plain_service(bencher: Bencher<'_, '_>, services: usize) {
    flip(bencher, services, PLAIN);
}

#[divan::bench(args = SIZES, sample_count = 1000)]
fn endpoint_readiness_of_two_ports_with_zone_hints(bencher: Bencher<'_, '_>, services: usize) {
    assert!(cluster::is_hinted(HINTED));
    flip(bencher, services, HINTED);
}

/// A different Service each time, so that its memory is not in the CPU cache.
#[divan::bench(args = SIZES, sample_count = 1000)]
fn endpoint_readiness_of_another_service_each_time(bencher: Bencher<'_, '_>, services: usize) {
    let mut planner = cluster::planned(services);
    let mut round = Round::new(services);
    bencher
        .with_inputs(|| round.next())
        .bench_local_values(|event| apply(&mut planner, event));
}

/// Changes all Services, far from one to the next: in one round an endpoint of each becomes unready, in the next it
/// becomes ready again.
pub(crate) struct Round {
    services: usize,
    at: usize,
    done: usize,
}

impl Round {
    pub(crate) fn new(services: usize) -> Self {
        Self {
            services,
            at: 0,
            done: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Event {
        // A prime that divides no size, so that every Service is visited.
        self.at = (self.at + 7_919) % self.services;
        let unready: &[usize] = if (self.done / self.services).is_multiple_of(2) {
            &[3]
        } else {
            &[]
        };
        self.done += 1;
        cluster::slice(self.at, unready).into()
    }
}

/// An unchanged object: a restarted watch sends all of them.
#[divan::bench(args = SIZES, sample_count = 1000)]
fn an_equal_slice_again(bencher: Bencher<'_, '_>, services: usize) {
    let mut planner = cluster::planned(services);
    assert_eq!(
        planner.apply([cluster::slice(PLAIN, &[]).into()]).planned,
        0
    );
    bencher
        .with_inputs(|| cluster::slice(PLAIN, &[]).into())
        .bench_local_values(|event| apply(&mut planner, event));
}

/// One at a time, because the node must leave before it can join again.
#[divan::bench(args = SIZES, sample_size = 1, sample_count = 1000)]
fn a_node_joins(bencher: Bencher<'_, '_>, services: usize) {
    let planner = RefCell::new(cluster::planned(services));
    let name = cluster::node_name(NODES);
    bencher
        .with_inputs(|| {
            let gone = Event::Node(ObjectChange::Remove(name.clone()));
            apply(&mut planner.borrow_mut(), gone);
            cluster::node(NODES, cluster::zone_of(NODES)).into()
        })
        .bench_local_values(|event| apply(&mut planner.borrow_mut(), event));
}

/// All entries of its plan are found, none is created: they are shared with other nodes.
#[divan::bench(args = SIZES, sample_count = 50)]
fn all_entries_of_a_node_that_joined(bencher: Bencher<'_, '_>, services: usize) {
    let mut planner = cluster::planned(services);
    planner.apply([cluster::node(NODES, cluster::zone_of(NODES)).into()]);
    let node = planner.node(&cluster::node_name(NODES)).unwrap().clone();
    assert!(planner.entries_for(&node).count() > 2 * services);
    bencher.bench_local(|| planner.entries_for(&node).count());
}

#[divan::bench(args = SIZES, sample_count = 1000)]
fn the_zone_label_of_a_node(bencher: Bencher<'_, '_>, services: usize) {
    let mut planner = cluster::planned(services);
    let mut moves = Moves::default();
    bencher
        .with_inputs(|| moves.next())
        .bench_local_values(|event| apply(&mut planner, event));
}

/// A node that moves between two zones.
#[derive(Default)]
pub(crate) struct Moves {
    count: usize,
}

impl Moves {
    pub(crate) fn next(&mut self) -> Event {
        self.count += 1;
        cluster::node(7, cluster::zone_of(7 + self.count % 2)).into()
    }
}
