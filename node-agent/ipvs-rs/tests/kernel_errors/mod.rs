//! Tests refusals of the kernel: each one is assigned to its request and names the next thing to check.

use std::os::unix::process::CommandExt;
use std::process::Command;

use ipvs_rs::{DestinationKey, Error, MAX_PER_SEND, Request, Service, Socket};

use crate::{OPEN_ONLY, execute, server, tcp};

const NOBODY: u32 = 65534;

pub(crate) fn each_error_belongs_to_its_request() {
    let mut socket = Socket::open().unwrap();
    let here = tcp("10.96.0.1", 80);
    let gone = tcp("10.96.0.2", 80);
    let one = server("10.0.0.1", 80, 1);
    let absent = DestinationKey {
        address: "10.0.0.9".parse().unwrap(),
        port: 80,
    };
    let requests = [
        Request::NewService(Service::new(here, "rr")),
        Request::NewService(Service::new(here, "rr")),
        Request::DelService(gone),
        Request::SetService(Service::new(gone, "rr")),
        Request::NewDestination(gone, one.clone()),
        Request::NewDestination(here, one.clone()),
        Request::NewDestination(here, one),
        Request::DelDestination(here, absent),
        Request::GetInfo,
        Request::SetDestination(here, server("10.0.0.1", 80, 3)),
    ];
    for per_send in [1, 3, 64] {
        let results = socket.execute(&requests, per_send);
        assert_eq!(results.len(), requests.len());
        let word = |result: &Result<(), Error>| match result {
            Ok(()) => "ok",
            Err(error) if error.is_exists() => "exists",
            Err(error) if error.is_not_found() => "missing",
            Err(Error::NotAWrite { .. }) => "reads",
            Err(error) => panic!("{error}"),
        };
        let words: Vec<&str> = results.iter().map(word).collect();
        let expected = [
            "ok", "exists", "missing", "missing", "missing", "ok", "exists", "missing", "reads",
            "ok",
        ];
        assert_eq!(words, expected, "{per_send} in a send");
        let text = results[7].as_ref().unwrap_err().to_string();
        assert!(
            text.contains("remove real server 10.0.0.9:80 of tcp 10.96.0.1:80"),
            "{text}"
        );
        assert_eq!(
            socket.destinations(&here).unwrap(),
            [server("10.0.0.1", 80, 3)]
        );
        execute(&mut socket, &[Request::DelService(here)]);
    }
}

pub(crate) fn an_unknown_scheduler_is_named() {
    let mut socket = Socket::open().unwrap();
    let service = Service::new(tcp("10.96.0.1", 80), "fair");
    let error = socket
        .execute(&[Request::NewService(service)], 64)
        .remove(0)
        .unwrap_err();
    assert!(
        error.is_unknown_scheduler() && !error.is_not_found(),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("tcp 10.96.0.1:80") && text.contains("modprobe ip_vs_fair"),
        "{text}"
    );
    assert_eq!(socket.services().unwrap(), []);
}

pub(crate) fn asking_for_a_scheduler_leaves_nothing() {
    let mut socket = Socket::open().unwrap();
    for name in [
        "rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "fo", "ovf",
    ] {
        assert!(socket.has_scheduler(name).unwrap(), "{name}");
    }
    for name in ["fair", "none", "no-such-name-15"] {
        assert!(!socket.has_scheduler(name).unwrap(), "{name}");
    }
    assert_eq!(socket.services().unwrap(), []);
}

pub(crate) fn a_full_send_of_failures_is_answered() {
    let mut socket = Socket::open().unwrap();
    let requests: Vec<Request> = (1..=1000)
        .map(|port| Request::DelService(tcp("10.96.0.1", port)))
        .collect();
    let results = socket.execute(&requests, usize::MAX);
    assert_eq!(results.len(), 1000);
    assert!(
        results
            .iter()
            .all(|result| result.as_ref().is_err_and(Error::is_not_found))
    );
    let sends = socket.counters().sends;
    // Opening the socket sends one look-up and one request.
    assert_eq!(sends, 2 + 1000_u64.div_ceil(MAX_PER_SEND as u64));
}

pub(crate) fn without_the_capability_the_error_names_it() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .arg(OPEN_ONLY)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("CAP_NET_ADMIN"), "{text:?}");
}
