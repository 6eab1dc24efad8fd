//! Operations on the kernel, as values, grouped by the part of the kernel that they are for.

use std::fmt;

use portolan_plan::Family;

mod ipvs;
mod link;
mod rules;
mod set;

pub use self::ipvs::{IpvsOp, SchedulerOp};
pub use self::link::{LinkOp, SysctlOp};
pub use self::rules::RulesOp;
pub use self::set::SetOp;

/// One change to the kernel. The first plan of a large node makes some hundred thousand at once, so their size counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Write a kernel setting.
    Sysctl(SysctlOp),
    /// Change the device, a route or a policy routing rule.
    Link(LinkOp),
    /// Change an address set.
    Set(SetOp),
    /// Load the rules of a family.
    Rules(RulesOp),
    /// Load a scheduler of IPVS.
    Scheduler(SchedulerOp),
    /// Change a virtual server, a real server or the timeouts of connections.
    Ipvs(IpvsOp),
}

// A node with 150,000 real servers makes as many of these.
const _: () = assert!(size_of::<Op>() <= 56);

/// Which part of the kernel an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// Kernel settings.
    Sysctl,
    /// The device, routes and policy rules.
    Link,
    /// Address sets.
    Set,
    /// Rules.
    Rules,
    /// Schedulers of IPVS.
    Scheduler,
    /// Virtual and real servers.
    Ipvs,
}

impl Op {
    /// Which part of the kernel it is for.
    pub fn kind(&self) -> OpKind {
        match self {
            Self::Sysctl(_) => OpKind::Sysctl,
            Self::Link(_) => OpKind::Link,
            Self::Set(_) => OpKind::Set,
            Self::Rules(_) => OpKind::Rules,
            Self::Scheduler(_) => OpKind::Scheduler,
            Self::Ipvs(_) => OpKind::Ipvs,
        }
    }

    /// The families that lack something while it is not done.
    pub fn families(&self) -> &'static [Family] {
        match self {
            // A container may write no kernel setting, and serves all the same (S-225). What waits for one reports it.
            Self::Sysctl(_) => &[],
            Self::Link(op) => op.families(),
            Self::Set(op) => op.families(),
            Self::Rules(op) => only(op.family),
            Self::Scheduler(_) => &Family::BOTH,
            Self::Ipvs(op) => op.families(),
        }
    }
}

/// In words, as failures are reported.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(op) => op.fmt(f),
            Self::Link(op) => op.fmt(f),
            Self::Set(op) => op.fmt(f),
            Self::Rules(op) => op.fmt(f),
            Self::Scheduler(op) => op.fmt(f),
            Self::Ipvs(op) => op.fmt(f),
        }
    }
}

macro_rules! parts {
    ($($name:ident: $variant:ident($part:ty);)*) => {
        impl Op {
            $(
                #[doc = concat!("The operation, if it is a [`", stringify!($part), "`].")]
                pub fn $name(&self) -> Option<&$part> {
                    match self {
                        Self::$variant(op) => Some(op),
                        _ => None,
                    }
                }
            )*
        }
        $(
            impl From<$part> for Op {
                fn from(op: $part) -> Self {
                    Self::$variant(op)
                }
            }
        )*
    };
}

parts! {
    sysctl: Sysctl(SysctlOp);
    link: Link(LinkOp);
    set: Set(SetOp);
    rules: Rules(RulesOp);
    scheduler: Scheduler(SchedulerOp);
    ipvs: Ipvs(IpvsOp);
}

fn only(family: Family) -> &'static [Family] {
    match family {
        Family::Ipv4 => &[Family::Ipv4],
        Family::Ipv6 => &[Family::Ipv6],
    }
}
