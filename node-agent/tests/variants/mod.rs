//! Both variants of iptables on the machine's own kernel: loaded rules are read back unchanged, the variant in use is
//! found, and no rules of the agent stay in the other one (S-170).

use std::fs::File;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use portolan_agent::kernel::linux::{IptablesChoice, Rules};
use portolan_agent::kernel::{Kernel as _, LockWait};
use portolan_plan::{Family, LocalDetection, NodePlan, PlanDocument, Settings};
use portolan_reconcile::rules::TABLES;
use portolan_reconcile::{Desired, Owned, cleanup, diff};

use crate::{DEVICE, Here, plan};
use netlink_blocking::testing::runner::output_of;

const VARIANTS: [(IptablesChoice, &str, &str); 2] = [
    (IptablesChoice::Nft, "nft", "legacy"),
    (IptablesChoice::Legacy, "legacy", "nft"),
];

/// Moves the thread to a new network namespace, until the next call.
fn fresh_namespace() {
    unshare(CloneFlags::CLONE_NEWNET).expect("another network namespace");
}

/// The number of lines in both families with chains or sets of the agent in this variant.
fn lines_of_ours(variant: &str) -> usize {
    ["iptables", "ip6tables"]
        .map(|family| output_of(&format!("{family}-{variant}-save"), &[]))
        .iter()
        .flat_map(|saved| saved.lines())
        .filter(|line| line.contains("PORTOLAN-"))
        .count()
}

fn plan_with(change: impl FnOnce(&mut PlanDocument)) -> NodePlan {
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../plans/node-a.json")).unwrap();
    change(&mut document);
    document.into_plan().unwrap()
}

/// Settings that affect the rules, by name.
fn modes() -> Vec<(&'static str, Settings)> {
    let detection = |local_detection| Settings {
        local_detection,
        ..Settings::default()
    };
    let mut all = Settings::default();
    all.masquerade.all = true;
    all.masquerade.bit = 0;
    let mut liberal = Settings::default();
    liberal.conntrack.tcp_be_liberal = true;
    liberal.masquerade.bit = 31;
    let mut tolerant = Settings {
        drop_invalid: false,
        ..Settings::default()
    };
    tolerant.healthz.port = 65_535;
    let cluster_cidrs = vec!["10.244.0.0/16".parse().unwrap()];
    let (bridge, prefix) = ("cni0".to_owned(), "fourteen-bytes".to_owned());
    let cluster = LocalDetection::ClusterCidr { cluster_cidrs };
    vec![
        ("NodeCIDR", Settings::default()),
        ("ClusterCIDR", detection(cluster)),
        (
            "BridgeInterface",
            detection(LocalDetection::BridgeInterface { bridge }),
        ),
        (
            "InterfaceNamePrefix",
            detection(LocalDetection::InterfaceNamePrefix { prefix }),
        ),
        ("masquerade.all", all),
        ("tcpBeLiberal", liberal),
        ("dropInvalid off", tolerant),
    ]
}

/// S-157, S-170: the tools print rules as they were loaded; otherwise every pass would load them again.
pub(crate) fn every_mode_is_quiet() {
    for (choice, variant, other) in VARIANTS {
        fresh_namespace();
        let mut here = Here::with(choice);
        for (mode, settings) in modes() {
            let device = DEVICE.into();
            let plan = plan_with(|document| document.settings = Settings { device, ..settings });
            assert_ne!(here.pass(&plan), [], "{variant} {mode}");
            assert_eq!(here.pass(&plan), [], "{variant} {mode}");
        }
        let without = plan_with(|document| document.pod_cidrs.clear());
        assert_ne!(here.pass(&without), [], "{variant} without pods");
        assert_eq!(here.pass(&without), [], "{variant} without pods");
        assert!(lines_of_ours(variant) > 40, "{variant}");
        assert_eq!(lines_of_ours(other), 0, "{variant}");
    }
}

/// A command of another program before the agent starts.
type Made<'a> = (&'a str, &'a [&'a str]);

