//! Tests of elements.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netlink_blocking::testing::runner::say;
use nft_rs::{Batch, Bytes, Element, Errno, Events, Field, Key, KeyReader, Set, SetFlags, Socket};

use crate::{frontend, nft, socket_with, table};

/// The endpoint map of a cluster of Services with ten endpoints each.
fn endpoints(services: u32) -> Vec<Element> {
    let mut elements = Vec::new();
    for service in 0..services {
        let address = Ipv4Addr::from(0x0a60_0000 + service);
        for slot in 0..10 {
            let key = frontend(address, 80).mark(slot);
            let pod = Ipv4Addr::from(0x0af0_0000 + service * 10 + slot);
            elements.push(Element::with_data(key, Key::new().ipv4(pod).port(8080)));
        }
    }
    elements
}

fn endpoint_map() -> Set {
    let key = [
        Field::Ipv4Address,
        Field::Protocol,
        Field::Port,
        Field::Mark,
    ];
    Set::map("endpoint", key, [Field::Ipv4Address, Field::Port])
}

/// The same in a table that the kernel does not resize, so that each list of it is complete.
fn endpoint_map_of(size: u32) -> Set {
    endpoint_map().with_size(size)
}

pub(super) fn a_hundred_thousand_elements_are_one_send() {
    let elements = endpoints(10_000);
    let mut socket = socket_with(&endpoint_map_of(100_000));
    let before = socket.counters();
    let mut batch = Batch::new();
    let started = Instant::now();
    batch.add_elements(&table(), "endpoint", &elements);
    let encoded = started.elapsed();
    socket.commit(&batch).unwrap();
    let committed = started.elapsed();
    let after = socket.counters();
    assert_eq!(after.sends - before.sends, 1);
    let read: BTreeMap<Bytes, Option<Bytes>> = socket
        .fold_elements(&table(), "endpoint", BTreeMap::new, |map, element| {
            map.insert(element.key, element.data);
        })
        .unwrap()
        .unwrap();
    let written: BTreeMap<_, _> = elements
        .iter()
        .map(|element| (element.key.clone(), element.data.clone()))
        .collect();
    assert!(
        read == written,
        "{} of {} elements",
        read.len(),
        written.len()
    );
    say(&format!(
        "  {} bytes: encoded in {encoded:?}, committed after {committed:?}, read after {:?}",
        batch.byte_len(),
        started.elapsed()
    ));
    let text = nft(&[
        "get",
        "element",
        "ip",
        "t",
        "endpoint",
        "{ 10.96.0.7 . tcp . 80 . 0x3 }",
    ]);
    assert!(
        text.contains("10.96.0.7 . tcp . 80 . 0x00000003 : 10.240.0.73 . 8080"),
        "{text}"
    );
    with_a_listener(&mut socket, &elements);
}

/// The kernel moves the elements of a set without a size while they are listed.
pub(super) fn a_set_that_grows_is_listed_until_it_is_settled() {
    let mut socket = socket_with(&endpoint_map());
    let elements = endpoints(10_000);
    for count in [2_000, 20_000, 100_000] {
        let mut batch = Batch::new();
        batch.delete_set(&table(), "endpoint");
        batch.add_set(&table(), &endpoint_map());
        batch.add_elements(&table(), "endpoint", &elements[..count]);
        socket.commit(&batch).unwrap();
        let single = socket.elements(&table(), "endpoint").unwrap().unwrap();
        let settled = socket.settled_elements(&table(), "endpoint", 100);
        let mut settled = settled.unwrap().unwrap();
        let distinct: BTreeSet<_> = single.iter().map(|element| &element.key).collect();
        say(&format!(
            "  {count} elements: {} in a single list, {} of them different",
            single.len(),
            distinct.len()
        ));
        settled.sort_by(|a, b| a.key.cmp(&b.key));
        assert!(settled == elements[..count], "{} of {count}", settled.len());
    }
    let absent = socket.settled_elements(&table(), "absent", 2);
    assert_eq!(absent.unwrap(), None);
}

