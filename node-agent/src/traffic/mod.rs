//! What Services have carried, for metrics: counters of virtual servers, which the kernel tells whenever
//! all of it is looked at, added up for each Service. Optional, and bounded: so many Services have series
//! of their own, and the rest one together.

mod meter;

pub use ipvs_rs::Traffic;
pub use meter::{Meter, Told};
