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

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Simulation => "simulation",
        }
    }

    /// The package with the tests.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::Planner => "portolan-planner",
            Self::Simulation => "portolan-simulation",
        }
    }

    /// The folder of that package in the clone.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Planner => "controller/planner",
            Self::Simulation => "e2e/simulation",
        }
    }

    /// The table of mutations in the clone.
    #[must_use]
    pub fn table(self) -> &'static str {
        match self {
            Self::Planner => "controller/planner/tests/mutations.yaml",
            Self::Simulation => "e2e/simulation/mutations.yaml",
        }
    }

    /// The folder that the files in the table are relative to. Empty for the whole clone.
    pub(super) fn sources(self) -> &'static str {
        match self {
            Self::Planner => "controller/planner/src",
            Self::Simulation => "",
        }
    }

    /// Variables of the tests.
    pub(super) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Planner => &[],
            // Always the same seeds, more than in a test run: the fault may need a rare order of steps.
            Self::Simulation => &[
                ("PORTOLAN_SIMULATION_FIRST", "0"),
                ("PORTOLAN_SIMULATION_SEEDS", "1000"),
            ],
        }
    }

    /// Limit of the processor time of a test program: a mutation may make it loop for ever.
    pub(super) fn processor_seconds(self) -> f64 {
        match self {
            Self::Planner => 120.0,
            Self::Simulation => 1_800.0,
        }
    }
}
