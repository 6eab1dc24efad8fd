//! Runs the program of scenarios: in a guest, or on this machine if its kernel has IPVS.

mod apart;

use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Result;
pub use apart::runs_alone;
use apart::{Apart, apart};
use clap::ValueEnum;

use crate::control_plane::{self, ControlPlane};
use crate::guest::{self, Image, Job, Payload};
use crate::nested::{self, Profile, Programs, SCENARIOS};
use crate::packages::Versions;
use crate::{packages, process, progress, tools};

/// Folder of the scenarios' input files in the guest.
const FILES: &str = "/portolan/e2e";
/// Rules and dashboards: their folder in the guest, and their source.
const MONITORING: (&str, &str) = (
    "/portolan/charts/portolan/monitoring",
    "charts/portolan/monitoring",
);
/// The option for the dataplane that needs no IPVS.
pub const NFTABLES: [&str; 2] = ["--dataplane", "nftables"];
/// First word of the command that runs scenarios.
pub const RUN: &str = "run";
/// Path of kubectl in the guest: beside the programs.
const KUBECTL: &str = "/portolan/bin/kubectl";
/// Folder of kubeconfigs in the guest.
const ADMIN: &str = "/portolan/admin.kubeconfig";
const CONTROLLER: &str = "/portolan/controller.kubeconfig";
/// Parts of `e2e/` that are code, not input.
const NOT_INPUT: &[&str] = &[
    "src",
    "lab",
    "tests",
    "tools",
    "benchmarks",
    "fuzz",
    "fuzz-targets",
    "schedules",
    "simulation",
    "target",
    "Cargo.toml",
    "semantics.yaml",
];
/// Timeout. The longest run so far is the soak of all scenarios, with one minute per kind of client, and with an agent that
/// hangs for 12 minutes.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Memory of a guest for benchmarks, MB.
const MEASURED_MEMORY: u32 = 4000;

/// The kernel to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// On an emulated machine.
    Guest,
    /// On this machine.
    Here,
    /// On this machine if its kernel has the dataplane and the user is root, else on an emulated machine.
    Auto,
}

impl Place {
    /// The options of `cargo lab scenarios` for it.
    #[must_use]
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Auto => &[],
            Self::Here => &["--where", "here"],
            Self::Guest => &["--where", "guest"],
        }
    }
}

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mode {
    /// No timeout, and a shell for inspection.
    pub keep: bool,
    /// The Debian release of the guest's kernel, if it differs from this machine's.
    pub release: Option<&'static str>,
    /// The build of the programs.
    pub profile: Profile,
}

/// Runs `portolan-scenarios` with these arguments and returns its exit status.
///
/// Prepares the machine and builds first.
///
/// # Errors
/// Packages are missing and cannot be installed, the build failed, or the guest died.
pub fn run(words: &[&str], place: Place, mode: Mode, sink: &mut (dyn Write + Send)) -> Result<u8> {
    let started_with = match apart(words)? {
        Some(Apart::ApiServer) => return OnApiServer::prepare(place, false)?.run(words, sink),
        Some(Apart::Kernel(with)) => Some(with),
        None => None,
    };
    let versions = packages::ensure()?;
    // This machine's own kernel runs with its own boot options.
    let place = match started_with.is_some() || mode.release.is_some() {
        true => Place::Guest,
        false => or_here(place, words)?,
    };
    let image = guest_image(place, mode.release, &versions)?;
    let programs = Programs::build(mode.profile)?;
    let tools = wants_prometheus(words).then(tools::beside_nodes);
    let tools = tools.transpose()?;
    match &image {
        None => {
            let assets = tools.as_deref().map(|folder| (tools::ASSETS, folder));
            here(words, &programs, assets.as_slice(), sink)
        }
        Some(image) => {
            let mut job = in_guest(words, &programs)?;
            if let Some(folder) = &tools {
                let tools = tools::BESIDE_NODES.map(|name| folder.join(name));
                tools.iter().for_each(|tool| job.payload.program(tool));
            }
            job.deadline = (!mode.keep).then_some(DEADLINE);
            job.kernel.extend(started_with.map(str::to_owned));
            job.shell = mode.keep;
            guest::run(image, &job, sink)
        }
    }
}

