//! An emulated machine whose kernel has IPVS, for tests on machines whose own kernel lacks it.

pub mod archive;
pub mod boot;
pub(crate) mod emulated;
pub mod image;
pub mod kernel;
pub mod payload;
pub mod recipe;
pub mod shell;

pub use boot::{Job, run};
pub use image::{Image, prepare};
pub use payload::Payload;
