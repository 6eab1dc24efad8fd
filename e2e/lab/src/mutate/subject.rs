//! What is broken, and by which tests that must be detected.

use clap::ValueEnum;

/// The code that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// The planner; its own tests detect it
    Planner,
    /// The controller and the agent; the simulation of both detects it
    Simulation,
}

impl Subject {
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [Self; 2] = [Self::Planner, Self::Simulation];

    /// Where it is and how it is tested.
    #[must_use]
    pub fn facts(self) -> &'static Facts {
        match self {
            Self::Planner => &PLANNER,
            Self::Simulation => &SIMULATION,
        }
    }
}

/// Where a subject is and how it is tested. Folders and files are relative to the clone.
#[derive(Debug)]
pub struct Facts {
    /// The package with the tests.
    pub package: &'static str,
    /// The table of mutations.
    pub table: &'static str,
    /// The folder of the package.
    pub(super) folder: &'static str,
    /// The folder that the files in the table are relative to. Empty for the whole clone.
    pub(super) sources: &'static str,
    /// Variables of the tests.
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Limit of the processor time of a test program: a mutation may make it loop for ever.
    pub(super) processor_seconds: f64,
}

const PLANNER: Facts = Facts {
    package: "portolan-planner",
    table: "controller/planner/tests/mutations.yaml",
    folder: "controller/planner",
    sources: "controller/planner/src",
    environment: &[],
    processor_seconds: 120.0,
};

const SIMULATION: Facts = Facts {
    package: "portolan-simulation",
    table: "e2e/simulation/mutations.yaml",
    folder: "e2e/simulation",
    sources: "",
    // Always the same seeds, more than in a test run: the fault may need a rare order of steps.
    environment: &[
        ("PORTOLAN_SIMULATION_FIRST", "0"),
        ("PORTOLAN_SIMULATION_SEEDS", "1000"),
    ],
    processor_seconds: 1_800.0,
};
