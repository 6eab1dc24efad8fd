//! The tiers of `cargo verify` and their units. A unit is what has a result of its own: it is run, timed and
//! remembered by itself.

mod list;

use clap::ValueEnum as _;

use crate::tools::Release;
pub use list::{DOCUMENTS, LONG, TIERS};

/// One thing that `cargo verify` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `cargo` with these arguments; one check, passed if it exits with 0.
    Check(&'static str, &'static [&'static str]),
    /// Test programs of a package; at least one test must run.
    Tests(&'static str, Targets),
    /// Examples in the documentation; only these packages have any.
    Examples(&'static [&'static str]),
    /// Test programs, with these arguments, on a kernel with IPVS.
    IpvsTest(&'static str, Targets, &'static [&'static str]),
    /// A scenario of `portolan-scenarios run`, on a kernel with IPVS.
    Scenario(Scenario),
    /// Scenarios on the kernel of another Debian release, by the first two numbers of its version.
    Kernel(&'static str),
    /// A scenario of `portolan-scenarios cluster`, on a real API server.
    Cluster(Scenario),
    /// All scenarios of `portolan-scenarios cluster`, on another release of Kubernetes.
    Kubernetes(Release),
    /// Mutations of the planner, each killed by the test that it names.
    Mutations,
    /// Both images, with programs as tests have them.
    Images,
    /// What machines with kubelets boot from, and the programs that run on them.
    RealKit,
    /// Kubernetes' own tests on machines with kubelets, with this as the service proxy.
    Real(&'static str),
    /// Another command of `portolan-scenarios real`: what people do with an installation.
    RealCommand(&'static str),
    /// The demo, with its closing line.
    Demo,
    /// The demo of a real API server, with traces and its closing line.
    ClusterDemo,
}

/// Which test programs of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Targets {
    /// Those in its library and programs, and every integration test that cargo runs by itself.
    All,
    /// Those in its library and programs.
    Library,
    /// These integration tests.
    Named(&'static [&'static str]),
}

/// A scenario of `portolan-scenarios`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Its name there.
    pub name: &'static str,
    /// How long it took when this was written, seconds. Long ones are started first.
    pub seconds: u16,
}

/// What a unit occupies. Units on different resources run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A processor: what compiles or computes.
    Processor,
    /// A control plane on this machine.
    ControlPlane,
    /// An emulated machine.
    Guest,
    /// All of this machine: nothing runs beside it.
    Whole,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Processor,
        Self::ControlPlane,
        Self::Guest,
        Self::Whole,
    ];

    /// What must have ended before anything of it starts.
    #[must_use]
    pub fn waits_for(self) -> &'static [Self] {
        match self {
            Self::Processor | Self::ControlPlane => &[],
            Self::Guest => &[Self::ControlPlane],
            Self::Whole => &[Self::Processor, Self::ControlPlane, Self::Guest],
        }
    }
}

