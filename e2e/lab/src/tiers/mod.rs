//! The tiers of `cargo verify` and their units. A unit is what has a result of its own: it is run, timed and
//! remembered by itself.

/// One thing that `cargo verify` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `cargo` with these arguments; one check, passed if it exits with 0.
    Check(&'static str, &'static [&'static str]),
    /// Test programs of a package; at least one test must run.
    Tests(&'static str, Targets),
    /// Examples in the documentation of these packages; there may be none.
    Examples(&'static [&'static str]),
    /// Test programs, with these arguments, on a kernel with IPVS.
    IpvsTest(&'static str, Targets, &'static [&'static str]),
    /// A scenario of `portolan-scenarios run`, on a kernel with IPVS.
    Scenario(Scenario),
    /// A scenario of `portolan-scenarios cluster`, on a real API server.
    Cluster(Scenario),
    /// Mutations of the planner, each killed by the test that it names.
    Mutations,
    /// Both images, with programs as tests have them.
    Images,
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

const fn scenario(name: &'static str, seconds: u16) -> Scenario {
    Scenario { name, seconds }
}

const fn guest(name: &'static str, seconds: u16) -> Work {
    Work::Scenario(scenario(name, seconds))
}

const fn cluster(name: &'static str, seconds: u16) -> Work {
    Work::Cluster(scenario(name, seconds))
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
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Processor, Self::ControlPlane, Self::Guest];
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
            Self::Mutations => "planner".to_owned(),
            Self::Images => "both".to_owned(),
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
            Self::Examples(packages) => {
                format!(
                    "cargo test --doc --package {}",
                    packages.join(" --package ")
                )
            }
            Self::IpvsTest(..) => "cargo verify --tier guest".to_owned(),
            Self::Scenario(scenario) => format!("cargo lab scenarios {}", scenario.name),
            Self::Cluster(scenario) => format!("cargo lab cluster {}", scenario.name),
            Self::Mutations => "cargo lab mutate".to_owned(),
            Self::Images => "cargo lab image --profile dev".to_owned(),
            Self::Demo => "cargo demo".to_owned(),
            Self::ClusterDemo => "cargo demo --cluster --traces".to_owned(),
        }
    }

    /// What it occupies.
    #[must_use]
    pub fn resource(self) -> Resource {
        match self {
            Self::IpvsTest(..) | Self::Scenario(_) | Self::Demo | Self::ClusterDemo => {
                Resource::Guest
            }
            Self::Cluster(_) => Resource::ControlPlane,
            _ => Resource::Processor,
        }
    }

    /// Whether it needs the programs of the control plane.
    #[must_use]
    pub fn needs_api_server(self) -> bool {
        match self {
            Self::Cluster(_) | Self::ClusterDemo => true,
            Self::Scenario(scenario) => scenario.name == "bootstrap",
            _ => false,
        }
    }

    /// Whether `cargo verify --long` does more of it than `cargo verify`.
    #[must_use]
    pub fn has_long_form(self) -> bool {
        match self {
            Self::Mutations => true,
            Self::Scenario(scenario) | Self::Cluster(scenario) => {
                LONG.iter().any(|(name, _)| *name == scenario.name)
            }
            _ => false,
        }
    }
}

/// Scenarios with a long form, and what that has which the short one has not. Each looks at `--long`.
pub const LONG: &[(&str, &str)] = &[
    (
        "churn",
        "1,000 Services and 4,000 pods for two minutes, instead of 300 and 1,200 for 40 s",
    ),
    ("agents", "60 nodes instead of 30"),
    (
        "restarts",
        "ten kills of each program in a minute, instead of four in 24 s",
    ),
];

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
    /// Whether tests run in it whose names can prove something.
    #[must_use]
    pub fn has_tests(&self) -> bool {
        let nameless = |work: &Work| matches!(work, Work::Check(..) | Work::Mutations);
        !self.work.iter().all(nameless)
    }
}

