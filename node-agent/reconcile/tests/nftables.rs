//! Tests the tables of a small plan: rules and elements as people read them, and which Services get what.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use portolan_plan::{
    Backend, BackendList, Entry, EntryHash, EntryKey, ExternalClients, Family, Frontend,
    FrontendKind, Head, HeadPort, ListChoice, ListKey, ListUse, LocalDetection, NodeEntry,
    NodePlan, PlanDocument, Policy, Scope, ScopeKind, ServiceId, Settings,
};
use portolan_reconcile::nftables::{
    Layout, LayoutOptions, MAX_SLOTS, ObservedTables, SetName, Sizes, Tables, TablesDocument,
    drift, in_words,
};
use portolan_reconcile::{Facts, HostAddress, HostNetwork, VirtualServerKey};

fn host() -> HostNetwork {
    let on = |text: &str| HostAddress::on("eth0", text.parse().unwrap());
    HostNetwork {
        addresses: vec![on("192.168.50.1/24"), on("fd00:50::1/64")],
        ..HostNetwork::default()
    }
}

fn sample() -> Tables {
    let document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let plan = document.into_plan().unwrap();
    Tables::of(&Facts::new(&plan, &host()).unwrap())
}

/// The constant part of a table as text. Chains that differ only in their size class are left out, except for two.
fn text(layout: &Layout) -> String {
    let mut text = String::new();
    for set in &layout.sets {
        let data = set.data.as_ref().map(|data| format!(" : {data:?}"));
        let flags = [
            (set.flags.interval, " interval"),
            (set.flags.dynamic, " dynamic"),
            (set.flags.timeout, " timeout"),
        ];
        let flags: String = flags
            .iter()
            .filter(|flag| flag.0)
            .map(|flag| flag.1)
            .collect();
        let size = set.size.map(|size| format!(" size {size}"));
        let (name, key, data) = (&set.name, &set.key, data.unwrap_or_default());
        let size = size.unwrap_or_default();
        writeln!(text, "set {name} {key:?}{data}{flags}{size}").unwrap();
    }
    let is_alike = |name: &str| {
        let class = name.strip_prefix(['n', 'h']).map(str::parse::<u32>);
        matches!(class, Some(Ok(class)) if !matches!(class, 1 | 8))
    };
    for chain in layout.chains.iter().filter(|chain| !is_alike(&chain.name)) {
        let base = chain.base.as_ref().map(|base| {
            let (kind, hook) = (base.kind.name(), base.hook);
            format!(": {kind} {hook:?} {}", base.priority)
        });
        writeln!(text, "\nchain {}{}", chain.name, base.unwrap_or_default()).unwrap();
        for rule in layout.rules.iter().filter(|rule| rule.chain == chain.name) {
            writeln!(text, "  # {}", rule.comment.as_deref().unwrap()).unwrap();
            for step in &rule.expressions {
                writeln!(text, "    {step}").unwrap();
            }
        }
    }
    text
}

fn layout(family: Family, settings: &Settings, recognises_pods: bool) -> Layout {
    let options = LayoutOptions::new(settings, recognises_pods, (6, 1));
    Layout::new(family, &options, &[10_800].into(), &Sizes::new(0, 0, 0))
}

