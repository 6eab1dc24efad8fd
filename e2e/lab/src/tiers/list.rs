//! The list of all tiers and units. Separate from their types: a unit's key contains its own entry, so that a new
//! entry does not rerun all others.

use super::{SIMULATION, Scenario, Targets, Tier, Work};
use crate::mutate::Subject;
use crate::nested::Profile;
use crate::scenarios::{NFTABLES, Place};
use crate::tools::Release;

const fn scenario(name: &'static str, seconds: u16) -> Scenario {
    Scenario { name, seconds }
}

const fn guest(name: &'static str, seconds: u16) -> Work {
    Work::Scenario(scenario(name, seconds))
}

const fn cluster(name: &'static str, seconds: u16) -> Work {
    Work::Cluster(scenario(name, seconds))
}

/// Scenarios with a long form, and its difference. Each evaluates `--long`.
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
    ("memory", "10,000 Services instead of 3,000"),
    ("faults", "also an agent that hangs, for 12 minutes"),
    ("ipvs-rate", "10,000 virtual servers instead of 1,000"),
    (
        "replicas",
        "also partitions of one controller and of both from the API server",
    ),
];

/// Scenarios that measure response times, which other units would lengthen.
pub const TIMED: &[&str] = &["limits", "flood", "replicas"];

/// Tests that read documents, and tests named in documents.
pub const DOCUMENTS: Targets = Targets::Named(&["documents", "invariants", "reference"]);

/// All of them.
pub const TIERS: &[Tier] = &[
    Tier {
        name: "format",
        title: "the code is formatted",
        work: &[Work::Check("rustfmt", "fmt --all --check")],
        long: &[],
    },
    Tier {
        name: "lint",
        title: "no warning of the compiler or clippy",
        // All tests, also those that a plain `cargo test` does not run and `--all-targets` leaves out.
        work: &[Work::Check(
            "clippy",
            "clippy --workspace --lib --bins --benches --examples --test=* -- -D warnings",
        )],
        long: &[],
    },
    Tier {
        name: "docs",
        title: "documentation without warnings, private items too",
        work: &[],
        long: &[Work::Check(
            "rustdoc",
            "doc --workspace --no-deps --document-private-items",
        )],
    },
    Tier {
        name: "pure",
        title: "unit and property tests of the crates without input and output",
        work: &[
            Work::Tests("portolan-plan", Targets::All),
            Work::Tests("portolan-metrics", Targets::All),
            Work::Tests("portolan-planner", Targets::All),
            Work::Tests("portolan-rollout-policy", Targets::All),
            Work::Tests("portolan-reconcile", Targets::All),
            Work::Tests("netlink-blocking", Targets::All),
            Work::Tests("ipvs-rs", Targets::All),
            Work::Tests("ipset-rs", Targets::All),
            Work::Tests("nft-rs", Targets::All),
            Work::Examples(&["ipvs-rs", "ipset-rs", "nft-rs"]),
        ],
        long: &[],
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
                Targets::Named(&[
                    "chart_readme",
                    "dependencies",
                    "licences",
                    "module_cycles",
                    "monitoring",
                ]),
            ),
            Work::Tests("portolan-e2e", DOCUMENTS),
            Work::Tests("portolan-e2e", Targets::Named(&["pipeline"])),
            Work::Tests("portolan-e2e", Targets::Named(&["trust"])),
            Work::Tests(SIMULATION, Targets::All),
            Work::Tests("portolan-fuzz-targets", Targets::All),
        ],
        long: &[],
    },
    Tier {
        name: "namespaces",
        title: "sets, rules and routes in namespaces of this machine's kernel",
        work: &[
            Work::Tests("ipset-rs", Targets::Named(&["kernel"])),
            Work::Tests("nft-rs", Targets::Named(&["kernel"])),
            Work::Tests("portolan-reconcile", Targets::Named(&["nftables_kernel"])),
            Work::Tests("portolan-agent", Targets::Named(&["namespaces"])),
        ],
        long: &[],
    },
    Tier {
        name: "nftables",
        title: "scenarios and the demo with the nftables dataplane",
        work: &[
            Work::Nftables(
                Place::Auto,
                &[
                    "packet-path",
                    "external-path",
                    "addresses",
                    "drift",
                    "draining",
                    "udp",
                    "restarts",
                ],
            ),
            Work::Demo(&NFTABLES),
        ],
        long: &[
            Work::Nftables(
                Place::Auto,
                &[
                    "rollout",
                    "coexistence",
                    "detection-modes",
                    "faults",
                    "metrics",
                ],
            ),
            // This machine's kernel may have no SCTP.
            Work::Nftables(
                Place::Guest,
                &["packet-path", "external-path", "coexistence"],
            ),
        ],
    },
    Tier {
        name: "mutations",
        title: "the planner broken on purpose: the named test fails each time",
        work: &[],
        long: &[Work::Mutations(Subject::Planner)],
    },
    Tier {
        name: "invariants",
        title: "controller and agent broken on purpose: the simulation detects it each time",
        work: &[],
        long: &[Work::Mutations(Subject::Simulation)],
    },
    Tier {
        name: "fuzz",
        title: "the fuzzer: every parser of input from outside, with coverage guidance",
        work: &[],
        long: &[Work::Fuzz],
    },
    Tier {
        name: "images",
        title: "the container images: made twice, compared with the chart, started",
        work: &[],
        long: &[Work::Images(Profile::Dev)],
    },
    Tier {
        name: "cluster",
        title: "a real Kubernetes API server",
        work: CLUSTER,
        long: CLUSTER_LONG,
    },
    Tier {
        name: "guest",
        title: "IPVS and traffic on a kernel that has it",
        work: GUEST,
        long: GUEST_LONG,
    },
    Tier {
        name: "real",
        title: "Kubernetes' own tests, on machines with kubelets and containers",
        work: &[],
        long: &[Work::RealKit, Work::Real("portolan")],
    },
    Tier {
        name: "schedules",
        title: "state that threads share, under many orders of the threads",
        work: &[],
        long: &[Work::Schedules],
    },
    Tier {
        name: "shipped",
        title: "tests, images and scenarios with the build that is released",
        work: &[],
        long: &[
            Work::ShippedTests(PURE),
            Work::Images(Profile::Shipped),
            Work::ShippedScenarios(&["packet-path", "restarts", "faults", "boot"]),
            Work::ShippedCluster(&["replicas", "trust", "install"]),
        ],
    },
    Tier {
        name: "kernels",
        title: "an older and a newer kernel",
        work: &[],
        long: &[Work::Kernel("5.10"), Work::Kernel("7.3")],
    },
    Tier {
        name: "operations",
        title: "an installation on machines with kubelets: upgrade, restart, uninstall, other revisions",
        work: &[],
        long: &[Work::RealCommand("operations"), Work::RealCommand("skew")],
    },
    Tier {
        name: "versions",
        title: "a control plane of the newest and of the oldest Kubernetes",
        work: &[],
        long: &[
            Work::Kubernetes(Release::Newest),
            Work::Kubernetes(Release::Oldest),
        ],
    },
    Tier {
        name: "demo",
        title: "both demos, as users run them",
        work: &[Work::Demo(&[])],
        long: &[Work::ClusterDemo],
    },
];