/// This machine if its kernel can run this without IPVS and the place is free.
fn or_here(place: Place, words: &[&str]) -> Result<Place> {
    Ok(match place == Place::Auto && serves_here(words)? {
        true => Place::Here,
        false => place,
    })
}

/// Whether this machine's kernel can run this without IPVS: it has nftables where containers run.
fn serves_here(words: &[&str]) -> Result<bool> {
    let without_ipvs =
        words.windows(2).any(|pair| pair == NFTABLES) || words.contains(&"--dataplane=nftables");
    Ok(without_ipvs && packages::is_root()?)
}

/// They are large, so runs without that scenario do not include them.
fn wants_prometheus(words: &[&str]) -> bool {
    matches!(words, [RUN, rest @ ..] if rest.contains(&"--all") || rest.contains(&"metrics"))
}

/// A kernel, the programs, and a control plane on this machine that ends with this value.
pub struct OnApiServer {
    plane: ControlPlane,
    /// The guest, unless it is this machine.
    image: Option<Image>,
    programs: Programs,
    assets: PathBuf,
    traced: bool,
}

impl OnApiServer {
    /// Prepares the machine, builds, and starts the control plane. `traced`: with Jaeger, to which the program should
    /// send traces.
    ///
    /// # Errors
    /// As [`run`], or the control plane cannot be built or does not start.
    pub fn prepare(place: Place, traced: bool) -> Result<Self> {
        let image = guest_image(place, None, &packages::ensure()?)?;
        let assets = tools::ensure()?;
        let programs = Programs::build(Profile::Dev)?;
        Ok(Self {
            plane: ControlPlane::start(&programs, &assets, traced)?,
            image,
            programs,
            assets,
            traced,
        })
    }

    /// Runs `portolan-scenarios` with these arguments, kubectl and kubeconfigs on the kernel and returns its exit
    /// status.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(&self, words: &[&str], sink: &mut (dyn Write + Send)) -> Result<u8> {
        let from_guest = self.image.is_some();
        let said = |line| self.plane.said(line, from_guest);
        let mut words = words.to_vec();
        if self.traced {
            let (traces, page) = (said(control_plane::TRACES)?, said(control_plane::JAEGER)?);
            words.extend(["--traces-to", traces, "--jaeger", page]);
        }
        let (admin, controller) = (
            said(control_plane::ADMIN)?,
            said(control_plane::AS_CONTROLLER)?,
        );
        match &self.image {
            None => {
                let words = with_kubeconfigs(&words, admin, controller);
                let assets = [(tools::ASSETS, &*self.assets)];
                here(&words, &self.programs, &assets, sink)
            }
            Some(image) => {
                let words = with_kubeconfigs(&words, ADMIN, CONTROLLER);
                let mut job = in_guest(&words, &self.programs)?;
                job.payload.file(ADMIN, Path::new(admin));
                job.payload.file(CONTROLLER, Path::new(controller));
                // A plain file, since it is statically linked.
                job.payload.file(KUBECTL, &self.assets.join("kubectl"));
                job.network = true;
                guest::run(image, &job, sink)
            }
        }
    }

    /// Draws a trace from the control plane's Jaeger and returns the exit status of the drawing program. `stay`:
    /// print the address of Jaeger's page and wait for a signal.
    ///
    /// # Errors
    /// The control plane was prepared without Jaeger, or the program cannot be started.
    pub fn draw(
        &self,
        trace: &str,
        picture: &Path,
        stay: bool,
        sink: &mut dyn Write,
    ) -> Result<u8> {
        let page = self.plane.said(control_plane::JAEGER, false)?;
        let mut command = process::built(&self.programs.named(SCENARIOS)?.path)?;
        command
            .args(["trace", "--jaeger", page, "--id", trace, "--picture"])
            .arg(picture)
            .args(stay.then_some("--stay"))
            .envs(progress::for_programs());
        exit_of(&mut command, sink)
    }
}

/// Runs a benchmark of `portolan-scenarios`, release build, and returns its exit status.
///
/// # Errors
/// As [`run`].
pub fn measure(words: &[&str], place: Place, sink: &mut (dyn Write + Send)) -> Result<u8> {
    let image = guest_image(or_here(place, words)?, None, &packages::ensure()?)?;
    let programs = Programs::build(Profile::Release)?;
    match &image {
        None => {
            let mut command = process::built(&programs.named(SCENARIOS)?.path)?;
            exit_of(command.args(words), sink)
        }
        Some(image) => {
            let mut job = with_our_programs(job(&[&[SCENARIOS], words].concat()), &programs);
            job.memory = MEASURED_MEMORY;
            job.deadline = Some(DEADLINE);
            guest::run(image, &job, sink)
        }
    }
}

