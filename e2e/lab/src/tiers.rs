//! The tiers of `cargo verify`, in the order in which they run: what is fast and local first.

/// One thing that a tier does.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// `cargo` with these arguments; one check, passed if it exits with 0.
    Check(&'static [&'static str]),
    /// `cargo test` with these arguments; at least one test must run.
    Test(&'static [&'static str]),
    /// Examples in documentation, of these packages; there may be none.
    Examples(&'static [&'static str]),
    /// A test program (package, test, its arguments) on a kernel with IPVS.
    IpvsTest(&'static str, &'static str, &'static [&'static str]),
    /// `portolan-scenarios` with these arguments, on a kernel with IPVS.
    Scenarios(&'static [&'static str]),
    /// `portolan-scenarios cluster` with these arguments, on a real API server.
    Cluster(&'static [&'static str]),
    /// Every mutation of the planner, each killed by the test that it names.
    Mutations,
    /// Both images, with programs as tests have them.
    Images,
    /// The demo, with its closing line.
    Demo,
    /// The demo of a real API server, with traces and its closing line.
    ClusterDemo,
}

impl Work {
    /// As a person would type it.
    #[must_use]
    pub fn shown(self) -> String {
        match self {
            Self::Check(words) => format!("cargo {}", words.join(" ")),
            Self::Test(words) => format!("cargo test {}", words.join(" ")),
            Self::Examples(packages) => format!("cargo test --doc {}", packages.join(" ")),
            Self::IpvsTest(package, test, _) => {
                format!("test `{test}` of {package} on a kernel with IPVS")
            }
            Self::Scenarios(words) => format!("portolan-scenarios {}", words.join(" ")),
            Self::Cluster(words) => format!("portolan-scenarios cluster {}", words.join(" ")),
            Self::Mutations => "cargo lab mutate".to_owned(),
            Self::Images => "cargo lab image --profile dev".to_owned(),
            Self::Demo => "cargo demo".to_owned(),
            Self::ClusterDemo => "cargo demo --cluster --traces".to_owned(),
        }
    }
}

/// A group of checks that is run and timed together.
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
        let nameless = |work: &Work| matches!(work, Work::Check(_) | Work::Mutations);
        !self.work.iter().all(nameless)
    }
}

