//! Tests how the socket handles failures of the kernel and of system calls: every request gets its own result, an
//! unknown result is reported as unknown, and the next call works.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use netlink_blocking::Error as SocketError;
use netlink_blocking::testing::{ENOBUFS, Fault};
use proptest::prelude::*;

use crate::fake::{EINVAL, FakeKernel, MAX_TIMEOUT, open};
use crate::{Destination, Error, Protocol, Request, Service, ServiceKey, Socket, Timeouts};

type Wanted = BTreeMap<ServiceKey, Vec<Destination>>;

fn key(number: u8) -> ServiceKey {
    ServiceKey::address(Protocol::Tcp, Ipv4Addr::new(10, 96, 0, number).into(), 80)
}

fn backend(number: u8) -> Destination {
    let address = IpAddr::from([10, 244, 0, number]);
    Destination::masquerade(address, 8080, 1)
}

/// The requests that add one virtual server with this many real servers.
fn batch(backends: u8) -> Vec<Request> {
    let first = Request::NewService(Service::new(key(1), "rr"));
    let rest = (1..=backends).map(|number| Request::NewDestination(key(1), backend(number)));
    std::iter::once(first).chain(rest).collect()
}

fn fail(kernel: &FakeKernel, faults: &[Fault]) {
    kernel.lock().faults = faults.iter().copied().collect();
}

fn held(kernel: &FakeKernel) -> usize {
    let state = kernel.lock();
    state
        .kernel
        .servers
        .values()
        .map(|(_, held)| held.len())
        .sum()
}

/// The kernel's state as read by the socket.
fn read(socket: &mut Socket) -> Result<Wanted, Error> {
    let services = socket.services()?;
    let mut found = Wanted::new();
    for service in services {
        found.insert(service.key, socket.destinations(&service.key)?);
    }
    Ok(found)
}

#[test]
fn signals_interrupt_no_request_and_no_list() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    fail(&kernel, &[Fault::Interrupted(3); 4]);
    let results = socket.execute(&batch(63), 64);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(
        kernel.lock().kernel.writes,
        64,
        "each request was sent once"
    );
    assert_eq!(read(&mut socket).unwrap()[&key(1)].len(), 63);
    assert_eq!(kernel.lock().opened, 1);
}

/// S-105.
#[test]
fn timeouts_are_set_all_or_none_and_zero_leaves_one_as_it_is() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    let set = |tcp, tcp_fin, udp| Request::SetTimeouts(Timeouts { tcp, tcp_fin, udp });
    let requests = [
        set(900, 120, 300),
        set(0, 0, 60),
        set(7, 0, MAX_TIMEOUT + 1),
    ];
    let results = socket.execute(&requests, 64);
    let refused = results[2].as_ref().unwrap_err();
    assert!(results[0].is_ok() && results[1].is_ok());
    assert_eq!(refused.errno(), Some(EINVAL));
    assert!(
        refused
            .to_string()
            .contains("longer than the kernel supports"),
        "{refused}"
    );
    let held = Timeouts {
        tcp: 900,
        tcp_fin: 120,
        udp: 60,
    };
    assert_eq!(socket.timeouts().unwrap(), held);
}

/// S-169.
#[test]
fn one_refused_request_of_sixty_four_fails_alone_and_says_what_to_check() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    kernel.lock().kernel.refused.push(backend(31).key());
    let results = socket.execute(&batch(63), 64);
    let failed: Vec<_> = (0..).zip(&results).filter(|(_, r)| r.is_err()).collect();
    let [(31, Err(error))] = failed[..] else {
        panic!("{failed:?}")
    };
    assert_eq!(error.errno(), Some(EINVAL));
    let text = error.to_string();
    let names = "add real server 10.244.0.31:8080 weight 1 to tcp 10.96.0.1:80: ";
    assert!(text.starts_with(names), "{text}");
    assert!(text.contains("broadcast"), "{text}");
    assert!(!error.is_of_socket(), "the socket is intact");
    assert_eq!((held(&kernel), kernel.lock().opened), (62, 1));
}