fn with_kubeconfigs<'a>(words: &[&'a str], admin: &'a str, controller: &'a str) -> Vec<&'a str> {
    let more = ["--kubeconfig", admin, "--controller-kubeconfig", controller];
    [words, &more].concat()
}

fn here(
    words: &[&str],
    programs: &Programs,
    environment: &[(&str, &Path)],
    sink: &mut dyn Write,
) -> Result<u8> {
    let files = nested::root().join("e2e");
    let mut command = process::built(&programs.named(SCENARIOS)?.path)?;
    command.args(words).arg("--files").arg(files);
    command.envs(environment.iter().copied());
    exit_of(&mut command, sink)
}

fn in_guest(words: &[&str], programs: &Programs) -> Result<Job> {
    let words = [&[SCENARIOS], words, &["--files", FILES]].concat();
    let mut job = with_our_programs(job(&words), programs);
    job.payload
        .folder(FILES, &nested::root().join("e2e"), NOT_INPUT)?;
    job.payload
        .folder(MONITORING.0, &nested::root().join(MONITORING.1), &[])?;
    Ok(job)
}

/// Runs a test program built by cargo and returns its exit status.
///
/// # Errors
/// Packages are missing and cannot be installed, it cannot be started, or the guest died.
pub fn run_test(
    path: &Path,
    words: &[&str],
    place: Place,
    sink: &mut (dyn Write + Send),
) -> Result<u8> {
    match guest_image(place, None, &packages::ensure()?)? {
        None => exit_of(process::built(path)?.args(words), sink),
        Some(image) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut job = job(&[&[&*name], words].concat());
            job.payload.program(path);
            guest::run(&image, &job, sink)
        }
    }
}

/// The guest for these packages; `None` if this machine's own kernel is used.
///
/// # Errors
/// As for [`guest::prepare`], or it is unknown whether this kernel has IPVS.
pub fn guest_image(
    place: Place,
    release: Option<&str>,
    versions: &Versions,
) -> Result<Option<Image>> {
    let here = match place {
        Place::Here => true,
        Place::Guest => false,
        Place::Auto => packages::is_root()? && kernel_has("ip_vs", Path::new("/proc/net/ip_vs"))?,
    };
    (!here)
        .then(|| guest::prepare(versions, release))
        .transpose()
}

fn job(words: &[&str]) -> Job {
    let command = words.iter().map(|word| (*word).to_owned()).collect();
    let mut job = Job::new(command, Payload::default());
    job.environment = progress::for_programs();
    job
}

/// Adds the programs to the guest.
#[must_use]
pub fn with_our_programs(mut job: Job, programs: &Programs) -> Job {
    for binary in programs.iter() {
        job.payload.program(&binary.path);
    }
    job
}

/// Whether the kernel has a part, which shows as this path; loads its module if necessary.
fn kernel_has(module: &str, shown_as: &Path) -> Result<bool> {
    if !shown_as.exists() {
        // modprobe fails if the kernel has no such module; the path is checked afterwards.
        process::finish(process::program("modprobe")?.args(["--quiet", module]))?;
    }
    Ok(shown_as.exists())
}

/// Runs a program on this machine, streams its output, and returns its exit status.
///
/// # Errors
/// As for [`nested::stream`].
pub fn exit_of(command: &mut Command, sink: &mut dyn Write) -> Result<u8> {
    Ok(exit_code(nested::stream(command, sink)?))
}

/// A program ended by a signal has no exit status; shells report 128 plus the signal.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_comes_only_where_it_is_used() {
        assert!(wants_prometheus(&["run", "--all"]));
        assert!(wants_prometheus(&["run", "udp", "metrics"]));
        assert!(!wants_prometheus(&["run", "udp"]));
        assert!(!wants_prometheus(&["demo", "--keep"]));
    }

    #[test]
    fn a_signal_becomes_an_exit_status_as_in_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
