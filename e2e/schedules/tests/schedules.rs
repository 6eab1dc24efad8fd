//! Every property holds under all schedules that are tried. `PORTOLAN_SCHEDULES_SEED` selects them.

use portolan_schedules::{check, lost_wake_up, plan_slot, registry, send_queue};

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wake_up_is_found() {
    check(lost_wake_up);
}

/// I-2.
#[test]
fn the_last_plan_is_taken() {
    check(plan_slot::the_last_plan_is_taken);
}

#[test]
fn the_end_of_the_program_ends_the_wait() {
    check(plan_slot::the_end_of_the_program_ends_the_wait);
}

#[test]
fn no_change_of_the_network_is_lost() {
    check(plan_slot::no_change_of_the_network_is_lost);
}

/// I-12.
#[test]
fn a_saved_plan_never_replaces_that_of_a_controller() {
    check(plan_slot::a_saved_plan_never_replaces_that_of_a_controller);
}

#[test]
fn every_change_reaches_the_reader() {
    check(registry::every_change_reaches_the_reader);
}

/// S-232.
#[test]
fn the_late_end_of_a_stream_does_not_affect_its_successor() {
    check(registry::the_late_end_of_a_stream_does_not_affect_its_successor);
}

/// S-232.
#[test]
fn a_replaced_stream_ends() {
    check(registry::a_replaced_stream_ends);
}

/// S-229.
#[test]
fn a_version_in_force_has_its_exceptions() {
    check(registry::a_version_in_force_has_its_exceptions);
}

/// I-9.
#[test]
fn a_session_never_sleeps_with_room() {
    check(send_queue::a_session_never_sleeps_with_room);
}