/// S-170: the agent's own chains count first, then the kubelet's hints, then the number of rules.
pub(crate) fn the_one_in_use_is_found() {
    let accept: &[&str] = &["-A", "INPUT", "-j", "ACCEPT"];
    let hint: &[&str] = &["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"];
    let canary: &[&str] = &["-t", "mangle", "-N", "KUBE-KUBELET-CANARY"];
    let own: &[&str] = &["-t", "nat", "-N", "PORTOLAN-OUTPUT"];
    let (nft, legacy) = ("iptables-nft", "iptables-legacy");
    let (nft6, legacy6) = ("ip6tables-nft", "ip6tables-legacy");
    let cases: [(Vec<Made<'_>>, &str, &str); 7] = [
        (vec![(legacy, accept)], "legacy", "nft"),
        (vec![(nft6, accept)], "nft", "legacy"),
        (
            vec![(nft, accept), (nft6, accept), (legacy, accept)],
            "nft",
            "legacy",
        ),
        (vec![(nft, accept), (legacy6, hint)], "legacy", "nft"),
        (vec![(legacy, accept), (nft, canary)], "nft", "legacy"),
        (vec![(legacy, canary), (nft6, own)], "nft", "legacy"),
        (vec![(nft, hint), (legacy, own)], "legacy", "nft"),
    ];
    for (made, expected, other) in cases {
        fresh_namespace();
        for (program, arguments) in &made {
            output_of(program, arguments);
        }
        Here::new().pass(&plan());
        assert!(lines_of_ours(expected) > 40, "{made:?}");
        assert_eq!(lines_of_ours(other), 0, "{made:?}");
    }
}

pub(crate) fn rules_move() {
    for (from, left, taken) in VARIANTS {
        let (to, ..) = VARIANTS[usize::from(left == "nft")];
        fresh_namespace();
        let mut here = Here::with(from);
        here.pass(&plan());
        let lines = lines_of_ours(left);
        assert!(lines > 40, "{lines}");
        let foreign = ["-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"];
        output_of(&format!("iptables-{left}"), &foreign);
        here.rules = Rules::find(to).unwrap();
        let written: Vec<_> = here.pass(&plan()).iter().map(ToString::to_string).collect();
        assert_eq!(written, ["load IPv4 rules", "load IPv6 rules"]);
        assert_eq!((lines_of_ours(left), lines_of_ours(taken)), (0, lines));
        let saved = output_of(&format!("iptables-{left}-save"), &[]);
        assert!(saved.contains("--dport 22 -j ACCEPT"), "S-168: {saved}");
        assert_eq!(here.pass(&plan()), []);
    }
}

/// Also if each family is in another variant.
pub(crate) fn cleanup_takes_both() {
    for split in [false, true] {
        fresh_namespace();
        Here::with(IptablesChoice::Nft).pass(&plan());
        if split {
            let saved = output_of("ip6tables-nft-save", &[]);
            let restore = format!("ip6tables-legacy-restore <<'END'\n{saved}END\n");
            output_of("sh", &["-c", &restore]);
            for (table, act) in TABLES
                .into_iter()
                .flat_map(|table| [(table, "-F"), (table, "-X")])
            {
                output_of("ip6tables-nft", &["-t", table, act]);
            }
            assert!(lines_of_ours("nft") > 20 && lines_of_ours("legacy") > 20);
        }
        let mut here = Here::open(IptablesChoice::Auto);
        let observed = here.look();
        for ops in cleanup(&observed, &Owned::default(), DEVICE) {
            for result in here.apply(&ops) {
                result.unwrap_or_else(|error| panic!("split {split}: {error}"));
            }
        }
        assert_eq!((lines_of_ours("nft"), lines_of_ours("legacy")), (0, 0));
        assert_eq!(output_of("ipset", &["save"]), "", "no rule kept a set");
    }
}

/// The lock file of the legacy tools.
const LOCK: &str = "/run/xtables.lock";
/// Time for which another program holds the lock, shorter than the agent's timeout.
const HELD: Duration = Duration::from_secs(1);

/// Mounts an own `/run` for this thread, because the lock is shared by the whole machine.
fn mount_own_run() {
    unshare(CloneFlags::CLONE_NEWNS).expect("mounts of its own");
    let nothing = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(nothing, "/", nothing, private, nothing).unwrap();
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        MsFlags::empty(),
        nothing,
    )
    .unwrap();
}