/// Deletions in the same transaction make room.
pub(super) fn a_set_with_a_size_takes_no_more_elements() {
    let mut socket = socket_with(&endpoint_map_of(10));
    let elements = endpoints(2);
    let (first, second) = elements.split_at(10);
    let mut batch = Batch::new();
    batch.add_elements(&table(), "endpoint", first);
    socket.commit(&batch).unwrap();
    let mut batch = Batch::new();
    batch.add_elements(&table(), "endpoint", second);
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::SET_FULL), "{error}");
    let mut batch = Batch::new();
    batch.delete_elements(&table(), "endpoint", first);
    batch.add_elements(&table(), "endpoint", second);
    socket.commit(&batch).unwrap();
    let mut read = socket.elements(&table(), "endpoint").unwrap().unwrap();
    read.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(read, second);
}

/// Deletes and adds all elements again while a socket receives reports, which takes longer.
fn with_a_listener(socket: &mut Socket, elements: &[Element]) {
    let events = Events::open().unwrap();
    for listening in [true, false] {
        if !listening {
            events.pause().unwrap();
        }
        let mut batch = Batch::new();
        batch.delete_elements(&table(), "endpoint", elements);
        batch.add_elements(&table(), "endpoint", elements);
        let started = Instant::now();
        socket.commit(&batch).unwrap();
        let word = if listening { "with" } else { "without" };
        say(&format!(
            "  replaced {word} a listener in {:?}",
            started.elapsed()
        ));
    }
}

/// Whether `nft` finds an element that contains a key.
fn contains(set: &str, key: &str) -> bool {
    let element = format!("{{ {key} }}");
    Command::new("nft")
        .args(["get", "element", "ip", "t", set, &element])
        .output()
        .expect("nft")
        .status
        .success()
}

pub(super) fn intervals_contain_what_lies_between() {
    let set = Set::new("pods", [Field::Ipv4Address]).with_intervals();
    let mut socket = socket_with(&set);
    let mut elements = Element::interval(&[10, 0, 0, 0], &[10, 255, 255, 255]);
    elements.extend(Element::interval(&[192, 168, 1, 5], &[192, 168, 1, 5]));
    elements.extend(Element::interval(&[255, 0, 0, 0], &[255; 4]));
    let mut batch = Batch::new();
    batch.add_elements(&table(), "pods", &elements);
    socket.commit(&batch).unwrap();
    let has = |keys: [&str; 4], wanted: bool| {
        for key in keys {
            assert_eq!(contains("pods", key), wanted, "{key}");
        }
    };
    has(
        [
            "10.0.0.0",
            "10.255.255.255",
            "192.168.1.5",
            "255.255.255.255",
        ],
        true,
    );
    has(
        ["9.255.255.255", "11.0.0.0", "192.168.1.4", "192.168.1.6"],
        false,
    );
    let text = nft(&["list", "set", "ip", "t", "pods"]);
    assert!(text.contains("10.0.0.0/8, 192.168.1.5"), "{text}");
    let mut batch = Batch::new();
    batch.delete_elements(
        &table(),
        "pods",
        Element::interval(&[10, 0, 0, 0], &[10, 255, 255, 255]),
    );
    socket.commit(&batch).unwrap();
    has(
        ["192.168.1.5", "255.0.0.0", "255.1.0.0", "255.255.255.255"],
        true,
    );
    has(
        ["10.0.0.0", "10.0.0.1", "10.1.2.3", "10.255.255.255"],
        false,
    );
}

