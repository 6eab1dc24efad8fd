//! The constant rules: their number does not depend on the cluster, all that does is in sets.
//!
//! Rules are written exactly as `iptables-save` prints them, so that what is loaded and what is
//! read back compare as text.

mod observed;
mod restore;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use portolan_plan::{Family, LocalDetection, Settings};

pub use observed::ObservedRules;
pub use restore::{cleanup_text, restore_text};

use crate::set::{SetId, SetRole};

/// What all our chains' names begin with.
pub const CHAIN_PREFIX: &str = "PORTOLAN-";

/// A jump from a chain of the kernel into one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The chain of the kernel.
    pub from: &'static str,
    /// Our chain, without [`CHAIN_PREFIX`].
    pub to: &'static str,
}

/// Our part of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
    pub name: &'static str,
    /// How packets come to our chains.
    pub jumps: &'static [Jump],
    /// Our chains without [`CHAIN_PREFIX`], each with its rules.
    pub chains: BTreeMap<&'static str, Vec<String>>,
}

/// Our rules of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The family.
    pub family: Family,
    /// The tables.
    pub tables: Vec<Table>,
}

const FILTER_JUMPS: &[Jump] = &[
    Jump {
        from: "FORWARD",
        to: "FORWARD",
    },
    Jump {
        from: "INPUT",
        to: "INPUT",
    },
];
const NAT_JUMPS: &[Jump] = &[
    Jump {
        from: "OUTPUT",
        to: "OUTPUT",
    },
    Jump {
        from: "POSTROUTING",
        to: "POSTROUTING",
    },
    Jump {
        from: "PREROUTING",
        to: "PREROUTING",
    },
];

const MANGLE_JUMPS: &[Jump] = &[
    Jump {
        from: "INPUT",
        to: "INPUT",
    },
    Jump {
        from: "OUTPUT",
        to: "OUTPUT",
    },
];

impl Rules {
    /// The rules of a family under these settings. Where pods of the family cannot be told from
    /// others, nobody is taken for an outsider that has to be kept out.
    pub fn new(family: Family, settings: &Settings, tells_pods: bool) -> Self {
        Self {
            family,
            tables: vec![
                filter(family, settings),
                mangle(family, settings, tells_pods),
                nat(family, settings),
            ],
        }
    }

    /// What the kernel shows once these rules are loaded.
    pub fn expected(&self) -> ObservedRules {
        ObservedRules::of(self)
    }
}

fn set(family: Family, role: SetRole) -> String {
    SetId { role, family }.to_string()
}

fn filter(family: Family, settings: &Settings) -> Table {
    let mark = mark(settings);
    let (vip, frontend) = (set(family, SetRole::VipNet), set(family, SetRole::Frontend));
    let unreachable = match family {
        Family::Ipv4 => "icmp-port-unreachable",
        Family::Ipv6 => "icmp6-port-unreachable",
    };
    let unused = format!(
        "-m set --match-set {vip} dst -m set ! --match-set {frontend} dst,dst \
         -m conntrack --ctstate NEW"
    );
    let chains = BTreeMap::from([
        (
            "FORWARD",
            vec![
                // Replies of connections that IPVS forwards, and what is about to be masqueraded,
                // pass even where the host forwards nothing by default (S-81).
                "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".into(),
                format!("-m mark --mark {mark}/{mark} -j ACCEPT"),
            ],
        ),
        (
            "INPUT",
            // Service addresses are local, so any daemon on 0.0.0.0 would answer on them (S-27).
            // TCP gets a reset: an ICMP error that arrives while the client is still inside its
            // connect call only takes effect at the next retransmission, a second later.
            vec![
                format!("-p tcp {unused} -j REJECT --reject-with tcp-reset"),
                format!("{unused} -j REJECT --reject-with {unreachable}"),
            ],
        ),
    ]);
    Table {
        name: "filter",
        jumps: FILTER_JUMPS,
        chains,
    }
}

