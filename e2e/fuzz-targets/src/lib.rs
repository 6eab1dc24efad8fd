//! One function for each kind of input from outside.
//!
//! Each function returns for every input. Its assertions are laws about the input. The fuzzer (`cargo lab fuzz`) runs
//! them with coverage guidance, and `tests/replay.rs` runs them with the inputs in `corpus`.
#![forbid(unsafe_code)]

mod netlink;
mod objects;
mod streams;
mod texts;
mod tokens;

/// A kind of input.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `corpus`.
    pub name: &'static str,
    /// Processes an input.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    target("agent_stream", streams::agent),
    target("api_objects", objects::api_object),
    target("conntrack", netlink::conntrack),
    target("controller_stream", streams::controller),
    target("controllers_file", texts::controllers_file),
    target("convergence_query", texts::convergence_query),
    target("ipset_replies", netlink::ipset),
    target("iptables_save", texts::iptables_save),
    target("ipvs_replies", netlink::ipvs),
    target("keyring", tokens::keyring),
    target("manifests", objects::manifests),
    target("nft_replies", netlink::nft),
    target("saved_plan", streams::saved_plan),
    target("token_claims", tokens::claims),
    target("token_keys", tokens::keys),
];

/// The target with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
