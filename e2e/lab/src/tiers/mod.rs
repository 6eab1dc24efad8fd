//! The tiers of `cargo verify` and their units. A unit has its own result: it is run, timed and stored separately.

mod list;

use clap::ValueEnum;

use crate::fuzz::LONG_SECONDS;
use crate::mutate::Subject;
use crate::nested::Profile;
use crate::scenarios::{NFTABLES, Place};
use crate::test_builds;
use crate::tools::Release;
pub use list::{DOCUMENTS, LONG, TIERS, TIMED};

/// The package whose tests simulate more seeds in long runs.
pub const SIMULATION: &str = "portolan-simulation";

/// A task of `cargo verify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `cargo` with these arguments: one check, passed if the exit status is 0.
    Check(&'static str, &'static str),
    /// Test programs of a package; at least one test must run.
    Tests(&'static str, Targets),
    /// Examples in the documentation of the packages that have any.
    Examples(&'static [&'static str]),
    /// Test programs, with these arguments, on a kernel with IPVS.
    IpvsTest(&'static str, Targets, &'static [&'static str]),
    /// A scenario of `portolan-scenarios run`, on a kernel with IPVS.
    Scenario(Scenario),
    /// Scenarios with the nftables dataplane.
    Nftables(Place, &'static [&'static str]),
    /// Scenarios on the kernel of another Debian release, by the first two numbers of its version.
    Kernel(&'static str),
    /// A scenario of `portolan-scenarios cluster`, on a real API server.
    Cluster(Scenario),
    /// All scenarios of `portolan-scenarios cluster`, on another release of Kubernetes.
    Kubernetes(Release),
    /// Mutations; each must make its named test fail.
    Mutations(Subject),
    /// All targets of the fuzzer, for a while each.
    Fuzz,
    /// The tests that try many orders of threads.
    Schedules,
    /// All tests of these packages, compiled like released programs.
    ShippedTests(&'static [&'static str]),
    /// Scenarios on a kernel with IPVS, with the controller and the agent as released.
    ShippedScenarios(&'static [&'static str]),
    /// Scenarios on a real API server, with the controller and the agent as released.
    ShippedCluster(&'static [&'static str]),
    /// Both images, with this build of the programs.
    Images(Profile),
    /// The disks of machines with kubelets, and the programs on them.
    RealKit,
    /// Kubernetes' own tests on machines with kubelets, with this service proxy.
    Real(&'static str),
    /// Another command of `portolan-scenarios real`: an operator's task on an installation.
    RealCommand(&'static str),
    /// The demo with these options, with its closing line.
    Demo(&'static [&'static str]),
    /// The demo with a real API server, with traces and its closing line.
    ClusterDemo,
}

/// A selection of a package's test programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Targets {
    /// Those in its library and programs, and all default integration tests.
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
    /// Duration when this was written, seconds. Long ones are started first.
    pub seconds: u16,
}