/// The lines that are missing (`-`) or additional (`+`) compared with the default settings.
fn against_default(settings: &Settings, recognises_pods: bool) -> String {
    let usual = text(&layout(Family::Ipv4, &Settings::default(), true));
    let here = text(&layout(Family::Ipv4, settings, recognises_pods));
    let without = |these: &str, those: &str, sign: char| -> String {
        let those: BTreeSet<_> = those.lines().collect();
        let lines = these.lines().filter(|line| !those.contains(line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    without(&usual, &here, '-') + &without(&here, &usual, '+')
}

#[test]
fn these_are_the_rules() {
    let settings = Settings::default();
    let options = LayoutOptions::new(&settings, true, (5, 8));
    let old = text(&Layout::new(
        Family::Ipv4,
        &options,
        &[].into(),
        &Sizes::new(0, 0, 0),
    ));
    let refusing = old
        .split("\nchain ")
        .filter(|chain| chain.starts_with("reject"));
    insta::assert_snapshot!("old_kernel", refusing.collect::<String>());
    insta::assert_snapshot!("ipv4", text(&layout(Family::Ipv4, &settings, true)));
    insta::assert_snapshot!("ipv6", text(&layout(Family::Ipv6, &settings, true)));
}

/// S-70, S-75, S-77, S-173, S-204.
#[test]
fn rules_differ_according_to_the_settings() {
    let mut settings = Settings::default();
    assert_eq!(against_default(&settings, true), "");
    insta::assert_snapshot!("without_known_pods", against_default(&settings, false));
    settings.masquerade.all = true;
    insta::assert_snapshot!(
        "masquerade_all",
        text(&layout(Family::Ipv4, &settings, true))
            .split("chain nat-post")
            .nth(1)
            .unwrap()
    );
    let detections = [
        (
            "cluster",
            LocalDetection::ClusterCidr {
                cluster_cidrs: Vec::new(),
            },
        ),
        (
            "bridge",
            LocalDetection::BridgeInterface {
                bridge: "cni0".into(),
            },
        ),
        (
            "prefix",
            LocalDetection::InterfaceNamePrefix {
                prefix: "cali".into(),
            },
        ),
    ];
    for (name, local_detection) in detections {
        let settings = Settings {
            local_detection,
            ..Settings::default()
        };
        let text = text(&layout(Family::Ipv4, &settings, true));
        let post = text
            .split("chain ")
            .filter(|c| c.starts_with("nat-post") || c.starts_with("drops-pre"));
        insta::assert_snapshot!(name, post.collect::<String>());
    }
    let liberal = Settings {
        drop_invalid: false,
        ..Settings::default()
    };
    insta::assert_snapshot!("without_drop_invalid", against_default(&liberal, true));
}

/// `nft` 1.0.6 aborts when it lists a rule with two map look-ups, and each anonymous set costs a walk over all sets.
#[test]
fn no_rule_has_two_map_look_ups_or_uses_another_set() {
    for family in Family::BOTH {
        let layout = layout(family, &Settings::default(), true);
        let sets: BTreeSet<_> = layout.sets.iter().map(|set| &set.name).collect();
        let chains: BTreeSet<_> = layout.chains.iter().map(|chain| &chain.name).collect();
        for rule in &layout.rules {
            let mut maps = 0;
            for step in &rule.expressions {
                match step {
                    nft_rs::Expression::Lookup {
                        set, destination, ..
                    } => {
                        maps += usize::from(destination.is_some());
                        assert!(sets.contains(set), "{set}");
                    }
                    nft_rs::Expression::SetUpdate(update) => assert!(sets.contains(&update.set)),
                    nft_rs::Expression::Verdict(verdict) => {
                        assert!(verdict.chain().is_none_or(|chain| chains.contains(chain)));
                    }
                    _ => {}
                }
            }
            assert!(maps < 2, "{rule:?}");
            assert!(chains.contains(&rule.chain));
            assert!(rule.comment.as_ref().unwrap().len() < 128);
        }
    }
}

#[test]
fn a_small_plan_becomes_these_elements() {
    let tables = sample();
    let document = TablesDocument::new(&tables.applied(), Some(&tables));
    insta::assert_json_snapshot!("document", document);
    let lines = tables.diff(&ObservedTables::default());
    let lines: Vec<_> = lines.operations().map(ToString::to_string).collect();
    insta::assert_snapshot!("transaction", lines.join("\n"));
    let text = serde_json::to_string(&document).unwrap();
    assert_eq!(
        serde_json::from_str::<TablesDocument>(&text).unwrap(),
        document
    );
}

#[test]
fn drift_is_named() {
    let tables = sample();
    let left = tables.applied();
    let mut found = left.clone();
    found.tables.remove(&Family::Ipv6);
    let table = found.tables.get_mut(&Family::Ipv4).unwrap();
    table.layout = Default::default();
    table.pods.clear();
    table.hairpins.pop_first();
    table.ranges.insert("10.0.0.0/24".parse().unwrap());
    let drifted = drift(&left, &found);
    let parts = |what: &&String| !what.contains("differs") || what.contains("chain learn");
    let lines: Vec<_> = drifted.iter().map(ToString::to_string).collect();
    let lines: Vec<_> = lines.iter().filter(parts).cloned().collect();
    insta::assert_snapshot!("drift", lines.join("\n"));
    let counts = in_words(&drifted);
    let without_layout = counts.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(
        without_layout,
        " table,  chains or sets,  missing elements,  unexpected element"
    );
}

const WEB: &str = "10.96.0.20";

/// A plan with one Service that has one frontend of this kind.
struct Plan {
    node: NodeEntry,
    head: Head,
    port: HeadPort,
    kind: FrontendKind,
    backends: Vec<(u16, u16)>,
}

impl Default for Plan {
    fn default() -> Self {
        let pods = "10.244.1.0/24".parse().unwrap();
        Self {
            node: NodeEntry {
                pod_cidrs: vec![pods],
                ..NodeEntry::default()
            },
            head: Head::default(),
            port: HeadPort::default(),
            kind: FrontendKind::ClusterIp,
            backends: vec![(1, 1), (2, 1)],
        }
    }
}

impl Plan {
    fn tables(&self) -> Tables {
        let service = ServiceId::new("shop", "web");
        let frontend = Frontend {
            kind: self.kind,
            address: Some(WEB.parse().unwrap()),
            port: 80,
        };
        let mut port = self.port.clone();
        port.frontends = [frontend].into_iter().collect();
        let mut head = self.head.clone();
        head.ports = [port].into_iter().collect();
        let list = self.backends.iter().map(|(last, weight)| Backend {
            address: IpAddr::from(Ipv4Addr::from(0x0af4_0000 + u32::from(*last))),
            port: 8080,
            weight: *weight,
        });
        let list: BackendList = list.collect();
        let key = ListKey {
            service: service.clone(),
            port: "".into(),
            scope: Scope::Cluster,
            family: Family::Ipv4,
        };
        let entries = [
            (EntryKey::Node, Entry::Node(Arc::new(self.node.clone()))),
            (EntryKey::Head(service), Entry::Head(Arc::new(head))),
            (EntryKey::List(key), Entry::List(Arc::new(list))),
        ];
        let entries = entries.map(|(key, entry)| (key, EntryHash::default(), entry));
        let facts = Facts::new(&NodePlan::from_entries(entries), &host());
        Tables::of(&facts.unwrap())
    }

    /// The sets that contain the frontend.
    fn sets(&self) -> Vec<String> {
        let observed = self.tables().applied();
        let held = observed.frontend(&web()).unwrap();
        held.sets().iter().map(ToString::to_string).collect()
    }
}

fn web() -> VirtualServerKey {
    VirtualServerKey {
        address: WEB.parse().unwrap(),
        port: 80,
        protocol: portolan_plan::Protocol::Tcp,
    }
}

/// S-21, S-22, S-73 to S-78, S-86 to S-88, S-94.
#[test]
fn the_sets_of_a_frontend_follow_from_its_service() {
    let mut plan = Plan::default();
    assert_eq!(plan.sets(), ["frontend", "c2", "clusterip"]);
    plan.port.affinity_seconds = Some(60);
    assert_eq!(
        plan.sets(),
        ["frontend", "c2", "sticky", "sticky-60", "clusterip"]
    );
    plan = Plan {
        kind: FrontendKind::LoadBalancer,
        ..Plan::default()
    };
    plan.port.external = Some(ListUse::default());
    assert_eq!(plan.sets(), ["frontend", "c2", "masq"]);
    plan.port.external = Some(ListUse {
        policy: Policy::Local,
        ipv4: ListChoice {
            scope: ScopeKind::Cluster,
            external_clients: ExternalClients::Drop,
        },
        ..ListUse::default()
    });
    assert_eq!(plan.sets(), ["frontend", "c2", "nolocal"]);
    plan.head.source_ranges = vec!["198.51.100.0/25".parse().unwrap()];
    assert_eq!(plan.sets(), ["frontend", "c2", "nolocal", "guarded"]);
    plan.backends = vec![(1, 0)];
    assert_eq!(plan.sets(), ["refuse", "guarded"], "S-93");
    plan.head.source_ranges = vec!["0.0.0.0/0".parse().unwrap()];
    assert_eq!(plan.sets(), ["refuse"], "S-87");
}

/// S-246.
#[test]
fn a_backend_in_the_pod_ranges_reaches_itself_without_a_local_entry() {
    let plan = Plan {
        node: NodeEntry {
            pod_cidrs: vec!["10.244.0.2/31".parse().unwrap()],
            ..NodeEntry::default()
        },
        ..Plan::default()
    };
    let tables = plan.tables();
    let hairpins = &tables.families[&Family::Ipv4].hairpins;
    let addresses = hairpins.keys().map(|own| own.address.to_string());
    assert_eq!(addresses.collect::<Vec<_>>(), ["10.244.0.2"]);
}

#[test]
fn overlapping_source_ranges_become_one() {
    let mut plan = Plan {
        kind: FrontendKind::LoadBalancer,
        ..Plan::default()
    };
    plan.port.external = Some(ListUse::default());
    let ranges = [
        "198.51.100.0/25",
        "198.51.100.128/25",
        "198.51.100.7/32",
        "203.0.113.0/24",
    ];
    plan.head.source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
    let observed = plan.tables().applied();
    let allowed = observed.frontend(&web()).unwrap().allowed();
    let allowed: Vec<_> = allowed.map(ToString::to_string).collect();
    assert_eq!(allowed, ["198.51.100.0/24", "203.0.113.0/24"]);
}

/// S-101, S-229.
#[test]
fn a_scheduler_becomes_a_random_choice_or_one_by_the_client() {
    let with = |of_settings: &str, of_service: Option<&str>| {
        let mut plan = Plan::default();
        plan.node.settings.scheduler = of_settings.into();
        plan.head.scheduler = of_service.map(Into::into);
        let fallbacks = plan.tables().fallbacks.into_values().collect::<Vec<_>>();
        let by_client = plan.sets().contains(&SetName::SourceHash.to_string());
        (by_client, fallbacks.first().map(ToString::to_string))
    };
    assert_eq!(with("rr", None), (false, None));
    assert_eq!(with("rr", Some("wrr")), (false, None));
    assert_eq!(with("rr", Some("mh")), (true, None));
    assert_eq!(with("sh", None), (true, None));
    assert_eq!(with("sh", Some("rr")), (false, None));
    assert_eq!(with("rr", Some("lc")), (false, Some("lc".to_owned())));
    assert_eq!(with("lc", None), (false, None), "the operator's to correct");
}

#[test]
fn more_backends_than_slots_are_reported() {
    let mut plan = Plan::default();
    assert_eq!(plan.tables().truncated, [].into());
    plan.backends = (0..4096).map(|last| (last, 1)).collect();
    assert_eq!(plan.tables().truncated, [].into());
    assert_eq!(plan.sets()[1], "c4096");
    plan.backends.extend((4096..5000).map(|last| (last, 1)));
    let service = ServiceId::new("shop", "web");
    assert_eq!(plan.tables().truncated, [(service, 904)].into());
    assert_eq!(plan.sets()[1], "c4096");
    let slots = plan.tables().applied().frontend(&web()).unwrap().backends();
    assert_eq!(u32::try_from(slots.len()).unwrap(), MAX_SLOTS);
}
