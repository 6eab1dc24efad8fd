//! Tests against the host's own kernel, in new network namespaces. Results are verified with `nft`, which shares no code
//! with this crate, and with packets.
//!
//! Run with `cargo test -p nft-rs --test kernel`, as root or where user namespaces are allowed.
//! Arguments are parts of test names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test program without the test harness"
)]

mod kernel_events;
mod kernel_objects;
mod kernel_refusals;
mod kernel_sets;
mod kernel_traffic;

use std::net::Ipv4Addr;
use std::process::ExitCode;

use netlink_blocking::testing::runner::{Test, become_root, output_of, run, say};
use nft_rs::{Batch, Family, Key, Set, Socket, Table, TableId};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, setuid};

/// Makes the program drop its privileges and print why it cannot open a socket, for the test of missing privileges.
const OPEN_ONLY: &str = "--open-only";

/// The test with the name of a function.
macro_rules! tests {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((stringify!($name), $module::$name)),+),+]
    };
}

const TESTS: &[Test] = tests! {
    kernel_objects:
        every_expression_is_listed_by_nft,
        what_is_written_is_read_the_same,
        sets_and_rules_of_nft_read_like_ours,
        foreign_tables_are_listed,
        objects_are_deleted_by_name,
        a_table_is_replaced_in_one_transaction;
    kernel_sets:
        a_hundred_thousand_elements_are_one_send,
        a_set_that_grows_is_listed_until_it_is_settled,
        a_set_with_a_size_takes_no_more_elements,
        intervals_contain_what_lies_between,
        intervals_of_concatenations_contain_what_lies_between,
        elements_with_a_timeout_end_by_themselves,
        a_list_is_of_one_generation_while_others_write;
    kernel_refusals:
        a_refused_element_is_named_and_the_rest_is_committed,
        many_refused_elements_take_few_attempts,
        an_existing_element_with_other_data_is_refused,
        every_refused_operation_is_named_and_nothing_is_executed,
        thousands_of_refusals_are_received,
        without_the_capability_the_error_names_it,
        an_owned_table_is_changed_only_by_its_socket;
    kernel_traffic:
        connections_reach_the_endpoint_of_a_map,
        connections_to_a_missing_endpoint_are_refused_by_a_reset,
        a_rule_counts_packets_in_elements,
        a_rule_learns_elements_with_a_timeout,
        masquerading_takes_a_port_from_the_range;
    kernel_events:
        a_transaction_is_reported_with_its_socket,
        transactions_of_others_are_reported_with_their_process,
        reports_that_do_not_fit_are_lost_and_said_to_be,
        a_pause_makes_no_reports;
};

/// Root of a new user namespace has no privileges in the network namespace from which it came.
fn give_up_privileges() {
    let nobody = Uid::from_raw(65534);
    unshare(CloneFlags::CLONE_NEWUSER)
        .or_else(|_| setuid(nobody))
        .expect("fewer privileges");
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == OPEN_ONLY) {
        give_up_privileges();
        let opened = Socket::open().and_then(|mut socket| {
            let mut batch = Batch::new();
            batch.add_table(&Table::new(Family::Ipv4, "t"));
            socket.commit(&batch)
        });
        say(&opened.map_or_else(|error| error.to_string(), |()| "committed".to_owned()));
        return ExitCode::SUCCESS;
    }
    become_root();
    let filters: Vec<String> = arguments
        .into_iter()
        .filter(|a| !a.starts_with("--"))
        .collect();
    if run(TESTS, || {}, &filters) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The table of most tests.
fn table() -> TableId {
    TableId::new(Family::Ipv4, "t")
}

/// A transaction that adds [`table`].
fn with_table() -> Batch {
    let mut batch = Batch::new();
    batch.add_table(&Table::new(Family::Ipv4, "t"));
    batch
}

/// A socket, and [`table`] with this set.
fn socket_with(set: &Set) -> Socket {
    let mut socket = Socket::open().unwrap();
    let mut batch = with_table();
    batch.add_set(&table(), set);
    socket.commit(&batch).unwrap();
    socket
}

/// A frontend's key: address, protocol, port.
fn frontend(address: Ipv4Addr, port: u16) -> Key {
    Key::new().ipv4(address).protocol(6).port(port)
}

fn nft(arguments: &[&str]) -> String {
    output_of("nft", arguments)
}

/// The version of the running kernel.
fn kernel_version() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = text.split(['.', '-']).map(str::parse);
    (
        numbers.next().unwrap().unwrap(),
        numbers.next().unwrap().unwrap(),
    )
}