/// S-170: concurrent use of the legacy tables by another program causes no failure.
pub(crate) fn the_lock_is_waited_for() {
    mount_own_run();
    let mut here = Here::with(IptablesChoice::Legacy);
    let lock = File::create(LOCK).unwrap();
    lock.lock().unwrap();
    let holder = spawn(move || {
        sleep(HELD);
        let released = Instant::now();
        drop(lock);
        released
    });
    assert_ne!(here.pass(&plan()), []);
    let loaded = Instant::now();
    let released = holder.join().unwrap();
    assert!(loaded > released, "the rules did not wait for the lock");
    assert!(lines_of_ours("legacy") > 40);
    assert_eq!(here.pass(&plan()), []);
}

/// The number of failed operations of a pass.
fn failures_of_a_pass(here: &mut Here) -> usize {
    let observed = here.look();
    let desired = Desired::new(&plan(), &observed.host).unwrap();
    let operations = diff(&observed, &desired, &Owned::default());
    let results = operations.into_iter().flat_map(|(_, ops)| here.apply(&ops));
    results.filter(Result::is_err).count()
}

/// S-169: after the agent's timeout it sees whether the lock is free, without waiting for it.
pub(crate) fn the_release_of_the_lock_is_seen() {
    mount_own_run();
    let mut here = Here::with(IptablesChoice::Legacy);
    assert_eq!(here.rules.lock_wait(), LockWait::None);
    let lock = File::create(LOCK).unwrap();
    lock.lock().unwrap();
    assert_eq!(failures_of_a_pass(&mut here), Family::BOTH.len());
    assert_eq!(here.rules.lock_wait(), LockWait::Held);
    // A look at the rules, as after an event of the network, does not end the wait.
    are_known(&mut here);
    assert_eq!(here.rules.lock_wait(), LockWait::Held);
    // Another pass does not wait for the lock again, and so notices its release at once.
    let begun = Instant::now();
    assert_eq!(failures_of_a_pass(&mut here), Family::BOTH.len());
    assert!(begun.elapsed() < HELD, "it took {:?}", begun.elapsed());
    assert_eq!(here.rules.lock_wait(), LockWait::Held);
    drop(lock);
    assert_eq!(here.rules.lock_wait(), LockWait::Released);
    assert_eq!(here.rules.lock_wait(), LockWait::None, "reported once");
    assert_ne!(here.pass(&plan()), []);
    assert_eq!(here.rules.lock_wait(), LockWait::None);
}

/// Whether rules are known without reading them. Reads them, so that they are known afterwards.
fn are_known(here: &mut Here) -> bool {
    let reading = here.rules.begin_reading();
    let known = reading.is_known();
    for (family, found) in here.rules.observe(reading) {
        assert!(found.is_ok(), "{family}: {found:?}");
    }
    known
}

/// Reading starts two processes, although the rules have rarely changed (S-185).
pub(crate) fn unchanged_rules_are_known() {
    let mut here = Here::with(IptablesChoice::Nft);
    assert!(are_known(&mut here), "no rules were ever loaded");
    here.pass(&plan());
    assert!(!are_known(&mut here), "the agent changed them");
    assert!(are_known(&mut here));
    output_of("iptables-nft", &["-N", "MINE"]);
    assert!(!are_known(&mut here), "another program changed them");
    assert!(are_known(&mut here));
    output_of("ip6tables-nft", &["-t", "nat", "-F", "PORTOLAN-OUTPUT"]);
    let written = here.pass(&plan());
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(here.pass(&plan()).is_empty());
    let mut older = Here::open(IptablesChoice::Legacy);
    for _ in 0..2 {
        assert!(!are_known(&mut older), "legacy tables have no generation");
    }
}
