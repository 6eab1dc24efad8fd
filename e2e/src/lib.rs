//! Scenarios that run in place, in the guest or on a host whose kernel has IPVS.
