//! What the operator asked for.

use std::sync::Arc;

use portolan_plan::Settings;

use super::Object;

/// A ProxyConfig; the one named `default` is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Its name.
    pub name: Arc<str>,
    /// The settings, completed.
    pub settings: Settings,
}

impl ProxyConfig {
    /// The name of the one that is in force.
    pub const DEFAULT: &'static str = "default";
}

impl Object for ProxyConfig {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name.clone()
    }
}
