//! Planning a whole cluster at once, as after a start of the controller.

use divan::Bencher;
use portolan_planner::Planner;

use crate::cluster;

#[divan::bench(args = [100, 1_000, 10_000], sample_count = 10, sample_size = 1)]
fn a_cluster_from_scratch(bencher: Bencher<'_, '_>, services: usize) {
    bencher
        .with_inputs(|| cluster::events(services))
        .bench_local_values(|events| {
            let mut planner = Planner::default();
            planner.apply(events);
            planner
        });
}