/// All of them.
pub const TIERS: &[Tier] = &[
    Tier {
        name: "format",
        title: "the code is formatted",
        work: &[Work::Check(&["fmt", "--all", "--check"])],
    },
    Tier {
        name: "lint",
        title: "no warning of the compiler or clippy",
        work: &[
            Work::Check(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]),
            // Tests that are run by name are not among all targets.
            Work::Check(&[
                "clippy",
                "--workspace",
                "--test=kernel",
                "--test=namespaces",
                "--",
                "-D",
                "warnings",
            ]),
        ],
    },
    Tier {
        name: "docs",
        title: "documentation without warnings, private items too",
        work: &[Work::Check(&[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])],
    },
    Tier {
        name: "pure",
        title: "unit and property tests of the crates without input and output",
        work: &[
            Work::Test(&[
                "--package=portolan-plan",
                "--package=portolan-metrics",
                "--package=portolan-planner",
                "--package=portolan-rollout",
                "--package=portolan-reconcile",
                "--package=ipvs-rs",
                "--package=ipset-rs",
                "--lib",
                "--tests",
            ]),
            Work::Examples(&[
                "--package=portolan-plan",
                "--package=portolan-metrics",
                "--package=portolan-planner",
                "--package=portolan-reconcile",
                "--package=ipvs-rs",
                "--package=ipset-rs",
            ]),
        ],
    },
    Tier {
        name: "unit",
        title: "the other crates, dependencies and licences, the pipeline in one process",
        work: &[
            Work::Test(&[
                "--package=portolan-proto",
                "--package=portolan-crds",
                "--package=portolan-controller",
                "--package=portolan-agent",
                "--package=portolan-lab",
                "--lib",
                "--bins",
                "--tests",
            ]),
            Work::Test(&["--package=portolan-e2e", "--lib", "--bins"]),
            Work::Test(&[
                "--package=portolan-e2e",
                "--test=dependencies",
                "--test=invariants",
                "--test=licences",
                "--test=monitoring",
            ]),
            Work::Test(&["--package=portolan-e2e", "--test=pipeline", "--test=trust"]),
        ],
    },
    Tier {
        name: "namespaces",
        title: "sets, rules and routes in namespaces of this machine's kernel",
        work: &[
            Work::Test(&["--package=ipset-rs", "--test=kernel"]),
            Work::Test(&["--package=portolan-agent", "--test=namespaces"]),
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
        work: &[Work::Cluster(&["--all"])],
    },
    Tier {
        name: "guest",
        title: "IPVS and traffic on a kernel that has it",
        work: &[
            Work::IpvsTest("ipvs-rs", "kernel", &["--reload-module"]),
            Work::Scenarios(&["run", "--all"]),
            Work::Scenarios(&["run", "bare"]),
            Work::Scenarios(&["run", "bootstrap"]),
        ],
    },
    Tier {
        name: "demo",
        title: "both demos, as everybody runs them",
        work: &[Work::Demo, Work::ClusterDemo],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nested;
    use std::collections::{BTreeMap, BTreeSet};

    /// Name and manifest of every package of the workspace.
    fn packages() -> BTreeMap<String, String> {
        let read = |folder: &str| {
            let path = nested::root().join(folder).join("Cargo.toml");
            std::fs::read_to_string(path).unwrap()
        };
        let workspace = read("");
        let members = workspace.split("members = [").nth(1).unwrap();
        let members = members.split(']').next().unwrap();
        let folders = members
            .lines()
            .filter_map(|line| line.trim().strip_prefix('"'));
        folders
            .map(|folder| {
                let manifest = read(folder.trim_end_matches("\","));
                (name(&manifest), manifest)
            })
            .collect()
    }

    fn name(table: &str) -> String {
        let value = table.lines().find_map(|line| line.strip_prefix("name = "));
        value.unwrap().trim_matches('"').to_owned()
    }

    fn work() -> impl Iterator<Item = Work> {
        TIERS.iter().flat_map(|tier| tier.work).copied()
    }

    #[test]
    fn every_package_of_the_workspace_is_tested_by_a_tier() {
        let tested: BTreeSet<String> = work()
            .filter_map(|work| match work {
                Work::Test(words) => Some(words),
                _ => None,
            })
            .flatten()
            .filter_map(|word| word.strip_prefix("--package=").map(str::to_owned))
            .collect();
        let all: BTreeSet<String> = packages().into_keys().collect();
        assert_eq!(tested, all);
    }

    #[test]
    fn a_test_that_cargo_does_not_run_by_itself_is_run_by_a_tier() {
        let mut checked = 0;
        for (package, manifest) in packages() {
            for table in manifest.split("[[test]]").skip(1) {
                let table = table.split("\n[").next().unwrap();
                if !table.contains("test = false") {
                    continue;
                }
                checked += 1;
                let (test, named) = (name(table), format!("--package={package}"));
                let run = work().any(|work| match work {
                    Work::IpvsTest(of, name, _) => of == package && name == test,
                    Work::Test(words) => {
                        words.contains(&named.as_str())
                            && words.contains(&format!("--test={test}").as_str())
                    }
                    _ => false,
                });
                assert!(run, "no tier runs test `{test}` of {package}");
            }
        }
        assert!(checked >= 3, "only {checked} such tests were found");
    }

    /// They are named one by one, so one of them could be forgotten.
    #[test]
    fn every_test_of_the_whole_is_run_by_a_tier() {
        let folder = nested::root().join("e2e/tests");
        let mut found = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let named = format!("--test={}", path.file_stem().unwrap().to_str().unwrap());
            let run = work().any(|work| match work {
                Work::Test(words) => {
                    words.contains(&"--package=portolan-e2e") && words.contains(&named.as_str())
                }
                _ => false,
            });
            assert!(run, "no tier runs {}", path.display());
            found += 1;
        }
        assert!(found >= 6, "only {found} were found");
    }

    #[test]
    fn tiers_have_different_names() {
        let names: BTreeSet<&str> = TIERS.iter().map(|tier| tier.name).collect();
        assert_eq!(names.len(), TIERS.len());
    }
}
