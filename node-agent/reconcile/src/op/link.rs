use std::fmt;
use std::sync::Arc;

use portolan_plan::Family;

use crate::{PolicyRule, Route};

/// Write a kernel setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysctlOp {
    /// The name with dots, `net.ipv4.ip_forward`.
    pub name: Arc<str>,
    /// The value.
    pub value: Arc<str>,
}

impl fmt::Display for SysctlOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "set {} to {}", self.name, self.value)
    }
}

/// One change of Portolan's device, routes or policy routing rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkOp {
    /// Create Portolan's device, or bring it up if it exists.
    RaiseDevice {
        /// Its name.
        device: Arc<str>,
    },
    /// Remove Portolan's device, and with it every route over it.
    RemoveDevice {
        /// Its name.
        device: Arc<str>,
    },
    /// Remove a device that Portolan used under another name.
    RetireDevice {
        /// Its name.
        device: Arc<str>,
    },
    /// Add a route.
    AddRoute {
        /// Portolan's device.
        device: Arc<str>,
        /// The route. It is boxed because it is larger than all other operations, and there are few routes.
        route: Box<Route>,
    },
    /// Delete a route.
    DeleteRoute {
        /// Portolan's device.
        device: Arc<str>,
        /// The route.
        route: Box<Route>,
    },
    /// Add a policy routing rule.
    AddPolicyRule {
        /// The rule.
        rule: PolicyRule,
    },
    /// Delete a policy routing rule.
    DeletePolicyRule {
        /// The rule.
        rule: PolicyRule,
    },
}

impl LinkOp {
    pub(super) fn families(&self) -> &'static [Family] {
        match self {
            Self::AddRoute { route, .. } | Self::DeleteRoute { route, .. } => {
                super::only(route.family())
            }
            Self::AddPolicyRule { rule } | Self::DeletePolicyRule { rule } => {
                super::only(rule.family)
            }
            Self::RaiseDevice { .. } | Self::RemoveDevice { .. } | Self::RetireDevice { .. } => {
                &Family::BOTH
            }
        }
    }
}

impl fmt::Display for LinkOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RaiseDevice { device } => write!(f, "bring up device {device}"),
            Self::RemoveDevice { device } | Self::RetireDevice { device } => {
                write!(f, "remove device {device}")
            }
            Self::AddRoute { device, route } => write!(f, "add route {}", route.text(device)),
            Self::DeleteRoute { device, route } => {
                write!(f, "delete route {}", route.text(device))
            }
            Self::AddPolicyRule { rule } => write!(f, "add {} policy rule {rule}", rule.family),
            Self::DeletePolicyRule { rule } => {
                write!(f, "delete {} policy rule {rule}", rule.family)
            }
        }
    }
}
