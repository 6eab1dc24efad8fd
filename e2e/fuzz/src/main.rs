//! The fuzzer. `PORTOLAN_FUZZ_TARGET` names the target; `cargo lab fuzz` builds and runs it.

#![no_main]

use std::sync::LazyLock;

use portolan_fuzz_targets::{Target, named};

/// The target.
static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("PORTOLAN_FUZZ_TARGET").unwrap_or_default();
    named(&name).unwrap_or_else(|| panic!("PORTOLAN_FUZZ_TARGET: there is no target {name:?}"))
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| (TARGET.run)(input));
