//! Operations on the kernel as values, grouped by the part of the kernel that they change.

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

/// One change to the kernel. The first plan of a large node creates hundreds of thousands at once, so the size
/// matters.
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
    /// Change a virtual server, a real server or the timeouts of IPVS connections.
    Ipvs(IpvsOp),
}

// A node with 150,000 real servers creates as many operations.
const _: () = assert!(size_of::<Op>() <= 56);

/// The part of the kernel that an operation changes.
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
    /// The part of the kernel that it changes.
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

    /// The families that are not fully programmed until it is done.
    pub fn families(&self) -> &'static [Family] {
        match self {
            // In a container, kernel settings may be read-only, and the node serves nevertheless (S-225). Anything
            // that depends on a setting reports it.
            Self::Sysctl(_) => &[],
            Self::Link(op) => op.families(),
            Self::Set(op) => op.families(),
            Self::Rules(op) => only(op.family),
            Self::Scheduler(_) => &Family::BOTH,
            Self::Ipvs(op) => op.families(),
        }
    }
}

/// Formats the operation in words, as used in failure reports.
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
