//! The inputs of results besides files: the compiler, Debian packages, kernels, Go, and environment variables.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result};

use crate::guest::Image;
use crate::packages::Versions;
use crate::process;
use crate::tiers::Work;

/// Prefixes of variables that affect builds or tests.
const SETTINGS: &[&str] = &[
    "CARGO_BUILD_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_PROFILE_",
    "KUBEBUILDER_ASSETS",
    "PORTOLAN_",
    "PROPTEST_",
    "RUSTFLAGS",
    "RUST_TEST_",
];

/// The properties of this machine that affect results.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Version of `rustc`.
    pub(super) compiler: String,
    /// The release of this machine's kernel.
    pub(super) kernel: String,
    /// Installed packages of the lab's tables.
    pub(super) packages: Versions,
    /// Variables of the environment.
    pub(super) settings: Vec<(String, String)>,
    /// The kernel of the emulated machine, or a fixed text if this machine's own is used.
    pub(super) guest_kernel: String,
    /// Version of `go`.
    pub(super) go: String,
}

impl Machine {
    /// Queries the machine.
    ///
    /// # Errors
    /// There is no compiler, or the guest's kernel cannot be read.
    pub(super) fn look(packages: Versions, guest: Option<&Image>) -> Result<Self> {
        let kernel = "/proc/sys/kernel/osrelease";
        let kernel = std::fs::read_to_string(kernel).context(kernel)?;
        let compiler = process::output(process::program("rustc")?.arg("-vV"))?;
        // Without Go, programs of the control plane may still be installed.
        let go = process::output(process::program("go")?.arg("version")).unwrap_or_default();
        let guest_kernel = match guest {
            Some(image) => hash_of(&image.kernel())?,
            None => "this machine's own".to_owned(),
        };
        let is_setting = |name: &str| SETTINGS.iter().any(|start| name.starts_with(start));
        let texts = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let mut settings: Vec<_> = texts.filter(|(name, _)| is_setting(name)).collect();
        settings.sort();
        Ok(Self {
            compiler,
            kernel,
            packages,
            settings,
            guest_kernel,
            go,
        })
    }

    /// The properties that affect a unit.
    pub(super) fn parts_for(&self, work: Work) -> Vec<String> {
        let mut parts = vec![self.compiler.clone(), format!("{:?}", self.settings)];
        if matches!(work, Work::Check(..)) {
            return parts;
        }
        parts.push(self.kernel.clone());
        parts.push(format!("{:?}", self.packages));
        if work.needs_guest() || work.is_real() {
            parts.push(self.guest_kernel.clone());
        }
        if work.needs_api_server() {
            parts.push(self.go.clone());
        }
        parts
    }
}

fn hash_of(path: &Path) -> Result<String> {
    let content = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}