#[test]
fn a_request_whose_answer_is_lost_is_unknown_and_no_other() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    kernel.lock().kernel.refused = vec![backend(3).key(), backend(40).key()];
    // The two refusals and the answer to the last request are three datagrams; the first is kept.
    fail(&kernel, &[Fault::AnswersLost(1)]);
    let results = socket.execute(&batch(63), 64);
    for (index, result) in results.iter().enumerate() {
        match (index, result) {
            (3, Err(error)) => assert_eq!(error.errno(), Some(EINVAL)),
            (_, Err(Error::Socket(SocketError::AnswerLost))) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read(&mut socket).unwrap()[&key(1)].len(), 61);
}

#[test]
fn a_send_that_finds_no_memory_fails_alone() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    fail(&kernel, &[Fault::None, Fault::NoMemory]);
    let results = socket.execute(&batch(29), 10);
    let failed = results.iter().map(Result::is_err).collect::<Vec<_>>();
    let expected: Vec<_> = (0..30).map(|index| (10..20).contains(&index)).collect();
    assert_eq!(failed, expected);
    assert_eq!(results[10].as_ref().unwrap_err().errno(), Some(ENOBUFS));
    assert_eq!(held(&kernel), 19);
}

/// Without another socket, the kernel would refuse the next list until the old one was read to its end.
#[test]
fn a_list_that_breaks_off_is_read_again_or_fails_and_the_next_one_is_whole() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    assert!(socket.execute(&batch(30), 64).iter().all(Result::is_ok));
    for lost in 0..3 {
        fail(&kernel, &[Fault::AnswersLost(lost)]);
        assert_eq!(socket.destinations(&key(1)).unwrap().len(), 30);
        fail(&kernel, &[Fault::Silent(lost)]);
        let silent = socket.destinations(&key(1)).unwrap_err();
        assert!(
            matches!(silent, Error::Socket(SocketError::Silent(_))),
            "{silent}"
        );
        assert_eq!(socket.destinations(&key(1)).unwrap().len(), 30);
        fail(&kernel, &[Fault::Cut(lost)]);
        let cut = socket.destinations(&key(1)).unwrap_err();
        assert!(
            matches!(cut, Error::Socket(SocketError::Decode(_))),
            "{cut}"
        );
        assert_eq!(socket.destinations(&key(1)).unwrap().len(), 30);
    }
}

#[test]
fn a_list_that_changes_is_read_again_and_one_that_never_holds_still_says_so() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    assert!(socket.execute(&batch(30), 64).iter().all(Result::is_ok));
    fail(&kernel, &[Fault::ListChanged; 4]);
    assert_eq!(socket.destinations(&key(1)).unwrap().len(), 30);
    fail(&kernel, &[Fault::ListChanged; 5]);
    let error = socket.destinations(&key(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "list real servers of tcp 10.96.0.1:80: the list changed while it was read, 5 times in a \
         row: check which other program, in this or another network namespace, keeps changing virtual servers"
    );
    assert_eq!(socket.destinations(&key(1)).unwrap().len(), 30);
    assert_eq!(kernel.lock().opened, 1, "the socket is intact");
}

/// Such a list results if a virtual server is deleted in another network namespace meanwhile.
#[test]
fn a_list_of_virtual_servers_that_lacks_some_is_read_again() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    let all: Vec<_> = (1..=10).map(key).collect();
    let requests = all
        .iter()
        .map(|key| Request::NewService(Service::new(*key, "rr")));
    let results = socket.execute(&requests.collect::<Vec<_>>(), 64);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for torn in [
        [Fault::LeftOut(0), Fault::None],
        [Fault::None, Fault::LeftOut(2)],
        [Fault::LeftOut(1), Fault::LeftOut(2)],
    ] {
        fail(&kernel, &torn);
        let found = socket.services().unwrap();
        let found: Vec<_> = found.iter().map(|service| service.key).collect();
        assert_eq!(found, all, "{torn:?}");
    }
    let never = [0, 1, 0, 1, 0].map(Fault::LeftOut);
    fail(&kernel, &never);
    let error = socket.services().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("list virtual servers: the list changed while it was read, 5 times"),
        "{error}"
    );
    assert_eq!(socket.services().unwrap().len(), 10);
}