/// The resource that a unit uses. Units on different resources run in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A processor: compiling or computing.
    Processor,
    /// A control plane on this machine.
    ControlPlane,
    /// An emulated machine.
    Guest,
    /// The whole machine: no other unit runs at the same time.
    Whole,
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
            Self::Nftables(Place::Guest, names) => format!("{} in a guest", names.join(" ")),
            Self::Nftables(_, names) => names.join(" "),
            Self::Kernel(version) => version.to_owned(),
            Self::Kubernetes(release) => name_of(&release),
            Self::Mutations(subject) => name_of(&subject),
            Self::Fuzz => "targets".to_owned(),
            Self::Schedules => "threads".to_owned(),
            Self::ShippedTests(_) => "tests".to_owned(),
            Self::ShippedScenarios(_) => "guest".to_owned(),
            Self::ShippedCluster(_) => "cluster".to_owned(),
            Self::Images(_) => "both".to_owned(),
            Self::RealKit => "kit".to_owned(),
            Self::Real(proxy) => proxy.to_owned(),
            Self::RealCommand(name) => name.to_owned(),
            Self::Demo(_) => "demo".to_owned(),
            Self::ClusterDemo => "cluster".to_owned(),
        }
    }

    /// The command to run it alone.
    #[must_use]
    pub fn command(self) -> String {
        match self {
            Self::Check(_, words) => format!("cargo {words}"),
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
            Self::Nftables(place, names) => {
                let words = [names, &NFTABLES[..], place.words()].concat().join(" ");
                format!("cargo lab scenarios {words}")
            }
            Self::Kernel(version) => format!("cargo lab kernels --kernel {version}"),
            Self::Kubernetes(release) => {
                format!("cargo lab cluster --kubernetes {} --all", name_of(&release))
            }
            Self::Mutations(subject) => format!("cargo lab mutate --of {}", name_of(&subject)),
            Self::Fuzz => format!("cargo lab fuzz --seconds {LONG_SECONDS}"),
            Self::Schedules => {
                format!(
                    "cargo test --release --manifest-path {}",
                    test_builds::SCHEDULES
                )
            }
            Self::ShippedTests(_) | Self::ShippedScenarios(_) | Self::ShippedCluster(_) => {
                "cargo verify --tier shipped".to_owned()
            }
            Self::Images(Profile::Shipped) => "cargo lab image".to_owned(),
            Self::Images(_) => "cargo lab image --profile dev".to_owned(),
            Self::RealKit => "cargo lab real prepare".to_owned(),
            Self::Real(proxy) => format!("cargo lab real test --proxy {proxy} --short"),
            Self::RealCommand(name) => format!("cargo lab real {name}"),
            Self::Demo(options) => [&["cargo", "demo"], options].concat().join(" "),
            Self::ClusterDemo => "cargo demo --cluster --traces".to_owned(),
        }
    }

    /// The resource it uses.
    #[must_use]
    pub fn resource(self) -> Resource {
        match self {
            Self::IpvsTest(..)
            | Self::Scenario(_)
            | Self::Nftables(..)
            | Self::Kernel(_)
            | Self::Demo(_)
            | Self::ClusterDemo => Resource::Guest,
            Self::Cluster(scenario) if TIMED.contains(&scenario.name) => Resource::Whole,
            Self::Cluster(_) | Self::Kubernetes(_) => Resource::ControlPlane,
            // They compile for minutes, which would disturb other scenarios.
            Self::ShippedScenarios(_) | Self::ShippedCluster(_) => Resource::Whole,
            Self::Real(_) | Self::RealCommand(_) => Resource::Whole,
            _ => Resource::Processor,
        }
    }

    /// Whether it is a demo, whose last line is its verdict.
    #[must_use]
    pub fn is_demo(self) -> bool {
        matches!(self, Self::Demo(_) | Self::ClusterDemo)
    }

    /// Whether it needs the programs of the control plane.
    #[must_use]
    pub fn needs_api_server(self) -> bool {
        match self {
            Self::Cluster(_)
            | Self::Kubernetes(_)
            | Self::ClusterDemo
            | Self::ShippedCluster(_)
            | Self::RealKit
            | Self::Real(_)
            | Self::RealCommand(_) => true,
            Self::Scenario(scenario) => scenario.name == "bootstrap",
            _ => false,
        }
    }

    /// Whether it may boot an emulated machine with the guest's kernel.
    #[must_use]
    pub fn needs_guest(self) -> bool {
        self.resource() == Resource::Guest || matches!(self, Self::ShippedScenarios(_))
    }

    /// Whether it starts the programs of the workspace, as scenarios and demos do.
    #[must_use]
    pub fn starts_programs(self) -> bool {
        !matches!(self, Self::IpvsTest(..)) && (self.needs_guest() || self.needs_api_server())
    }

    /// Whether it runs the test with this name of `e2e/semantics.yaml`, without the tier.
    #[must_use]
    pub fn runs(self, test: &str) -> bool {
        let first = test.split("::").next();
        match self {
            Self::Tests(package, _) | Self::IpvsTest(package, ..) => first == Some(package),
            Self::Nftables(_, names) => first.is_some_and(|first| names.contains(&first)),
            _ => first == Some(&*self.name()),
        }
    }

    /// Whether it needs machines with kubelets.
    #[must_use]
    pub fn is_real(self) -> bool {
        matches!(self, Self::RealKit | Self::Real(_) | Self::RealCommand(_))
    }

    /// Whether `cargo verify --long` runs a longer form.
    #[must_use]
    pub fn has_long_form(self) -> bool {
        match self {
            Self::Mutations(_) | Self::Real(_) => true,
            Self::Tests(package, _) => package == SIMULATION,
            Self::Scenario(scenario) | Self::Cluster(scenario) => {
                LONG.iter().any(|(name, _)| *name == scenario.name)
            }
            _ => false,
        }
    }
}

/// Whether an integration test has a unit of its own.
#[must_use]
pub fn run_by_name(package: &str, test: &str) -> bool {
    let mut all = TIERS.iter().flat_map(Tier::all);
    all.any(|work| match work {
        Work::Tests(of, Targets::Named(tests)) | Work::IpvsTest(of, Targets::Named(tests), _) => {
            of == package && tests.contains(&test)
        }
        _ => false,
    })
}

/// The name of a value on the command line.
pub fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A group of related units.
#[derive(Debug)]
pub struct Tier {
    /// For `--tier`.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// The units of every run. All run, also after a failure.
    pub work: &'static [Work],
    /// Further units of `cargo verify --long`. If the tier has no others, they also run when it is selected.
    pub long: &'static [Work],
}

impl Tier {
    /// All units.
    pub fn all(&self) -> impl Iterator<Item = Work> {
        self.work.iter().chain(self.long).copied()
    }

    /// The units of a run of this tier.
    pub fn selected(&self, long: bool) -> impl Iterator<Item = Work> {
        let long = (long || self.work.is_empty()).then_some(self.long);
        self.work.iter().chain(long.into_iter().flatten()).copied()
    }

    /// Whether the names of its tests can prove a behaviour.
    #[must_use]
    pub fn has_tests(&self) -> bool {
        let nameless =
            |work: &Work| matches!(work, Work::Check(..) | Work::Mutations(_) | Work::Fuzz);
        !self.all().all(|work| nameless(&work))
    }
}

#[cfg(test)]
mod tests;
