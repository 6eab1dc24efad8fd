//! The dataplane of a run: what serves Services in the kernels of its nodes.

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use crate::witness;

/// What serves Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Dataplane {
    /// IPVS, with ipset and iptables.
    #[default]
    Ipvs,
    /// Tables of nftables.
    Nftables,
}

/// Twice around, so that an endpoint that fails every other time shows.
const IN_TURN: usize = 2;
/// If endpoints are chosen at random: of four, one gets none of 64 connections in one of 25 million cells.
const AT_RANDOM: usize = 16;

/// The line of a ProxyConfig after which settings follow.
const SETTINGS: &str = "  settings:\n";

impl Dataplane {
    /// Fails if this kernel lacks it.
    ///
    /// # Errors
    /// When this kernel has no IPVS; the message says what to do. Kernels of supported distributions have nftables, and
    /// the agent reports it if one does not.
    pub fn require(self) -> Result<()> {
        match self {
            Self::Ipvs => witness::require_ipvs(),
            Self::Nftables => Ok(()),
        }
    }

    /// How many connections per endpoint have to reach all endpoints of a Service.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Ipvs => IN_TURN,
            Self::Nftables => AT_RANDOM,
        }
    }

    /// The manifest that selects it, if it is not the default.
    #[must_use]
    pub fn manifest(self) -> Option<String> {
        let base = "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {name: default}\nspec:\n";
        match self {
            Self::Ipvs => None,
            Self::Nftables => Some(format!("{base}{SETTINGS}{}", self.line())),
        }
    }

    /// A manifest whose ProxyConfig also selects it; `None` if it is the default, or the manifest has no ProxyConfig.
    ///
    /// # Errors
    /// When settings are not in a block of their own.
    pub fn selected_in(self, manifest: &str) -> Result<Option<String>> {
        if self == Self::Ipvs {
            return Ok(None);
        }
        if let Ok(mut object) = serde_json::from_str::<Value>(manifest) {
            if object["kind"] != "ProxyConfig" {
                return Ok(None);
            }
            object["spec"]["settings"]["dataplane"] = self.name().into();
            return Ok(Some(object.to_string()));
        }
        if !manifest.contains("kind: ProxyConfig\n") {
            return Ok(None);
        }
        let (before, after) = manifest.split_once(SETTINGS).context(
            "a ProxyConfig without a line `  settings:` cannot be run with another dataplane",
        )?;
        Ok(Some(format!("{before}{SETTINGS}{}{after}", self.line())))
    }

    fn line(self) -> String {
        format!("    dataplane: {}\n", self.name())
    }

    /// As in the settings.
    fn name(self) -> &'static str {
        match self {
            Self::Ipvs => "ipvs",
            Self::Nftables => "nftables",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_manifest_select_the_dataplane_too() {
        let alone = Dataplane::Nftables.manifest().unwrap();
        let more = alone.replace("    dataplane: nftables\n", "    sync: {period: 1s}\n");
        assert_eq!(
            Dataplane::Nftables.selected_in(&more).unwrap(),
            Some(format!("{alone}    sync: {{period: 1s}}\n"))
        );
        assert_eq!(Dataplane::Ipvs.selected_in(&more).unwrap(), None);
        assert_eq!(
            Dataplane::Nftables.selected_in("kind: Service\n").unwrap(),
            None
        );
        let json = r#"{"kind":"ProxyConfig","spec":{"settings":{}}}"#;
        assert_eq!(
            Dataplane::Nftables.selected_in(json).unwrap().as_deref(),
            Some(r#"{"kind":"ProxyConfig","spec":{"settings":{"dataplane":"nftables"}}}"#)
        );
        let flow = "kind: ProxyConfig\nspec: {settings: {}}\n";
        assert!(Dataplane::Nftables.selected_in(flow).is_err());
    }
}
