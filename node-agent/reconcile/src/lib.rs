//! From a plan to the desired kernel state, and from an observed state to ordered operations: pure.