/// All of them.
pub const TIERS: &[Tier] = &[
    Tier {
        name: "format",
        title: "the code is formatted",
        work: &[Work::Check("rustfmt", &["fmt", "--all", "--check"])],
    },
    Tier {
        name: "lint",
        title: "no warning of the compiler or clippy",
        work: &[
            Work::Check(
                "clippy",
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--",
                    "-D",
                    "warnings",
                ],
            ),
            // Cargo does not count them among all targets, because a plain `cargo test` does not run them.
            Work::Check(
                "clippy-named-tests",
                &[
                    "clippy",
                    "--workspace",
                    "--test=kernel",
                    "--test=namespaces",
                    "--",
                    "-D",
                    "warnings",
                ],
            ),
        ],
    },
    Tier {
        name: "docs",
        title: "documentation without warnings, private items too",
        work: &[Work::Check(
            "rustdoc",
            &[
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
            ],
        )],
    },
    Tier {
        name: "pure",
        title: "unit and property tests of the crates without input and output",
        work: &[
            Work::Tests("portolan-plan", Targets::All),
            Work::Tests("portolan-metrics", Targets::All),
            Work::Tests("portolan-planner", Targets::All),
            Work::Tests("portolan-rollout", Targets::All),
            Work::Tests("portolan-reconcile", Targets::All),
            Work::Tests("ipvs-rs", Targets::All),
            Work::Tests("ipset-rs", Targets::All),
            Work::Examples(&[
                "portolan-plan",
                "portolan-metrics",
                "portolan-planner",
                "portolan-reconcile",
                "ipvs-rs",
                "ipset-rs",
            ]),
        ],
    },
    Tier {
        name: "unit",
        title: "the other crates, dependencies and licences, the pipeline in one process",
        work: &[
            Work::Tests("portolan-proto", Targets::All),
            Work::Tests("portolan-crds", Targets::All),
            Work::Tests("portolan-controller", Targets::All),
            Work::Tests("portolan-agent", Targets::All),
            Work::Tests("portolan-lab", Targets::All),
            Work::Tests("portolan-e2e", Targets::Library),
            Work::Tests(
                "portolan-e2e",
                Targets::Named(&["dependencies", "invariants", "licences", "monitoring"]),
            ),
            Work::Tests("portolan-e2e", Targets::Named(&["pipeline"])),
            Work::Tests("portolan-e2e", Targets::Named(&["trust"])),
        ],
    },
    Tier {
        name: "namespaces",
        title: "sets, rules and routes in namespaces of this machine's kernel",
        work: &[
            Work::Tests("ipset-rs", Targets::Named(&["kernel"])),
            Work::Tests("portolan-agent", Targets::Named(&["namespaces"])),
        ],
    },
    Tier {
        name: "mutations",
        title: "the planner broken on purpose: the named test fails each time",
        work: &[Work::Mutations],
    },
    Tier {
        name: "images",
        title: "the container images: made twice, compared with the chart, started",
        work: &[Work::Images],
    },
    Tier {
        name: "cluster",
        title: "a real Kubernetes API server",
        work: CLUSTER,
    },
    Tier {
        name: "guest",
        title: "IPVS and traffic on a kernel that has it",
        work: GUEST,
    },
    Tier {
        name: "demo",
        title: "both demos, as everybody runs them",
        work: &[Work::Demo, Work::ClusterDemo],
    },
];

const CLUSTER: &[Work] = &[
    cluster("control-plane", 60),
    cluster("stores", 60),
    cluster("objects", 60),
    cluster("rules", 60),
    cluster("bad-input", 60),
    cluster("trust", 60),
    cluster("replicas", 60),
    cluster("install", 60),
    cluster("agents", 60),
    cluster("waves", 60),
    cluster("guard", 60),
    cluster("traces", 60),
    cluster("churn", 60),
    cluster("memory", 60),
];

const GUEST: &[Work] = &[
    Work::IpvsTest("ipvs-rs", Targets::Named(&["kernel"]), &["--reload-module"]),
    guest("topology", 30),
    guest("refusals", 30),
    guest("packet-path", 30),
    guest("external-path", 30),
    guest("coexistence", 30),
    guest("addresses", 30),
    guest("detection-modes", 30),
    guest("restarts", 30),
    guest("schedulers", 30),
    guest("draining", 30),
    guest("rollout", 30),
    guest("drift", 30),
    guest("faults", 30),
    guest("health", 30),
    guest("metrics", 30),
    guest("boot", 30),
    guest("privileges", 30),
    guest("settings", 30),
    guest("doctor", 30),
    guest("costs", 30),
    guest("udp", 30),
    guest("ipvs-rate", 30),
    guest("bare", 30),
    guest("bootstrap", 60),
];

#[cfg(test)]
mod tests;
