//! `spec.settings.localDetection`: a mode with exactly the field that belongs to it (S-204).

use portolan_crds::{DetectionMode, LocalDetectionSpec};
use portolan_plan::LocalDetection;

use super::field::{FieldError, interface_prefix, kernel_name};
use super::settings::{cidrs, path, wrong};

/// How the rules recognise packets of a node's own pods.
pub(super) fn local_detection(given: &LocalDetectionSpec) -> Result<LocalDetection, FieldError> {
    let mode = given.mode.unwrap_or(DetectionMode::NodeCidr);
    only_its_own_field(given, mode)?;
    Ok(match mode {
        DetectionMode::NodeCidr => LocalDetection::NodeCidr,
        DetectionMode::ClusterCidr => {
            let field = "localDetection.clusterCIDRs";
            let texts = given.cluster_cidrs.as_deref().unwrap_or_default();
            if texts.is_empty() {
                let problem = "empty; write the address ranges of pods";
                return Err(wrong(field, problem));
            }
            LocalDetection::ClusterCidr {
                cluster_cidrs: cidrs(texts, field)?,
            }
        }
        DetectionMode::BridgeInterface => LocalDetection::BridgeInterface {
            bridge: kernel_name(
                given.bridge.as_deref().unwrap_or_default(),
                path("localDetection.bridge"),
            )?
            .to_string(),
        },
        DetectionMode::InterfaceNamePrefix => LocalDetection::InterfaceNamePrefix {
            prefix: interface_prefix(
                given.prefix.as_deref().unwrap_or_default(),
                path("localDetection.prefix"),
            )?
            .to_string(),
        },
    })
}

fn only_its_own_field(given: &LocalDetectionSpec, mode: DetectionMode) -> Result<(), FieldError> {
    use DetectionMode::{BridgeInterface, ClusterCidr, InterfaceNamePrefix};
    let fields = [
        (
            "clusterCIDRs",
            given.cluster_cidrs.is_some(),
            ClusterCidr,
            "ClusterCIDR",
        ),
        (
            "bridge",
            given.bridge.is_some(),
            BridgeInterface,
            "BridgeInterface",
        ),
        (
            "prefix",
            given.prefix.is_some(),
            InterfaceNamePrefix,
            "InterfaceNamePrefix",
        ),
    ];
    for (field, present, owner, name) in fields {
        let field = format!("localDetection.{field}");
        if present && owner != mode {
            let problem = format!("only mode {name} reads it; set that mode, or remove it");
            return Err(wrong(&field, problem));
        }
        if !present && owner == mode {
            return Err(wrong(&field, format!("missing; mode {name} needs it")));
        }
    }
    Ok(())
}