/// The crates without input and output.
const PURE: &[&str] = &[
    "portolan-plan",
    "portolan-metrics",
    "portolan-planner",
    "portolan-rollout-policy",
    "portolan-reconcile",
    "netlink-blocking",
    "ipvs-rs",
    "ipset-rs",
    "nft-rs",
];

const CLUSTER: &[Work] = &[
    cluster("objects", 30),
    cluster("rules", 30),
    cluster("bad-input", 160),
    cluster("trust", 45),
    cluster("install", 150),
    cluster("waves", 155),
];

const CLUSTER_LONG: &[Work] = &[
    cluster("control-plane", 20),
    cluster("chart", 110),
    cluster("stores", 40),
    cluster("limits", 125),
    cluster("flood", 35),
    cluster("replicas", 95),
    cluster("open-files", 6),
    cluster("agents", 210),
    cluster("tenants", 45),
    cluster("guard", 60),
    cluster("traces", 30),
    cluster("churn", 80),
    cluster("rolling", 30),
    cluster("memory", 100),
];

const GUEST: &[Work] = &[
    Work::IpvsTest("ipvs-rs", Targets::Named(&["kernel"]), &["--reload-module"]),
    guest("topology", 10),
    guest("refusals", 8),
    guest("packet-path", 116),
    guest("external-path", 128),
    guest("addresses", 50),
    guest("restarts", 60),
    guest("schedulers", 90),
    guest("draining", 90),
    guest("drift", 120),
    guest("health", 46),
    guest("boot", 63),
    guest("privileges", 14),
    guest("settings", 42),
    guest("costs", 20),
    guest("udp", 20),
    guest("marks", 60),
];

const GUEST_LONG: &[Work] = &[
    guest("coexistence", 97),
    guest("detection-modes", 88),
    guest("rollout", 80),
    guest("faults", 180),
    guest("metrics", 23),
    guest("doctor", 60),
    guest("ipvs-rate", 30),
    guest("dataplanes", 400),
    guest("listing", 30),
    guest("bare", 30),
    guest("bootstrap", 80),
];
