//! Runs tests against the real kernel, each in its own network namespace.
//!
//! A namespace belongs to a thread, so each test runs in a thread that first leaves the common namespace. The
//! namespace ends with the thread, and with it all kernel objects of the test.

use std::io::Write;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

/// A test with its name, which is a sentence.
pub type Test = (&'static str, fn());

/// Runs the tests whose names contain one of `filters` (all without filters), each after `prepare` in its namespace,
/// and prints lines like libtest. Returns false if a test failed or none ran.
///
/// # Panics
/// No thread can be started.
pub fn run(tests: &[Test], prepare: fn(), filters: &[String]) -> bool {
    let mut passed = 0;
    let mut failed = 0;
    for (name, test) in tests {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let test = *test;
        let thread = std::thread::Builder::new().name((*name).to_owned());
        let outcome = thread
            .spawn(move || {
                unshare(CloneFlags::CLONE_NEWNET)
                    .expect("a network namespace is needed: run as root, or allow user namespaces");
                prepare();
                test();
            })
            .expect("a thread")
            .join();
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        say(&format!("test {name} ... {word}"));
        match outcome {
            Ok(()) => passed += 1,
            Err(_) => failed += 1,
        }
    }
    let good = failed == 0 && passed > 0;
    let word = if good { "ok" } else { "FAILED" };
    let left = tests.len() - passed - failed;
    say(&format!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; \
         {left} filtered out"
    ));
    good
}

/// Becomes root of a user namespace unless it is root already. Must run before any thread starts.
///
/// # Panics
/// User namespaces are not allowed.
pub fn become_root() {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return;
    }
    unshare(CloneFlags::CLONE_NEWUSER).expect(
        "these tests need network namespaces: run as root, or allow user namespaces \
         (sysctl kernel.unprivileged_userns_clone, apparmor_restrict_unprivileged_userns)",
    );
    std::fs::write("/proc/self/setgroups", "deny").expect("setgroups");
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1")).expect("uid_map");
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1")).expect("gid_map");
}

/// Prints a line.
///
/// # Panics
/// Standard output is closed.
pub fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("standard output");
}

/// Runs a program in the namespace of the calling thread and returns its standard output.
///
/// # Panics
/// The program is missing or fails, or its output is not text.
pub fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} is needed as an independent witness: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}
