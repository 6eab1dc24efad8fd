//! Tests the tables against the host's own kernel, in new network namespaces: a node with two pods and a host outside.
//! Connections are made for real, and `nft`, which shares no code with this crate, lists the result.
//!
//! Run with `cargo test -p portolan-reconcile --test nftables_kernel`, as root or where user namespaces are allowed.
//! Arguments are parts of test names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test program without the test harness"
)]

#[path = "nftables_kernel/loading.rs"]
mod loading;
#[path = "nftables_kernel/plan.rs"]
mod plan;
#[path = "nftables_kernel/traffic.rs"]
mod traffic;
#[path = "nftables_kernel/world.rs"]
mod world;

use std::process::ExitCode;

use netlink_blocking::testing::runner::{Test, become_root, run};

const TESTS: &[Test] = &[
    (
        "nft_lists_the_tables_as_text_and_json",
        loading::nft_lists_the_tables_as_text_and_json,
    ),
    (
        "what_is_read_is_what_was_written",
        loading::what_is_read_is_what_was_written,
    ),
    (
        "every_local_detection_loads",
        loading::every_local_detection_loads,
    ),
    (
        "a_rebuilt_table_keeps_affinity",
        loading::a_rebuilt_table_keeps_affinity,
    ),
    (
        "refused_elements_name_their_service",
        loading::refused_elements_name_their_service,
    ),
    (
        "ten_thousand_endpoints_load_at_once",
        loading::ten_thousand_endpoints_load_at_once,
    ),
    (
        "connections_spread_over_backends",
        traffic::connections_spread_over_backends,
    ),
    ("weights_are_respected", traffic::weights_are_respected),
    ("a_client_hash_is_stable", traffic::a_client_hash_is_stable),
    (
        "a_packet_between_two_states_reaches_a_backend",
        traffic::a_packet_between_two_states_reaches_a_backend,
    ),
    (
        "a_client_stays_with_its_backend",
        traffic::a_client_stays_with_its_backend,
    ),
    (
        "clients_are_refused_at_once",
        traffic::clients_are_refused_at_once,
    ),
    (
        "guarded_frontends_admit_their_ranges",
        traffic::guarded_frontends_admit_their_ranges,
    ),
    (
        "policy_local_keeps_the_client",
        traffic::policy_local_keeps_the_client,
    ),
    (
        "masquerading_depends_on_the_client",
        traffic::masquerading_depends_on_the_client,
    ),
    (
        "node_ports_and_udp_are_served",
        traffic::node_ports_and_udp_are_served,
    ),
    (
        "no_connection_fails_while_backends_change",
        traffic::no_connection_fails_while_backends_change,
    ),
];

fn main() -> ExitCode {
    become_root();
    let arguments = std::env::args().skip(1);
    let filters: Vec<String> = arguments.filter(|a| !a.starts_with("--")).collect();
    match run(TESTS, || {}, &filters) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