pub(super) fn intervals_of_concatenations_contain_what_lies_between() {
    let key = [
        Field::Ipv4Address,
        Field::Protocol,
        Field::Port,
        Field::Ipv4Address,
    ];
    let mut socket = socket_with(&Set::new("allow", key).with_intervals());
    let service = || frontend([10, 96, 0, 1].into(), 443);
    let range = |first: [u8; 4], last: [u8; 4]| {
        Element::range(service().ipv4(first.into()), service().ipv4(last.into()))
    };
    let elements = [
        range([192, 0, 2, 0], [192, 0, 2, 255]),
        range([203, 0, 113, 7], [203, 0, 113, 7]),
    ];
    let mut batch = Batch::new();
    batch.add_elements(&table(), "allow", &elements);
    socket.commit(&batch).unwrap();
    let has = |source: &str, wanted: bool| {
        let key = format!("10.96.0.1 . tcp . 443 . {source}");
        assert_eq!(contains("allow", &key), wanted, "{source}");
    };
    has("192.0.2.0", true);
    has("192.0.2.255", true);
    has("203.0.113.7", true);
    has("192.0.3.0", false);
    has("203.0.113.8", false);
    let mut read = socket.elements(&table(), "allow").unwrap().unwrap();
    read.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(read[0], elements[0]);
    assert_eq!(read.len(), 2);
    let mut batch = Batch::new();
    batch.delete_elements(&table(), "allow", &elements[..1]);
    socket.commit(&batch).unwrap();
    has("192.0.2.1", false);
    has("203.0.113.7", true);
}

pub(super) fn elements_with_a_timeout_end_by_themselves() {
    let mut set = Set::new("seen", [Field::Ipv4Address]);
    set.flags = SetFlags {
        timeout: true,
        ..SetFlags::default()
    };
    set.timeout = Some(Duration::from_secs(3_600));
    let mut socket = socket_with(&set);
    let short = Element::new([10, 0, 0, 1]).living(Duration::from_secs(1));
    let mut batch = Batch::new();
    batch.add_elements(&table(), "seen", [short, Element::new([10, 0, 0, 2])]);
    socket.commit(&batch).unwrap();
    let read = socket.elements(&table(), "seen").unwrap().unwrap();
    assert_eq!(read.len(), 2);
    for element in &read {
        let short = element.key.as_slice() == [10, 0, 0, 1];
        let timeout = if short { 1 } else { 3_600 };
        let own = element.timeout.unwrap_or(Duration::from_secs(3_600));
        assert_eq!(own, Duration::from_secs(timeout), "{element}");
        assert!(element.expiration.unwrap() <= own, "{element}");
    }
    std::thread::sleep(Duration::from_millis(1_200));
    let read = socket.elements(&table(), "seen").unwrap().unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(
        KeyReader::new(&read[0].key).ipv4(),
        Some([10, 0, 0, 2].into())
    );
}

/// Each transaction moves all elements at once, so that a list of two generations would have another sum.
pub(super) fn a_list_is_of_one_generation_while_others_write() {
    const COUNT: u32 = 2_000;
    let mut socket = socket_with(&endpoint_map_of(COUNT));
    let elements = |generation: u32| {
        (0..COUNT).map(move |number| {
            let key = frontend([10, 96, 0, 1].into(), 80).mark(number);
            Element::with_data(key, Key::new().ipv4(generation.into()).port(1))
        })
    };
    let mut batch = Batch::new();
    batch.add_elements(&table(), "endpoint", elements(0));
    socket.commit(&batch).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let mut writer = Socket::open().unwrap();
    // A thread that is started here stays in this network namespace.
    let writing = std::thread::spawn(move || {
        let mut generation = 0;
        while !stopped.load(Ordering::Relaxed) {
            let mut batch = Batch::new();
            batch.delete_elements(&table(), "endpoint", elements(generation));
            generation += 1;
            batch.add_elements(&table(), "endpoint", elements(generation));
            writer.commit(&batch).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        generation
    });
    let mut seen = Vec::new();
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let read = socket.settled_elements(&table(), "endpoint", 100);
        let read = read.unwrap().unwrap();
        assert_eq!(read.len(), usize::try_from(COUNT).unwrap());
        let of = |element: &Element| KeyReader::new(element.data.as_ref().unwrap()).ipv4();
        assert!(read.iter().all(|element| of(element) == of(&read[0])));
        seen.push(of(&read[0]).unwrap());
        let (_, generation) = socket.consistently(|socket| socket.sets(&table())).unwrap();
        assert!(generation > 0);
    }
    stop.store(true, Ordering::Relaxed);
    let written = writing.join().unwrap();
    seen.dedup();
    assert!(
        written > 3 && seen.len() > 3,
        "{written} transactions, {} of them seen",
        seen.len()
    );
}
