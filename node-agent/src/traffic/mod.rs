//! Traffic of Services for metrics: the sums of the counters of their frontends, which the agent gets with each
//! complete read of the kernel. Optional and bounded: a limited number of Services have series of their own, and the
//! rest are summed.

mod meter;

pub use ipvs_rs::Traffic;
pub use meter::{Meter, TrafficTotals};