/// Sends encoded ahead for the old family number, or with sequence numbers that the look-up of the new one has used,
/// are encoded again. Each request is executed once.
#[test]
fn a_reload_of_ipvs_in_the_middle_of_many_sends_loses_only_earlier_requests() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    let number = |place: usize| key(u8::try_from(place).unwrap());
    let places: Vec<_> = (0..250).collect();
    let request = |place: &usize| Request::NewService(Service::new(number(*place), "rr"));
    let faults = [&[Fault::None; 5][..], &[Fault::Reloaded]].concat();
    fail(&kernel, &faults);
    let failed = socket.execute_each(&places, request, 10);
    assert!(failed.is_empty(), "{failed:?}");
    let state = kernel.lock();
    let held: Vec<_> = state.kernel.servers.keys().copied().collect();
    assert_eq!(held, (50..250).map(number).collect::<Vec<_>>());
    assert_eq!((state.kernel.writes, state.opened), (250, 1));
}

/// The indices of failures are those of the requests, whichever thread encoded them.
#[test]
fn of_many_sends_each_request_has_its_own_answer() {
    let kernel = FakeKernel::default();
    let mut socket = open(&kernel);
    kernel.lock().kernel.refused = vec![backend(3).key(), backend(77).key(), backend(201).key()];
    let requests = batch(250);
    let failed = socket.execute_each(&requests, Request::clone, 16);
    let places: Vec<_> = failed.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [3, 77, 201]);
    for (place, error) in &failed {
        let named = format!("add real server 10.244.0.{place}:8080 ");
        assert!(error.to_string().starts_with(&named), "{error}");
    }
    assert_eq!(held(&kernel), 247);
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::None),
        (1_usize..4).prop_map(Fault::Interrupted),
        Just(Fault::NoMemory),
        (0_usize..4).prop_map(Fault::AnswersLost),
        Just(Fault::ListChanged),
        (0_usize..4).prop_map(Fault::LeftOut),
        (0_usize..4).prop_map(Fault::Silent),
        (0_usize..4).prop_map(Fault::Cut),
    ]
}

fn missing(wanted: &Wanted, found: &Wanted) -> Vec<Request> {
    let mut requests = Vec::new();
    for (key, backends) in wanted {
        if !found.contains_key(key) {
            requests.push(Request::NewService(Service::new(*key, "rr")));
        }
        let there = found.get(key).map_or(&[][..], Vec::as_slice);
        let absent = backends.iter().filter(|b| !there.contains(b));
        requests.extend(absent.map(|b| Request::NewDestination(*key, b.clone())));
    }
    requests
}

proptest! {
    /// Whatever fails, no request is reported as successful that was not executed. Repeated reading and writing of
    /// the difference converges soon after the last fault.
    #[test]
    fn after_any_faults_reading_and_writing_converge(
        faults in proptest::collection::vec(any_fault(), 0..12),
        servers in 1_u8..6,
        backends in 0_u8..30,
        per_send in 1_usize..70,
    ) {
        let kernel = FakeKernel::default();
        let mut socket = open(&kernel);
        let wanted: Wanted = (0..servers)
            .map(|server| (key(server), (1..=backends).map(backend).collect()))
            .collect();
        fail(&kernel, &faults);
        for _ in 0..=faults.len() {
            let Ok(found) = read(&mut socket) else { continue };
            let requests = missing(&wanted, &found);
            for (request, result) in requests.iter().zip(socket.execute(&requests, per_send)) {
                if result.is_ok() {
                    let done = match request {
                        Request::NewService(service) => kernel.lock().kernel.servers.contains_key(&service.key),
                        Request::NewDestination(key, to) => {
                            let state = kernel.lock();
                            state.kernel.servers.get(key).is_some_and(|(_, held)| held.contains_key(&to.key()))
                        }
                        other => panic!("{other}"),
                    };
                    prop_assert!(done, "{request}");
                }
            }
        }
        fail(&kernel, &[]);
        let found = read(&mut socket).unwrap();
        prop_assert_eq!(missing(&wanted, &found), []);
    }
}
