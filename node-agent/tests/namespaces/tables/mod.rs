//! The tables of the nftables dataplane in the real kernel, with real connections between namespaces. Results are also
//! checked with `nft` and `conntrack`.

mod changes;
mod first_packets;
mod listing;
mod paths;
#[path = "../../tables/plan.rs"]
#[allow(dead_code, reason = "tests on the model need more of it")]
mod plan;
mod services;
mod traffic;
mod world;

use netlink_blocking::testing::runner::Test;

pub(crate) const TESTS: &[Test] = &[
    (
        "tables_every_frontend_answers_in_both_families",
        paths::every_frontend_answers,
    ),
    (
        "tables_backends_see_the_right_client_address",
        paths::masquerade,
    ),
    (
        "tables_frontends_without_backends_and_unused_ports_refuse",
        paths::refusals,
    ),
    (
        "tables_source_ranges_and_policy_local_keep_clients_out",
        paths::kept_out,
    ),
    (
        "tables_clients_stay_with_their_backend_until_it_leaves",
        paths::affinity,
    ),
    ("tables_each_connection_is_counted_once", paths::counted),
    (
        "tables_backends_are_replaced_without_a_failed_connection",
        changes::replaced_under_load,
    ),
    (
        "tables_a_restart_fails_no_connection_and_writes_nothing",
        changes::restart,
    ),
    (
        "tables_a_rebuild_fails_no_connection_and_keeps_affinity",
        changes::rebuild,
    ),
    (
        "tables_each_first_packet_goes_to_one_dataplane_while_it_changes",
        first_packets::handed_over,
    ),
    (
        "tables_other_rules_lose_no_first_packet",
        first_packets::other_rules,
    ),
    (
        "tables_changes_by_others_are_notified_and_repaired",
        changes::others,
    ),
    ("tables_stale_udp_flows_are_deleted", changes::stale_flows),
    (
        "tables_drained_connections_end_at_their_deadline",
        changes::drains,
    ),
    (
        "tables_with_an_owner_are_protected_and_adopted_by_the_next_agent",
        listing::owned,
    ),
    ("tables_are_listed_by_nft", listing::listed),
    ("tables_cleanup_leaves_nothing", listing::cleanup),
    (
        "tables_a_large_first_plan_is_written_and_read_again",
        listing::large,
    ),
];
