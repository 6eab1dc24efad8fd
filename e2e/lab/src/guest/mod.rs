//! An emulated machine whose kernel has IPVS, for tests on machines whose own kernel has not.

mod archive;
mod boot;
mod image;
mod kernel;
mod libraries;
mod payload;
mod recipe;
pub mod shell;

pub use boot::{Job, run};
pub use image::{Image, prepare};
pub use payload::Payload;
