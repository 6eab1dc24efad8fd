//! What is written is accepted by the kernel, listed by `nft`, and read back.

use netlink_blocking::testing::runner::output_of;
use nft_rs::{Batch, Element, Key, TableFlags};
use portolan_plan::{ExternalClients, Family, LocalDetection, Policy, Settings};
use portolan_reconcile::nftables::{SetName, drift, table_id};

use crate::plan::{Kernel, Service, kernel as this_kernel, tables, tables_with};

/// Services that together use every set.
fn services() -> Vec<Service> {
    vec![
        Service::new("web", 20),
        Service {
            affinity: Some(10_800),
            node_port: Some(30_080),
            ..Service::new("sticky", 21)
        },
        Service {
            scheduler: Some("mh"),
            affinity: Some(60),
            ..Service::new("hashed", 22)
        },
        Service {
            backends: Vec::new(),
            ..Service::new("empty", 77)
        },
        Service {
            sources: vec![
                "192.168.50.9/32",
                "198.51.100.0/24",
                "fd00:50::9/128",
                "fd00:51::/64",
            ],
            policy: Policy::Local,
            external_clients: ExternalClients::Drop,
            ..Service::balancer("guarded", 7)
        },
        Service {
            backends: vec![(5, 3), (6, 4093)],
            ..Service::balancer("large", 8)
        },
    ]
}

fn check(kernel: &mut Kernel) {
    let found = kernel.read();
    let differences: Vec<_> = drift(&kernel.shadow, &found)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(differences, [""; 0]);
    assert_eq!(found, kernel.shadow);
}

