//! Objects of an installation in a real API server: the CRDs, and the RBAC permissions of the
//! controller. Texts only.

use anyhow::Result;

/// The user name of the controller.
pub(crate) const CONTROLLER: &str = "portolan-controller";
/// Definitions of our objects, as they are installed.
const DEFINITIONS: [&str; 3] = [
    include_str!("../../charts/portolan/charts/crds/crds/proxyconfigs.yaml"),
    include_str!("../../charts/portolan/charts/crds/crds/proxyplans.yaml"),
    include_str!("../../charts/portolan/charts/crds/crds/proxyplanslices.yaml"),
];
const ACCESS: &str = include_str!("../api/access.yaml");
/// Afterwards, until the API server knows our objects.
const ESTABLISHED: [&str; 5] = [
    "wait",
    "--for=condition=Established",
    "--timeout=60s",
    "crd",
    "--all",
];

/// Installs with `kubectl`, which takes arguments and a text for its standard input.
pub(crate) fn install(kubectl: impl Fn(&[&str], &str) -> Result<String>) -> Result<()> {
    for text in DEFINITIONS.into_iter().chain([ACCESS]) {
        kubectl(&["apply", "-f", "-"], text)?;
    }
    kubectl(&ESTABLISHED, "").map(drop)
}