/// Who is kept out, in silence and before anything could answer (S-22, S-86, S-93). The node's own
/// packets come by `OUTPUT` (S-91).
fn mangle(family: Family, settings: &Settings, tells_pods: bool) -> Table {
    let (guarded, allow) = (set(family, SetRole::Guarded), set(family, SetRole::Allow));
    let guard = format!(
        "-m set --match-set {guarded} dst,dst -m set ! --match-set {allow} dst,dst,src -j DROP"
    );
    let mut input = vec![guard.clone()];
    if tells_pods {
        let outside = not_from_pods(family, settings, &set(family, SetRole::NoLocal));
        // Connections that stand go on: they drain.
        input.push(format!("{outside} -m conntrack --ctstate NEW -j DROP"));
    }
    Table {
        name: "mangle",
        jumps: MANGLE_JUMPS,
        chains: BTreeMap::from([("INPUT", input), ("OUTPUT", vec![guard])]),
    }
}

fn nat(family: Family, settings: &Settings) -> Table {
    let mark = mark(settings);
    let (cluster, frontend) = (
        set(family, SetRole::ClusterIp),
        set(family, SetRole::Frontend),
    );
    let (hairpin, masq) = (set(family, SetRole::Hairpin), set(family, SetRole::Masq));
    let set_mark = format!("-j MARK --set-xmark {mark}/{mark}");
    let masquerade = "-j MASQUERADE --random-fully";
    let chains = BTreeMap::from([
        (
            "MASQUERADE",
            vec![
                // The packet that an overlay makes of this one inherits its mark: it would be
                // masqueraded again, to a random port, and lost.
                format!("-j MARK --set-xmark 0x0/{mark}"),
                masquerade.into(),
            ],
        ),
        // The node's own connections may carry an address that backends cannot answer.
        (
            "OUTPUT",
            vec![format!("-m set --match-set {frontend} dst,dst {set_mark}")],
        ),
        (
            "POSTROUTING",
            vec![
                format!("-m mark --mark {mark}/{mark} -j {CHAIN_PREFIX}MASQUERADE"),
                // A pod that reaches itself through a Service would answer itself (S-74).
                format!("-m set --match-set {hairpin} dst,dst,src {masquerade}"),
            ],
        ),
        // Only packets from elsewhere: replies to pods find their way back by themselves (S-73).
        (
            "PREROUTING",
            vec![
                format!("{} {set_mark}", outsiders(family, settings, &cluster)),
                format!("{} {set_mark}", not_from_here(family, settings, &masq)),
            ],
        ),
    ]);
    Table {
        name: "nat",
        jumps: NAT_JUMPS,
        chains,
    }
}

/// Our bit of the packet mark, as the tools print it.
fn mark(settings: &Settings) -> String {
    let bit = 1u32
        .checked_shl(settings.masquerade.bit.into())
        .unwrap_or_default();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _: Result<(), std::fmt::Error> = write!(text, "{bit:#x}");
    text
}

/// Matches packets to this set that do not come from a pod; all of them where everybody counts as
/// outside (S-75).
fn outsiders(family: Family, settings: &Settings, to: &str) -> String {
    if settings.masquerade.all {
        return format!("-m set --match-set {to} dst,dst");
    }
    not_from_pods(family, settings, to)
}

/// Matches packets to this set that do not come from a pod of this node (S-77). Ranges of the whole
/// cluster do not tell which node a pod is on, and one of another node that is itself the backend
/// would wait for ever for an answer that it gave itself.
fn not_from_here(family: Family, settings: &Settings, to: &str) -> String {
    match &settings.local_detection {
        LocalDetection::ClusterCidr { .. } => format!("-m set --match-set {to} dst,dst"),
        _ => not_from_pods(family, settings, to),
    }
}

/// Matches packets to this set that do not come from what counts as a pod. Interfaces stand before
/// other matches, as the tools print them.
fn not_from_pods(family: Family, settings: &Settings, to: &str) -> String {
    let to = format!("-m set --match-set {to} dst,dst");
    match &settings.local_detection {
        // An empty set of pods excludes nobody, so everybody is masqueraded then.
        LocalDetection::NodeCidr | LocalDetection::ClusterCidr { .. } => {
            format!(
                "{to} -m set ! --match-set {} src",
                set(family, SetRole::Pods)
            )
        }
        LocalDetection::BridgeInterface { bridge } => format!("! -i {bridge} {to}"),
        LocalDetection::InterfaceNamePrefix { prefix } => format!("! -i {prefix}+ {to}"),
    }
}
