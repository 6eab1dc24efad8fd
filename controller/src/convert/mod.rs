//! Converts a kube-proxy configuration to a ProxyConfig, with the result for each field. Pure: text in, values out.
//!
//! Fields that are not set have kube-proxy's default. It is written out if Portolan's default differs, so that nodes
//! behave as before. The facts about kube-proxy are from its types, defaults and validation in Kubernetes 1.36 and
//! 1.37 (`pkg/proxy/apis/config`).

mod connections;
mod document;
mod duration;
mod elsewhere;
mod fields;
mod finding;
mod network;
mod node_ports;
mod report;
mod translation;

pub use finding::{Finding, Outcome};

use portolan_crds::{ExternalIpsSpec, ProxyConfig, ProxyConfigSpec};
use portolan_plan::Settings;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::from_kube::{self, FieldError};
use elsewhere::EXTERNAL_IPS_GATE;
use fields::Fields;
use translation::Translation;

/// A configuration that cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct ConvertError {
    /// File, document, object and key.
    pub place: String,
    /// The field, what is wrong with it, and what to check next.
    pub problem: String,
}

/// A configuration that was converted.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// Its place: file, document, object and key.
    pub place: String,
    /// kube-proxy's mode: `iptables`, `ipvs` or `nftables`.
    pub mode: &'static str,
    /// The settings for nodes. The controller accepts them.
    pub config: ProxyConfig,
    /// The results for all fields that are set, and for unset fields that matter; grouped by outcome.
    pub findings: Vec<Finding>,
}

impl Conversion {
    /// The same for Helm values of the chart. They are merged with the chart's own values, which allow no external
    /// IPs, while an empty ProxyConfig allows all. So the ranges are written, and reported.
    #[must_use]
    pub fn for_chart(mut self) -> Self {
        let settings = self.config.spec.settings.get_or_insert_default();
        if settings.external_ips.is_none() {
            let ranges = Settings::default().external_ips.allowed_cidrs;
            let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
            let mut findings = self.findings.iter();
            let of_gate = findings.position(|finding| finding.field == EXTERNAL_IPS_GATE);
            let value = of_gate.and_then(|place| self.findings.remove(place).value);
            self.findings.push(Finding {
                field: EXTERNAL_IPS_GATE.into(),
                outcome: match value {
                    Some(_) => Outcome::CarriedOver,
                    None => Outcome::FilledIn,
                },
                value,
                becomes: Some(format!(
                    "spec.settings.externalIPs.allowedCIDRs: [{}]",
                    ranges.join(", ")
                )),
                note: "kube-proxy serves every external IP, and the chart allows none. With these ranges, \
                       anyone who may create Services can take traffic to any address; write only the ranges \
                       in use, or []"
                    .into(),
            });
            self.findings.sort_by_key(|finding| finding.outcome);
            settings.external_ips = Some(ExternalIpsSpec {
                allowed_cidrs: Some(ranges),
            });
        }
        self
    }

    /// The settings as Helm values, see [`Self::for_chart`].
    pub fn values(&self) -> Value {
        json!({"config": {"spec": self.config.spec}})
    }

    /// Whether nodes behave as before.
    pub fn is_exact(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.outcome.is_exact())
    }
}

/// Converts the only configuration in the text of a file; `name` is shown in messages.
///
/// # Errors
/// [`ConvertError`] if there is no configuration, more than one, or one that kube-proxy or Portolan would reject.
pub fn convert(name: &str, text: &str) -> Result<Conversion, ConvertError> {
    let document::Located { place, fields } = document::locate(name, text)?;
    translate(place.clone(), fields).map_err(|error| ConvertError {
        place,
        problem: error.to_string(),
    })
}

fn translate(place: String, document: Map<String, Value>) -> Result<Conversion, FieldError> {
    let mut translation = Translation::new(Fields::new(document)?)?;
    translation.addresses()?;
    translation.traffic()?;
    translation.local_detection()?;
    translation.node_ports()?;
    translation.connections()?;
    translation.elsewhere()?;
    let (mode, settings, mut findings) = translation.into_parts();
    findings.sort_by_key(|finding| finding.outcome);
    let spec = ProxyConfigSpec {
        settings: Some(settings),
        ..ProxyConfigSpec::default()
    };
    let config = ProxyConfig::new("default", spec);
    // Reject here what the controller would reject, and name the field of the input.
    from_kube::proxy_config(&config).map_err(|error| origin(error, &findings))?;
    Ok(Conversion {
        place,
        mode,
        config,
        findings,
    })
}

/// The same error for the field of the input.
fn origin(error: FieldError, findings: &[Finding]) -> FieldError {
    let from = findings.iter().find_map(|finding| {
        let (target, _) = finding.becomes.as_ref()?.split_once(": ")?;
        let rest = error.field.strip_prefix(target)?;
        (rest.is_empty() || rest.starts_with(['.', '[']))
            .then(|| format!("{}{rest}", finding.field))
    });
    match from {
        Some(field) => FieldError { field, ..error },
        None => error,
    }
}
