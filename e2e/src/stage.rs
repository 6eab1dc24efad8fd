//! Arguments of scenarios, demos and benchmarks.

use std::path::PathBuf;

use crate::console::Console;
use crate::dataplane::Dataplane;
use crate::files::Files;
use crate::waits::Waits;

/// Arguments from the command line.
#[derive(Debug)]
pub struct Stage {
    /// Deadlines of this machine.
    pub waits: Waits,
    /// Where it writes.
    pub console: Console,
    /// Manifests and tables.
    pub files: Files,
    /// Where its chance begins.
    pub seed: u64,
    /// What serves Services.
    pub dataplane: Dataplane,
    /// Whether scenarios run in their long form.
    pub long: bool,
    /// A real API server, for scenarios of kernels that need one.
    pub api_server: Option<ApiServer>,
}

/// How a real API server is reached: kubeconfigs.
#[derive(Debug, Clone)]
pub struct ApiServer {
    /// Kubeconfig of a cluster administrator.
    pub admin: PathBuf,
    /// Of a user with the controller's rights.
    pub controller: PathBuf,
}
