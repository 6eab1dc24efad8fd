//! The parts of the lab that run a unit.

use std::path::Path;

use crate::tiers::Work;

/// The lab, which runs everything.
pub(super) const FOLDER: &str = "e2e/lab";

/// Whether a file of the lab affects how a unit runs.
pub(super) fn runs(path: &Path, work: Work) -> bool {
    let below = path.strip_prefix(Path::new(FOLDER).join("src"));
    let part = below.ok().and_then(|path| path.iter().next());
    let is_other = part.is_some_and(|part| is_other_part(&part.to_string_lossy(), work));
    !is_other && !is_beside_units(path)
}

/// Whether a file or folder of the lab's sources has no part in running a unit.
fn is_other_part(part: &str, work: Work) -> bool {
    let in_guest = work.needs_guest();
    let (is_real, makes_images) = (work.is_real(), matches!(work, Work::Images(_)));
    match part {
        // They judge results afterwards, parse the command line, or implement other commands.
        "semantics" | "cli" | "cli.rs" | "main.rs" => true,
        "fuzz" | "fuzz.rs" => work != Work::Fuzz,
        "images" => !makes_images && !is_real,
        "real" => !is_real,
        "kernels.rs" => !matches!(work, Work::Kernel(_)),
        "mutate" | "mutate.rs" => !matches!(work, Work::Mutations(_)),
        "guest" => !in_guest && !is_real,
        "installed" => !in_guest && !makes_images && !is_real,
        "demo.rs" | "traced.rs" => !work.is_demo(),
        "tools" | "control_plane.rs" => !work.needs_api_server() && !in_guest,
        "scenarios" | "scenarios.rs" => !in_guest && !is_real,
        "cluster.rs" => !matches!(
            work,
            Work::Cluster(_) | Work::ShippedCluster(_) | Work::Kubernetes(_)
        ),
        "test_builds.rs" => !matches!(work, Work::Schedules | Work::ShippedTests(_)),
        _ => false,
    }
}

/// Files of [`FOLDER`] that select units, order them, determine inputs, store results and print them. None of them
/// affects how a unit runs. The list of units counts by each unit's own entry, which is in its key.
pub(super) const BESIDE_UNITS: [&str; 11] = [
    "src/tiers/list.rs",
    "src/verify/done.rs",
    "src/verify/inputs.rs",
    "src/verify/lab.rs",
    "src/verify/mod.rs",
    "src/verify/repeat.rs",
    "src/verify/report.rs",
    "src/verify/results.rs",
    "src/verify/scenarios.rs",
    "src/verify/schedule.rs",
    "src/verify/workspace.rs",
];

/// Whether a file of the lab runs no unit.
fn is_beside_units(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_listed = |name: &&str| path == Path::new(FOLDER).join(name);
    stem.ends_with("tests") || BESIDE_UNITS.iter().any(is_listed)
}
