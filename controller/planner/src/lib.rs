//! Decides, for every Service, what each node must program, and why: pure and deterministic.