pub(crate) fn nft_lists_the_tables_as_text_and_json() {
    let mut kernel = Kernel::new();
    kernel.commit(&tables(&services()));
    let text = output_of("nft", &["list", "ruleset"]);
    for part in [
        "table ip portolan",
        "table ip6 portolan",
        "managed by Portolan",
        "numgen random mod 4096 map @endpoint",
        "update @affinity",
        "10.96.0.77 . tcp . 80",
        "fully-random",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json = output_of("nft", &["-j", "list", "ruleset"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let count = |kind: &str| {
        let objects = json["nftables"].as_array().unwrap().iter();
        objects.filter(|object| object.get(kind).is_some()).count()
    };
    assert_eq!(count("table"), 2);
    let wanted = tables(&services());
    let layouts = wanted
        .families
        .iter()
        .map(|(family, table)| table.layout(*family));
    let rules: usize = layouts.map(|layout| layout.rules.len()).sum();
    assert_eq!(count("rule"), rules);
}

pub(crate) fn what_is_read_is_what_was_written() {
    let mut kernel = Kernel::new();
    kernel.commit(&tables(&services()));
    check(&mut kernel);
    // Every kind of change, with other timeouts of affinity and other ranges.
    let mut changed = services();
    changed[1].affinity = None;
    changed[2].affinity = Some(61);
    changed[3].backends = vec![(5, 1)];
    changed[4].sources = vec!["198.51.100.0/25", "fd00:50::/64"];
    changed.remove(0);
    let wanted = tables(&changed);
    kernel.commit(&wanted);
    check(&mut kernel);
    assert!(wanted.diff(&kernel.read()).is_empty());
    kernel.commit(&tables(&services()));
    check(&mut kernel);
}

pub(crate) fn every_local_detection_loads() {
    let cluster = vec![
        "10.244.0.0/16".parse().unwrap(),
        "0.0.0.0/0".parse().unwrap(),
    ];
    let detections = [
        LocalDetection::NodeCidr,
        LocalDetection::ClusterCidr {
            cluster_cidrs: cluster,
        },
        LocalDetection::BridgeInterface {
            bridge: "cni0".into(),
        },
        LocalDetection::InterfaceNamePrefix {
            prefix: "cali".into(),
        },
    ];
    let mut kernel = Kernel::new();
    for local_detection in detections {
        let mut settings = Settings {
            local_detection,
            ..Settings::default()
        };
        settings.masquerade.all = true;
        settings.drop_invalid = false;
        // With the rules for old kernels, too.
        kernel.commit(&tables_with(settings.clone(), (5, 4), &services()));
        check(&mut kernel);
        kernel.commit(&tables_with(settings, this_kernel(), &services()));
        check(&mut kernel);
        output_of("nft", &["list", "ruleset"]);
        output_of("nft", &["-j", "list", "ruleset"]);
    }
}

/// The key of a client in the affinity map.
fn client(last: u8) -> Element {
    let key = Key::new().ipv4([10, 96, 0, 21].into()).protocol(6).port(80);
    let key = key.ipv4([192, 168, 50, last].into());
    let backend = Key::new().ipv4([10, 244, 1, 5].into()).port(8080);
    Element::with_data(key, backend).living(std::time::Duration::from_secs(500))
}

pub(crate) fn a_rebuilt_table_keeps_affinity() {
    let mut kernel = Kernel::new();
    kernel.commit(&tables(&services()));
    let mut batch = Batch::new();
    let name = SetName::Affinity.to_string();
    batch.add_elements(&table_id(Family::Ipv4), &name, [client(9), client(10)]);
    kernel.socket.commit(&batch).unwrap();
    // Other rules do not need other sets.
    output_of("nft", &["flush", "chain", "ip", "portolan", "pick"]);
    kernel.shadow = kernel.read();
    let transaction = kernel.commit(&tables(&services()));
    let operations: Vec<_> = transaction.operations().map(ToString::to_string).collect();
    assert_eq!(operations, ["replace the IPv4 rules of pick"]);
    check(&mut kernel);
    assert_eq!(kernel.affinity(Family::Ipv4).len(), 2);
    output_of("nft", &["add", "chain", "ip", "portolan", "foreign"]);
    kernel.shadow = kernel.read();
    let transaction = kernel.commit(&tables(&services()));
    assert_eq!(transaction.rebuilt().collect::<Vec<_>>(), [Family::Ipv4]);
    check(&mut kernel);
    let mut keys: Vec<_> = kernel
        .affinity(Family::Ipv4)
        .into_iter()
        .map(|e| e.key)
        .collect();
    keys.sort();
    let mut wanted = [client(9).key, client(10).key];
    wanted.sort();
    assert_eq!(keys, wanted);
}

/// Another program took the key of an element; all others are written.
pub(crate) fn refused_elements_name_their_service() {
    let mut kernel = Kernel::new();
    let (first, both) = (tables(&services()[..1]), tables(&services()[..2]));
    kernel.commit(&first);
    // Unknown to the shadow.
    let taken = "{ 10.96.0.21 . tcp . 80 . 0x0 : 192.0.2.1 . 1 }";
    output_of(
        "nft",
        &["add", "element", "ip", "portolan", "endpoint", taken],
    );
    let transaction = both.diff(&kernel.shadow);
    let mut batch = Batch::new();
    let encoded = transaction.encode(&both, &[].into(), TableFlags::default(), &mut batch);
    let committed = kernel.socket.commit_without_refused(&batch).unwrap();
    assert_eq!(committed.refusals.len(), 1);
    let numbers = encoded.refused(&committed.refusals[0]);
    let owners: Vec<_> = numbers
        .iter()
        .map(|number| transaction.owner(*number).unwrap())
        .collect();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0].service.unwrap().to_string(), "test/sticky");
    assert_eq!(
        owners[0].operation.to_string(),
        "add endpoint TCP 10.96.0.21:80 slot 0 10.244.1.5:8080"
    );
    kernel.shadow.note(transaction.except(&numbers), &both);
    let found = kernel.read();
    assert_eq!(drift(&kernel.shadow, &found).len(), 1);
    kernel.shadow = kernel.read();
    kernel.commit(&both);
    check(&mut kernel);
}

/// A thousand Services with ten endpoints in each family, in one transaction.
pub(crate) fn ten_thousand_endpoints_load_at_once() {
    let mut many = Vec::new();
    for number in 0..250 {
        let backends = (1..=40).map(|last| (last, 1)).collect();
        many.push(Service {
            backends,
            ..Service::new(format!("s{number}").leak(), number)
        });
    }
    let mut kernel = Kernel::new();
    let transaction = kernel.commit(&tables(&many));
    assert!(transaction.len() > 20_000);
    check(&mut kernel);
}
