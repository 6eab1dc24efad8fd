//! The lab: prepares the machine, builds the rest, boots guests, runs the demo and all checks.