impl Work {
    /// The unit's name within its tier.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Check(name, _) => name.to_owned(),
            Self::Tests(package, Targets::All | Targets::Library) => package.to_owned(),
            Self::Tests(package, Targets::Named(tests))
            | Self::IpvsTest(package, Targets::Named(tests), _) => {
                format!("{package} {}", tests.join(" "))
            }
            Self::IpvsTest(package, ..) => package.to_owned(),
            Self::Examples(_) => "examples".to_owned(),
            Self::Scenario(scenario) | Self::Cluster(scenario) => scenario.name.to_owned(),
            Self::Kernel(version) => version.to_owned(),
            Self::Kubernetes(release) => name_of(release),
            Self::Mutations => "planner".to_owned(),
            Self::Images => "both".to_owned(),
            Self::RealKit => "kit".to_owned(),
            Self::Real(proxy) => proxy.to_owned(),
            Self::RealCommand(name) => name.to_owned(),
            Self::Demo => "demo".to_owned(),
            Self::ClusterDemo => "cluster".to_owned(),
        }
    }

    /// What a person types to run it alone.
    #[must_use]
    pub fn command(self) -> String {
        match self {
            Self::Check(_, words) => format!("cargo {}", words.join(" ")),
            Self::Tests(package, Targets::All) => format!("cargo test --package {package}"),
            Self::Tests(package, Targets::Library) => {
                format!("cargo test --package {package} --lib --bins")
            }
            Self::Tests(package, Targets::Named(tests)) => {
                format!(
                    "cargo test --package {package} --test {}",
                    tests.join(" --test ")
                )
            }
            Self::Examples(_) => "cargo test --workspace --doc".to_owned(),
            Self::IpvsTest(..) => "cargo verify --tier guest".to_owned(),
            Self::Scenario(scenario) => format!("cargo lab scenarios {}", scenario.name),
            Self::Cluster(scenario) => format!("cargo lab cluster {}", scenario.name),
            Self::Kernel(version) => format!("cargo lab kernels --kernel {version}"),
            Self::Kubernetes(release) => {
                format!("cargo lab cluster --kubernetes {} --all", name_of(release))
            }
            Self::Mutations => "cargo lab mutate".to_owned(),
            Self::Images => "cargo lab image --profile dev".to_owned(),
            Self::RealKit => "cargo lab real prepare".to_owned(),
            Self::Real(proxy) => format!("cargo lab real test --proxy {proxy} --short"),
            Self::RealCommand(name) => format!("cargo lab real {name}"),
            Self::Demo => "cargo demo".to_owned(),
            Self::ClusterDemo => "cargo demo --cluster --traces".to_owned(),
        }
    }

    /// What it occupies.
    #[must_use]
    pub fn resource(self) -> Resource {
        match self {
            Self::IpvsTest(..)
            | Self::Scenario(_)
            | Self::Kernel(_)
            | Self::Demo
            | Self::ClusterDemo => Resource::Guest,
            Self::Cluster(_) | Self::Kubernetes(_) => Resource::ControlPlane,
            Self::Real(_) | Self::RealCommand(_) => Resource::Whole,
            _ => Resource::Processor,
        }
    }

    /// Whether it needs the programs of the control plane.
    #[must_use]
    pub fn needs_api_server(self) -> bool {
        match self {
            Self::Cluster(_)
            | Self::Kubernetes(_)
            | Self::ClusterDemo
            | Self::RealKit
            | Self::Real(_)
            | Self::RealCommand(_) => true,
            Self::Scenario(scenario) => scenario.name == "bootstrap",
            _ => false,
        }
    }

    /// Whether `cargo verify --long` does more of it than `cargo verify`.
    #[must_use]
    pub fn has_long_form(self) -> bool {
        match self {
            Self::Mutations | Self::Real(_) => true,
            Self::Scenario(scenario) | Self::Cluster(scenario) => {
                LONG.iter().any(|(name, _)| *name == scenario.name)
            }
            _ => false,
        }
    }
}

fn name_of(release: Release) -> String {
    let value = release.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A group of units that belong together.
#[derive(Debug)]
pub struct Tier {
    /// For `--tier`.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// All of it runs, also after a failure.
    pub work: &'static [Work],
}

impl Tier {
    /// Whether only `cargo verify --long` runs it, or who asks for it.
    #[must_use]
    pub fn is_only_long(&self) -> bool {
        let is_long = |work: &Work| {
            matches!(
                work,
                Work::Kernel(_) | Work::Kubernetes(_) | Work::RealCommand(_)
            )
        };
        self.work.iter().all(is_long)
    }

    /// Whether tests run in it whose names can prove something.
    #[must_use]
    pub fn has_tests(&self) -> bool {
        let nameless = |work: &Work| matches!(work, Work::Check(..) | Work::Mutations);
        !self.work.iter().all(nameless)
    }
}

#[cfg(test)]
mod tests;
